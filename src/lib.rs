//! Turnwheel is a durable workflow engine for conversational agents.
//!
//! [`Engine`] runs it within a program; its page has an example. [`testing`] has an engine and a scripted model for
//! tests of agents. The binary `turnwheel` runs the same engine as separate processes.
//!
//! A message travels as follows:
//!
//! 1. The gateway, or a channel, publishes it to the queue, on the lane of its session.
//! 2. A worker takes the lane's lease and starts a turn.
//! 3. The turn plans, greets, decides, acts and replies. It reaches the outside only through its journal, so a crash
//!    repeats it without repeating its recorded steps.
//! 4. The store commits the turn. Then the worker acknowledges the message.
//! 5. The scheduler publishes follow-up timers to the queue when they are due.
//!
//! This crate is the interface for programs. Each layer below it is a crate of its own; CONTRIBUTING.md has the map,
//! and `docs/glossary.md` the terms.

mod app;
pub mod testing;

pub use app::{
    Accepted, Answer, AnsweredRun, Applied, Engine, EngineBuilder, EngineError, FlowContext, FlowError, IntoFlow,
    IntoTool, IntoWorkflow, NewAnswer, NewMessage, NewRun, NoParams, Opened, Question, StartedRun, ToolCall, open,
};

/// Settings, environment and secrets of an engine.
pub mod settings {
    pub use base::config::nats::{Login, NatsAccess};
    pub use base::config::{Backend, Environment, Nats, SecretValues, Settings};
}

/// Rehearsals of drafts: tests of an agent or a workflow in memory, without any call.
pub mod rehearsal {
    pub use crate::app::Rehearsal;
    pub use engine::rehearsal::{
        Deviation, Draft, DraftKnowledge, RehearsalTest, Rehearse, Rehearsed, RehearsedTest, TestError, TestResult,
        tests,
    };
    pub use engine::replay::{Divergence, RecordedTurn, Replay, Replayed, ReplayedTurn, TurnEnd, last_turns};
}

/// The interface of language models, for programs that bring their own model.
pub mod model {
    pub use engine::model::{
        DeltaSink, Model, ModelError, ModelReply, ModelRequest, ModelToolCall as ToolCall, PromptMessage, PromptRole,
        ResponseSchema, ToolSpec,
    };
    pub use types::model_names::ModelNames;
    pub use types::step::TokenUsage;
}

/// Builders for workflows written in Rust.
pub mod workflow {
    pub use definitions::workflow::builder::*;
}

/// Scripts of PYTHON nodes: how a program that embeds the engine runs them.
pub mod sandbox {
    pub use sandbox::serve_if_asked;
}

/// The events that channels receive, and how to show replies that arrive in chunks.
pub mod events {
    pub use types::event::{Event, EventType, Reply, ReplyKind, StatusEvent, StepEvent, TurnEnd, TurnEvent};
    pub use types::outcome::Outcome;
    pub use types::session::Status;
    pub use types::texts::{Shown, Texts};
}

pub use base::telemetry::Otlp;
pub use types::ids;
