//! What a turn says while it is made: pieces of a text as `chunk` replies, of which the whole follows them (CONTRACT.md, "Reply").
//!
//! A turn has one such text at a time. A stream of pieces that takes another one's place names it, and so does a whole text that
//! is not the one whose pieces were said; so whoever shows them knows at any moment what stands. That holds for a turn
//! that is repeated, too: what has been said of it is read back first.

use super::read_back::is_answer;
use crate::journal::Guard;
use crate::model::delta::Deltas;
use crate::model::paced::{Delta, Paced};
use crate::workflow::Listener;
use async_trait::async_trait;
use base::clock::Clock;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use storage::queue::Queue;
use tracing::debug;
use types::event::{EventType, OutEvent, Reply, ReplyKind};

/// See the module. Shared by all that speaks in a turn.
pub(crate) struct Speech {
    clock: Clock,
    said: Mutex<Said>,
}

#[derive(Default)]
struct Said {
    /// What all pieces have in common; its id is what theirs begin with.
    voice: Option<Reply>,
    /// The text whose end is not there yet.
    open: Option<Open>,
}

/// A text as far as it has been said.
struct Open {
    stream_id: String,
    text: String,
}

impl Open {
    /// A stream begins and ends with a word, a whole text as its model wrote it.
    fn begins(&self, text: &str) -> bool {
        text.trim_start().starts_with(&self.text)
    }
}

/// How a whole text stands to the pieces that were said before it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    /// They are its beginning.
    pub(crate) stream_id: Option<String>,
    /// They are another text's.
    pub(crate) supersedes: Option<String>,
}

impl Speech {
    /// Without texts so far.
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, said: Mutex::default() }
    }

    /// What is said from now on is said like `voice`.
    pub(crate) fn speak(&self, voice: Reply) {
        self.said().voice = Some(voice);
    }

    /// A piece of the text, to be published.
    pub(crate) fn chunk(&self, delta: &Delta) -> Option<OutEvent> {
        let mut said = self.said();
        let voice = said.voice.clone()?;
        let reply = Reply {
            reply_id: format!("{}/chunk/{}/{}", voice.reply_id, delta.stream_id, delta.seq),
            kind: ReplyKind::Chunk,
            text: delta.content.clone(),
            seq: delta.seq,
            stream_id: Some(delta.stream_id.clone()),
            supersedes: said.goes_on(&delta.stream_id, &delta.content),
            at: self.clock.now(),
            ..voice
        };
        Some(OutEvent {
            channel: reply.channel.clone(),
            session_id: reply.session_id.clone(),
            event_type: EventType::Reply,
            msg_id: Some(reply.reply_id.clone()),
            // Plain data with text keys always serialises.
            payload: serde_json::to_vec(&reply).unwrap_or_default().into(),
        })
    }

    /// True when what has been said is the beginning of `text`.
    pub(crate) fn is_of(&self, text: &str) -> bool {
        self.said().open.as_ref().is_some_and(|open| open.begins(text))
    }

    /// The text is whole, or another one takes its place.
    pub(crate) fn end(&self, text: &str) -> Ended {
        match self.said().open.take() {
            None => Ended::default(),
            Some(open) if open.begins(text) => Ended { stream_id: Some(open.stream_id), supersedes: None },
            Some(open) => Ended { stream_id: None, supersedes: Some(open.stream_id) },
        }
    }

    /// Takes over what this turn has said before.
    pub(crate) fn recall(&self, reply: &Reply) {
        let mut said = self.said();
        match &reply.stream_id {
            Some(stream_id) if reply.kind == ReplyKind::Chunk => {
                said.goes_on(stream_id, &reply.text);
            }
            _ if is_answer(reply.kind) || reply.supersedes.is_some() => said.open = None,
            _ => {}
        }
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Said {
    /// Answers the stream whose place this one takes, if it takes one.
    fn goes_on(&mut self, stream_id: &str, piece: &str) -> Option<String> {
        if let Some(open) = self.open.as_mut().filter(|open| open.stream_id == stream_id) {
            open.text.push_str(piece);
            return None;
        }
        let begun = Open { stream_id: stream_id.to_owned(), text: piece.to_owned() };
        self.open.replace(begun).map(|before| before.stream_id)
    }
}

/// Says the pieces of an answer as they come.
pub(crate) struct Voice {
    pub(crate) speech: Arc<Speech>,
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) guard: Guard,
}

