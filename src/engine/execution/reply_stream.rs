//! Streaming replies: a turn publishes a text as `chunk` replies while the model writes it, and the whole text after
//! them. `docs/contract/nats.md` describes the format.
//!
//! A turn has one open chunk stream at a time. A new stream, or a whole text that does not continue the open stream,
//! names the open stream in `supersedes`. So a channel always knows which text counts. A repeated turn first reads
//! its published chunks back, so that this also holds across attempts.

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

/// The open chunk stream of a turn. All parts of the turn that publish chunks share it.
pub(crate) struct ReplyStream {
    clock: Clock,
    state: Mutex<StreamState>,
}

#[derive(Default)]
struct StreamState {
    /// Template of all chunks. Its id is the prefix of their ids.
    template: Option<Reply>,
    /// The chunk stream whose whole text has not been published yet.
    open: Option<OpenStream>,
}

/// A chunk stream and its text so far.
struct OpenStream {
    stream_id: String,
    text: String,
}

impl OpenStream {
    /// True if `text` starts with the streamed text. White space at the start of `text` does not count, since a
    /// stream starts with a word.
    fn is_start_of(&self, text: &str) -> bool {
        text.trim_start().starts_with(&self.text)
    }
}

/// How a whole text relates to the open chunk stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamEnd {
    /// The stream whose chunks are the beginning of the text.
    pub(crate) stream_id: Option<String>,
    /// The stream whose chunks belong to another text, which this one replaces.
    pub(crate) supersedes: Option<String>,
}

