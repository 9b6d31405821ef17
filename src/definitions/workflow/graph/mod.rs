//! Graphs: workflows with `type: graph`, whose nodes run as soon as the nodes before them have ended.
//!
//! The nodes and edges of a file are those of a plan that a model writes, so the crate `decisions` has their fields, their
//! rules and their references. This folder reads them into [`GraphDefinition`]: `read` parses a file, [`condition`] has
//! the conditions of edges, [`order`] the nodes that can run together, [`inputs`] the declared inputs of a run, and
//! [`describe`] shows a graph to people.

pub mod condition;
pub mod describe;
pub mod inputs;
pub mod order;
mod read;

use super::definition::{Retry, StageDefinition, Target};
use super::template::InputMapping;
use condition::{EdgeCondition, GraphConditionError};
use decisions::node_type::NodeType;
use decisions::payload::{Edge, GlobalConfig, Node, RecoveryPlan};
use serde::Deserialize;
use serde_json::{Map, Value};
use thiserror::Error;
use types::ids;

/// A graph.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphDefinition {
    /// The name for people.
    pub name: String,
    /// `nodes`, `edges` and `global_config` as in the document, for the validator and for changes.
    pub plan: Map<String, Value>,
    /// The nodes and edges.
    pub level: GraphLevel,
    /// The settings of the whole graph.
    pub global: GlobalConfig,
    /// Id of the coordinator agent that is asked when a node fails for good. Without one the run fails.
    pub coordinator: Option<String>,
    /// The fixed plan for each node that fails for good and has none of its own.
    pub recovery: Option<RecoveryPlan>,
    /// How many nodes run concurrently; the setting `workflow.max_parallel` unless given.
    pub max_concurrency: Option<usize>,
}

/// The nodes and edges of a graph, or of the body of a LOOP.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GraphLevel {
    /// The nodes, in the order of the document.
    pub nodes: Vec<GraphNode>,
    /// The edges, in the order of the document.
    pub edges: Vec<GraphEdge>,
}

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphNode {
    /// The fields of the node.
    pub spec: Node,
    /// The stage that a RUNNABLE node runs.
    pub stage: Option<StageDefinition>,
    /// The body of a LOOP node.
    pub body: Option<GraphLevel>,
}

/// An edge.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphEdge {
    /// Index of the node that runs first.
    pub source: usize,
    /// Index of the node that runs afterwards.
    pub target: usize,
    /// The condition; without one the edge is always taken.
    pub condition: Option<EdgeCondition>,
}

