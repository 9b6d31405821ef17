//! Publishes the words of an answer in pieces while the model writes them.

use super::ports::Outlet;
use super::reply_text::ReplyText;
use crate::model::DeltaSink;
use crate::model::delta::Deltas;
use crate::model::paced::Paced;
use base::clock::Clock;
use types::authoring::{Body, Event, StoredState};
use types::timestamp::Timestamp;

/// The published part of a text that is not complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Speech {
    /// The stream whose whole text has not been published yet.
    open: Option<String>,
    /// The number that follows that of the last event.
    next_seq: u64,
}

impl Speech {
    /// Returns the part that earlier attempts of the turn have published.
    pub fn of(shown: &[Event]) -> Self {
        let mut speech = Self::default();
        for event in shown {
            speech.next_seq = speech.next_seq.max(event.seq + 1);
            speech.note(event);
        }
        speech
    }

    /// Records a published event. A whole text ends the open stream.
    pub(super) fn note(&mut self, event: &Event) {
        match &event.body {
            Body::Message { content: Some(_), .. } => self.open = None,
            Body::Message { stream_id: Some(stream_id), .. } => self.open = Some(stream_id.clone()),
            _ => {}
        }
    }

    /// Ensures that later events of the turn get numbers that no published event has.
    pub(super) fn skip_shown(&self, stored: &mut StoredState) {
        if let Some(turn) = &mut stored.turn {
            turn.seq = turn.seq.max(self.next_seq);
        }
    }

    /// Publishes the pieces of a text until it is complete.
    pub(super) async fn show(
        &mut self,
        stored: &mut StoredState,
        words: Deltas,
        outlet: &mut dyn Outlet,
        clock: &Clock,
    ) {
        let mut pieces = Paced::new(words);
        while let Some(piece) = pieces.next().await {
            let event = self.piece(stored, piece.content, piece.stream_id, clock.now());
            outlet.show_piece(event).await;
        }
    }

    /// Makes the event for a piece of a text. It gets the turn's next number. A stream supersedes the stream before it
    /// if the whole text of that stream was never published.
    pub(super) fn piece(
        &mut self,
        stored: &mut StoredState,
        content: String,
        stream_id: String,
        now: Timestamp,
    ) -> Event {
        let supersedes = self.open.take().filter(|open| *open != stream_id);
        let (delta, stream_id) = (Some(content), Some(stream_id));
        let body = Body::Message { delta, stream_id, supersedes, content: None, workflow_id: None };
        let turn = stored.turn.get_or_insert_default();
        let event = Event {
            body,
            session_id: stored.state.session_id.clone(),
            turn_id: turn.turn_id.clone(),
            seq: turn.seq,
            timestamp: now.as_millis(),
            is_final: false,
        };
        turn.seq += 1;
        self.note(&event);
        event
    }
}

/// Sends the words in the pieces of an answer to `words`.
pub(super) async fn read_words(mut answer: Deltas, words: DeltaSink) {
    let mut text = ReplyText::default();
    while let Some(piece) = answer.next().await {
        if piece.anew {
            text = ReplyText::default();
            words.restart();
        }
        words.send(&text.push(&piece.content));
    }
}
