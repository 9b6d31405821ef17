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

/// The sessions that a caller may see. All of the given conditions apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Only sessions of these channels; all if empty.
    pub channels: Vec<String>,
    /// Only sessions of these agents; all if empty.
    pub agents: Vec<String>,
    /// Only sessions whose ids begin with this text.
    pub session_prefix: Option<String>,
}

impl Scope {
    /// True if every session may be seen.
    pub fn is_everything(&self) -> bool {
        self.channels.is_empty() && self.agents.is_empty() && self.session_prefix.is_none()
    }

    /// True if a session with this id may be seen, whatever its channel and agent.
    pub fn covers_id(&self, session_id: &str) -> bool {
        self.session_prefix.as_ref().is_none_or(|prefix| session_id.starts_with(prefix.as_str()))
    }

    /// True for a channel whose sessions may be seen.
    pub fn covers_channel(&self, channel: &str) -> bool {
        self.channels.is_empty() || self.channels.iter().any(|covered| covered == channel)
    }

    /// True for an agent whose sessions may be seen.
    pub fn covers_agent(&self, agent_id: &str) -> bool {
        self.agents.is_empty() || self.agents.iter().any(|covered| covered == agent_id)
    }

    /// True if this session may be seen.
    pub fn covers(&self, session_id: &str, channel: &str, agent_id: &str) -> bool {
        self.covers_id(session_id) && self.covers_channel(channel) && self.covers_agent(agent_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_conditions_of_a_scope_apply() {
        let all = Scope::default();
        assert!(all.is_everything() && all.covers("s", "web", "sales"));
        let scope = Scope {
            channels: vec!["web".into(), "微信".into()],
            agents: vec!["sales".into()],
            session_prefix: Some("w-".into()),
        };
        assert!(!scope.is_everything() && scope.covers("w-1", "微信", "sales"));
        for (session_id, channel, agent_id) in
            [("x-1", "web", "sales"), ("w-1", "sms", "sales"), ("w-1", "web", "ops"), ("w-1", "", "sales")]
        {
            assert!(!scope.covers(session_id, channel, agent_id), "{session_id} {channel} {agent_id}");
        }
    }
}
