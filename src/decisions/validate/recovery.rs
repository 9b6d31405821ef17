//! Checks recovery plans.

use super::check::{Check, object, text};
use super::references::Visible;
use super::shape;
use crate::changes;
use crate::node_type::NodeType;
use crate::path::Path;
use crate::report::Group;
use crate::table::configs::config;
use serde_json::{Map, Value};

/// Checks the fields that an action needs.
pub(super) fn plan(check: &mut Check<'_>, path: &Path<'_>, plan: &Map<String, Value>) {
    let is_missing = |name: &str| plan.get(name).is_none_or(Value::is_null);
    match text(plan, "action") {
        Some("RETRY") if is_missing("max_attempts") => {
            check.report.error(Group::Missing, &path.field("max_attempts"), || {
                "is missing; give the number of further attempts of `RETRY`".to_owned()
            });
        }
        Some("MODIFY") if is_missing("modifications") => {
            check.report.error(Group::Missing, &path.field("modifications"), || {
                "is missing; give the changes of `MODIFY`, such as `config.timeout`".to_owned()
            });
        }
        Some(action) if action != "SKIP" && !is_missing("alternative_node") => {
            check.rule(&path.field("alternative_node"), || "is only for `SKIP`; remove it".to_owned());
        }
        _ => {}
    }
}

/// Checks the fixed plan of a node: its changes fit the node, and the alternative exists.
pub(super) fn fixed(
    check: &mut Check<'_>,
    path: &Path<'_>,
    plan: &Map<String, Value>,
    (kind, node): (NodeType, &Map<String, Value>),
    visible: &dyn Visible,
) {
    if let Some(found) = object(plan, "modifications") {
        let path = path.field("modifications");
        let changed = changes::apply(kind, node, found);
        for problem in &changed.problems {
            check.rule(&path.field(&problem.key), || problem.text.clone());
        }
        if let Some(found) = object(&changed.node, "config").filter(|_| changed.problems.is_empty()) {
            shape::object(check, &path, config(kind), found, &[]);
        }
    }
    let Some(other) = text(plan, "alternative_node") else { return };
    let path = path.field("alternative_node");
    if text(node, "node_id") == Some(other) {
        check.rule(&path, || "is the node itself; name another".to_owned());
    } else if visible.runs_before(other).is_none() {
        check.rule(&path, || format!("is `{other}`, which does not exist; name a node of the plan"));
    }
}
