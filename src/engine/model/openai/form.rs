//! Chooses the variant of a request, and another variant if the server refuses a part of it.
//!
//! Not every server knows `response_format`, `stream`, or the fields that other servers require in earlier answers. The
//! client starts with the best variant. After a refusal that names a part of the request it takes the next variant, and
//! it remembers the one that worked.

use super::refusal::Refusal;
use crate::model::{ModelRequest, ModelToolCall};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The reasoning field that some servers require in every answer of the conversation.
pub(super) const REASONING: &str = "reasoning_content";

/// How the request asks for a structure, best variant first.
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
}

/// How the request asks for a stream, best variant first.
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
}

/// The variant of one request.
#[derive(Clone, Debug)]
pub(super) struct Form {
    pub(super) format: Format,
    pub(super) streaming: Streaming,
    /// The caller wants a complete answer, but the server only streams.
    pub(super) gathered: bool,
    /// Answers without [`REASONING`] are sent back with an empty one.
    pub(super) fills: bool,
    /// Fields of earlier answers that are not sent back.
    pub(super) dropped: BTreeSet<String>,
}

impl Form {
    /// The variant to try after the server has refused this one; `None` if no other variant would help. `own` are the
    /// fields that the settings add to each request: another variant does not help against a refusal of one of these.
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
        let wants_reasoning = refusal.wants(REASONING);
        if wants_reasoning && !self.fills {
            return Some(Self { fills: true, ..self.clone() });
        }
        let mut dropped = self.dropped.clone();
        dropped.extend(carried(request).into_iter().filter(|name| refusal.names(name)));
        if dropped.len() > self.dropped.len() {
            // "The following must be satisfied: `reasoning_content` is unsupported" reads like a demand, but is a
            // refusal.
            let fills = self.fills && !dropped.contains(REASONING);
            return Some(Self { dropped, fills, ..self.clone() });
        }
        let is_named = wants_reasoning || own.iter().any(|field| refusal.names(field));
        if structured && !is_named && refusal.may_be_of_format() {
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

/// The names of the fields of earlier answers that the request sends back.
fn carried(request: &ModelRequest) -> BTreeSet<String> {
    let messages = request.messages.iter();
    let of_calls = |call: &ModelToolCall| call.extra.keys().cloned().collect::<Vec<_>>();
    messages
        .flat_map(|message| message.extra.keys().cloned().chain(message.tool_calls.iter().flat_map(of_calls)))
        .collect()
}

/// The variant that the server is known to accept.
pub(super) struct AcceptedForm(Mutex<Form>);

impl Default for AcceptedForm {
    fn default() -> Self {
        Self(Mutex::new(Form {
            format: Format::Schema,
            streaming: Streaming::WithUsage,
            gathered: false,
            fills: false,
            dropped: BTreeSet::new(),
        }))
    }
}

impl AcceptedForm {
    fn lock(&self) -> MutexGuard<'_, Form> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The variant to start with.
    pub(super) fn form(&self, in_pieces: bool) -> Form {
        let known = self.lock().clone();
        let gathered = !in_pieces && known.gathered && known.streaming != Streaming::Not;
        let streaming = if in_pieces || gathered { known.streaming } else { Streaming::Not };
        Form { streaming, gathered, ..known }
    }

    /// Remembers a variant that was answered. Only an answer is evidence: a refusal may name one part and mean another.
    pub(super) fn worked(&self, form: &Form, request: &ModelRequest, in_pieces: bool) {
        let mut known = self.lock();
        if request.schema.is_some() {
            known.format = known.format.max(form.format);
        }
        if in_pieces || form.gathered {
            known.streaming = known.streaming.max(form.streaming);
        }
        known.gathered |= form.gathered;
        known.fills |= form.fills;
        known.dropped.extend(form.dropped.iter().cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{PromptMessage, PromptRole};
    use base::http_client::retry::HttpFault;
    use serde_json::{Map, json};

    #[test]
    fn a_field_that_is_refused_with_a_must_is_dropped_after_it_was_filled_in() {
        let problem = "'messages.1' : for 'role:assistant' the following must be satisfied\
                       [('messages.1' : property 'reasoning_content' is unsupported)]";
        let refusal = Refusal::from_fault(&HttpFault { status: Some(400), ..HttpFault::permanent(problem) }).unwrap();
        let extra = Map::from_iter([(REASONING.to_owned(), json!("想"))]);
        let message = PromptMessage::new(PromptRole::Assistant, "").with_extra(extra);
        let request = ModelRequest::new(vec![message]);
        let known = AcceptedForm::default();
        let filled = known.form(false).after(&refusal, &request, &[], false).unwrap();
        assert!(filled.fills && filled.dropped.is_empty(), "{filled:?}");
        let dropped = filled.after(&refusal, &request, &[], false).unwrap();
        assert!(!dropped.fills && dropped.dropped.contains(REASONING), "{dropped:?}");
        known.worked(&dropped, &request, false);
        let next = known.form(false);
        assert!(!next.fills && next.dropped.contains(REASONING), "it is remembered: {next:?}");
        let again = Form { fills: true, ..dropped };
        assert!(again.after(&refusal, &request, &[], false).is_none(), "the variants come to an end");
    }
}
