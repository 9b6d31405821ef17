//! How a turn ended.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The agent replied.
    Answered,
    /// The turn ended without a reply.
    Silent,
    /// A flow took over the turn.
    Flow,
    /// A human took over the conversation.
    Transferred,
    /// The turn was cancelled or failed.
    Cancelled,
    /// There was nothing to do, for example for a timer that no longer counts.
    Noop,
}

impl Outcome {
    /// All outcomes, in the order of their declaration.
    pub const ALL: [Self; 6] =
        [Self::Answered, Self::Silent, Self::Flow, Self::Transferred, Self::Cancelled, Self::Noop];

    /// The lower-case name in JSON and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Silent => "silent",
            Self::Flow => "flow",
            Self::Transferred => "transferred",
            Self::Cancelled => "cancelled",
            Self::Noop => "noop",
        }
    }
}
