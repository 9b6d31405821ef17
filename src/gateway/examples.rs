//! Examples of requests and responses in `/openapi.json`. `examples.json` has them by operation id: `request`,
//! `response`, and the `events` of an event stream.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

const TEXT: &str = include_str!("examples.json");

/// Empty if the file cannot be read; a test reads it.
static EXAMPLES: LazyLock<BTreeMap<String, Examples>> =
    LazyLock::new(|| serde_json::from_str(TEXT).unwrap_or_default());

/// The examples of one endpoint.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Examples {
    pub(super) request: Option<Value>,
    pub(super) response: Option<Value>,
    pub(super) events: Vec<ExampleEvent>,
}

/// A server-sent event.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExampleEvent {
    /// Name of the example.
    name: String,
    id: Option<String>,
    event: Option<String>,
    data: Option<Value>,
}

impl ExampleEvent {
    /// The event as the stream has it.
    fn text(&self) -> String {
        let event = self.event.iter().map(|event| format!("event: {event}\n"));
        let data = self.data.iter().map(|data| format!("data: {data}\n"));
        let id = self.id.iter().map(|id| format!("id: {id}\n"));
        id.chain(event).chain(data).chain(["\n".to_owned()]).collect()
    }
}

/// The examples of the operation with this id.
pub(super) fn of(id: &str) -> Examples {
    EXAMPLES.get(id).cloned().unwrap_or_default()
}

/// The events as named examples of a stream; `None` without events.
pub(super) fn blocks(events: &[ExampleEvent]) -> Option<Value> {
    let blocks: Map<_, _> = events.iter().map(|event| (event.name.clone(), json!({"value": event.text()}))).collect();
    (!blocks.is_empty()).then_some(Value::Object(blocks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_can_be_read() {
        let read: BTreeMap<String, Examples> = serde_json::from_str(TEXT).unwrap();
        assert!(!read.is_empty());
    }

    #[test]
    fn an_event_is_a_block_of_lines() {
        let event = |event: Option<&str>, data| ExampleEvent {
            name: "x".into(),
            id: Some("r1:17".into()),
            event: event.map(str::to_owned),
            data,
        };
        assert_eq!(event(None, None).text(), "id: r1:17\n\n");
        let text = event(Some("reply"), Some(serde_json::json!({"text": "你好"}))).text();
        assert_eq!(text, "id: r1:17\nevent: reply\ndata: {\"text\":\"你好\"}\n\n");
    }
}
