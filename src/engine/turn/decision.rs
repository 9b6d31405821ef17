//! Decisions of the model, their JSON Schemas and their parsers. Every parse error is a text that the model reads in
//! a correction.

use super::placeholder::is_placeholder;
use crate::model::answer::object;
use crate::model::{ResponseSchema, thoughts};
use base::http_client::bounded;
use decisions::schema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::sync::{Arc, LazyLock};
use types::action::{Action, ActionKind, SYSTEM_OPERATIONS};
use types::json_kind::json_kind;

/// The system operation that hands the conversation to a human.
pub const HANDOFF: &str = "handoff";

/// How the turn continues after a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NextStatus {
    /// Continue with another iteration.
    Processing,
    /// Send the response and end the turn.
    Typing,
    /// End the turn without a response.
    Ready,
    /// Send the response and hand the conversation to a human.
    Transferred,
}

/// One decision of the model, checked and normalised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// How the turn continues.
    pub next_status: NextStatus,
    /// The action to execute before the turn continues.
    #[serde(default)]
    pub action: Option<Action>,
    /// Text for the user. Always present for `typing` and `transferred`, except with a FLOW action, whose flow
    /// replies itself.
    #[serde(default)]
    pub response: Option<String>,
    /// The model's explanation, for the log only.
    #[serde(default)]
    pub reasoning: Option<String>,
}

/// The model's draft of a plan. A field that the model left out keeps the value of the agent file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanDraft {
    /// Name that the agent uses towards users.
    pub name: Option<String>,
    /// Tone of the agent's texts.
    pub tone: Option<String>,
    /// First reply to a new session.
    pub greeting: Option<String>,
    /// The procedure (SOP), rewritten by the model.
    pub sop: Option<String>,
    /// Follow-up timers as the model wrote them. The planner checks them.
    pub timers: Vec<Value>,
    /// The constraints, consolidated by the model.
    pub constraints: Option<String>,
}

/// Parses the model's answer in phase 2. The error is a text for the model.
pub fn parse_decision(content: &str) -> Result<Decision, String> {
    decision(&object(content)?)
}

/// Parses the model's answer in phase 1. The error is a text for the model, and names the problems of both parts.
pub fn parse_plan_and_decision(content: &str) -> Result<(PlanDraft, Decision), String> {
    let answer = object(content)?;
    let part = |name: &str| match answer.get(name) {
        Some(Value::Object(part)) => Ok(part),
        Some(other) => Err(format!("`{name}` has to be an object, but is {}", json_kind(other))),
        None => Err(format!("`{name}` is missing; the answer has to be {{\"plan\": {{…}}, \"decision\": {{…}}}}")),
    };
    let (plan, decided) = (part("plan"), part("decision"));
    match (plan.and_then(draft), decided.and_then(decision)) {
        (Ok(plan), Ok(decision)) => Ok((plan, decision)),
        (Err(plan), Ok(_)) => Err(plan),
        (Ok(_), Err(decision)) => Err(decision),
        (Err(plan), Err(decision)) => Err(format!("{plan}; {decision}")),
    }
}

/// The schema of the answer in phase 2. It is not strict, because the params of an action are free-form.
pub fn decision_schema() -> ResponseSchema {
    static SCHEMA: LazyLock<Arc<Value>> = LazyLock::new(|| Arc::new(decision_json_schema()));
    ResponseSchema { name: "decision".into(), strict: false, schema: Arc::clone(&SCHEMA) }
}

/// The schema of the answer in phase 1.
pub(crate) fn plan_and_decision_schema() -> ResponseSchema {
    static SCHEMA: LazyLock<Arc<Value>> = LazyLock::new(|| Arc::new(plan_and_decision_json_schema()));
    ResponseSchema { name: "plan_and_decision".into(), strict: false, schema: Arc::clone(&SCHEMA) }
}

fn plan_and_decision_json_schema() -> Value {
    let plan = schema::plan(&schema::action());
    json!({
        "type": "object",
        "properties": {"plan": plan, "decision": decision_json_schema()},
        "required": ["plan", "decision"],
    })
}

fn decision_json_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "reasoning": {"type": ["string", "null"]},
            "next_status": {"type": "string", "enum": ["processing", "typing", "ready", "transferred"]},
            "action": schema::action(),
            "response": {"type": ["string", "null"]},
        },
        "required": ["next_status", "action", "response"],
    })
}

/// Reads the draft of a plan. The error is a text for the model.
pub(super) fn draft(plan: &Map<String, Value>) -> Result<PlanDraft, String> {
    let timers = match plan.get("timers") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(timers)) => timers.clone(),
        Some(other) => return Err(format!("`plan.timers` has to be a list or null, but is {}", json_kind(other))),
    };
    // For a placeholder the planner uses the text of the agent file.
    let field = |name: &str| Ok::<_, String>(optional_text(plan, name, "plan.")?.filter(|text| !is_placeholder(text)));
    Ok(PlanDraft {
        name: field("name")?,
        tone: field("tone")?,
        greeting: field("greeting")?,
        sop: field("sop")?,
        timers,
        constraints: field("constraints")?,
    })
}

