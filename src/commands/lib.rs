//! The commands of the application, independent of how they are called: the gateway's HTTP handlers, the command line
//! and programs in Rust use them. Each works on the traits `Queue` and `Store`, and fails with
//! [`CommandError`](error::CommandError).
//!
//! Writing:
//!
//! - [`messages`]: posting a user's message. [`operator`]: operators' control commands, and replies of humans.
//! - [`handoffs`]: who writes in a conversation that is handed off, and the listing of these conversations.
//! - [`runs`]: starting, cancelling and resuming runs of workflows. [`run_inputs`]: the check of a run's inputs.
//!   [`run_answers`]: answers to questions of runs.
//! - [`dead_letters`]: showing dead letters and replaying them.
//! - [`workflows`]: listing workflows. [`knowledge`]: storing, removing and searching knowledge sources.
//! - [`documents`]: checking, applying and listing versions of agents and workflows.
//! - [`quotas`]: limits on versions and knowledge.
//! - [`deletion`]: deleting sessions, a user's data and dead letters. [`definition_deletion`]: deleting agents and
//!   workflows.
//! - [`authoring`]: the commands of authoring dialogues.
//! - [`enqueue`]: putting a job on its lane, which the others use.
//!
//! Reading:
//!
//! - [`sessions`]: sessions and turns. [`session_listing`]: listings of sessions. [`last_message`]: their last messages.
//!   [`prompts`]: kept prompts. [`run_details`]: runs. [`timers`]: pending timers. [`agents`], [`models`]: listings.
//! - [`paging`]: the bounds and the cursors of listings.
//! - [`decisions`]: judging decisions of coordinator agents.
//! - [`doctor`]: checks of a deployment.
//!
//! [`error`] has the error type.

pub mod access;
pub mod agents;
pub mod audit;
pub mod authoring;
pub mod dead_letters;
pub mod decisions;
pub mod definition_deletion;
pub mod deletion;
pub mod doctor;
pub mod documents;
pub mod enqueue;
pub mod error;
pub mod handoffs;
pub mod knowledge;
pub mod last_message;
pub mod messages;
pub mod models;
pub mod operator;
pub mod paging;
pub mod prompts;
pub mod quotas;
pub mod run_answers;
pub mod run_details;
pub mod run_inputs;
pub mod runs;
pub mod session_decisions;
pub mod session_listing;
pub mod sessions;
pub mod timers;
pub mod workflows;
