//! The replies of a turn, and the entries that it adds to the history.

use super::Turn;
use crate::execution::read_back::is_answer;
use crate::execution::reply_stream::StreamEnd;
use serde_json::{Map, Value, json};
use types::event::{EventType, Reply, ReplyKind};
use types::excerpt;
use types::job::UserMessage;
use types::session::{Entry, Role, history};

impl Turn<'_> {
    /// Queues a reply to the user and adds it to the history. Its `reply_id` is the same in every attempt of the
    /// turn. Does nothing if `text` is empty.
    pub(in crate::turn) fn reply(&mut self, kind: ReplyKind, key: &str, text: &str) {
        self.reply_with(kind, key, text, Map::new());
    }

    /// Like [`Turn::reply`], with metadata.
    pub(in crate::turn) fn reply_with(
        &mut self,
        kind: ReplyKind,
        key: &str,
        text: &str,
        mut metadata: Map<String, Value>,
    ) {
        if text.is_empty() {
            return;
        }
        mark_truncated(&mut metadata, text);
        self.answered |= is_answer(kind);
        let StreamEnd { stream_id, supersedes } = self.reply_stream.end(text);
        let reply = Reply { metadata: metadata.clone(), stream_id, supersedes, ..self.build_reply(kind, key, text) };
        self.publish_reply(key, &reply);
        self.remember(Role::Assistant, text, Some(kind), metadata);
    }

    /// Queues a reply without adding it to the history, and without ending a text that is being published in chunks.
    pub(in crate::turn) fn queue_reply(
        &mut self,
        kind: ReplyKind,
        key: &str,
        text: &str,
        mut metadata: Map<String, Value>,
    ) {
        mark_truncated(&mut metadata, text);
        let reply = Reply { metadata, ..self.build_reply(kind, key, text) };
        self.publish_reply(key, &reply);
    }

    fn publish_reply(&mut self, key: &str, reply: &Reply) {
        self.replies += 1;
        self.publish(EventType::Reply, key, reply);
    }

    /// Builds a reply, with its text cut to the limit.
    pub(in crate::turn) fn build_reply(&self, kind: ReplyKind, key: &str, text: &str) -> Reply {
        Reply {
            reply_id: self.journal.idempotency_key(key),
            session_id: self.session.session_id.clone(),
            agent_id: self.session.agent_id.clone(),
            user_id: self.session.user_id.clone(),
            channel: self.session.channel.clone(),
            turn_id: self.id.id.clone(),
            kind,
            text: excerpt::cut(text, MAX_REPLY).into_owned(),
            seq: 0,
            stream_id: None,
            supersedes: None,
            at: self.services.clock.now(),
            metadata: Map::new(),
        }
    }

    /// Adds an entry to the history.
    pub(in crate::turn) fn remember(
        &mut self,
        role: Role,
        text: &str,
        kind: Option<ReplyKind>,
        metadata: Map<String, Value>,
    ) {
        let (at, turn_id) = (self.services.clock.now(), self.id.id.clone());
        let kind = kind.map(|kind| kind.as_str().to_owned());
        self.entries
            .push(Entry { role, text: text.to_owned(), at, turn_id, kind, metadata: metadata.into() }.bounded());
    }

    /// Adds a note of a human to the agent's model, which the user does not get, to the history.
    pub(in crate::turn) fn remember_note(&mut self, text: &str, by: Option<&str>) {
        let metadata: Map<String, Value> = by.map(|by| ("by".to_owned(), by.into())).into_iter().collect();
        let (at, turn_id) = (self.services.clock.now(), self.id.id.clone());
        let (kind, metadata) = (Some(history::NOTE.to_owned()), metadata.into());
        self.entries.push(Entry { role: Role::Human, text: text.to_owned(), at, turn_id, kind, metadata }.bounded());
    }

    /// Adds the user's messages of this turn to the history.
    pub(in crate::turn) fn remember_user(&mut self) {
        let sender = |message: &UserMessage| message.user_id.clone().filter(|user_id| *user_id != self.session.user_id);
        let said = self.messages().map(|message| (message.text.clone(), message.attachments.clone(), sender(message)));
        for (text, attachments, sender) in said.collect::<Vec<_>>() {
            let mut metadata = Map::new();
            if let Some(user_id) = sender {
                metadata.insert("user_id".into(), user_id.into());
            }
            if !attachments.is_empty() {
                metadata.insert("attachments".into(), json!(attachments));
            }
            self.remember(Role::User, &text, None, metadata);
        }
    }
}

/// Marks a reply whose text is cut, and adds the size of the whole text in bytes.
fn mark_truncated(metadata: &mut Map<String, Value>, text: &str) {
    if text.len() > MAX_REPLY {
        metadata.insert("truncated".into(), json!(true));
        metadata.insert("bytes".into(), json!(text.len()));
    }
}

/// Limit in bytes on one reply's text. A NATS message holds 1 MiB, including the other fields and JSON escapes.
const MAX_REPLY: usize = 256 * 1024;
