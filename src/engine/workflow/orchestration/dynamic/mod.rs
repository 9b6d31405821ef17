//! Dynamic workflows: a model plans which sub-agents to ask.
//!
//! The plan agent makes a plan of questions to sub-agents, asks the user for clarification, or rejects the request.
//! The steps of the plan run, and the review agent judges whether the results answer the request. If they do not, the
//! replan agent may add a second plan, once. Then the summary agent writes the answer.
//!
//! Control flow, each node as a [`StageContext`](super::stage_context::StageContext) of the run:
//!
//! - [`mod@run`] goes from node to node, and `nodes` has the messages between nodes and the work of each node.
//! - `structured` asks an agent for an answer that follows a JSON Schema, `orchestrator` executes a plan, and
//!   `summary` writes the answer.
//!
//! Data and pure functions:
//!
//! - [`plan`], [`review`] and [`results`] are the agents' answers, and `schema` has their JSON Schemas.
//! - [`route`] chooses the next node, and `inputs` builds the texts that agents read.
//! - [`order`] defines which nodes come before others, for a restart from a node.

mod inputs;
mod nodes;
mod orchestrator;
pub mod order;
pub mod plan;
pub mod results;
pub mod review;
pub mod route;
mod run;
mod schema;
mod structured;
mod summary;
#[cfg(test)]
mod tests;

use definitions::workflow::node::Node;
pub(super) use run::run;

/// The nodes whose answer is the workflow's output without changes.
pub(super) const OUTPUT_NODES: [&str; 2] = [Node::Review.id(), Node::Summary.id()];
