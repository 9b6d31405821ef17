//! The validator. It works on the raw payload, so that it collects every error.
//!
//! - [`validate`] checks what holds for all types, then the fields by the tables, then the rules of the type.
//! - `check` holds the world and the report, and `shape` checks objects by the tables.
//! - `graph` checks plans, with `level` for the nodes and edges of one level, `node` for one node and `references` for its
//!   references. `recovery` checks recovery plans.
//! - `of_session` has the rules of the types that name a workflow of the session, and `simple` those of the others.

mod check;
mod graph;
mod level;
mod node;
mod of_session;
mod recovery;
mod references;
mod shape;
mod simple;

use crate::kind::{Decision, DecisionType};
use crate::limits::MAX_PAYLOAD_BYTES;
use crate::path::{Path, shown};
use crate::report::{Group, Report, Validation};
use crate::table::Kind;
use crate::table::graph::RECOVERY_PLAN;
use crate::table::payloads::{ACTION_TYPE, payload};
use crate::world::World;
use check::Check;
use serde_json::{Map, Value};
use std::io;
use types::depth;
use types::json_kind::json_kind;

/// Judges a decision as it is. Pure: the same decision and world give the same verdict.
pub fn validate(decision: &Decision, world: &dyn World) -> Validation {
    let mut check = Check::new(world);
    let (kind, payload) = (decision.decision_type, &decision.payload);
    action_type(&mut check.report, kind, payload);
    if size(&mut check.report, payload) {
        fields_and_rules(&mut check, kind, payload);
    }
    check.report.finish()
}

/// Judges a plan of a workflow file or a stored one: nodes, edges and `global_config`. With `is_file`, nodes may have the
/// types that only files have.
pub fn validate_plan(plan: &Map<String, Value>, is_file: bool, world: &dyn World) -> Validation {
    let mut check = Check::new(world);
    check.is_file = is_file;
    graph::whole(&mut check, &Path::ROOT, plan);
    check.report.finish()
}

/// Judges the inputs of a run of this plan.
pub fn validate_inputs(plan: &Map<String, Value>, given: &Map<String, Value>, world: &dyn World) -> Validation {
    let mut check = Check::new(world);
    of_session::inputs(&mut check, &Path::ROOT.field("input"), plan, Some(given));
    check.report.finish()
}

/// Judges the fixed recovery plan of a whole graph.
pub fn validate_recovery(plan: &Value, world: &dyn World) -> Validation {
    let (mut check, root) = (Check::new(world), Path::ROOT);
    let path = root.field("recovery");
    shape::value(&mut check, &path, Kind::Shape(&RECOVERY_PLAN), plan);
    if let Some(plan) = plan.as_object() {
        recovery::plan(&mut check, &path, plan);
    }
    check.report.finish()
}

fn fields_and_rules(check: &mut Check<'_>, kind: DecisionType, fields: &Map<String, Value>) {
    let root = Path::ROOT;
    shape::object(check, &root, payload(kind), fields, &[ACTION_TYPE]);
    match kind {
        DecisionType::CreateNode => simple::create_node(check, fields),
        DecisionType::CreateWorkflowPlan => graph::rules(check, &root, fields),
        DecisionType::SpawnSubagent => simple::spawn_subagent(check, fields),
        DecisionType::ExecuteWorkflow => of_session::execute_workflow(check, fields),
        DecisionType::ModifyNode => of_session::modify_node(check, fields),
        DecisionType::ErrorRecovery => of_session::error_recovery(check, fields),
        DecisionType::ReplanWorkflow => of_session::replan_workflow(check, fields),
        DecisionType::RequestClarification | DecisionType::Respond | DecisionType::Continue => {}
    }
}

fn action_type(report: &mut Report, kind: DecisionType, payload: &Map<String, Value>) {
    let path = Path::ROOT.field(ACTION_TYPE);
    match payload.get(ACTION_TYPE) {
        None | Some(Value::Null) => report.error(Group::ActionType, &path, || format!("is missing; give `{kind}`")),
        Some(Value::String(found)) if found == kind.as_str() => {}
        Some(Value::String(found)) => report.error(Group::ActionType, &path, || {
            format!("is `{}`, but the decision is `{kind}`; give the same in both", shown(found, 40))
        }),
        Some(other) => {
            report.error(Group::ActionType, &path, || format!("is {}, not a text; give `{kind}`", json_kind(other)))
        }
    }
}

/// Checks the bytes and levels of the payload. Returns false if it is too deep to be checked further.
fn size(report: &mut Report, payload: &Map<String, Value>) -> bool {
    let bytes = bytes(payload);
    if bytes > MAX_PAYLOAD_BYTES {
        report.error(Group::Size, &Path::ROOT, || {
            format!("has {bytes} bytes, and at most {MAX_PAYLOAD_BYTES} are allowed; shorten it")
        });
    }
    // The payload is level 1.
    let is_flat = payload.values().all(|field| fits(field, depth::MAX_DEPTH - 1));
    if !is_flat {
        report.error(Group::Size, &Path::ROOT, || {
            format!("is nested more than {} levels deep; flatten it", depth::MAX_DEPTH)
        });
    }
    is_flat
}

fn fits(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| fits(item, levels - 1)),
        Value::Object(fields) => levels > 0 && fields.values().all(|field| fits(field, levels - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// The bytes of the compact JSON of a payload.
pub fn bytes(payload: &Map<String, Value>) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, part: &[u8]) -> io::Result<usize> {
            self.0 += part.len();
            Ok(part.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting cannot fail, and neither can a map with texts as keys.
    serde_json::to_writer(&mut count, payload).ok();
    count.0
}
