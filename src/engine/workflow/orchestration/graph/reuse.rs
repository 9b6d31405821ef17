//! Results that a revision of a graph takes over: a node keeps its output exactly when its type, its config and its resolved
//! input are unchanged.

use super::node::reaching;
use super::resolved::ResolvedNode;
use super::values::{NodeValues, Sight};
use decisions::node_type::NodeType;
use decisions::reference::references;
use decisions::reference::resolve::{Found, Values};
use definitions::workflow::graph::GraphNode;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// The facts about a revision's nodes that the next one uses.
#[derive(Default)]
pub(super) struct Carried {
    /// The nodes that are done, by id.
    pub(super) done: HashMap<String, DoneNode>,
    /// The digest of the first request of each node, by id, also of nodes of earlier revisions.
    pub(super) first_requests: HashMap<String, String>,
}

/// A node that is done.
pub(super) struct DoneNode {
    /// Everything on which the output depends.
    pub(super) signature: Value,
    pub(super) output: Arc<Value>,
}

/// Everything on which the output of a node depends. `before` are the nodes from which taken edges lead to it.
pub(super) fn signature(node: &GraphNode, resolved: &ResolvedNode, sight: &Sight, before: &[&str]) -> Value {
    let values = NodeValues { mapping: &resolved.mapping, ..NodeValues::of(sight) };
    let config = |name: &str| node.spec.config.get(name);
    let mut seen = Map::new();
    // Conditions keep their references when a node is resolved.
    for condition in ["expression", "condition"].into_iter().filter_map(config) {
        collect(condition, &values, &mut seen);
    }
    let written = json!(node.spec.output_mapping);
    collect(&written, &values, &mut seen);
    let takes_all = match node.kind() {
        NodeType::End => config("output").is_none(),
        NodeType::Runnable => config("input").is_none(),
        _ => false,
    };
    json!({
        "type": node.kind(),
        "config": resolved.recorded(),
        "output_mapping": written,
        "seen": seen,
        "reaching": if takes_all { reaching(sight, before) } else { Value::Null },
    })
}

/// Collects the values to which the texts of `written` refer.
fn collect(written: &Value, values: &NodeValues<'_>, found: &mut Map<String, Value>) {
    match written {
        Value::String(text) => {
            for reference in references(text) {
                if let Found::Value(value) = values.find(reference) {
                    found.insert(reference.path.to_owned(), value.into_owned());
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, values, found)),
        Value::Object(fields) => fields.values().for_each(|field| collect(field, values, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
