//! Rules of the types that name no workflow.

use super::check::{Check, object, text};
use super::graph;
use super::node;
use crate::node_type::NodeType;
use crate::path::{Path, shown};
use jsonschema::Validator;
use serde_json::{Map, Value};

/// The most errors of a task payload.
const MAX_SCHEMA_ERRORS: usize = 10;

pub(super) fn create_node(check: &mut Check<'_>, fields: &Map<String, Value>) {
    let Some(kind) = text(fields, "node_type").and_then(NodeType::parse) else { return };
    if NodeType::SINGLE.contains(&kind) {
        node::kind(check, &Path::ROOT.field("node_type"), kind);
        graph::single(check, &Path::ROOT, kind, fields);
    }
}

pub(super) fn spawn_subagent(check: &mut Check<'_>, fields: &Map<String, Value>) {
    let Some(kind) = text(fields, "subagent_type") else { return };
    let Some(facts) = check.world.subagent(kind) else {
        let known: Vec<_> = check.world.subagent_types().into_iter().map(|kind| format!("`{kind}`")).collect();
        let remedy = match known.as_slice() {
            [] => "this agent has no sub-agents".to_owned(),
            known => format!("use {}", known.join(", ")),
        };
        let path = Path::ROOT.field("subagent_type");
        check.rule(&path, || format!("is `{}`, which is not registered; {remedy}", shown(kind, 40)));
        return;
    };
    if let Some(task) = object(fields, "task_payload") {
        task_payload(check, &facts.input, task);
    }
    if let (Some(most), Some(timeout)) = (facts.timeout, fields.get("timeout").and_then(Value::as_f64))
        && timeout > most
    {
        check.rule(&Path::ROOT.field("timeout"), || {
            format!("is {timeout}, and `{kind}` has at most {most} s; lower it")
        });
    }
}

fn task_payload(check: &mut Check<'_>, schema: &Value, task: &Map<String, Value>) {
    if schema.is_null() {
        return;
    }
    let root = Path::ROOT.field("task_payload");
    let validator: Validator = match jsonschema::validator_for(schema) {
        Ok(validator) => validator,
        Err(error) => {
            check.rule(&root, || {
                format!("cannot be checked, because the sub-agent's `input` is no JSON Schema ({error}); correct the agent file")
            });
            return;
        }
    };
    let task = Value::Object(task.clone());
    for error in validator.iter_errors(&task).take(MAX_SCHEMA_ERRORS) {
        let place = error.instance_path().to_string().trim_start_matches('/').replace('/', ".");
        let path = if place.is_empty() { root } else { root.field(&place) };
        check.rule(&path, || {
            format!("does not fit the sub-agent's `input`: {}; correct it", shown(&error.to_string(), 200))
        });
    }
}
