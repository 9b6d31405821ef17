//! `bench graph`: nodes per second and stored bytes per node of graphs in layers, and the time of one wide fan-out.

use super::member::{MemberProfile, Role};
use super::options::GraphOptions;
use super::report::{Column, Report, Row};
use super::runs::MeasuredRuns;
use super::test_cluster::TestCluster;
use super::workers::Workers;
use super::{Problem, Progress};
use base::config::{Environment, Settings};
use decisions::limits::MAX_NODES;
use definitions::workflow::definition::WorkflowRecord;
use serde_json::{Value, json};
use std::time::Duration;
use types::duration::{Text, format};
use types::timestamp::Timestamp;

/// Id of the graph.
const GRAPH: &str = "bench";
/// Nodes of each layer.
const LAYER: usize = 5;

const COLUMNS: &[Column] = &[
    ("graph", "graph"),
    ("runs", "runs"),
    ("nodes each", "nodes"),
    ("workers", "workers"),
    ("nodes/s", "nodes_per_s"),
    ("seconds", "seconds"),
    ("CPU µs/node", "us_per_node_all"),
    ("store B/node", "store_bytes_per_node"),
    ("events B/node", "event_bytes_per_node"),
];

/// The graph of one row.
struct Case {
    name: &'static str,
    document: Value,
    nodes: usize,
    runs: usize,
    /// Latency of the model.
    latency: Duration,
}

/// Runs the benchmark: one row for each number of nodes, and one for the fan-out.
pub async fn run(
    options: &GraphOptions,
    settings: &Settings,
    env: &Environment,
    progress: &dyn Progress,
) -> anyhow::Result<Report> {
    let widest = options.nodes.iter().copied().chain([options.fan_out + 1]).max().unwrap_or_default();
    if widest > MAX_NODES {
        let message = format!("a graph of {widest} nodes is too large: a graph has at most {MAX_NODES}");
        return Err(Problem::new(message, "lower --nodes, or --fan-out (it adds one node)").into());
    }
    if let Some(nodes) = options.nodes.iter().find(|nodes| **nodes < 2 * LAYER || **nodes % LAYER != 0) {
        let message = format!("{nodes} nodes make no full layers of {LAYER}");
        return Err(Problem::new(message, "give --nodes multiples of 5, from 10").into());
    }
    let cluster = TestCluster::prepare(&options.target, settings, env, progress).await?;
    let mut rows = Vec::new();
    for nodes in options.nodes.iter().copied() {
        let case = Case { name: "layers", document: layers(nodes), nodes, runs: options.runs, latency: Duration::ZERO };
        rows.push(Box::pin(row(&cluster, options, case, progress)).await?);
    }
    if options.fan_out > 0 {
        let case = Case {
            name: "fan-out",
            document: fan_out(options.fan_out),
            nodes: options.fan_out,
            runs: 1,
            latency: options.model_latency,
        };
        rows.push(Box::pin(row(&cluster, options, case, progress)).await?);
    }
    Ok(Report { environment: cluster.conditions.clone(), rows, columns: COLUMNS })
}

async fn row(
    cluster: &TestCluster,
    options: &GraphOptions,
    case: Case,
    progress: &dyn Progress,
) -> anyhow::Result<Row> {
    let Case { name, document, nodes, runs, latency } = case;
    progress.phase(&format!("graph: {runs} × {name} of {nodes} nodes, model latency {}", format(latency)));
    let namespace = cluster.open_namespace(|_| {}).await?;
    namespace.store.put_workflow(WorkflowRecord::from_document(document, Timestamp::from_millis(0))?).await?;
    let profile = MemberProfile { role: Role::Worker, actions: 0, model_latency: Text(latency), hot: false };
    let workers = Workers::start(&namespace, &profile, options.workers, cluster.dir())?;
    let measured = MeasuredRuns {
        cluster,
        namespace: &namespace,
        workers: &workers,
        workflow_id: GRAPH,
        runs,
        unit: "node",
        units: nodes,
    };
    let mut row = measured.measure(progress).await?;
    let figures = json!({
        "bench": "graph",
        "backend": options.target.backend,
        "graph": name,
        "model_latency": format(latency),
        "workers": options.workers,
    });
    if let Value::Object(figures) = figures {
        row.extend(figures);
    }
    workers.end().await;
    namespace.close().await?;
    Ok(row)
}

/// A graph of LLM nodes in layers. Each node follows two nodes of the layer before it.
pub(super) fn layers(nodes: usize) -> Value {
    let node = |number: usize| {
        let prompt = match number.checked_sub(LAYER) {
            None => "Check the plan: ${query}".to_owned(),
            Some(before) => format!("Go on from this: ${{{}.output.text}}", id(before)),
        };
        llm(number, &prompt)
    };
    let edges = (LAYER..nodes).flat_map(|number| {
        let (layer, place) = (number / LAYER, number % LAYER);
        let before = |place: usize| edge((layer - 1) * LAYER + place % LAYER, number);
        [before(place), before(place + 1)]
    });
    graph(&(0..nodes).map(node).collect::<Vec<_>>(), &edges.collect::<Vec<_>>())
}

/// A START node, and `width` LLM nodes that all follow it.
fn fan_out(width: usize) -> Value {
    let first = json!({"node_id": id(0), "type": "START", "name": "start", "config": {}});
    let nodes = std::iter::once(first).chain((1..=width).map(|number| llm(number, "Check the plan: ${query}")));
    graph(&nodes.collect::<Vec<_>>(), &(1..=width).map(|number| edge(0, number)).collect::<Vec<_>>())
}

fn graph(nodes: &[Value], edges: &[Value]) -> Value {
    let most = nodes.len();
    json!({"type": "graph", "id": GRAPH, "name": "bench", "max_concurrency": most, "nodes": nodes, "edges": edges})
}

fn llm(number: usize, prompt: &str) -> Value {
    json!({"node_id": id(number), "type": "LLM", "name": format!("step {number}"), "config": {"prompt": prompt}})
}

fn edge(source: usize, target: usize) -> Value {
    json!({"source": id(source), "target": id(target)})
}

fn id(number: usize) -> String {
    format!("n{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_graphs_are_valid() {
        for document in [layers(10), layers(50), fan_out(1), fan_out(49)] {
            WorkflowRecord::from_document(document, Timestamp::from_millis(0)).unwrap();
        }
    }
}
