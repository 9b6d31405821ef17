//! Rules of the types that name a workflow.

use super::check::{Check, list, object, text};
use super::{graph, recovery};
use crate::changes;
use crate::limits::MAX_EDGES;
use crate::node_type::NodeType;
use crate::path::{Path, shown};
use crate::report::Group;
use crate::revision;
use crate::world::WorkflowFacts;
use serde_json::{Map, Value};
use std::collections::HashSet;
use types::json_kind::json_kind;

pub(super) fn execute_workflow(check: &mut Check<'_>, fields: &Map<String, Value>) {
    let Some(workflow) = workflow(check, fields) else { return };
    let path = Path::ROOT.field("workflow_id");
    let (id, status) = (workflow.workflow_id.as_str(), workflow.status);
    let allowed = check.world.policy().workflows.as_ref();
    if !workflow.is_owned && allowed.is_some_and(|allowed| !allowed.contains(id)) {
        check.rule(&path, || format!("is `{id}`, which this agent may not run; name a workflow of the session"));
    }
    if !status.may_run() {
        let remedy = match status {
            crate::world::WorkflowStatus::Running => "wait for its end",
            crate::world::WorkflowStatus::Failed => "recover or replan it first",
            _ => "create a plan that is complete",
        };
        check.rule(&path, || {
            format!("is `{id}`, whose status is {}, not READY or COMPLETED; {remedy}", status.as_str())
        });
    }
    inputs(check, &Path::ROOT.field("input_params"), &workflow.definition, object(fields, "input_params"));
}

/// Checks the inputs of a run against the declared inputs of the plan. `root` is their place in the payload.
pub(super) fn inputs(
    check: &mut Check<'_>,
    root: &Path<'_>,
    plan: &Map<String, Value>,
    given: Option<&Map<String, Value>>,
) {
    let Some(declared) = object(plan, "global_config").and_then(|global| global.get("inputs")?.as_array()) else {
        return;
    };
    let declared: Vec<_> = declared.iter().filter_map(Value::as_object).collect();
    for input in &declared {
        let (Some(name), Some(kind)) = (text(input, "name"), text(input, "type")) else { continue };
        let is_required = input.get("required") == Some(&Value::Bool(true));
        let has_default = input.get("default").is_some_and(|default| !default.is_null());
        match given.and_then(|given| given.get(name)) {
            None if is_required && !has_default => {
                check.report.error(Group::Missing, &root.field(name), || {
                    format!("is missing; the workflow needs {}", graph::of_type(kind))
                });
            }
            Some(value) if !graph::fits(kind, value) => {
                check.report.error(Group::Kind, &root.field(name), || {
                    format!("is {}; give {}", json_kind(value), graph::of_type(kind))
                });
            }
            None | Some(_) => {}
        }
    }
    let known: HashSet<&str> = declared.iter().filter_map(|input| text(input, "name")).collect();
    for name in given.into_iter().flat_map(Map::keys) {
        if !known.contains(name.as_str()) {
            check.rule(&root.field(name), || "is no input of the workflow; remove it".to_owned());
        }
    }
}

pub(super) fn modify_node(check: &mut Check<'_>, fields: &Map<String, Value>) {
    let named = fields.get("workflow_id").is_some_and(|id| !id.is_null());
    let found = if named { workflow(check, fields) } else { check.world.current() };
    let Some(workflow) = found else {
        if !named {
            check.rule(&Path::ROOT.field("workflow_id"), || {
                "is missing, and the session has no current workflow; create a plan first".to_owned()
            });
        }
        return;
    };
    owned(check, workflow);
    let (Some(id), Some(updates)) = (text(fields, "node_id"), object(fields, "updates")) else { return };
    changed_node(check, workflow, ("node_id", id), &Path::ROOT.field("updates"), updates);
}

