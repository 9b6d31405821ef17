//! The engine of Turnwheel: workers that run turns and runs, and the scheduler that publishes timers.
//!
//! A worker ([`worker`]) takes a lane from the queue and runs its jobs: turns of a conversation ([`turn`]) and runs of
//! a workflow ([`run`], which executes a [`workflow`]). Both record their steps in a [`journal`], so that a repeated
//! attempt replays the recorded steps and does not execute them again.
//!
//! A turn builds its prompts ([`prompt`], `turn::planner`), asks a model ([`model`]), executes the actions of the
//! model's decision ([`action`]), searches the agent's passages ([`knowledge`]) and counts its tokens ([`budget`]).
//! [`rehearsal`] has the tests of drafts and compares a rehearsed turn with them, [`replay`] compares recorded turns
//! with those of a draft. [`scripts`] compiles the scripts of decisions.
//!
//! [`admission`] has the checks of agents and workflows before they are stored, [`authoring`] the engine's part of
//! dialogues that make them, with the [`workbench`] of each process. [`definition_files`] has the files that follow
//! them in `dev`. [`timer`] is the scheduler: due timers, wake-ups of lanes, closing idle conversations, and deleting
//! expired data. [`erasure`] deletes a session with everything that belongs to it.

pub mod action;
pub mod admission;
pub mod authoring;
pub mod budget;
pub mod definition_files;
pub mod erasure;
pub mod execution;
pub mod journal;
pub mod knowledge;
pub mod model;
pub mod prompt;
pub mod rehearsal;
pub mod replay;
pub mod run;
pub mod scripts;
pub mod template;
pub mod timer;
pub mod turn;
pub mod workbench;
pub mod worker;
pub mod workflow;
