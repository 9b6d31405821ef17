//! Orchestration: workflows of nested stages, each a function from text to text (REQUIREMENTS.md, group O).
//!
//! A [`definition`] says what runs; [`template`]s make inputs, [`condition`]s choose, both over a [`scope`], which
//! [`outputs`] keeps for a pipeline or loop. [`read`] takes a definition from a file (by its `reader`, which knows the
//! [`fields`]), and [`check`] holds it to what it can see (`names`) and to what there is (see [`known`]). [`event`] is what a
//! run tells, [`outcome`] what comes of it.

pub mod builder;
pub mod check;
pub mod condition;
pub mod definition;
pub mod event;
pub mod fields;
pub mod known;
mod names;
pub mod outcome;
pub mod outputs;
pub mod read;
pub mod reader;
pub mod schema;
pub mod scope;
pub mod structure;
pub mod template;

pub use known::KnownRunnables;
pub use read::WorkflowError;
