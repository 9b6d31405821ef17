//! The conversation as kept in the session document: the last 100 entries, 256 KiB at most (CONTRACT.md).

use crate::timestamp::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use utoipa::ToSchema;

/// The most entries that a session keeps.
pub const MAX_ENTRIES: usize = 100;
/// The most bytes of text that a session keeps.
pub const MAX_BYTES: usize = 256 * 1024;

/// The most bytes of one entry's text, and the most of its metadata: one long message must not push out all others.
pub const MAX_TEXT: usize = 64 * 1024;

/// The beginning of a text that is longer than `limit` bytes, and a note of how long it was.
pub fn cut(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit {
        return Cow::Borrowed(text);
    }
    let kept = &text[..text.floor_char_boundary(limit)];
    Cow::Owned(format!("{kept}… [{} of {} bytes]", kept.len(), text.len()))
}

/// Who spoke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The user.
    User,
    /// The agent.
    Assistant,
    /// A human of the service desk.
    Human,
}

/// One thing said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Entry {
    /// Who spoke.
    pub role: Role,
    /// The words.
    pub text: String,
    /// When.
    pub at: Timestamp,
    /// The turn that recorded it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub turn_id: String,
    /// The reply's kind, for what the agent said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Attachments and the like.
    #[schema(value_type = Object)]
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
}

impl Entry {
    fn bytes(&self) -> usize {
        self.text.len() + self.turn_id.len() + self.metadata_bytes()
    }

    fn metadata_bytes(&self) -> usize {
        self.metadata.iter().map(|(key, value)| key.len() + value.to_string().len()).sum()
    }

    /// What a session keeps of it: a long text up to [`MAX_TEXT`], with a note that it was cut, and metadata only within it.
    pub fn bounded(mut self) -> Self {
        if self.text.len() > MAX_TEXT {
            self.text = cut(&self.text, MAX_TEXT).into_owned();
        }
        if self.metadata_bytes() > MAX_TEXT {
            self.metadata.clear();
        }
        self
    }
}

/// How many of the oldest entries of `history` followed by `added` have to go so that both bounds hold.
pub fn excess(history: &[Entry], added: &[Entry]) -> usize {
    let total = history.len() + added.len();
    let mut bytes = 0;
    let kept = history
        .iter()
        .chain(added)
        .rev()
        .take(MAX_ENTRIES)
        .take_while(|entry| {
            bytes += entry.bytes();
            bytes <= MAX_BYTES
        })
        .count();
    total - kept
}

/// Appends `added` and drops the oldest entries beyond the bounds.
pub fn append(history: &mut Vec<Entry>, added: Vec<Entry>) {
    let excess = excess(history, &added);
    history.extend(added);
    history.drain(..excess);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> Entry {
        Entry {
            role: Role::User,
            text: text.into(),
            at: Timestamp::from_millis(0),
            turn_id: String::new(),
            kind: None,
            metadata: Map::new(),
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters_and_says_so() {
        assert_eq!(cut("你好", 6), "你好");
        assert_eq!(cut("你好吗", 7), "你好… [6 of 9 bytes]");
    }

    #[test]
    fn keeps_the_last_hundred_entries_and_the_byte_bound() {
        let mut history = Vec::new();
        for i in 0..150 {
            append(&mut history, vec![entry(&i.to_string())]);
        }
        assert_eq!(history.len(), MAX_ENTRIES);
        assert_eq!(history[0].text, "50");
        append(&mut history, vec![entry(&"x".repeat(MAX_BYTES - 4))]);
        assert_eq!(history.len(), 2, "the newest entry and what still fits beside it");
    }
}
