//! The structures that roles answer with (CONTRACT.md, "Model calls").

use crate::model::ResponseSchema;
use serde_json::{Value, json};
use std::sync::Arc;

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

/// Strict schemas need every field, and no other.
fn object(properties: &Value) -> Value {
    let required: Vec<&String> = properties.as_object().into_iter().flat_map(|fields| fields.keys()).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}
