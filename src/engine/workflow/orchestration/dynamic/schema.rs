//! JSON Schemas of the answers of a dynamic workflow's agents. `docs/contract/calls.md` describes them.

use crate::model::ResponseSchema;
use serde_json::{Value, json};
use std::sync::Arc;

/// Schema of the plan agent's answer. Its steps may name `agents`.
pub(super) fn plan(agents: &[&str]) -> ResponseSchema {
    strict(
        "triage_plan",
        &json!({
            "action": {"type": "string", "enum": ["plan", "clarify", "reject"]},
            "reject_reason": {"type": "string", "description": "with `reject`: why, for the user; else empty"},
            "plan": steps(agents),
            "plan_reason": {"type": "string", "description": "why so; with `clarify` the question to the user"},
        }),
    )
}

/// Schema of the replan agent's answer. Its steps may name `agents`.
pub(super) fn replan(agents: &[&str]) -> ResponseSchema {
    strict(
        "triage_replan",
        &json!({
            "accept_review": {"type": "boolean"},
            "new_plan": steps(agents),
            "rejection_reason": {"type": "string", "description": "why the review is not followed; else empty"},
        }),
    )
}

/// Schema of the review agent's answer.
pub(super) fn review() -> ResponseSchema {
    strict(
        "review",
        &json!({
            "is_complete": {"type": "boolean"},
            "missing_aspects": {"type": "array", "items": {"type": "string"}},
            "suggested_approach": {"type": "string"},
            "confidence": {"type": "number", "description": "from 0 to 1"},
        }),
    )
}

fn steps(agents: &[&str]) -> Value {
    let properties = json!({
        "step": {"type": "integer", "description": "steps of equal numbers run at once, lower numbers first"},
        "agent": {"type": "string", "enum": agents},
        "question": {"type": "string"},
    });
    json!({"type": "array", "items": object(&properties)})
}

fn strict(name: &'static str, properties: &Value) -> ResponseSchema {
    ResponseSchema { name: name.into(), strict: true, schema: Arc::new(object(properties)) }
}

/// An object schema in strict form: every field is required, and no other field is allowed.
fn object(properties: &Value) -> Value {
    let required: Vec<&String> = properties.as_object().into_iter().flat_map(|fields| fields.keys()).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}
