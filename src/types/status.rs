//! The six statuses of a session and the transitions between them (E-02, E-04, OP-E1).

use serde::{Deserialize, Serialize};
use thiserror::Error;
use utoipa::ToSchema;

/// Where a session stands in the handling of its current turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// A new configuration has been parsed into a plan.
    Acknowledged,
    /// Deciding or executing.
    Processing,
    /// The reply is being made.
    Typing,
    /// Idle.
    #[default]
    Ready,
    /// Cancelled, or interrupted by a failure; the session's `status_reason` says why.
    Cancelled,
    /// In human hands.
    Transferred,
}

/// A transition that OP-E1 does not allow.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("a session cannot go from `{from}` to `{to}`")]
pub struct IllegalTransition {
    /// The status that the session has.
    pub from: Status,
    /// The status that was asked for.
    pub to: Status,
}

impl Status {
    /// The lower-case name used on every wire.
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

    /// Checks the step from `self` to `to`. Staying in a status is not a transition, except that `processing` may
    /// follow itself from one iteration to the next.
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
