//! Decisions of coordinator agents: judged before anything is carried out. Pure code: no I/O, no clock, no store.
//!
//! - Vocabulary: [`kind`] has the ten types of decisions with their priority, [`node_type`] the types of nodes, and
//!   [`limits`] all limits.
//! - [`table`] has all fields. Validation and everything else about fields is made from it.
//! - [`validate`] judges a decision in a [`world`], under a [`policy`]. It collects every error in a [`report`].
//! - Plans: [`reference`] reads and resolves `${…}`, [`changes`] changes one node, [`revision`] a whole plan, and
//!   [`hosts`] has the rules for hosts. `python` looks at scripts.
//! - `path` is the place of a value in a payload.

pub mod changes;
pub mod hosts;
pub mod kind;
pub mod limits;
pub mod node_type;
mod path;
pub mod policy;
mod python;
pub mod reference;
pub mod report;
pub mod revision;
pub mod table;
pub mod validate;
pub mod world;
