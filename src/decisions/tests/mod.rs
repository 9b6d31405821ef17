//! Tests of verdicts: the examples, each rule, and properties of all payloads. Here are the fixtures.

#![allow(clippy::needless_pass_by_value, reason = "payloads are written in place")]

mod documents;
mod examples;
mod hostile;
mod operators;
mod properties;
mod rules;

use crate::examples::ALL;
use crate::judge::{Coordinator, Judged, Verdicts};
use crate::kind::{Decision, DecisionType};
use crate::policy::Policy;
use crate::world::{Snapshot, SubagentFacts, WorkflowFacts, WorkflowStatus};
use serde_json::{Map, Value, json};

/// Accepts what begins like a condition. The whole grammar is the part of a higher layer.
pub(super) fn conditions(text: &str) -> Result<(), String> {
    if text.contains("!=") { Err("has an unknown operator; write `not`".to_owned()) } else { Ok(()) }
}

pub(super) fn map(value: Value) -> Map<String, Value> {
    let Value::Object(fields) = value else { panic!("not an object: {value}") };
    fields
}

/// The plan of the example: DATABASE, PYTHON, PYTHON, HTTP.
pub(super) fn sales() -> Map<String, Value> {
    let example = ALL.iter().find(|example| example.decision_type == DecisionType::CreateWorkflowPlan).unwrap();
    map(serde_json::from_str(example.text).unwrap())
}

/// A plan whose `node_2` is an LLM node.
pub(super) fn with_llm() -> Map<String, Value> {
    map(json!({
        "action_type": "create_workflow_plan", "name": "n", "description": "",
        "nodes": [
            {"node_id": "node_1", "type": "HTTP", "name": "a", "config": {"url": "https://a.example.com", "method": "GET"}},
            {"node_id": "node_2", "type": "LLM", "name": "b", "config": {"prompt": "${node_1.output.data}"}},
        ],
        "edges": [{"source": "node_1", "target": "node_2"}],
    }))
}

pub(super) fn workflow(id: &str, status: WorkflowStatus, definition: Map<String, Value>) -> WorkflowFacts {
    WorkflowFacts { workflow_id: id.to_owned(), status, is_owned: true, definition }
}

/// `workflow_123` is the plan of the example, the current plan has an LLM node, and there is the sub-agent `researcher`.
pub(super) fn world() -> Snapshot {
    let mut world = Snapshot::new(Policy::default(), conditions);
    world.add(workflow("workflow_123", WorkflowStatus::Ready, sales()));
    world.add(workflow("with_llm", WorkflowStatus::Ready, with_llm()));
    world.current = Some("with_llm".to_owned());
    let input = json!({"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]});
    world.subagents.insert("researcher".to_owned(), SubagentFacts { input, timeout: Some(120.0) });
    world
}

pub(super) fn verdicts_in(world: &Snapshot, kind: DecisionType, payload: Value) -> Verdicts {
    Coordinator::new(world).verdicts(Decision::new(kind, map(payload)))
}

/// The verdict on a payload whose `action_type` is that of the decision.
pub(super) fn verdicts(payload: Value) -> Verdicts {
    let kind = DecisionType::parse(payload["action_type"].as_str().unwrap()).unwrap();
    verdicts_in(&world(), kind, payload)
}

/// Asserts that the first error has all of these parts.
#[track_caller]
pub(super) fn refused(payload: Value, parts: &[&str]) {
    let verdict = verdicts(payload.clone()).given;
    let first = verdict.errors.first().unwrap_or_else(|| panic!("{payload} is valid"));
    for part in parts {
        assert!(first.contains(part), "{:?} lacks {part}", verdict.errors);
    }
    assert!(verdict.errors.iter().all(|error| error.starts_with('`') && error.contains("; ")), "{:?}", verdict.errors);
}

#[track_caller]
pub(super) fn accepted(payload: Value) {
    let verdict = verdicts(payload).given;
    assert_eq!(verdict.errors, Vec::<String>::new());
}

/// Every valid payload can be read.
pub(super) fn judged(world: &Snapshot, kind: DecisionType, payload: Map<String, Value>) -> Judged {
    Coordinator::new(world).judge(Decision::new(kind, payload))
}
