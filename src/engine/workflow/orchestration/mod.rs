//! Orchestration: workflows of nested stages, each a function from text to text (REQUIREMENTS.md, group O).
//!
//! A [`definition`] says what runs; [`template`]s make inputs, [`condition`]s choose, both over a [`scope`], which
//! [`outputs`] keeps for a pipeline or loop. [`read`] takes a definition from a file (by its `reader`, which knows the
//! [`fields`]), [`builder`] from code; [`check`] holds it to what it can see (`names`) and to what there is (see [`known`]), and
//! [`structure`] and `flowchart` show it. [`pinned`] are the definitions that a run begins with. [`mod@run`] takes it from
//! its input to its output: a `workflow` of any type (`pipeline`, `loops`, `parallel`, `conditional`) runs its `stage`s, each a
//! `task_agent`, a `function` or a workflow again; one that plans for itself is [`dynamic`](crate::workflow::orchestration::dynamic). One may [`ask`] the
//! user. A [`part`] is where that happens: journal, events and limits (`spent`).
//! [`event`] is what a run tells, through its `outlet`; [`outcome`] and [`failure`] are what comes of it; [`mod@timeline`] looks back at it.

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