/// Why a plan that was validated cannot be read. The validator and the reader differ then.
#[derive(Debug, Error)]
pub enum GraphError {
    /// A field has an unexpected form.
    #[error("the graph cannot be read: {0}")]
    Fields(#[from] serde_json::Error),
    /// A condition cannot be parsed.
    #[error(transparent)]
    Condition(#[from] GraphConditionError),
    /// An edge names an unknown node.
    #[error("the edge from `{source_id}` to `{target}` names a node that does not exist")]
    Edge {
        /// The id of the node that runs first.
        source_id: String,
        /// The id of the node that runs afterwards.
        target: String,
    },
}

/// The lists of a level, as in the document.
#[derive(Deserialize)]
struct RawLevel {
    nodes: Vec<Node>,
    #[serde(default)]
    edges: Option<Vec<Edge>>,
}

impl GraphLevel {
    /// Reads the nodes and edges of a plan that the validator accepts.
    pub fn from_plan(plan: &Map<String, Value>) -> Result<Self, GraphError> {
        let field = |name: &str| plan.get(name).cloned().unwrap_or_default();
        let raw: RawLevel =
            serde_json::from_value(serde_json::json!({"nodes": field("nodes"), "edges": field("edges")}))?;
        let nodes = raw.nodes.into_iter().map(GraphNode::read).collect::<Result<Vec<_>, _>>()?;
        let mut level = Self { nodes, edges: Vec::new() };
        let edges = raw.edges.unwrap_or_default().into_iter().map(|edge| level.edge(edge));
        level.edges = edges.collect::<Result<_, _>>()?;
        Ok(level)
    }

    fn edge(&self, edge: Edge) -> Result<GraphEdge, GraphError> {
        let (Some(source), Some(target)) = (self.place(&edge.source), self.place(&edge.target)) else {
            return Err(GraphError::Edge { source_id: edge.source, target: edge.target });
        };
        let of_condition = self.nodes[source].kind() == NodeType::Condition;
        let condition = edge.condition.as_deref().filter(|text| !text.trim().is_empty());
        let condition = condition.map(|text| EdgeCondition::parse(text, of_condition)).transpose()?;
        Ok(GraphEdge { source, target, condition })
    }

    /// Index of the node with this id.
    pub fn place(&self, id: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.id() == id)
    }

    /// The node with this id, also in the body of a LOOP.
    pub fn find(&self, id: &str) -> Option<&GraphNode> {
        self.nodes.iter().find_map(|node| {
            if node.id() == id { Some(node) } else { node.body.as_ref().and_then(|body| body.find(id)) }
        })
    }

    /// All nodes with their paths in the document, also those in the bodies of LOOPs. `path` is that of the level.
    pub fn walk<'g>(&'g self, path: &str, visit: &mut impl FnMut(String, &'g GraphNode)) {
        for (at, node) in self.nodes.iter().enumerate() {
            let path = super::reader::join(path, &format!("nodes[{at}]"));
            visit(path.clone(), node);
            if let Some(body) = &node.body {
                body.walk(&format!("{path}.config.body"), visit);
            }
        }
    }

    /// The stages of the RUNNABLE nodes with the paths of the tables that name their runnables.
    pub fn stages(&self) -> Vec<(String, &StageDefinition)> {
        let mut found = Vec::new();
        self.walk("", &mut |path, node| {
            found.extend(node.stage.as_ref().map(|stage| (format!("{path}.config"), stage)))
        });
        found
    }

    /// The nodes from which no edge leads, in order.
    pub fn sinks(&self) -> impl Iterator<Item = &GraphNode> {
        let leads = |at: usize| self.edges.iter().any(|edge| edge.source == at);
        self.nodes.iter().enumerate().filter(move |(at, _)| !leads(*at)).map(|(_, node)| node)
    }
}

impl GraphNode {
    /// Reads a node that the validator accepts.
    pub fn read(spec: Node) -> Result<Self, GraphError> {
        let body = spec.config.get("body").and_then(Value::as_object).filter(|_| spec.node_type == NodeType::Loop);
        let body = body.map(GraphLevel::from_plan).transpose()?;
        let text = |name: &str| spec.config.get(name).and_then(Value::as_str);
        let runnable = text("runnable").filter(|_| spec.node_type == NodeType::Runnable);
        let stage = runnable.map(|id| StageDefinition {
            id: spec.node_id.clone(),
            runnable: Target::Reference(id.to_owned()),
            input: InputMapping::default(),
            condition: None,
            retry: Retry::default(),
            timeout: None,
            model: None,
        });
        Ok(Self { stage, body, spec })
    }

    /// Id of the node, and name of its output.
    pub fn id(&self) -> &str {
        &self.spec.node_id
    }

    /// The type of the node.
    pub fn kind(&self) -> NodeType {
        self.spec.node_type
    }

    /// The thing that the node runs, for a timeline: the id of its runnable, else its type.
    pub fn runnable(&self) -> &str {
        self.stage.as_ref().map_or(self.kind().as_str(), |stage| stage.runnable.id())
    }
}

impl GraphDefinition {
    /// The graph of a plan that the validator accepts.
    pub fn from_plan(name: &str, plan: Map<String, Value>) -> Result<Self, GraphError> {
        let level = GraphLevel::from_plan(&plan)?;
        let global = plan.get("global_config").filter(|global| !global.is_null());
        let global = global.map_or_else(|| Ok(GlobalConfig::default()), GlobalConfig::deserialize)?;
        let (coordinator, recovery, max_concurrency) = (None, None, None);
        Ok(Self { name: name.to_owned(), plan, level, global, coordinator, recovery, max_concurrency })
    }

    /// The same graph with other nodes and edges.
    pub fn revised(&self, plan: Map<String, Value>) -> Result<Self, GraphError> {
        let Self { name, coordinator, recovery, max_concurrency, .. } = self;
        let (coordinator, recovery, max_concurrency) = (coordinator.clone(), recovery.clone(), *max_concurrency);
        Ok(Self { coordinator, recovery, max_concurrency, ..Self::from_plan(name, plan)? })
    }

    /// The node whose text is the output of the run without changes, so that it can be streamed to the user.
    pub fn speaker(&self) -> Option<&GraphNode> {
        let mut sinks = self.level.sinks();
        let (Some(node), None, None) = (sinks.next(), sinks.next(), self.global.output.as_ref()) else { return None };
        let plain = node.spec.output_mapping.is_none() && !node.spec.config.contains_key("schema");
        let is_said = matches!(node.kind(), NodeType::Llm | NodeType::Runnable) && plain;
        is_said.then_some(node)
    }
}

/// True for a legal id of a coordinator agent.
fn is_id(id: &str) -> bool {
    ids::check("id", id).is_ok()
}
