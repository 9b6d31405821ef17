//! Roles of callers: the actions that a bearer token allows. `docs/security.md` has the table.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The role of a caller. Roles are no ladder: `channel` and `author` may do what no reader may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A front end: sends users' messages, and reads the state and the events of its sessions.
    Channel,
    /// An author of agents and workflows, in sessions of their own.
    Author,
    /// Reads everything except secrets and the audit trail.
    Viewer,
    /// A human who takes conversations over.
    Agent,
    /// Controls sessions, timers, dead letters and runs.
    Operator,
    /// Everything.
    Admin,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 6] = [Self::Channel, Self::Author, Self::Viewer, Self::Agent, Self::Operator, Self::Admin];

    /// The name as settings and JSON have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Channel => "channel",
            Self::Author => "author",
            Self::Viewer => "viewer",
            Self::Agent => "agent",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