pub(super) fn error_recovery(check: &mut Check<'_>, fields: &Map<String, Value>) {
    let root = Path::ROOT;
    let path = root.field("recovery_plan");
    let plan = object(fields, "recovery_plan");
    if let Some(plan) = plan {
        recovery::plan(check, &path, plan);
    }
    let (Some(workflow), Some(id)) = (workflow(check, fields), text(fields, "failed_node_id")) else { return };
    let nothing = Map::new();
    let modifications = plan.and_then(|plan| object(plan, "modifications")).unwrap_or(&nothing);
    changed_node(check, workflow, ("failed_node_id", id), &path.field("modifications"), modifications);
    if let Some(other) = plan.and_then(|plan| text(plan, "alternative_node")) {
        alternative(check, &path.field("alternative_node"), &workflow.definition, id, other);
    }
}

/// Checks that a node exists, and that the plan with the changed node is valid.
fn changed_node(
    check: &mut Check<'_>,
    workflow: &WorkflowFacts,
    (field, id): (&str, &str),
    path: &Path<'_>,
    updates: &Map<String, Value>,
) {
    let Some(node) = revision::node(&workflow.definition, id) else {
        let known: Vec<_> = revision::ids(&workflow.definition).into_iter().map(|id| format!("`{id}`")).collect();
        check.rule(&Path::ROOT.field(field), || {
            let workflow = &workflow.workflow_id;
            format!("is `{}`, which `{workflow}` does not have; name one of {}", shown(id, 40), known.join(", "))
        });
        return;
    };
    let Some(kind) = text(node, "type").and_then(NodeType::parse).filter(|_| !updates.is_empty()) else { return };
    let changed = changes::apply(kind, node, updates);
    for problem in &changed.problems {
        check.rule(&path.field(&problem.key), || problem.text.clone());
    }
    if changed.problems.is_empty()
        && let Some(plan) = revision::with_node(&workflow.definition, id, changed.node)
    {
        result(check, path, &workflow.definition, &plan);
    }
}

/// Checks a plan that a change would leave behind. Errors that the plan had before are not those of the change: the nodes of
/// an operator may do more than those of an agent.
fn result(check: &mut Check<'_>, path: &Path<'_>, before: &Map<String, Value>, plan: &Map<String, Value>) {
    let judged = |plan: &Map<String, Value>| {
        let mut inner = Check::new(check.world);
        // A registered workflow may have nodes that only files have.
        inner.is_file = true;
        graph::whole(&mut inner, &Path::ROOT, plan);
        inner.report
    };
    let mut report = judged(plan);
    if report.has_errors() {
        let named = |error: &str| named(before, error);
        let known: HashSet<String> = judged(before).errors().map(named).collect();
        report.retain(|error| !known.contains(&self::named(plan, error)));
    }
    check.report.adopt(path, "leads to a plan in which", report);
}

/// An error with the id of its node in place of the number, which changes when other nodes are removed.
fn named(plan: &Map<String, Value>, error: &str) -> String {
    let place = error.strip_prefix("`nodes[").and_then(|rest| rest.split_once(']'));
    let Some((at, rest)) = place.and_then(|(at, rest)| Some((at.parse::<usize>().ok()?, rest))) else {
        return error.to_owned();
    };
    let node = list(plan, "nodes").get(at).and_then(Value::as_object);
    let id = node.and_then(|node| text(node, "node_id")).unwrap_or_default();
    format!("`nodes[`{id}`]{rest}")
}

fn alternative(check: &mut Check<'_>, path: &Path<'_>, plan: &Map<String, Value>, failed: &str, other: &str) {
    if other == failed {
        check.rule(path, || "is the failed node itself; name another".to_owned());
    } else if revision::node(plan, other).is_none() {
        check.rule(path, || format!("is `{}`, which does not exist; name a node of the workflow", shown(other, 40)));
    } else if revision::depends(plan, other, failed) {
        check.rule(path, || format!("is `{other}`, which runs after the failed node; name one that does not need it"));
    }
}

