//! The last revision of a graph.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The graph of a run after its last replan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RevisedGraph {
    /// The number of the replan, from 1. The keys of nodes that run after it end in `@<number>`.
    pub number: u32,
    /// `nodes`, `edges` and `global_config`, as in a workflow file.
    pub plan: Map<String, Value>,
}