impl Voice {
    /// Returns at the answer's end. A piece that cannot be published ends its stream, not the turn: the whole text follows.
    pub(crate) async fn say(&self, pieces: Deltas) {
        let mut paced = Paced::new(pieces);
        let mut heard = true;
        while let Some(delta) = paced.next().await {
            if heard && let Some(chunk) = self.speech.chunk(&delta) {
                heard = self.publish(chunk).await;
            }
        }
    }

    async fn publish(&self, chunk: OutEvent) -> bool {
        if !matches!(self.guard.holds().await, Ok(true)) {
            return false;
        }
        let (session_id, published) = (chunk.session_id.clone(), self.queue.emit([chunk].into()).await);
        published.inspect_err(|problem| debug!(session_id, "the text is said when it is whole: {problem}")).is_ok()
    }
}

#[async_trait]
impl Listener for Voice {
    async fn hear(&self, _step: &str, pieces: Deltas) {
        self.say(pieces).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};

    fn reply(kind: ReplyKind, text: &str) -> Reply {
        let mut reply: Reply = serde_json::from_value(json!({
            "reply_id": "s1/m-1/0/flow", "session_id": "s1", "agent_id": "a", "user_id": "u", "channel": "web",
            "turn_id": "m-1", "kind": kind, "text": text, "seq": 0, "at": "2026-01-02T03:04:05.000Z",
        }))
        .unwrap();
        reply.metadata = Map::new();
        reply
    }

    fn said(speech: &Speech, stream_id: &str, seq: u64, content: &str) -> Reply {
        let delta = Delta { content: content.into(), seq, stream_id: stream_id.into(), supersedes: None };
        serde_json::from_slice(&speech.chunk(&delta).unwrap().payload).unwrap()
    }

    fn speech() -> Speech {
        let speech = Speech::new(Clock::system());
        speech.speak(reply(ReplyKind::Chunk, ""));
        speech
    }

    #[test]
    fn a_stream_names_the_one_whose_place_it_takes_and_the_whole_text_its_own() {
        let speech = speech();
        let first = said(&speech, "a", 0, "先");
        assert_eq!((first.reply_id.as_str(), first.supersedes), ("s1/m-1/0/flow/chunk/a/0", None));
        assert_eq!(said(&speech, "b", 0, "后").supersedes.as_deref(), Some("a"));
        assert_eq!(said(&speech, "b", 1, "说").supersedes, None);
        assert!(speech.is_of("后说完") && !speech.is_of("先"));
        assert_eq!(speech.end("\n后说完"), Ended { stream_id: Some("b".into()), supersedes: None });
        assert_eq!(speech.end("再说"), Ended::default(), "it ends once");
    }

    #[test]
    fn another_text_takes_the_place_of_what_was_said() {
        let speech = speech();
        said(&speech, "a", 0, "先");
        assert_eq!(speech.end("抱歉"), Ended { stream_id: None, supersedes: Some("a".into()) });
    }

    #[test]
    fn a_repeated_turn_knows_what_it_has_said() {
        let earlier = speech();
        let chunks = [said(&earlier, "a", 0, "先"), said(&earlier, "b", 0, "后"), said(&earlier, "b", 1, "说")];
        let speech = speech();
        chunks.iter().for_each(|chunk| speech.recall(chunk));
        speech.recall(&reply(ReplyKind::Greeting, "您好"));
        assert!(speech.is_of("后说"));
        assert_eq!(said(&speech, "c", 0, "又").supersedes.as_deref(), Some("b"));
        speech.recall(&reply(ReplyKind::Final, "又说"));
        assert_eq!(speech.end("再说"), Ended::default());
    }
}
