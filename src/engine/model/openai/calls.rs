//! Assembles the tool calls of a streamed answer.
//!
//! Servers number calls in different ways. OpenAI sends an `index` with every piece and the `id` with the first one.
//! Other servers give every call the index 0, repeat `id` and `name` in every piece, or omit one or both.

use super::reply::{CallPart, grow};
use crate::model::ModelToolCall;
use serde_json::Value;

/// The tool calls of one streamed answer, as far as they have arrived.
#[derive(Default)]
pub(super) struct StreamedCalls(Vec<PartialCall>);

struct PartialCall {
    index: Option<u64>,
    call: ModelToolCall,
}

impl StreamedCalls {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a piece to its call, or starts a new call.
    pub(super) fn take(&mut self, mut part: CallPart) {
        let extra = part.extra();
        let id = part.id.take().unwrap_or_default();
        let name = part.function.name.take().unwrap_or_default();
        let arguments = part.function.arguments();
        if self.0.iter().any(|begun| begun.is_repeated(&id, &name, &arguments)) {
            return;
        }
        let found = self.candidate(part.index, &id).filter(|at| !self.0[*at].begins_anew(&id, &name, &arguments));
        let at = found.unwrap_or_else(|| {
            self.0.push(PartialCall { index: part.index, call: ModelToolCall::new("", "", "") });
            self.0.len() - 1
        });
        let PartialCall { call, .. } = &mut self.0[at];
        // Some servers repeat both in every piece.
        if call.id.is_empty() {
            call.id = id;
        }
        if call.name.is_empty() {
            call.name = name;
        }
        call.arguments.push_str(&arguments);
        for (field, value) in extra {
            grow(&mut call.extra, field, value);
        }
    }

    /// The position of the call to which a piece may belong: of the calls with this index the one with this id,
    /// otherwise the last one.
    fn candidate(&self, index: Option<u64>, id: &str) -> Option<usize> {
        let fits = |begun: &PartialCall| index.is_none() || begun.index.is_none() || begun.index == index;
        let known = self.0.iter().rposition(|begun| fits(begun) && !id.is_empty() && begun.call.id == id);
        known.or_else(|| self.0.iter().rposition(fits))
    }

    /// The calls in the order in which they started.
    pub(super) fn finish(self) -> Vec<ModelToolCall> {
        self.0.into_iter().map(|begun| begun.call).collect()
    }
}

impl PartialCall {
    /// Whether a piece repeats this whole call. An id belongs to one call only.
    fn is_repeated(&self, id: &str, name: &str, arguments: &str) -> bool {
        let ModelToolCall { id: known, name: named, arguments: written, .. } = &self.call;
        !id.is_empty() && known == id && named == name && written == arguments && is_object(written)
    }

    /// Whether a piece starts another call.
    fn begins_anew(&self, id: &str, name: &str, arguments: &str) -> bool {
        let differs = |known: &str, given: &str| !known.is_empty() && !given.is_empty() && known != given;
        let ModelToolCall { id: known, name: named, arguments: written, .. } = &self.call;
        if differs(known, id) || differs(named, name) {
            return true;
        }
        // Complete arguments are never extended, so a piece with a name is another call of the same tool.
        !name.is_empty() && !arguments.trim().is_empty() && is_object(written)
    }
}

fn is_object(text: &str) -> bool {
    // Cheap check first: most incomplete objects do not end with a brace.
    text.trim_end().ends_with('}') && matches!(serde_json::from_str(text), Ok(Value::Object(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn calls(parts: &[Value]) -> Vec<(String, String, String)> {
        let mut calls = StreamedCalls::default();
        for part in parts {
            calls.take(serde_json::from_value(part.clone()).unwrap());
        }
        calls.finish().into_iter().map(|call| (call.id, call.name, call.arguments)).collect()
    }

    fn part(index: Option<u64>, id: &str, name: &str, arguments: &str) -> Value {
        let mut part = json!({"function": {"arguments": arguments}});
        let mut put = |at: &str, value: Value| {
            part.pointer_mut(at).and_then(Value::as_object_mut).unwrap().extend([if at.is_empty() {
                ("id".to_owned(), value)
            } else {
                ("name".to_owned(), value)
            }])
        };
        if !id.is_empty() {
            put("", json!(id));
        }
        if !name.is_empty() {
            put("/function", json!(name));
        }
        if let Some(index) = index {
            part["index"] = json!(index);
        }
        part
    }

    #[test]
    fn calls_are_kept_apart_however_they_are_numbered() {
        let two = [("a", "eta", r#"{"o":1}"#), ("b", "eta", r#"{"o":2}"#)];
        let owned = |(id, name, arguments): (&str, &str, &str)| (id.to_owned(), name.to_owned(), arguments.to_owned());
        for index in [Some(0), None] {
            let whole = two.map(|(id, name, arguments)| part(index, id, name, arguments));
            assert_eq!(calls(&whole), two.map(owned), "one piece each, {index:?}");
            let cut = [
                part(index, "a", "eta", ""),
                part(index, "a", "eta", "{\"o\""),
                part(index, "", "", ":1}"),
                part(index, "b", "eta", "{\"o\":"),
                part(index, "b", "eta", "2}"),
            ];
            assert_eq!(calls(&cut), two.map(owned), "in pieces, {index:?}");
            let nameless = two.map(|(_, name, arguments)| part(index, "", name, arguments));
            let expected = two.map(|(_, name, arguments)| owned(("", name, arguments)));
            assert_eq!(calls(&nameless), expected, "without ids, {index:?}");
            let twice = [whole[0].clone(), whole[0].clone(), whole[1].clone()];
            assert_eq!(calls(&twice), two.map(owned), "one call sent twice, {index:?}");
            let other = [part(index, "", "now", ""), part(index, "", "eta", "{}")];
            assert_eq!(calls(&other), [("", "now", ""), ("", "eta", "{}")].map(owned), "another name, {index:?}");
        }
        let mixed = [
            part(Some(0), "a", "eta", "{"),
            part(Some(1), "b", "eta", "{"),
            part(Some(0), "", "", "\"o\":1}"),
            part(Some(1), "", "", "\"o\":2}"),
        ];
        assert_eq!(calls(&mixed), two.map(owned));
        let late = [part(Some(0), "", "eta", "{\"o\""), part(Some(0), "a", "", ":1}")];
        assert_eq!(calls(&late), [owned(two[0])], "an id may arrive late");
    }
}
