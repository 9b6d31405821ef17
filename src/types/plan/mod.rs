//! Plans: what phase 1 makes of an agent's configuration, kept in the plan cache under (agent, hash); the [`planner`]
//! makes them.

use crate::agent::{Skill, TimerConfig, Tool};
use crate::timestamp::Timestamp;
use serde::{Deserialize, Serialize};

/// A configuration parsed by phase 1 (E-10). Never changed once stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The agent's id (OP-E7).
    pub workflow_id: String,
    /// The configuration that it was made from.
    pub hash: String,
    /// The name that the agent goes by.
    pub name: String,
    /// Its tone.
    pub tone: String,
    /// Said once to every session.
    #[serde(default)]
    pub greeting: Option<String>,
    /// The procedure, rewritten into clear steps.
    pub sop: String,
    /// Unchanged from the configuration (E-11).
    #[serde(default)]
    pub tools: Vec<Tool>,
    /// Unchanged from the configuration (E-11).
    #[serde(default)]
    pub skills: Vec<Skill>,
    /// Follow-ups to arm at the end of a turn.
    #[serde(default)]
    pub timers: Option<Vec<TimerConfig>>,
    /// Consolidated rules.
    pub constraints: String,
    /// When it was stored.
    pub created_at: Timestamp,
}