pub(super) fn replan_workflow(check: &mut Check<'_>, fields: &Map<String, Value>) {
    let root = Path::ROOT;
    if let Some(context) = object(fields, "execution_context")
        && !tells_of_failure(context)
    {
        check.rule(&root.field("execution_context"), || {
            "tells of no failure; give `node_outputs` with a failed node, `failed_attempts`, `error` or `failure_reason`"
                .to_owned()
        });
    }
    let Some(workflow) = workflow(check, fields) else { return };
    owned(check, workflow);
    let plan = &workflow.definition;
    let nothing = Map::new();
    let changes = object(fields, "suggested_changes").unwrap_or(&nothing);
    if !bounded(check, fields, changes) {
        return;
    }
    let removed: Vec<&str> = list(changes, "remove_nodes").iter().filter_map(Value::as_str).collect();
    for (at, id) in list(fields, "preserve_nodes").iter().enumerate() {
        let (path, Some(id)) = (root.field("preserve_nodes"), id.as_str()) else { continue };
        missing_or_removed(check, &path.item(at), plan, id, &removed);
    }
    let path = root.field("suggested_changes");
    for (at, id) in removed.iter().enumerate() {
        missing_or_removed(check, &path.field("remove_nodes").item(at), plan, id, &[]);
    }
    if !changes.is_empty() {
        let revised = revision::apply(plan, changes);
        for warning in &revised.warnings {
            check.report.warn(&path, || warning.clone());
        }
        for (at, edge) in &revised.unknown_edges {
            check.rule(&path.field("remove_edges").item(*at), || {
                format!("is the edge {edge}, which does not exist; remove it")
            });
        }
        result(check, &path, plan, &revised.plan);
    }
}

/// Checks that no list of a replan has more entries than a plan can have, before their entries are compared.
fn bounded(check: &mut Check<'_>, fields: &Map<String, Value>, changes: &Map<String, Value>) -> bool {
    let root = Path::ROOT;
    let path = root.field("suggested_changes");
    let lists = changes.iter().map(|(name, found)| (path.field(name), found));
    let mut is_bounded = true;
    for (path, found) in lists.chain(fields.get("preserve_nodes").map(|found| (root.field("preserve_nodes"), found))) {
        let count = found.as_array().map_or(0, Vec::len);
        if count > MAX_EDGES {
            check.rule(&path, || format!("has {count} entries, and at most {MAX_EDGES} are allowed; use fewer"));
            is_bounded = false;
        }
    }
    is_bounded
}

fn missing_or_removed(check: &mut Check<'_>, path: &Path<'_>, plan: &Map<String, Value>, id: &str, removed: &[&str]) {
    if revision::node(plan, id).is_none() {
        check.rule(path, || format!("is `{}`, which the workflow does not have; remove it", shown(id, 40)));
    } else if removed.contains(&id) {
        check.rule(path, || format!("is `{id}`, which `remove_nodes` names, too; remove it from one of them"));
    }
}

/// True for a failed node, a number of failed attempts, or the text of an error.
fn tells_of_failure(context: &Map<String, Value>) -> bool {
    let failed = |output: &Value| matches!(output.get("status").and_then(Value::as_str), Some("failed" | "error"));
    let outputs = object(context, "node_outputs").is_some_and(|outputs| outputs.values().any(failed));
    let attempts = context.get("failed_attempts").and_then(Value::as_f64).is_some_and(|count| count >= 1.0);
    let is_told = |name: &&str| match context.get(*name) {
        Some(Value::String(text)) => !text.trim().is_empty(),
        Some(Value::Object(fields)) => !fields.is_empty(),
        _ => false,
    };
    outputs || attempts || ["error", "failure_reason"].iter().any(is_told)
}

/// The workflow that the payload names. Reports an unknown one.
fn workflow<'w>(check: &mut Check<'w>, fields: &Map<String, Value>) -> Option<&'w WorkflowFacts> {
    let id = text(fields, "workflow_id").filter(|id| !id.trim().is_empty())?;
    let found = check.world.workflow(id);
    if found.is_none() {
        check.rule(&Path::ROOT.field("workflow_id"), || {
            format!("is `{}`, which does not exist; name an existing workflow, or create a plan", shown(id, 80))
        });
    }
    found
}

fn owned(check: &mut Check<'_>, workflow: &WorkflowFacts) {
    if !workflow.is_owned {
        check.rule(&Path::ROOT.field("workflow_id"), || {
            format!("is `{}`, which belongs to the operator; change only plans of the session", workflow.workflow_id)
        });
    }
}
