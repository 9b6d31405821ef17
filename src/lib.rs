//! Turnwheel: a durable workflow engine for conversational agents.
//!
//! [`Engine`] runs it within a program. [`testing`] has an engine and a scripted model for tests of agents. The binary
//! `turnwheel` runs the same as processes.
//!
//! A message's way: the gateway or a channel → the queue → a worker, which takes the session's lane → a turn, which plans,
//! greets, decides, acts and replies, and reaches the outside only through its journal → the store, which commits the turn →
//! the queue, which is told that the message is done. Timers put follow-ups back onto the queue.
//!
//! Each layer is a crate of its own below this one; CONTRIBUTING.md has the map. This crate is the interface for programs.

mod app;
pub mod testing;

pub use app::{
    Accepted, Answer, Applied, Engine, EngineBuilder, EngineError, FlowContext, FlowError, IntoFlow, IntoTool,
    IntoWorkflow, NewMessage, NewRun, NoParams, Opened, Question, StartedRun, ToolCall, open,
};

/// The settings of an engine.
pub mod settings {
    pub use base::config::nats::{Login, NatsAccess};
    pub use base::config::{Backend, Environment, Nats, SecretValues, Settings};
}

/// Models, for programs that bring their own.
pub mod model {
    pub use engine::model::{
        DeltaSink, Model, ModelError, ModelReply, ModelRequest, PromptMessage, PromptRole, ResponseSchema, ToolCall,
        ToolSpec,
    };
    pub use types::model_names::ModelNames;
    pub use types::step::Tokens;
}

/// Workflows written in Rust.
pub mod workflow {
    pub use definitions::workflow::builder::*;
}

/// What channels receive, and how a reader shows texts that come in pieces.
pub mod events {
    pub use types::event::{Event, EventType, Reply, ReplyKind, StatusEvent, StepEvent};
    pub use types::texts::{Shown, Texts};
}

pub use base::telemetry::Otlp;
pub use types::ids;
