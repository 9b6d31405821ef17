//! Graphs: each node runs as soon as the nodes before it have ended. No node waits for slower siblings.
//!
//! - [`run()`] executes a graph: it checks the inputs and makes the output. `schedule` runs the nodes of one level, the
//!   graph itself or the body of a LOOP, within a `scope`. `done` has the nodes of a level that are done.
//! - `node` executes one node, with its attempts and its recoveries, and `task` has what one attempt does, one file for each
//!   type of node. `round` has the attempts before the next recovery.
//! - `values` has the values that references name at one place, `resolved` a node's config with its references replaced.
//! - `failure` is the error of a node, with its code.
//! - `recovery` decides how the run continues after a node has failed for good, and `stand_in` runs the alternative of a
//!   skipped node. `question` asks the coordinator, `verdict` records the verdict, and `notice` has the events.
//! - `replan` changes the whole graph for nodes in `trouble`, and `reuse` decides which results the `revised` graph keeps.
//!
//! The records of a node depend on that node alone: the key of its steps begins with its id, and their input is its resolved
//! config. So a repeated run replays each node, in whatever order the nodes end. A replan depends on several nodes, so it
//! waits until everything that can run has ended.

mod done;
mod failure;
mod node;
mod notice;
pub(crate) mod progress;
mod question;
mod recovery;
#[cfg(test)]
mod recovery_tests;
mod replan;
#[cfg(test)]
mod replay_tests;
mod resolved;
mod reuse;
mod revised;
mod round;
mod run;
mod schedule;
mod scope;
mod stand_in;
mod task;
#[cfg(test)]
mod tests;
mod trouble;
mod values;
mod verdict;

pub use revised::RevisedGraph;
pub(super) use run::run;
