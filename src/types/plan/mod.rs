//! Plans: an agent's configuration as the model has worked it out. The store caches them under the agent's id and the
//! configuration's hash.

use crate::agent::{Skill, TimerConfig, Tool};
use crate::timestamp::Timestamp;
use serde::{Deserialize, Serialize};

/// A plan, as stored. It never changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The agent's id.
    pub workflow_id: String,
    /// Hash of the agent's configuration.
    pub hash: String,
    /// The agent's display name.
    pub name: String,
    /// The agent's tone of voice.
    pub tone: String,
    /// The text that greets every new session.
    #[serde(default)]
    pub greeting: Option<String>,
    /// The procedure, rewritten as clear steps.
    pub sop: String,
    /// The tools, unchanged from the configuration.
    #[serde(default)]
    pub tools: Vec<Tool>,
    /// The skills, unchanged from the configuration.
    #[serde(default)]
    pub skills: Vec<Skill>,
    /// Follow-up timers to arm when a turn completes.
    #[serde(default)]
    pub timers: Option<Vec<TimerConfig>>,
    /// The constraints, consolidated into one text.
    pub constraints: String,
    /// When the plan was stored.
    pub created_at: Timestamp,
}
