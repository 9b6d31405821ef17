//! Draws a workflow as a Mermaid flowchart.

use super::definition::{DynamicDefinition, Shape, Target, Workflow};
use super::graph::{GraphLevel, GraphNode};
use super::structure::{brief, headline, parts};
use crate::workflow::node::Node;
use decisions::node_type::NodeType;
use std::collections::HashMap;
use std::fmt::Write;
use types::run::{NodeState, NodeStatus};

/// Draws a Mermaid flowchart with a subgraph for each workflow and a box for each stage that references its runnable.
pub fn mermaid(workflow: &Workflow) -> String {
    mermaid_of_run(workflow, &[])
}

/// Draws the flowchart of a run: the nodes of a graph are coloured by their states.
pub fn mermaid_of_run(workflow: &Workflow, states: &[NodeState]) -> String {
    let mut chart = Chart { text: "flowchart TD\n".to_owned(), boxes: 0, nodes: Vec::new() };
    chart.workflow(workflow, None, 1);
    if let Shape::Graph(graph) = &workflow.shape {
        chart.colour(&graph.level, states);
    }
    chart.text
}

/// The colours of the states of nodes.
const COLOURS: [(NodeStatus, &str, &str); 5] = [
    (NodeStatus::Pending, "pending", "fill:#ffffff,stroke:#9e9e9e,color:#616161"),
    (NodeStatus::Running, "running", "fill:#fff3cd,stroke:#b8860b,color:#5c4400"),
    (NodeStatus::Completed, "completed", "fill:#d4edda,stroke:#2e7d32,color:#1b5e20"),
    (NodeStatus::Failed, "failed", "fill:#f8d7da,stroke:#b71c1c,color:#7f0000"),
    (NodeStatus::Skipped, "skipped", "fill:#eeeeee,stroke:#9e9e9e,color:#757575,stroke-dasharray:4"),
];

struct Chart {
    text: String,
    /// The boxes of the outermost nodes of a graph.
    nodes: Vec<String>,
    /// Number of boxes so far. Boxes have numbered ids, because ids of the file may be keywords of Mermaid.
    boxes: usize,
}

impl Chart {
    fn line(&mut self, level: usize, line: &str) {
        let _ = writeln!(self.text, "{}{line}", "    ".repeat(level));
    }

    fn next(&mut self) -> String {
        self.boxes += 1;
        format!("n{}", self.boxes)
    }

    /// Draws a workflow. Returns the id of its subgraph.
    fn workflow(&mut self, workflow: &Workflow, stage: Option<&str>, level: usize) -> String {
        let id = self.next();
        let title = stage.map(|stage| format!("{stage}: ")).unwrap_or_default() + &headline(workflow);
        self.line(level, &format!("subgraph {id}[\"{}\"]", label(&title)));
        if let Shape::Graph(graph) = &workflow.shape {
            self.graph(&graph.level, level + 1);
            self.line(level, "end");
            return id;
        }
        let fork = matches!(workflow.shape, Shape::Conditional { .. }).then(|| {
            let fork = self.next();
            self.line(level + 1, &format!("{fork}{{\"?\"}}"));
            fork
        });
        let orchestrator = match &workflow.shape {
            Shape::Dynamic(dynamic) => Some(self.nodes(dynamic, level + 1)),
            _ => None,
        };
        let mut ids = Vec::new();
        let mut edges = Vec::new();
        for (when, stage) in parts(&workflow.shape) {
            let one = match &stage.runnable {
                Target::Inline(within) => self.workflow(within, Some(&stage.id), level + 1),
                Target::Reference(name) => {
                    let one = self.next();
                    self.line(level + 1, &format!("{one}[\"{}<br/>{}\"]", label(&stage.id), label(name)));
                    one
                }
            };
            let before = match &workflow.shape {
                Shape::Parallel { .. } => None,
                Shape::Conditional { .. } => fork.clone(),
                Shape::Pipeline { .. } | Shape::Loop { .. } => ids.last().cloned(),
                Shape::Dynamic(_) | Shape::Graph(_) => None,
            };
            edges.extend(orchestrator.iter().map(|orchestrator| format!("{orchestrator} -.-> {one}")));
            let when = when.map(|when| format!("|\"{}\"|", label(&when))).unwrap_or_default();
            edges.extend(before.map(|before| format!("{before} -->{when} {one}")));
            ids.push(one);
        }
        if let (Shape::Loop { .. }, [first, .., last]) = (&workflow.shape, ids.as_slice()) {
            edges.push(format!("{last} -.-> {first}"));
        }
        edges.iter().for_each(|edge| self.line(level + 1, edge));
        self.line(level, "end");
        id
    }
}

