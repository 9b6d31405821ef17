//! Sources: a file or an added text, split into passages, as the store keeps it.

use super::passages::split;
use base::error::SharedError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use thiserror::Error;
use types::canonical;
use types::timestamp::Timestamp;

/// The largest size of a source's text in bytes.
pub const MAX_TEXT: usize = 1024 * 1024;
/// The largest number of passages of a source. MongoDB keeps all of them in one document.
pub(crate) const MAX_PASSAGES: usize = 10_000;
/// The largest size of a source's name in bytes.
pub const MAX_NAME: usize = 512;

/// Why a text is not a valid source.
#[derive(Clone, Debug, Error)]
pub enum SourceError {
    /// The name is illegal.
    #[error("the name of a source has 1 to {MAX_NAME} bytes and no control characters")]
    Name,
    /// The text has no passage.
    #[error("it has no text")]
    Empty,
    /// The text is above the size limit.
    #[error("it has {0} bytes; a source has at most {MAX_TEXT}: split it into several files")]
    TooLarge(u64),
    /// The text has too many passages.
    #[error("it makes {0} passages; a source has at most {MAX_PASSAGES}: split it into several files")]
    TooMany(usize),
    /// The file is neither Markdown nor plain text.
    #[error("it is neither Markdown nor text: its name must end in .md, .markdown or .txt")]
    Kind,
    /// The text is not UTF-8. The number is the offset of the first illegal byte.
    #[error("it is not UTF-8 (byte {0}); save it as UTF-8")]
    Encoding(usize),
    /// The file could not be read.
    #[error("cannot read it: {0}")]
    Read(#[source] SharedError),
}

/// A passage: the part of a source that a search returns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Passage {
    /// The headings above the passage, outermost first, separated by ` > `.
    #[serde(default)]
    pub heading: String,
    /// The first line of the passage, from 1.
    pub line: u32,
    /// The text of the passage, as written.
    pub text: String,
}

/// How a source came into the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The agent's file names it. Applying the agent removes it once the file no longer names it.
    AgentFile,
    /// An operator or a program added it. It stays until it is removed explicitly.
    #[default]
    Added,
}

impl Origin {
    /// The name in JSON and in the store.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AgentFile => "agent_file",
            Self::Added => "added",
        }
    }
}

/// A source without its passages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceEntry {
    /// The agent that answers from the source.
    pub agent_id: String,
    /// Name of the source: the file's path relative to the agent's file.
    pub source: String,
    /// How the source came into the store.
    pub origin: Origin,
    /// md5 of the passages.
    pub hash: String,
    /// Number of passages.
    pub passage_count: u32,
    /// Total size of the passages in bytes.
    pub bytes: u64,
    /// When the source was stored.
    pub updated_at: Timestamp,
}

/// A source with its passages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Name, hash and size of the source.
    pub entry: SourceEntry,
    /// The passages, in the order of the text.
    pub passages: Vec<Passage>,
}

impl Source {
    /// Splits a text into passages. The extension of `name` decides whether the text is Markdown.
    pub fn new(
        agent_id: &str,
        name: &str,
        text: &str,
        origin: Origin,
        updated_at: Timestamp,
    ) -> Result<Self, SourceError> {
        check_name(name)?;
        if text.len() > MAX_TEXT {
            return Err(SourceError::TooLarge(text.len() as u64));
        }
        let passages = split(name, text);
        match passages.len() {
            0 => return Err(SourceError::Empty),
            many @ MAX_PASSAGES.. if many > MAX_PASSAGES => return Err(SourceError::TooMany(many)),
            _ => {}
        }
        let entry = SourceEntry {
            agent_id: agent_id.to_owned(),
            source: name.to_owned(),
            origin,
            // The hash covers the passages, not the text, so that another way of splitting counts as a change.
            hash: canonical::hash(&json!(passages)),
            passage_count: u32::try_from(passages.len()).unwrap_or(u32::MAX),
            bytes: passages.iter().map(|passage| passage.text.len() as u64).sum(),
            updated_at,
        };
        Ok(Self { entry, passages })
    }
}

/// Checks that `name` is a legal name of a source.
pub(crate) fn check_name(name: &str) -> Result<(), SourceError> {
    let legal = (1..=MAX_NAME).contains(&name.len()) && !name.chars().any(char::is_control) && !name.trim().is_empty();
    if legal { Ok(()) } else { Err(SourceError::Name) }
}
