//! How a question is written, and how it is written again where a server refuses a part of it.
//!
//! Not every server knows `response_format`, `stream` and the fields that other servers want back. The client begins with the
//! best form. After a refusal that names a part of it, the client takes the next form, and remembers the one that worked.

use super::refusal::Refusal;
use crate::model::ModelRequest;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

/// The reasoning that some servers demand with every answer of a conversation.
pub(super) const REASONING: &str = "reasoning_content";

/// How a structure is asked for, from the best to the last resort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Format {
    Schema,
    Object,
    Prompt,
}

impl Format {
    fn next(self) -> Option<Self> {
        match self {
            Self::Schema => Some(Self::Object),
            Self::Object => Some(Self::Prompt),
            Self::Prompt => None,
        }
    }

    fn from_u8(code: u8) -> Self {
        match code {
            0 => Self::Schema,
            1 => Self::Object,
            _ => Self::Prompt,
        }
    }
}

/// How a stream is asked for, from the best to the last resort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Streaming {
    WithUsage,
    Plain,
    Not,
}

impl Streaming {
    fn next(self) -> Option<Self> {
        match self {
            Self::WithUsage => Some(Self::Plain),
            Self::Plain => Some(Self::Not),
            Self::Not => None,
        }
    }

    fn from_u8(code: u8) -> Self {
        match code {
            0 => Self::WithUsage,
            1 => Self::Plain,
            _ => Self::Not,
        }
    }
}

/// How one question is written.
#[derive(Clone, Debug)]
pub(super) struct Form {
    pub(super) format: Format,
    pub(super) streaming: Streaming,
    /// The answer is wanted in one piece, but the server answers in pieces only.
    pub(super) gathered: bool,
    /// An answer without [`REASONING`] goes back with an empty one.
    pub(super) fills: bool,
    /// Fields of answers that do not go back.
    pub(super) dropped: BTreeSet<String>,
}

impl Form {
    /// The form to try after this one was refused; `None` where no other one would help. `own` are the fields that the
    /// settings add to a request: no other form helps against a refusal of one of these.
    pub(super) fn after(
        &self,
        refusal: &Refusal,
        request: &ModelRequest,
        own: &[&str],
        in_pieces: bool,
    ) -> Option<Self> {
        let structured = request.schema.is_some();
        let with_format = || Some(Self { format: self.format.next()?, ..self.clone() });
        if structured && refusal.is_of_format() {
            return with_format();
        }
        if refusal.is_of_stream()
            && let Some(form) = self.streamed_otherwise(refusal, in_pieces)
        {
            return Some(form);
        }
        if refusal.wants(REASONING) {
            return (!self.fills).then(|| Self { fills: true, ..self.clone() });
        }
        let mut dropped = self.dropped.clone();
        dropped.extend(carried(request).into_iter().filter(|name| refusal.names(name)));
        if dropped.len() > self.dropped.len() {
            return Some(Self { dropped, ..self.clone() });
        }
        if structured && !own.iter().any(|field| refusal.names(field)) && refusal.may_be_of_format() {
            return with_format();
        }
        None
    }

    fn streamed_otherwise(&self, refusal: &Refusal, in_pieces: bool) -> Option<Self> {
        let streaming = match self.streaming {
            Streaming::Not if in_pieces || self.gathered || !refusal.demands() => return None,
            Streaming::Not => return Some(Self { streaming: Streaming::WithUsage, gathered: true, ..self.clone() }),
            Streaming::Plain if self.gathered => return None,
            known => known.next()?,
        };
        Some(Self { streaming, ..self.clone() })
    }
}

/// The names of the fields that earlier answers send back.
fn carried(request: &ModelRequest) -> BTreeSet<String> {
    let messages = request.messages.iter();
    let of_calls = |call: &crate::model::ToolCall| call.extra.keys().cloned().collect::<Vec<_>>();
    messages
        .flat_map(|message| message.extra.keys().cloned().chain(message.tool_calls.iter().flat_map(of_calls)))
        .collect()
}

/// The forms that a server is known to take.
#[derive(Default)]
pub(super) struct Known {
    format: AtomicU8,
    streaming: AtomicU8,
    gathered: AtomicBool,
    fills: AtomicBool,
    dropped: Mutex<BTreeSet<String>>,
}

impl Known {
    /// The form to begin with.
    pub(super) fn form(&self, in_pieces: bool) -> Form {
        let gathered = !in_pieces && self.gathered.load(Ordering::Relaxed);
        let streaming = if in_pieces || gathered {
            Streaming::from_u8(self.streaming.load(Ordering::Relaxed))
        } else {
            Streaming::Not
        };
        Form {
            format: Format::from_u8(self.format.load(Ordering::Relaxed)),
            streaming,
            gathered: gathered && streaming != Streaming::Not,
            fills: self.fills.load(Ordering::Relaxed),
            dropped: self.dropped.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// Remembers a form that was answered, and only that: a refusal may name a part of it and mean another.
    pub(super) fn worked(&self, form: &Form, request: &ModelRequest, in_pieces: bool) {
        if request.schema.is_some() {
            self.format.fetch_max(form.format as u8, Ordering::Relaxed);
        }
        if in_pieces || form.gathered {
            self.streaming.fetch_max(form.streaming as u8, Ordering::Relaxed);
        }
        self.gathered.fetch_or(form.gathered, Ordering::Relaxed);
        self.fills.fetch_or(form.fills, Ordering::Relaxed);
        if !form.dropped.is_empty() {
            self.dropped.lock().unwrap_or_else(PoisonError::into_inner).extend(form.dropped.iter().cloned());
        }
    }
}