impl ReplyStream {
    /// Creates it without an open stream.
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, state: Mutex::default() }
    }

    /// Sets the template of the following chunks.
    pub(crate) fn set_template(&self, template: Reply) {
        self.state().template = Some(template);
    }

    /// Returns the event of a chunk, or `None` before `Turn::open_reply_stream` was called.
    pub(crate) fn chunk(&self, delta: &Delta) -> Option<OutEvent> {
        let mut state = self.state();
        let template = state.template.clone()?;
        let reply = Reply {
            reply_id: format!("{}/chunk/{}/{}", template.reply_id, delta.stream_id, delta.seq),
            kind: ReplyKind::Chunk,
            text: delta.content.clone(),
            seq: delta.seq,
            stream_id: Some(delta.stream_id.clone()),
            supersedes: state.append(&delta.stream_id, &delta.content),
            at: self.clock.now(),
            ..template
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

    /// True if the open stream is the beginning of `text`.
    pub(crate) fn is_start_of(&self, text: &str) -> bool {
        self.state().open.as_ref().is_some_and(|open| open.is_start_of(text))
    }

    /// Closes the open stream, because the whole text `text` follows it or replaces it.
    pub(crate) fn end(&self, text: &str) -> StreamEnd {
        match self.state().open.take() {
            None => StreamEnd::default(),
            Some(open) if open.is_start_of(text) => StreamEnd { stream_id: Some(open.stream_id), supersedes: None },
            Some(open) => StreamEnd { stream_id: None, supersedes: Some(open.stream_id) },
        }
    }

    /// Adopts a reply that an earlier attempt of this turn has published.
    pub(crate) fn recall(&self, reply: &Reply) {
        let mut state = self.state();
        match &reply.stream_id {
            Some(stream_id) if reply.kind == ReplyKind::Chunk => {
                state.append(stream_id, &reply.text);
            }
            _ if is_answer(reply.kind) || reply.supersedes.is_some() => state.open = None,
            _ => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, StreamState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StreamState {
    /// Appends a piece to its stream. Returns the stream that this one supersedes, if it is a new one.
    fn append(&mut self, stream_id: &str, piece: &str) -> Option<String> {
        if let Some(open) = self.open.as_mut().filter(|open| open.stream_id == stream_id) {
            open.text.push_str(piece);
            return None;
        }
        let begun = OpenStream { stream_id: stream_id.to_owned(), text: piece.to_owned() };
        self.open.replace(begun).map(|before| before.stream_id)
    }
}

/// Publishes the pieces of a model's answer as chunks.
pub(crate) struct ChunkPublisher {
    pub(crate) reply_stream: Arc<ReplyStream>,
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) guard: Guard,
}

impl ChunkPublisher {
    /// Publishes all pieces, and returns at the end of the answer. If a chunk cannot be published, the rest is not
    /// published as chunks; the whole text still follows.
    pub(crate) async fn publish_all(&self, pieces: Deltas) {
        let mut paced = Paced::new(pieces);
        let mut publishing = true;
        while let Some(delta) = paced.next().await {
            if publishing && let Some(chunk) = self.reply_stream.chunk(&delta) {
                publishing = self.publish(chunk).await;
            }
        }
    }

    async fn publish(&self, chunk: OutEvent) -> bool {
        if !matches!(self.guard.holds().await, Ok(true)) {
            return false;
        }
        let (session_id, published) = (chunk.session_id.clone(), self.queue.emit([chunk].into()).await);
        published.inspect_err(|problem| debug!(session_id, "chunk not published: {problem}")).is_ok()
    }
}

#[async_trait]
impl Listener for ChunkPublisher {
    async fn publish_pieces(&self, _step: &str, pieces: Deltas) {
        self.publish_all(pieces).await;
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

    fn said(reply_stream: &ReplyStream, stream_id: &str, seq: u64, content: &str) -> Reply {
        let delta = Delta { content: content.into(), seq, stream_id: stream_id.into(), supersedes: None };
        serde_json::from_slice(&reply_stream.chunk(&delta).unwrap().payload).unwrap()
    }

    fn reply_stream() -> ReplyStream {
        let reply_stream = ReplyStream::new(Clock::system());
        reply_stream.set_template(reply(ReplyKind::Chunk, ""));
        reply_stream
    }

    #[test]
    fn a_stream_names_the_one_whose_place_it_takes_and_the_whole_text_its_own() {
        let reply_stream = reply_stream();
        let first = said(&reply_stream, "a", 0, "先");
        assert_eq!((first.reply_id.as_str(), first.supersedes), ("s1/m-1/0/flow/chunk/a/0", None));
        assert_eq!(said(&reply_stream, "b", 0, "后").supersedes.as_deref(), Some("a"));
        assert_eq!(said(&reply_stream, "b", 1, "说").supersedes, None);
        assert!(reply_stream.is_start_of("后说完") && !reply_stream.is_start_of("先"));
        assert_eq!(reply_stream.end("\n后说完"), StreamEnd { stream_id: Some("b".into()), supersedes: None });
        assert_eq!(reply_stream.end("再说"), StreamEnd::default(), "a stream is closed once");
    }

    #[test]
    fn another_text_takes_the_place_of_what_was_said() {
        let reply_stream = reply_stream();
        said(&reply_stream, "a", 0, "先");
        assert_eq!(reply_stream.end("抱歉"), StreamEnd { stream_id: None, supersedes: Some("a".into()) });
    }

    #[test]
    fn a_repeated_turn_knows_what_it_has_said() {
        let earlier = reply_stream();
        let chunks = [said(&earlier, "a", 0, "先"), said(&earlier, "b", 0, "后"), said(&earlier, "b", 1, "说")];
        let reply_stream = reply_stream();
        chunks.iter().for_each(|chunk| reply_stream.recall(chunk));
        reply_stream.recall(&reply(ReplyKind::Greeting, "您好"));
        assert!(reply_stream.is_start_of("后说"));
        assert_eq!(said(&reply_stream, "c", 0, "又").supersedes.as_deref(), Some("b"));
        reply_stream.recall(&reply(ReplyKind::Final, "又说"));
        assert_eq!(reply_stream.end("再说"), StreamEnd::default());
    }
}
