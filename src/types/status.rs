//! The six statuses of a session, and the legal transitions between them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Where a session stands in the handling of its current turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// A new agent configuration has been worked out into a plan.
    Acknowledged,
    /// The turn decides or executes an action.
    Processing,
    /// The turn writes its reply.
    Typing,
    /// No turn is in progress.
    #[default]
    Ready,
    /// The turn was cancelled, or a failure interrupted it. The session's `status_reason` has the reason.
    Cancelled,
    /// A human has the conversation.
    Transferred,
}

/// A status transition that is not allowed.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("a session cannot go from `{from}` to `{to}`")]
pub struct IllegalTransition {
    /// The current status.
    pub from: Status,
    /// The requested status.
    pub to: Status,
}

impl Status {
    /// The lower-case name in JSON and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acknowledged => "acknowledged",
            Self::Processing => "processing",
            Self::Typing => "typing",
            Self::Ready => "ready",
            Self::Cancelled => "cancelled",
            Self::Transferred => "transferred",
        }
    }

    /// Checks the transition from `self` to `to`. A status cannot follow itself, except `processing`: it follows itself
    /// from one iteration to the next.
    pub fn check(self, to: Self) -> Result<(), IllegalTransition> {
        use Status::{Acknowledged, Cancelled, Processing, Ready, Transferred, Typing};
        let legal = match self {
            Ready => matches!(to, Acknowledged | Processing | Cancelled),
            Cancelled => matches!(to, Acknowledged | Processing),
            Transferred => matches!(to, Acknowledged | Processing | Ready | Cancelled),
            Acknowledged => matches!(to, Processing | Cancelled),
            Processing => matches!(to, Processing | Typing | Ready | Transferred | Cancelled),
            Typing => matches!(to, Ready | Cancelled),
        };
        if legal { Ok(()) } else { Err(IllegalTransition { from: self, to }) }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_transitions_of_the_table_are_legal() {
        use Status::*;
        let all = [Acknowledged, Processing, Typing, Ready, Cancelled, Transferred];
        let legal = [
            (Ready, Acknowledged),
            (Ready, Processing),
            (Ready, Cancelled),
            (Cancelled, Acknowledged),
            (Cancelled, Processing),
            (Transferred, Acknowledged),
            (Transferred, Processing),
            (Transferred, Ready),
            (Transferred, Cancelled),
            (Acknowledged, Processing),
            (Acknowledged, Cancelled),
            (Processing, Processing),
            (Processing, Typing),
            (Processing, Ready),
            (Processing, Transferred),
            (Processing, Cancelled),
            (Typing, Ready),
            (Typing, Cancelled),
        ];
        for from in all {
            for to in all {
                assert_eq!(from.check(to).is_ok(), legal.contains(&(from, to)), "{from} → {to}");
            }
        }
    }
}
