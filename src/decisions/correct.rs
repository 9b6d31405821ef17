//! Corrects payloads by the tables: defaults for missing fields, numbers brought into their range, and unknown fields
//! removed from the top level. A wrong kind, a wrong word and an empty text are never corrected.

use crate::kind::DecisionType;
use crate::limits::MAX_SECONDS;
use crate::node_type::NodeType;
use crate::path::Path;
use crate::table::configs::config;
use crate::table::payloads::{ACTION_TYPE, payload};
use crate::table::{Kind, Shape};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value, json};

/// Why a value was corrected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// The field was missing.
    Default,
    /// The number was out of its range.
    Range,
    /// The field is unknown.
    Unsupported,
}

/// One corrected value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Correction {
    /// The place, such as `nodes[3].config.timeout`.
    #[schemars(extend("example" = "nodes[3].config.timeout"))]
    pub path: String,
    /// The value before; null for a missing field.
    pub from: Value,
    /// The value afterwards; null for a removed field.
    pub to: Value,
    /// Why.
    pub rule: Rule,
}

/// Corrects a payload in place.
pub fn correct(kind: DecisionType, fields: &mut Map<String, Value>) -> Vec<Correction> {
    let mut made = Vec::new();
    let (root, table) = (Path::ROOT, payload(kind));
    if fields.get(ACTION_TYPE).is_none_or(Value::is_null) {
        set(&mut made, &root.field(ACTION_TYPE), fields, ACTION_TYPE, (json!(kind.as_str()), Rule::Default));
    }
    let unknown = fields.keys().filter(|name| table.field(name).is_none() && *name != ACTION_TYPE);
    for name in unknown.cloned().collect::<Vec<_>>() {
        let from = fields.remove(&name).unwrap_or_default();
        made.push(Correction { path: root.field(&name).to_string(), from, to: Value::Null, rule: Rule::Unsupported });
    }
    for field in table.fields {
        let missing = fields.get(field.name).is_none_or(Value::is_null);
        if let Some(default) = field.default_value().filter(|_| missing) {
            set(&mut made, &root.field(field.name), fields, field.name, (default, Rule::Default));
        }
    }
    let node_type = fields.get("node_type").and_then(Value::as_str).and_then(NodeType::parse);
    object(&mut made, &root, table, node_type, fields);
    made
}

fn set(
    made: &mut Vec<Correction>,
    path: &Path<'_>,
    fields: &mut Map<String, Value>,
    name: &str,
    (to, rule): (Value, Rule),
) {
    let from = fields.insert(name.to_owned(), to.clone()).unwrap_or_default();
    made.push(Correction { path: path.to_string(), from, to, rule });
}

/// Brings the numbers of an object into their ranges. `kind` is the type of the node that it belongs to.
fn object(
    made: &mut Vec<Correction>,
    path: &Path<'_>,
    shape: &Shape,
    kind: Option<NodeType>,
    fields: &mut Map<String, Value>,
) {
    let kind = fields.get("type").and_then(Value::as_str).and_then(NodeType::parse).or(kind);
    for field in shape.fields {
        if let Some(found) = fields.get_mut(field.name) {
            value(made, &path.field(field.name), field.kind, kind, found);
        }
    }
}

fn value(made: &mut Vec<Correction>, path: &Path<'_>, kind: Kind, of: Option<NodeType>, found: &mut Value) {
    match (kind, &mut *found) {
        (Kind::Shape(shape), Value::Object(fields)) => object(made, path, shape, None, fields),
        (Kind::Config, Value::Object(fields)) => {
            if let Some(kind) = of {
                object(made, path, config(kind), None, fields);
            }
        }
        (Kind::List(kind) | Kind::FilledList(kind), Value::Array(items)) => {
            for (at, item) in items.iter_mut().enumerate() {
                value(made, &path.item(at), *kind, None, item);
            }
        }
        (Kind::Changes, Value::Object(changes)) => {
            for (key, found) in changes {
                if key == "config.timeout" {
                    value(made, &path.field(key), Kind::Seconds(MAX_SECONDS), None, found);
                }
            }
        }
        (Kind::Number(..) | Kind::Whole(..) | Kind::Seconds(_), Value::Number(number)) => {
            if let Some(to) = in_range(kind, number) {
                let from = std::mem::replace(found, to.clone());
                made.push(Correction { path: path.to_string(), from, to, rule: Rule::Range });
            }
        }
        _ => {}
    }
}

/// The nearest legal number, if the number is out of its range. A whole number stays whole.
fn in_range(kind: Kind, number: &Number) -> Option<Value> {
    let found = number.as_f64()?;
    #[allow(clippy::cast_precision_loss, reason = "the limits are small, or as large as possible")]
    let (low, high) = match kind {
        Kind::Number(low, high) => (low, high),
        Kind::Whole(low, high) => (low as f64, high as f64),
        // A time of 0 or less is a mistake that no number corrects.
        Kind::Seconds(high) if found > 0.0 => (0.0, high),
        _ => return None,
    };
    let to = found.clamp(low, high);
    #[allow(clippy::cast_possible_truncation, reason = "the limits are whole numbers within the range")]
    let whole = json!(to as i64);
    (to != found).then(|| if number.is_f64() { json!(to) } else { whole })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corrected(kind: DecisionType, given: Value) -> (Value, Value) {
        let mut fields = serde_json::from_value(given).unwrap();
        let made = correct(kind, &mut fields);
        (Value::Object(fields), serde_json::to_value(made).unwrap())
    }

    #[test]
    fn numbers_defaults_and_unknown_fields_are_corrected() {
        let given = json!({"response": "x", "intent": "greeting", "confidence": 1.5, "mood": "x"});
        let (fields, made) = corrected(DecisionType::Respond, given);
        let expected = json!({"action_type": "respond", "response": "x", "intent": "greeting", "confidence": 1.0});
        assert_eq!(fields, expected);
        let expected = json!([
            {"path": "action_type", "from": null, "to": "respond", "rule": "default"},
            {"path": "mood", "from": "x", "to": null, "rule": "unsupported"},
            {"path": "confidence", "from": 1.5, "to": 1.0, "rule": "range"},
        ]);
        assert_eq!(made, expected);
    }

    #[test]
    fn numbers_of_nodes_have_their_paths() {
        let node =
            json!({"type": "LOOP", "config": {"body": {"nodes": [{"type": "HTTP", "config": {"timeout": 301}}]}}});
        let given = json!({"action_type": "create_workflow_plan", "name": "n", "nodes": [node]});
        let (fields, made) = corrected(DecisionType::CreateWorkflowPlan, given);
        assert_eq!(made[2]["path"], "nodes[0].config.body.nodes[0].config.timeout");
        assert_eq!(fields["nodes"][0]["config"]["body"]["nodes"][0]["config"]["timeout"], json!(300));
        assert_eq!((&fields["description"], &fields["edges"]), (&json!(""), &json!([])));
    }

    #[test]
    fn nothing_is_invented() {
        let given = json!({"action_type": "continue", "confidence": "high", "timeout": 0});
        let (fields, _) = corrected(DecisionType::Respond, given);
        assert_eq!(fields, json!({"action_type": "continue", "confidence": "high"}));
        let (_, made) =
            corrected(DecisionType::SpawnSubagent, json!({"action_type": "x", "timeout": -1, "priority": 11}));
        assert_eq!(made, json!([{"path": "priority", "from": 11, "to": 10, "rule": "range"}]));
    }
}
