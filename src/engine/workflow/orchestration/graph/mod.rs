//! Graphs: each node runs as soon as the nodes before it have ended. No node waits for slower siblings.
//!
//! - [`run()`] executes a graph: it checks the inputs and makes the output. `schedule` runs the nodes of one level, the
//!   graph itself or the body of a LOOP.
//! - `node` executes one node, with its attempts and its recovery, and `task` has what one attempt does, one file for each
//!   type of node.
//! - `values` has the values that references name at one place, `resolved` a node's config with its references replaced.
//! - `failure` is the error of a node, with its code.
//! - `revised` is the graph after a replan.
//!
//! What a node records depends on that node alone: the key of its steps begins with its id, and their input is its resolved
//! config. So a repeated run replays each node, in whatever order the nodes end.

mod failure;
mod node;
mod resolved;
mod revised;
mod run;
mod schedule;
mod task;
#[cfg(test)]
mod tests;
mod values;

pub use revised::RevisedGraph;
pub(super) use run::run;
