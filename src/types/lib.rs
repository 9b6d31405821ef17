//! Plain data of Turnwheel: the types that the queue, the store, HTTP and the engine share. No I/O.
//!
//! A [`job`] arrives on a [`session`]'s lane. The engine handles it in a [`turn`]: it follows the [`agent`]'s [`plan`]
//! and executes each [`action`] as a recorded [`step`] (a model call may keep its [`prompt`]), within the [`budget`] of
//! the agent and with one of its [`model_names`]. The turn publishes an [`event`] for each reply and status; its last
//! event has the end of the turn with its [`outcome`]. It arms each follow-up [`timer`]. A workflow's execution is a
//! [`run`], which ends with a [`run_outcome`]. A human who takes part in the conversation has a [`handoff`]. A job that
//! cannot be handled becomes a dead letter with a [`cause`]. [`texts`] is the reader's side of streamed replies.
//!
//! A caller of the gateway has a role ([`access`]), and the changes it makes are listed in the [`audit`] trail.
//! [`authoring`] has the dialogues that make agents and workflows.
//! [`allowed_secrets`] and [`host_pattern`] say which host may receive which secret.
//!
//! [`ids`], [`depth`], [`duration`], [`timestamp`] and [`canonical`] define the formats that all of these use.

pub mod access;
pub mod action;
pub mod agent;
pub mod allowed_secrets;
pub mod audit;
pub mod authoring;
pub mod budget;
pub mod canonical;
pub mod cause;
pub mod depth;
pub mod duration;
pub mod event;
pub mod excerpt;
pub mod format;
pub mod handoff;
pub mod host_pattern;
pub mod ids;
pub mod job;
pub mod json_kind;
pub mod model_names;
pub mod outcome;
pub mod page;
pub mod plan;
pub mod prompt;
pub mod run;
pub mod run_outcome;
pub mod session;
pub mod status;
pub mod step;
pub mod texts;
pub mod timer;
pub mod timestamp;
pub mod turn;
