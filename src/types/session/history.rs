//! The bounded conversation history of a session document: the last 100 entries, at most 256 KiB.

use crate::excerpt::cut;
use crate::timestamp::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::ops::Deref;

/// The largest number of entries that a session keeps.
pub const MAX_ENTRIES: usize = 100;
/// The largest number of bytes that the entries of a session may have in total.
pub const MAX_BYTES: usize = 256 * 1024;

/// The largest size of one entry's text, and of its metadata, in bytes. It keeps one long message from displacing all
/// others.
pub const MAX_TEXT: usize = 64 * 1024;

/// The kind of an entry that tells the agent's model something and was not sent to the user: the note with which a
/// human hands the conversation back.
pub const NOTE: &str = "note";

/// More than the longest id of a turn, in bytes.
const MAX_ID: usize = 1024;

/// The speaker of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The user.
    User,
    /// The agent.
    Assistant,
    /// A human at the service desk.
    Human,
}

/// One message of the conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// The speaker.
    pub role: Role,
    /// The text of the message.
    pub text: String,
    /// When it was recorded.
    pub at: Timestamp,
    /// The turn that recorded it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub turn_id: String,
    /// The kind of reply, for a message of the agent. `note`: the user did not get this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Further data, such as attachments.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
}

/// The metadata of an entry. Its size is counted once: each commit adds up the sizes of the whole history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "Map<String, Value>", into = "Map<String, Value>")]
#[schemars(with = "Map<String, Value>")]
pub struct Metadata {
    fields: Map<String, Value>,
    /// About the bytes of the fields as JSON.
    bytes: usize,
}

impl Metadata {
    /// Whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Takes the fields out.
    pub fn into_fields(self) -> Map<String, Value> {
        self.fields
    }
}

impl From<Map<String, Value>> for Metadata {
    fn from(fields: Map<String, Value>) -> Self {
        let bytes = fields.iter().map(|(key, value)| key.len() + json_bytes(value)).sum();
        Self { fields, bytes }
    }
}

impl From<Metadata> for Map<String, Value> {
    fn from(metadata: Metadata) -> Self {
        metadata.fields
    }
}

impl Deref for Metadata {
    type Target = Map<String, Value>;

    fn deref(&self) -> &Self::Target {
        &self.fields
    }
}

/// About the bytes of a value as JSON, without writing it.
fn json_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| json_bytes(item) + 1).sum::<usize>() + 2,
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| name.len() + json_bytes(field) + 4).sum::<usize>() + 2
        }
    }
}

impl Entry {
    /// True for a text to the agent's model that was not sent to the user.
    pub fn is_note(&self) -> bool {
        self.kind.as_deref() == Some(NOTE)
    }

    fn bytes(&self) -> usize {
        self.text.len() + self.turn_id.len() + self.metadata.bytes
    }

    /// The entry within the limits: a text above [`MAX_TEXT`] is cut, with a note; metadata above it is dropped.
    pub fn bounded(mut self) -> Self {
        if self.text.len() > MAX_TEXT {
            self.text = cut(&self.text, MAX_TEXT).into_owned();
        }
        if self.metadata.bytes > MAX_TEXT {
            self.metadata = Metadata::default();
        }
        self
    }
}

/// The number of oldest entries to drop from `history` followed by `added`, so that both limits hold.
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

/// True if entries may have been dropped: there is no room for another one of the largest size. A history from which
/// entries were dropped stays so.
pub fn is_full(history: &[Entry]) -> bool {
    let bytes: usize = history.iter().map(Entry::bytes).sum();
    // One entry has a text and metadata.
    history.len() >= MAX_ENTRIES || bytes + 2 * MAX_TEXT + MAX_ID > MAX_BYTES
}

/// Appends `added` and drops the oldest entries beyond the limits.
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
            metadata: Metadata::default(),
        }
    }

    #[test]
    fn keeps_the_last_hundred_entries_and_the_byte_bound() {
        let mut history = Vec::new();
        for i in 0..150 {
            append(&mut history, vec![entry(&i.to_string())]);
        }
        assert_eq!(history.len(), MAX_ENTRIES);
        assert_eq!(history[0].text, "50");
        assert!(is_full(&history) && !is_full(&history[..50]));
        append(&mut history, vec![entry(&"x".repeat(MAX_BYTES - 4))]);
        assert_eq!(history.len(), 2, "the newest entry and one more that fits");
        assert!(is_full(&history));
    }
}
