//! A graph for people: as JSON for a viewer. Values of `env` are masked.

use super::{GraphDefinition, GraphLevel, GraphNode};
use crate::workflow::runnable_registry::RunnableRegistry;
use decisions::event::masked;
use serde_json::{Map, Value, json};

/// The fields of the structure of a graph: its nodes, edges and `levels`, which list the nodes that can run together.
pub(in crate::workflow) fn fields(graph: &GraphDefinition, known: &RunnableRegistry) -> Map<String, Value> {
    let shown = GraphDefinition { plan: masked(&graph.plan, &str::to_owned), ..graph.clone() };
    let mut described = Map::new();
    let mut put = |name: &str, value: Value| drop(described.insert(name.to_owned(), value));
    put("name", json!(graph.name));
    put("nodes", nodes(&shown, &graph.level, known));
    put("edges", edges(&graph.level));
    put("levels", json!(graph.level.layers()));
    put("global_config", shown.plan.get("global_config").cloned().unwrap_or_default());
    put("coordinator", json!(graph.coordinator));
    put("recovery", json!(graph.recovery));
    put("max_concurrency", json!(graph.max_concurrency));
    described
}

fn nodes(shown: &GraphDefinition, level: &GraphLevel, known: &RunnableRegistry) -> Value {
    let nodes = shown.plan.get("nodes").and_then(Value::as_array);
    let described = nodes.into_iter().flatten().zip(&level.nodes).map(|(written, node)| {
        let mut described = written.clone();
        if let Some(kind) = node.stage.as_ref().and_then(|stage| known.kind(stage.runnable.id())) {
            described["runnable_kind"] = kind.as_str().into();
        }
        if let Some(body) = &node.body {
            described["levels"] = json!(body.layers());
        }
        described
    });
    described.collect()
}

fn edges(level: &GraphLevel) -> Value {
    let edge = |edge: &super::GraphEdge| {
        let (source, target) = (level.nodes[edge.source].id(), level.nodes[edge.target].id());
        json!({"source": source, "target": target, "condition": edge.condition.as_ref().map(|one| one.as_str())})
    };
    level.edges.iter().map(edge).collect()
}

/// What a node does, in one line: the main field of its config.
pub(in crate::workflow) fn brief(node: &GraphNode) -> String {
    let main =
        ["runnable", "prompt", "url", "query", "expression", "question", "until", "seconds", "condition", "items"];
    let found = main.into_iter().find_map(|name| node.spec.config.get(name));
    let text = found.map(decisions::reference::resolve::as_text).unwrap_or_default();
    crate::workflow::structure::brief(&text)
}