impl Chart {
    /// Draws the nodes of a dynamic workflow and the edges between them. Returns the id of the node that runs the
    /// agents.
    fn nodes(&mut self, dynamic: &DynamicDefinition, level: usize) -> String {
        let mut boxes = HashMap::new();
        for node in Node::ALL {
            let id = self.next();
            let agent = match node {
                Node::Triage => format!("{}, {}", dynamic.plan.agent, dynamic.replan.agent),
                Node::Review => format!("{}, {}", dynamic.review.agent, dynamic.summary.agent),
                Node::Summary => dynamic.summary.agent.clone(),
                Node::StoreQuery | Node::Clarify | Node::Reject | Node::Orchestrator => String::new(),
            };
            let agent = if agent.is_empty() { agent } else { format!("<br/>{}", label(&agent)) };
            self.line(level, &format!("{id}[\"{}{agent}\"]", node.id()));
            boxes.insert(node, id);
        }
        for (from, when, to) in WAYS {
            let when = if when.is_empty() { String::new() } else { format!("|\"{when}\"|") };
            self.line(level, &format!("{} -->{when} {}", boxes[&from], boxes[&to]));
        }
        boxes[&Node::Orchestrator].clone()
    }
}

impl Chart {
    /// Colours the outermost nodes of a graph by their states.
    fn colour(&mut self, level: &GraphLevel, states: &[NodeState]) {
        for (status, class, colours) in COLOURS {
            let is_in = |node: &GraphNode| states.iter().any(|one| one.node_id == node.id() && one.status == status);
            let boxes = level.nodes.iter().zip(&self.nodes).filter(|(node, _)| is_in(node));
            let boxes: Vec<&str> = boxes.map(|(_, name)| name.as_str()).collect();
            if !boxes.is_empty() {
                let line = format!("classDef {class} {colours}\n    class {} {class}", boxes.join(","));
                self.line(1, &line);
            }
        }
    }

    /// Draws the nodes of a graph, each in the shape of its type, and its edges.
    fn graph(&mut self, graph: &GraphLevel, level: usize) {
        let ids: Vec<String> = graph.nodes.iter().map(|node| self.graph_node(node, level)).collect();
        // The nodes of a LOOP's body are drawn before the level is complete, so the last list is that of the outermost one.
        self.nodes.clone_from(&ids);
        for edge in &graph.edges {
            let when = edge.condition.as_ref().map(|one| format!("|\"{}\"|", label(one.as_str()))).unwrap_or_default();
            self.line(level, &format!("{} -->{when} {}", ids[edge.source], ids[edge.target]));
        }
    }

    fn graph_node(&mut self, node: &GraphNode, level: usize) -> String {
        let id = self.next();
        let title = format!("{}<br/>{}", label(node.id()), label(&node.spec.name));
        if let Some(body) = &node.body {
            self.line(level, &format!("subgraph {id}[\"{title}\"]"));
            self.graph(body, level + 1);
            self.line(level, "end");
            return id;
        }
        let (open, close) = match node.kind() {
            NodeType::Database => ("[(", ")]"),
            NodeType::Condition => ("{", "}"),
            NodeType::Python => ("[[", "]]"),
            NodeType::Http => ("[/", "/]"),
            NodeType::Llm => ("([", "])"),
            NodeType::Start | NodeType::End => ("((", "))"),
            NodeType::Loop | NodeType::Runnable | NodeType::Ask | NodeType::Wait => ("[", "]"),
        };
        self.line(level, &format!("{id}{open}\"{title}\"{close}"));
        id
    }
}

/// The edges between nodes: from, label, to.
const WAYS: [(Node, &str, Node); 8] = [
    (Node::StoreQuery, "", Node::Triage),
    (Node::Triage, "clarify", Node::Clarify),
    (Node::Triage, "reject", Node::Reject),
    (Node::Triage, "plan", Node::Orchestrator),
    (Node::Triage, "refused", Node::Summary),
    (Node::Orchestrator, "", Node::Review),
    (Node::Orchestrator, "again", Node::Summary),
    (Node::Review, "incomplete", Node::Triage),
];

/// The longest label in characters.
const MAX_LABEL_CHARS: usize = 80;

/// Escapes a text for a quoted label. Characters that Mermaid or HTML interpret become entities.
pub(super) fn label(text: &str) -> String {
    let text = brief(text);
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars().take(MAX_LABEL_CHARS) {
        match c {
            '"' | '#' | '&' | '<' | '>' | '`' | ';' | '\\' => {
                let _ = write!(escaped, "#{};", u32::from(c));
            }
            c if c.is_control() => {}
            c => escaped.push(c),
        }
    }
    escaped + if text.chars().nth(MAX_LABEL_CHARS).is_some() { "…" } else { "" }
}
