//! The events that report decisions. They have no secrets, no values of `env`, and no payload above 64 KiB.

use crate::correct::Correction;
use crate::kind::{Decision, DecisionType};
use crate::limits::MAX_EVENT_BYTES;
use crate::node_type::NodeType;
use crate::validate::bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use types::timestamp::Timestamp;

/// The version of the events and payloads.
pub const SCHEMA_VERSION: u32 = 1;

/// The text that replaces a value of `env`.
const MASK: &str = "***";

/// Shorter values of `env` are only masked where they are defined: masking each `1` would garble every text.
const MIN_MASKED_BYTES: usize = 4;

/// An event about a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DecisionEvent {
    /// The session.
    pub session_id: String,
    /// The turn; null in a run outside of a turn.
    pub turn_id: Option<String>,
    /// The run; null outside of a run.
    pub run_id: Option<String>,
    /// The id of the decision.
    pub decision_id: String,
    /// The type of the decision. For `node_execution_failed` it is null.
    pub decision_type: Option<DecisionType>,
    /// The version of this format.
    pub schema_version: u32,
    /// When it happened.
    pub at: Timestamp,
    /// The type of the event, and its own fields.
    #[serde(flatten)]
    pub body: EventBody,
}

/// The type of an event, and its own fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EventBody {
    /// The model made a decision.
    DecisionMade {
        /// The payload; null above 64 KiB.
        payload: Option<Value>,
        /// How sure the model is, from 0 to 1.
        confidence: Option<f64>,
        /// The bytes of a payload above 64 KiB.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        payload_bytes: Option<usize>,
        /// The step that has a payload above 64 KiB.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        payload_ref: Option<String>,
    },
    /// The decision is valid. It is carried out after this event.
    DecisionValidated {
        /// The corrections.
        corrections: Vec<Correction>,
        /// Probable mistakes.
        warnings: Vec<String>,
    },
    /// The decision is not carried out.
    DecisionRejected {
        /// The errors.
        errors: Vec<String>,
        /// The number of rejections in a row.
        attempt: u32,
        /// Why.
        reason: Rejection,
    },
    /// A node of a run failed for good.
    NodeExecutionFailed {
        /// The workflow.
        workflow_id: String,
        /// The node.
        node_id: String,
        /// The type of the node.
        node_type: NodeType,
        /// The error code, such as `TIMEOUT`.
        error_code: String,
        /// Why it failed.
        failure_reason: String,
        /// The attempts so far.
        attempts: u32,
        /// The nodes that have run, with their outputs.
        execution_context: Map<String, Value>,
    },
}

/// Why a decision was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Rejection {
    /// It has errors.
    Invalid,
    /// It was written before a result that it should have.
    Superseded,
    /// A recovery interrupted it.
    Interrupted,
}

impl EventBody {
    /// The event for a new decision. `payload_ref` is the key of the step that has the whole payload, and `mask` removes
    /// secrets from a text.
    pub fn made(decision: &Decision, payload_ref: &str, mask: &dyn Fn(&str) -> String) -> Self {
        let size = bytes(&decision.payload);
        let is_small = size <= MAX_EVENT_BYTES;
        Self::DecisionMade {
            payload: is_small.then(|| Value::Object(masked(&decision.payload, mask))),
            confidence: decision.confidence,
            payload_bytes: (!is_small).then_some(size),
            payload_ref: (!is_small).then(|| payload_ref.to_owned()),
        }
    }
}

impl DecisionEvent {
    /// The event as JSON. `mask` removes secrets from a text.
    pub fn masked(&self, mask: &dyn Fn(&str) -> String) -> Value {
        let mut event = json!(self);
        mask_value(&mut event, mask);
        event
    }
}

/// A payload without secrets and values of `env`, wherever they stand.
pub fn masked(payload: &Map<String, Value>, mask: &dyn Fn(&str) -> String) -> Map<String, Value> {
    let env = env_values(payload);
    let mask = |text: &str| mask(&without_env(&env, text));
    let mut payload = payload.clone();
    mask_fields(&mut payload, &mask);
    if let Some(env) = payload.get_mut("global_config").and_then(|global| global.get_mut("env")?.as_object_mut()) {
        env.values_mut().for_each(|value| *value = MASK.into());
    }
    payload
}

/// The values of `global_config.env`, the longest first, so that a part of a longer one does not hide it.
pub fn env_values(payload: &Map<String, Value>) -> Vec<&str> {
    let env = payload.get("global_config").and_then(|global| global.get("env")?.as_object());
    let mut values: Vec<&str> = env.into_iter().flat_map(Map::values).filter_map(Value::as_str).collect();
    values.sort_by_key(|value| std::cmp::Reverse(value.len()));
    values
}

/// A text in which the values of `env` are masked. `env` are those of [`env_values`].
pub fn without_env(env: &[&str], text: &str) -> String {
    let hidden = env.iter().filter(|value| value.len() >= MIN_MASKED_BYTES);
    hidden.fold(text.to_owned(), |text, value| text.replace(value, MASK))
}

/// A value in all of whose texts `mask` removes secrets.
pub fn value_masked(value: &Value, mask: &dyn Fn(&str) -> String) -> Value {
    let mut value = value.clone();
    mask_value(&mut value, mask);
    value
}

fn mask_value(value: &mut Value, mask: &dyn Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = mask(text),
        Value::Array(items) => items.iter_mut().for_each(|item| mask_value(item, mask)),
        Value::Object(fields) => mask_fields(fields, mask),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn mask_fields(fields: &mut Map<String, Value>, mask: &dyn Fn(&str) -> String) {
    if fields.keys().any(|name| mask(name) != *name) {
        *fields = std::mem::take(fields).into_iter().map(|(name, value)| (mask(&name), value)).collect();
    }
    fields.values_mut().for_each(|value| mask_value(value, mask));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(payload: Value) -> Value {
        let decision = Decision::new(DecisionType::CreateWorkflowPlan, serde_json::from_value(payload).unwrap());
        let mask = |text: &str| text.replace("s3cret", "***");
        serde_json::to_value(EventBody::made(&decision, "0/decide", &mask)).unwrap()
    }

    #[test]
    fn env_and_secrets_are_masked_wherever_they_stand() {
        let event = made(
            json!({"name": "n key-value", "nodes": [{"config": {"k": "s3cret"}}], "global_config": {"env": {"A": "key-value", "B": "1"}}}),
        );
        let expected = json!({"name": "n ***", "nodes": [{"config": {"k": "***"}}], "global_config": {"env": {"A": "***", "B": "***"}}});
        assert_eq!(event, json!({"type": "decision_made", "payload": expected, "confidence": null}));
    }

    #[test]
    fn a_large_payload_is_a_reference() {
        let event = |bytes: usize| made(json!({"name": "x".repeat(bytes - r#"{"name":""}"#.len())}));
        assert!(event(MAX_EVENT_BYTES)["payload"].is_object());
        let large = event(MAX_EVENT_BYTES + 1);
        let expected = json!({"type": "decision_made", "payload": null, "confidence": null, "payload_bytes": 65537, "payload_ref": "0/decide"});
        assert_eq!(large, expected);
    }
}
