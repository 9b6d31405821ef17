//! The interpreter of workflows. A workflow consists of nested stages, and each stage turns an input text into an
//! output text.
//!
//! - [`pinned`] loads the definitions with which a run starts. The crate `definitions` has their types, templates and
//!   conditions.
//! - [`mod@run`] executes a run, from its input to its output.
//! - `workflow` executes one workflow of any type: `pipeline`, `loops`, `parallel` and `conditional` are the types,
//!   and [`dynamic`] is the one whose plan a model makes.
//! - `stage` executes one stage with its retries and its timeout. A stage is a `task_agent`, a `function` or another
//!   workflow. Through [`ask`] it can ask the user.
//! - A [`part`] is a place in the run. It has the journal, the tags of events and the limits (`spent`) of that place.
//! - [`event`] defines a run's events, and `outlet` publishes them. [`failure`] is the error of a part.
//! - [`mod@timeline`] shows the stages of a stored run.

pub mod ask;
mod conditional;
pub mod dynamic;
pub mod event;
pub mod failure;
pub(super) mod function;
mod loops;
mod outlet;
pub(super) mod parallel;
pub mod part;
#[cfg(test)]
mod pause_tests;
pub mod pinned;
mod pipeline;
pub mod run;
#[cfg(test)]
mod run_tests;
mod spent;
pub(super) mod stage;
pub(super) mod task_agent;
pub mod timeline;
#[cfg(test)]
mod timeline_tests;
pub(super) mod workflow;

pub use ask::Asked;
pub use run::{EventSink, Means, RunEnd, RunError, RunServices, RunStart, broken_off, execute};
pub use spent::Limits;
pub use timeline::{TimelineEntry, timeline};
