//! Changes of a node: keys such as `config.timeout` with new values.

use crate::node_type::NodeType;
use crate::table::configs::config;
use crate::table::graph::RETRY_CONFIG;
use serde_json::{Map, Value};

/// A change that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeProblem {
    /// The key.
    pub key: String,
    /// The problem with its remedy.
    pub text: String,
}

/// The result of changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// The node with all changes that could be made. It is not validated.
    pub node: Map<String, Value>,
    /// The others.
    pub problems: Vec<ChangeProblem>,
}

/// Applies changes to a node of this type. Null removes a field.
pub fn apply(kind: NodeType, node: &Map<String, Value>, changes: &Map<String, Value>) -> Changed {
    let mut changed = Changed { node: node.clone(), problems: Vec::new() };
    for (key, value) in changes {
        match place(kind, key) {
            Ok((field, None)) => put(&mut changed.node, field, value),
            Ok((field, Some(below))) => {
                let fields = changed.node.entry(field).or_insert_with(|| Value::Object(Map::new()));
                if !fields.is_object() {
                    *fields = Value::Object(Map::new());
                }
                if let Value::Object(fields) = fields {
                    put(fields, below, value);
                }
            }
            Err(text) => changed.problems.push(ChangeProblem { key: key.clone(), text }),
        }
    }
    changed
}

fn put(fields: &mut Map<String, Value>, name: &str, value: &Value) {
    match value {
        Value::Null => drop(fields.remove(name)),
        value => drop(fields.insert(name.to_owned(), value.clone())),
    }
}

/// The field of a key, and the name below it.
fn place(kind: NodeType, key: &str) -> Result<(&str, Option<&str>), String> {
    const KEYS: &str =
        "use `name`, `recovery`, or `config.`, `input_mapping.`, `output_mapping.` or `retry_config.` and a field";
    let known = |fields: Vec<&str>| fields.iter().map(|field| format!("`{field}`")).collect::<Vec<_>>().join(", ");
    match key.split_once('.') {
        None if matches!(key, "name" | "recovery") => Ok((key, None)),
        None if matches!(key, "node_id" | "type") => Err(format!("never changes; {KEYS}")),
        Some(("config", field)) if config(kind).field(field).is_none() => {
            let fields = known(config(kind).fields.iter().map(|field| field.name).collect());
            let remedy = if fields.is_empty() { "it has no settings".to_owned() } else { format!("use {fields}") };
            Err(format!("is not a setting of {kind} nodes; {remedy}"))
        }
        Some(("retry_config", field)) if RETRY_CONFIG.field(field).is_none() => {
            Err(format!("is not a field; use {}", known(RETRY_CONFIG.fields.iter().map(|field| field.name).collect())))
        }
        Some((field @ ("config" | "input_mapping" | "output_mapping" | "retry_config"), below))
            if !below.is_empty() =>
        {
            Ok((field, Some(below)))
        }
        _ => Err(format!("is no field that can change; {KEYS}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn map(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn only_known_fields_change() {
        let node = map(json!({"node_id": "a", "config": {"prompt": "x", "system": "y"}}));
        let changes =
            map(json!({"config.temperature": 0.9, "config.system": null, "name": "n", "retry_config.max_retries": 1}));
        let changed = apply(NodeType::Llm, &node, &changes);
        let expected = json!({"node_id": "a", "config": {"prompt": "x", "temperature": 0.9}, "name": "n", "retry_config": {"max_retries": 1}});
        assert_eq!((changed.node, changed.problems), (map(expected), vec![]));
        let wrong = map(
            json!({"node_id": "b", "type": "LLM", "config.temperature": 1, "config": {}, "x.y": 1, "retry_config.z": 1, "config.": 1}),
        );
        let changed = apply(NodeType::Python, &node, &wrong);
        assert_eq!((changed.node, changed.problems.len()), (node, 7));
    }
}
