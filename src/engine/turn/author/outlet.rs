//! The destination of a turn's states and events: the store and the session's stream.

use super::Told;
use crate::authoring::{Interrupted, Outlet};
use crate::execution::TurnError;
use crate::turn::state::Turn;
use async_trait::async_trait;
use base::metrics::{metrics, observe};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use storage::store::authoring::{SaveAuthoring, Saved};
use tracing::debug;
use types::authoring::{Body, Event, MessageContent, StoredState};
use types::event::{self, EventType, OutEvent, ReplyKind};

/// A turn as the outlet of its dialogue.
pub(super) struct LaneOutlet<'o, 't> {
    pub(super) turn: &'o mut Turn<'t>,
    pub(super) told: &'o mut Told,
}

#[async_trait]
impl Outlet for LaneOutlet<'_, '_> {
    async fn save(&mut self, stored: &mut StoredState) -> Result<(), Interrupted> {
        let services = self.turn.services;
        let begun = services.clock.moment();
        let save = SaveAuthoring { state: stored.clone(), epoch: Some(self.turn.session.epoch) };
        let saved = services.store.save_authoring(save).await.map_err(TurnError::from)?;
        observe(&metrics().authoring_save, begun.until(services.clock.moment()));
        match saved {
            Saved::Saved(version) => {
                stored.version = version;
                Ok(())
            }
            Saved::Conflict => Err(Interrupted::Conflict),
            // The lane was taken over, or the session was deleted.
            Saved::Fenced => Err(TurnError::Lost.into()),
        }
    }

    async fn show(&mut self, stored: &StoredState, events: Vec<Event>) -> Result<(), Interrupted> {
        for event in &events {
            self.told.note(event);
            self.turn.publish_authoring(event);
        }
        // The last events of a turn are published after its commit.
        if stored.in_turn() {
            self.turn.flush().await?;
        }
        Ok(())
    }

    async fn show_piece(&mut self, piece: Event) {
        let Body::Message { stream_id: Some(stream_id), .. } = &piece.body else { return };
        let event = self.turn.authoring_event(&format!("{stream_id}/{}", piece.seq), &piece);
        let shown = match self.turn.guard.holds().await {
            Ok(true) => self.turn.services.queue.emit([event].into()).await,
            Ok(false) | Err(_) => return,
        };
        if let Err(problem) = shown {
            debug!(session_id = piece.session_id, "a piece of a text is not published: {problem}");
        }
    }
}

impl Turn<'_> {
    /// Queues an event of the dialogue. A whole message is also published as a reply, for channels that do not support
    /// dialogues.
    pub(super) fn publish_authoring(&mut self, event: &Event) {
        let out = self.authoring_event(&event.seq.to_string(), event);
        self.outbox.push(out);
        if let Body::Message { content: Some(content), .. } = &event.body {
            let key = format!("author/{}/reply", event.seq);
            self.queue_reply(ReplyKind::Response, &key, &content.text, metadata(content));
        }
    }

    fn authoring_event(&self, key: &str, event: &Event) -> OutEvent {
        OutEvent {
            channel: self.session.channel.clone(),
            session_id: self.session.session_id.clone(),
            event_type: EventType::Authoring,
            msg_id: Some(self.journal.idempotency_key(&format!("author/{key}"))),
            // Plain data with text keys always serialises.
            payload: serde_json::to_vec(event).unwrap_or_default().into(),
        }
    }

    /// The events of the dialogue that earlier attempts of the turn have shown.
    pub(super) async fn shown(&mut self, mark: &str) -> Result<Vec<Event>, TurnError> {
        let published = self.publish_mark_and_read_back(mark).await?;
        Ok(published.into_iter().filter_map(of_dialogue).collect())
    }
}

fn of_dialogue(event: event::Event) -> Option<Event> {
    match event {
        event::Event::Authoring(event) => Some(Arc::unwrap_or_clone(event)),
        _ => None,
    }
}

/// The metadata of a message as a reply.
pub(super) fn metadata(content: &MessageContent) -> Map<String, Value> {
    let mut metadata: Map<String, Value> =
        content.metadata.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    if let Some(sources) = content.metadata.get("sources") {
        metadata.insert("sources".into(), json!(sources.split(", ").collect::<Vec<_>>()));
    }
    metadata.insert("message_type".into(), json!(content.message_type));
    if !content.questions.is_empty() {
        metadata.insert("questions".into(), json!(content.questions));
    }
    if !content.alternatives.is_empty() {
        metadata.insert("alternatives".into(), json!(content.alternatives));
    }
    metadata
}
