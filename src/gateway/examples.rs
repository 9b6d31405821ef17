//! Examples of requests and responses in `/openapi.json`. `examples.json` has them by operation id: `request`,
//! `response`, and the `events` of an event stream.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use utoipa::openapi::RefOr;
use utoipa::openapi::content::Content;
use utoipa::openapi::example::{Example, ExampleBuilder};
use utoipa::openapi::path::Operation;

const TEXT: &str = include_str!("examples.json");

/// Empty if the file cannot be read; a test reads it.
static EXAMPLES: LazyLock<BTreeMap<String, Examples>> =
    LazyLock::new(|| serde_json::from_str(TEXT).unwrap_or_default());

/// The examples of one endpoint.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Examples {
    request: Option<Value>,
    response: Option<Value>,
    events: Vec<ExampleEvent>,
}

/// A server-sent event.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExampleEvent {
    /// Name of the example.
    name: String,
    id: String,
    event: Option<String>,
    data: Option<Value>,
}

impl ExampleEvent {
    /// The event as the stream has it.
    fn text(&self) -> String {
        let event = self.event.iter().map(|event| format!("event: {event}\n"));
        let data = self.data.iter().map(|data| format!("data: {data}\n"));
        [format!("id: {}\n", self.id)].into_iter().chain(event).chain(data).chain(["\n".to_owned()]).collect()
    }

    fn described(&self) -> (String, Example) {
        (self.name.clone(), ExampleBuilder::new().value(Some(self.text().into())).build())
    }
}

/// Adds the examples of an operation to its request and to its responses.
pub(super) fn add(operation: &mut Operation) {
    let Some(examples) = operation.operation_id.as_deref().and_then(|id| EXAMPLES.get(id)) else { return };
    if let Some(RefOr::T(body)) = &mut operation.request_body {
        each(&mut body.content, |_, content| content.example.clone_from(&examples.request));
    }
    for response in operation.responses.responses.values_mut() {
        let RefOr::T(response) = response else { continue };
        each(&mut response.content, |kind, content| match kind {
            "text/event-stream" => {
                let events = examples.events.iter().map(ExampleEvent::described);
                content.examples = events.map(|(name, example)| (name, example.into())).collect();
            }
            _ => content.example.clone_from(&examples.response),
        });
    }
}

fn each<'c>(
    contents: impl IntoIterator<Item = (&'c String, &'c mut RefOr<Content>)>,
    mut change: impl FnMut(&str, &mut Content),
) {
    for (kind, content) in contents {
        if let RefOr::T(content) = content {
            change(kind, content);
        }
    }
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
            id: "r1:17".into(),
            event: event.map(str::to_owned),
            data,
        };
        assert_eq!(event(None, None).text(), "id: r1:17\n\n");
        let text = event(Some("reply"), Some(serde_json::json!({"text": "你好"}))).text();
        assert_eq!(text, "id: r1:17\nevent: reply\ndata: {\"text\":\"你好\"}\n\n");
    }
}
