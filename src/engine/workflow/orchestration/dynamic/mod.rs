//! A workflow that plans for itself (REQUIREMENTS.md, group D): a model makes a plan of questions to sub-agents, asks the
//! user back or rejects; the plan is carried out, and a second model judges whether the results answer the question. When
//! they do, a third one writes the answer while the user reads it; when not, the plan is mended once.
//!
//! Pure are the [`plan`] and what replaces it, the [`review`], the [`route`] from one node to the next, the [`results`] and
//! what the agents are given of all that (`inputs`, and `schema`, the structures that they answer with). [`mod@run`] goes from
//! node to node; `nodes` has what each does, over a [`Part`](super::part::Part): `structured` asks for a
//! structure, `orchestrator` carries a plan out, `summary` writes. [`order`] says what came before what, for a run that is
//! repeated from a node on.

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

/// The nodes whose agent's answer is the output as it is.
pub(super) const SPEAKERS: [&str; 2] = [Node::Review.id(), Node::Summary.id()];
