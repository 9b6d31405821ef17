//! A source: one file, or one text that was added, as the store keeps it.

use super::passages::split;
use serde::{Deserialize, Serialize};
use serde_json::json;
use thiserror::Error;
use types::canonical;
use types::timestamp::Timestamp;
use utoipa::ToSchema;

/// The most bytes of one source's text.
pub const MAX_TEXT: usize = 1024 * 1024;
/// The most passages of one source, which MongoDB keeps in one document.
pub const MAX_PASSAGES: usize = 10_000;
/// The most bytes of a source's name.
pub const MAX_NAME: usize = 512;

/// Why a text cannot be a source.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SourceError {
    /// The name cannot be one.
    #[error("the name of a source has 1 to {MAX_NAME} bytes and no control characters")]
    Name,
    /// There is nothing in it.
    #[error("it has no text")]
    Empty,
    /// Larger than a source may be.
    #[error("it has {0} bytes; a source has at most {MAX_TEXT}: split it into several files")]
    TooLarge(u64),
    /// More than a source may have.
    #[error("it makes {0} passages; a source has at most {MAX_PASSAGES}: split it into several files")]
    TooMany(usize),
    /// Neither Markdown nor text.
    #[error("it is neither Markdown nor text: its name has to end in .md, .markdown or .txt")]
    Kind,
    /// Not UTF-8.
    #[error("it is not UTF-8 (byte {0}); save it as UTF-8")]
    Encoding(usize),
    /// It cannot be read.
    #[error("cannot read it: {0}")]
    Read(String),
}

/// A part of a source that is found as one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Passage {
    /// The headings above it, outermost first, with ` > ` between them.
    #[serde(default)]
    pub heading: String,
    /// The line that it begins on, from 1.
    pub line: u32,
    /// Its text as written.
    pub text: String,
}

/// How a source came into the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The agent's file names it; it goes when the file does so no more.
    AgentFile,
    /// Somebody added it; it stays until somebody removes it.
    #[default]
    Added,
}

impl Origin {
    /// The name used on every wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AgentFile => "agent_file",
            Self::Added => "added",
        }
    }
}

/// A source without its passages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourceEntry {
    /// The agent that answers from it.
    pub agent_id: String,
    /// Its name: the file's path, relative to the agent's file.
    pub source: String,
    /// How it came here.
    pub origin: Origin,
    /// md5 of its passages.
    pub hash: String,
    /// How many passages it has.
    pub passage_count: u32,
    /// Bytes of their texts.
    pub bytes: u64,
    /// When it was stored.
    pub updated_at: Timestamp,
}

/// A source with its passages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// What it is.
    pub entry: SourceEntry,
    /// Its text, in order.
    pub passages: Vec<Passage>,
}

impl Source {
    /// Cuts a text into passages. The end of `name` says whether it is Markdown.
    pub fn new(
        agent_id: &str,
        (name, text): (&str, &str),
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
            // Of the passages and not of the text: another way of cutting it makes another source.
            hash: canonical::hash(&json!(passages)),
            passage_count: u32::try_from(passages.len()).unwrap_or(u32::MAX),
            bytes: passages.iter().map(|passage| passage.text.len() as u64).sum(),
            updated_at,
        };
        Ok(Self { entry, passages })
    }
}

/// Refuses what cannot be the name of a source.
pub fn check_name(name: &str) -> Result<(), SourceError> {
    let legal = (1..=MAX_NAME).contains(&name.len()) && !name.chars().any(char::is_control) && !name.trim().is_empty();
    if legal { Ok(()) } else { Err(SourceError::Name) }
}
