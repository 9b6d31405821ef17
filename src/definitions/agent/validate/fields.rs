//! Finds unknown fields. They have no effect except on the hash, so most of them are typing mistakes.

use crate::document::Report;
use base::config::nearest::question;
use serde_json::Value;

/// The fields of a table, and of the tables and lists of tables below it. A test compares it with the Rust types.
pub(super) struct Fields(&'static [(&'static str, FieldKind)]);

enum FieldKind {
    /// A value, or a table whose keys the author chooses.
    Leaf,
    Table(&'static Fields),
    List(&'static Fields),
}

use FieldKind::{Leaf, List, Table};

static HTTP: Fields = Fields(&[
    ("method", Leaf),
    ("url", Leaf),
    ("query", Leaf),
    ("headers", Leaf),
    ("body", Leaf),
    ("timeout", Leaf),
    ("retries", Leaf),
]);
static ACTION: Fields = Fields(&[("type", Leaf), ("target", Leaf), ("params", Leaf)]);
static SKILL: Fields =
    Fields(&[("id", Leaf), ("description", Leaf), ("condition", Leaf), ("params", Leaf), ("http", Table(&HTTP))]);
static TOOL: Fields =
    Fields(&[("id", Leaf), ("description", Leaf), ("params", Leaf), ("http", Table(&HTTP)), ("builtin", Leaf)]);
static TIMER: Fields = Fields(&[("name", Leaf), ("delay", Leaf), ("message", Leaf), ("action", Table(&ACTION))]);
static HANDOFF: Fields = Fields(&[("mode", Leaf), ("http", Table(&HTTP)), ("timeout", Leaf), ("claim_timeout", Leaf)]);
static KNOWLEDGE: Fields = Fields(&[("files", Leaf)]);
static DECIDE: Fields = Fields(&[
    ("next_status", Leaf),
    ("action", Table(&ACTION)),
    ("response", Leaf),
    ("output", Leaf),
    ("decisions", Leaf),
    ("reasoning", Leaf),
]);
static BUDGET: Fields = Fields(&[("turn", Leaf), ("session", Leaf), ("day", Leaf)]);
static COORDINATOR: Fields = Fields(&[
    ("node_types", Leaf),
    ("allowed_hosts", Leaf),
    ("connectors", Leaf),
    ("workflows", Leaf),
    ("secrets", List(&SECRET)),
]);
static SECRET: Fields = Fields(&[("name", Leaf), ("hosts", Leaf)]);
static SUBAGENT: Fields =
    Fields(&[("type", Leaf), ("runnable", Leaf), ("description", Leaf), ("input", Leaf), ("timeout", Leaf)]);
static RULE: Fields = Fields(&[("when", Leaf), ("decide", Table(&DECIDE))]);
static AGENT: Fields = Fields(&[
    ("id", Leaf),
    ("name", Leaf),
    ("tone", Leaf),
    ("model", Leaf),
    ("greeting", Leaf),
    ("sop", Leaf),
    ("system_prompt", Leaf),
    ("constraints", Leaf),
    ("skills", List(&SKILL)),
    ("tools", List(&TOOL)),
    ("flows", Leaf),
    ("flow_timeout", Leaf),
    ("cancel_words", Leaf),
    ("timers", List(&TIMER)),
    ("handoff", Table(&HANDOFF)),
    ("double_text", Leaf),
    ("regreet_on_change", Leaf),
    ("max_iterations", Leaf),
    ("knowledge", Table(&KNOWLEDGE)),
    ("budget", Table(&BUDGET)),
    ("mode", Leaf),
    ("coordinator", Table(&COORDINATOR)),
    ("subagents", List(&SUBAGENT)),
    ("rules", List(&RULE)),
    ("updated_at", Leaf),
]);

/// Warns of every unknown field in an agent's document.
pub(super) fn check(document: &Value, report: &mut Report) {
    walk(document, &AGENT, "", report);
}

fn walk(value: &Value, known: &Fields, path: &str, report: &mut Report) {
    for (name, field) in value.as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match known.0.iter().find(|(known, _)| known == name) {
            Some((_, Leaf)) => {}
            Some((_, Table(fields))) => walk(field, fields, &path, report),
            Some((_, List(fields))) => {
                for (at, item) in field.as_array().into_iter().flatten().enumerate() {
                    walk(item, fields, &format!("{path}[{at}]"), report);
                }
            }
            None => {
                let hint = match question(name, known.0.iter().map(|(name, _)| *name)) {
                    hint if hint.is_empty() => "it has no effect; remove it".to_owned(),
                    hint => hint,
                };
                report.warn(path, "there is no such field", hint);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use types::agent::AgentConfig;

    fn names(value: &Value) -> Vec<&str> {
        let mut names: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    fn table<'a>(fields: &'a Fields, extra: &[&str]) -> Vec<&'a str> {
        let mut names: Vec<&str> =
            fields.0.iter().map(|(name, _)| *name).filter(|name| !extra.contains(name)).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn the_tables_hold_exactly_the_fields_of_the_types() {
        let http = json!({"url": "x", "timeout": 1, "retries": 1});
        let action = json!({"type": "TOOL", "target": "t"});
        let agent: AgentConfig = serde_json::from_value(json!({
            "id": "a", "knowledge": {}, "flow_timeout": 1,
            "handoff": {"mode": "hold", "http": http, "timeout": 1, "claim_timeout": 1},
            "skills": [{"id": "s", "http": http}], "tools": [{"id": "t", "http": http}],
            "timers": [{"delay": 1, "action": action}], "mode": "coordinator",
            "coordinator": {"node_types": [], "allowed_hosts": [], "connectors": [], "workflows": [],
                "secrets": [{"name": "K", "hosts": []}]},
            "subagents": [{"type": "s", "runnable": "r", "timeout": 1}],
        }))
        .unwrap();
        let value = serde_json::to_value(agent).unwrap();
        assert_eq!(names(&value), table(&AGENT, &["updated_at"]));
        assert_eq!(names(&value["skills"][0]), table(&SKILL, &[]));
        assert_eq!(names(&value["skills"][0]["http"]), table(&HTTP, &[]));
        assert_eq!(names(&value["tools"][0]), table(&TOOL, &[]));
        assert_eq!(names(&value["timers"][0]), table(&TIMER, &[]));
        assert_eq!(names(&value["timers"][0]["action"]), table(&ACTION, &[]));
        assert_eq!(names(&value["handoff"]), table(&HANDOFF, &[]));
        assert_eq!(names(&value["knowledge"]), table(&KNOWLEDGE, &[]));
        assert_eq!(names(&value["budget"]), table(&BUDGET, &[]));
        assert_eq!(names(&value["coordinator"]), table(&COORDINATOR, &[]));
        assert_eq!(names(&value["coordinator"]["secrets"][0]), table(&SECRET, &[]));
        assert_eq!(names(&value["subagents"][0]), table(&SUBAGENT, &[]));
    }
}
