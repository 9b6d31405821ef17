//! An authoring dialogue: one session in which a user and the agent `authoring` make a workflow or an agent. Plain
//! data.
//!
//! - [`stage`]: the stages of a dialogue, and the other enums.
//! - [`state`]: the whole state of a dialogue, as it is stored. [`draft`]: its last document. [`repair`] reads a
//!   damaged state.
//! - [`config`]: the settings of a dialogue that a client can choose.
//! - [`message`]: the events of a turn, for clients. [`error_code`]: the errors of a turn.

pub mod config;
pub mod draft;
pub mod error_code;
pub mod message;
pub mod repair;
pub mod stage;
pub mod state;

pub use config::{ConfigError, ConfigRequest, ConversationConfig};
pub use draft::{Draft, Published, TestCounts};
pub use error_code::ErrorCode;
pub use message::{Body, ErrorContent, Event, MessageContent, MessageType, StatusContent};
pub use repair::Loaded;
pub use stage::{Artifact, Category, Complexity, Language, Origin, Publish, Purpose, Speaker, Stage};
pub use state::{
    AgentState, AlternativeOption, ClarificationContext, ClarificationQuestion, Conversation, GapRounds, StoredState,
    TurnState, WorkflowContext,
};
