//! The known fields of a workflow file. Unknown fields have no effect except on the hash, so most are typing mistakes.

use super::reader::TYPES;
use crate::document::Report;
use base::config::nearest::question;
use serde_json::{Map, Value};

/// The fields of each kind of table. A test compares them with docs/workflows.md.
pub const FIELDS: [(&str, &[&str]); 12] = [
    ("pipeline", &["type", "id", "description", "limits", "stages", "output", "inherit_keys"]),
    (
        "loop",
        &["type", "id", "description", "limits", "stages", "condition", "max_iterations", "output", "inherit_keys"],
    ),
    ("parallel", &["type", "id", "description", "limits", "branches", "merge_template", "max_concurrency"]),
    ("conditional", &["type", "id", "description", "limits", "routes", "default"]),
    (
        "dynamic",
        &[
            "type",
            "id",
            "description",
            "limits",
            "plan",
            "replan",
            "review",
            "summary",
            "agents",
            "max_iterations",
            "max_concurrency",
        ],
    ),
    (
        "graph",
        &[
            "type",
            "id",
            "name",
            "description",
            "limits",
            "nodes",
            "edges",
            "global_config",
            "coordinator",
            "recovery",
            "max_concurrency",
        ],
    ),
    ("role", &["agent", "model"]),
    ("sub_agent", &["name", "runnable", "description", "retry", "timeout", "model"]),
    ("stage", &["id", "runnable", "input", "condition", "retry", "timeout", "model"]),
    ("route", &["condition", "stage"]),
    ("retry", &["max_attempts", "backoff"]),
    ("limits", &["max_stages", "max_depth", "timeout", "max_model_calls", "max_tokens"]),
];

/// The author's own bookkeeping field at the top of a file. The hash excludes it.
const BOOKKEEPING: &str = "updated_at";

/// Warns of every field that a table of this `kind` does not have. An unknown kind is not checked.
pub(super) fn check(table: &Map<String, Value>, path: &str, kind: &str, report: &mut Report) {
    let Some((_, known)) = FIELDS.iter().find(|(name, _)| *name == kind) else { return };
    for name in table.keys().map(String::as_str) {
        if known.contains(&name) || path.is_empty() && name == BOOKKEEPING {
            continue;
        }
        let elsewhere = FIELDS.iter().take(TYPES.len()).find(|(_, fields)| fields.contains(&name));
        let hint = match (elsewhere, question(name, known.iter().copied())) {
            _ if (kind, name) == ("parallel", "output") => "its `merge_template` makes a parallel's output".to_owned(),
            (Some((other, _)), _) => format!("`{name}` is for `type: {other}`"),
            (None, close) if close.is_empty() => "it has no effect; remove it".to_owned(),
            (None, close) => close,
        };
        report.warn(super::reader::join(path, name), format!("a {} has no such field", kind.replace('_', "-")), hint);
    }
}