fn decision(answer: &Map<String, Value>) -> Result<Decision, String> {
    let next_status = next_status(answer);
    let action = read_action(answer.get("action"));
    // A model with structured output may put its thoughts into the text fields.
    let response = optional_text(answer, "response", "").map(|text| text.map(|text| thoughts::without(&text)));
    let response = response.map(|text| text.filter(|text| !text.trim().is_empty())).and_then(written);
    // Reports all errors together, because each correction costs a model call.
    let errors: Vec<String> =
        [next_status.as_ref().err().cloned(), action.as_ref().err().cloned(), response.as_ref().err().cloned()]
            .into_iter()
            .flatten()
            .collect();
    let (Ok(next_status), Ok(action), Ok(response)) = (next_status, action, response) else {
        return Err(errors.join("; "));
    };
    // The reasoning is only logged, so a value of another type is ignored, not refused.
    let reasoning = answer.get("reasoning").and_then(Value::as_str).map(str::to_owned);
    normalised(Decision { next_status, action, response, reasoning })
}

/// Repairs a decision whose meaning is unambiguous, and refuses any other inconsistent one.
fn normalised(mut decision: Decision) -> Result<Decision, String> {
    let is = |decision: &Decision, kind| decision.action.as_ref().is_some_and(|action| action.kind == kind);
    if is(&decision, ActionKind::Flow) {
        // A flow takes over the turn and replies itself.
        decision.response = None;
        return Ok(decision);
    }
    if is(&decision, ActionKind::System) && decision.action.as_ref().is_some_and(|action| action.target == HANDOFF) {
        decision.next_status = NextStatus::Transferred;
    }
    match decision.next_status {
        NextStatus::Ready => decision.response = None,
        NextStatus::Transferred if decision.action.is_none() => {
            decision.action = Some(Action { kind: ActionKind::System, target: HANDOFF.into(), params: Map::new() });
        }
        NextStatus::Processing | NextStatus::Typing | NextStatus::Transferred => {}
    }
    match (decision.next_status, &decision.response) {
        (NextStatus::Typing, None) => {
            Err("`response` is missing: `typing` needs one; to end without a reply use `ready`".into())
        }
        (NextStatus::Transferred, None) => {
            Err("`response` is missing: a handoff (`transferred`) needs one that tells the user about it".into())
        }
        _ => Ok(decision),
    }
}

fn next_status(answer: &Map<String, Value>) -> Result<NextStatus, String> {
    let allowed = "allowed are `processing`, `typing`, `ready` and `transferred`";
    match answer.get("next_status") {
        Some(Value::String(text)) => match text.trim() {
            "processing" => Ok(NextStatus::Processing),
            "typing" => Ok(NextStatus::Typing),
            "ready" => Ok(NextStatus::Ready),
            "transferred" => Ok(NextStatus::Transferred),
            other => Err(format!("`next_status` cannot be `{}`; {allowed}", bounded(other, 50))),
        },
        None | Some(Value::Null) => Err(format!("`next_status` is missing; {allowed}")),
        Some(other) => Err(format!("`next_status` has to be a text, but is {}; {allowed}", json_kind(other))),
    }
}

/// Reads an action; `None` for null. The error is a text for the model.
pub(super) fn read_action(value: Option<&Value>) -> Result<Option<Action>, String> {
    let action = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(action)) => action,
        Some(other) => return Err(format!("`action` has to be one object or null, but is {}", json_kind(other))),
    };
    let allowed = "allowed are `SKILL`, `TOOL`, `FLOW` and `SYSTEM`";
    let kind_of_action = match optional_text(action, "type", "action.")?.as_deref().map(str::trim) {
        Some("SKILL") => ActionKind::Skill,
        Some("TOOL") => ActionKind::Tool,
        Some("FLOW") => ActionKind::Flow,
        Some("SYSTEM") => ActionKind::System,
        Some(other) => return Err(format!("`action.type` cannot be `{}`; {allowed}", bounded(other, 50))),
        None => return Err(format!("`action.type` is missing; {allowed}; without an action write `\"action\": null`")),
    };
    let target = optional_text(action, "target", "action.")?
        .map(|target| target.trim().to_owned())
        .ok_or("`action.target` is missing; it names the skill, tool, flow or system operation")?;
    if kind_of_action == ActionKind::System && !SYSTEM_OPERATIONS.contains(&target.as_str()) {
        let target = bounded(&target, 50);
        return Err(format!(
            "`{target}` is not a system operation; allowed are `close_conversation`, `handoff` and `update_profile`"
        ));
    }
    let params = match action.get("params") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(params)) => params.clone(),
        Some(other) => return Err(format!("`action.params` has to be an object, but is {}", json_kind(other))),
    };
    Ok(Some(Action { kind: kind_of_action, target, params }))
}

/// Refuses a response that is a placeholder.
fn written(response: Option<String>) -> Result<Option<String>, String> {
    match response {
        Some(text) if is_placeholder(&text) => {
            let text = bounded(&text, 100);
            Err(format!("`response` is the placeholder `{text}`; write the text that the user reads, or null"))
        }
        other => Ok(other),
    }
}

/// Returns a text field, or `None` if it is missing, null or blank.
fn optional_text(object: &Map<String, Value>, name: &str, place: &str) -> Result<Option<String>, String> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.trim().is_empty())),
        Some(other) => Err(format!("`{place}{name}` has to be a text or null, but is {}", json_kind(other))),
    }
}

#[cfg(test)]
#[path = "decision_tests.rs"]
mod tests;
