//! An authoring dialogue: one session in which a user and the agent `authoring` make a workflow or an agent. Plain data.
//!
//! - [`stage`]: where a dialogue stands, and the other closed sets of names.
//! - [`state`]: the whole state of a dialogue, as it is stored. [`repair`] reads one that is damaged.
//! - [`config`]: what a client may set for a dialogue.
//! - [`message`]: the events of a turn, as clients read them. [`error_code`]: what may go wrong.

pub mod config;
pub mod error_code;
pub mod message;
pub mod repair;
pub mod stage;
pub mod state;

pub use config::{ConfigError, ConfigRequest, ConversationConfig};
pub use error_code::ErrorCode;
pub use message::{Body, ErrorContent, Event, MessageContent, MessageType, StatusContent};
pub use repair::Loaded;
pub use stage::{Artifact, Category, Complexity, Language, Origin, Publish, Purpose, Speaker, Stage};
pub use state::{
    AgentState, AlternativeOption, ClarificationContext, ClarificationQuestion, Conversation, Draft, GapRounds,
    Published, StoredState, TestCounts, TurnState, WorkflowContext,
};
