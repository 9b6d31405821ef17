//! The interpreter of workflows. A workflow consists of nested stages, and each stage turns an input text into an
//! output text.
//!
//! - [`resolved`] loads the definitions with which a run starts. The crate `definitions` has their types, templates and
//!   conditions.
//! - [`mod@run`] executes a run, from its input to its output.
//! - `workflow` executes one workflow of any type: `pipeline`, `loops`, `parallel`, `conditional` and `graph` are the
//!   types, and [`dynamic`] is the one whose plan a model makes.
//! - `stage` executes one stage with its retries and its timeout. A stage is a `task_agent`, a `function` or another
//!   workflow. Through [`ask`] it can ask the user.
//! - A [`stage_context`] is a place in the run. It has the journal, the tags of events and the limits (`usage`) of that
//!   place.
//! - `pauses` has the pauses and open questions of a run, so that it can end its turn meanwhile.
//! - [`event`] defines a run's events, and `event_buffer` publishes them. [`failure`] is the error of a part.
//! - [`mod@timeline`] shows the stages of a stored run.

pub mod ask;
mod conditional;
pub mod dynamic;
pub mod event;
mod event_buffer;
pub mod failure;
pub(super) mod function;
pub(crate) mod graph;
#[cfg(test)]
mod ground;
mod loops;
pub(super) mod parallel;
#[cfg(test)]
mod pause_tests;
pub(crate) mod pauses;
mod pipeline;
pub mod resolved;
pub mod run;
#[cfg(test)]
mod run_tests;
pub(super) mod stage;
pub(crate) mod stage_context;
pub(super) mod task_agent;
pub mod timeline;
#[cfg(test)]
mod timeline_tests;
mod usage;
pub(super) mod workflow;

pub use ask::AskOutcome;
pub use graph::RevisedGraph;
pub use run::{EventSink, RunEnd, RunEnvironment, RunError, RunServices, RunStart, SinkError, execute, failed_event};
pub use timeline::TimelineEntry;
pub use usage::{Limits, TimeoutOf};
