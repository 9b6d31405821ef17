//! Decisions of coordinator agents: judged before anything is carried out. Pure code: no I/O, no clock, no store.
//!
//! - Vocabulary: [`kind`] has the ten types of decisions with their priority, [`node_type`] the types of nodes, and
//!   [`limits`] all limits.
//! - [`table`] has all fields. Validation, correction, [`schema`] and `docs/decisions.md` are made from it;
//!   [`examples`] has a payload of each type.
//! - From the model to a verdict: [`answer`] reads the model's answer, [`order`] sorts its decisions, and [`judge`]
//!   judges one in a [`world`], under a [`policy`]. It uses [`validate`], which collects every error in a [`report`],
//!   and [`correct`]. The verdict has a [`payload`] with types, and [`event`] reports it.
//! - Plans: [`mod@reference`] reads and resolves `${…}`, [`changes`] changes one node, [`revision`] a whole plan, and
//!   `hosts` reads the hosts of URLs. [`python`] finds and looks at scripts.
//! - `path` is the place of a value in a payload.
//! - [`authoring`] has the stages of an authoring dialogue.

pub mod answer;
pub mod authoring;
pub mod changes;
pub mod correct;
pub mod event;
pub mod examples;
pub mod hosts;
pub mod judge;
pub mod kind;
pub mod limits;
pub mod node_type;
pub mod order;
mod path;
pub mod payload;
pub mod policy;
pub mod python;
pub mod reference;
pub mod report;
pub mod revision;
pub mod schema;
pub mod table;
pub mod validate;
pub mod world;

#[cfg(test)]
mod tests;
