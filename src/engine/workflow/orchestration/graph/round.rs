//! The attempts that a node has before its next recovery, and its changes by recoveries.

use super::node::NodeRun;
use decisions::changes;
use decisions::payload::Node;
use decisions::revision;
use definitions::workflow::graph::GraphNode;
use serde_json::{Map, Value};
use std::time::Duration;

/// The pause between two attempts unless `retry_delay` is given.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The attempts before the next recovery.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// The most attempts.
    pub(super) most: u32,
    /// The pause between two of them.
    pub(super) pause: Duration,
}

impl Round {
    /// The attempts of a node by its `retry_config`.
    pub(super) fn of(node: &GraphNode) -> Self {
        let retry = node.spec.retry_config.as_ref();
        let retries = retry.and_then(|retry| retry.max_retries).unwrap_or(0).clamp(0, 100);
        let most = 1 + u32::try_from(retries).unwrap_or(0);
        let pause = retry.and_then(|retry| Duration::try_from_secs_f64(retry.retry_delay?).ok()).unwrap_or(RETRY_DELAY);
        Self { most, pause }
    }
}

/// A node that a recovery has changed, for this run.
#[derive(Clone, Debug)]
pub(super) struct Changed {
    pub(super) node: GraphNode,
    /// The node as in the plan.
    pub(super) fields: Map<String, Value>,
}

impl Changed {
    /// The node of `run` with these changes, which were judged. The error is a text for people.
    pub(super) fn new(run: &NodeRun<'_>, modifications: &Map<String, Value>) -> Result<Self, String> {
        let unreadable = |problem: &dyn std::fmt::Display| format!("the changed node cannot be read: {problem}");
        let id = run.node.id();
        let current = run.fields.or_else(|| revision::node(&run.scope.graph.plan, id));
        let current = current.ok_or_else(|| unreadable(&"it is not in the graph"))?;
        let fields = changes::apply(run.node.kind(), current, modifications).node;
        let spec: Node = serde_json::from_value(Value::Object(fields.clone())).map_err(|error| unreadable(&error))?;
        let node = GraphNode::read(spec).map_err(|error| unreadable(&error))?;
        Ok(Self { node, fields })
    }
}
