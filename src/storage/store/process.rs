//! The running processes: each announces its settings by name, so that commands can check agents against them.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use types::timestamp::Timestamp;

/// How often a process announces itself.
pub const ANNOUNCE: Duration = Duration::from_secs(5);
/// How long an announcement counts. A process that was killed is listed for so long.
pub const ANNOUNCED: Duration = Duration::from_secs(20);

/// The settings of a process by name: no value of a secret, no address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Process {
    /// Fresh with each start.
    pub process_id: String,
    /// Any of `worker`, `scheduler`, `gateway`.
    pub roles: Vec<String>,
    /// The version of the program.
    pub version: String,
    /// The models of its settings, and those that were added in Rust.
    pub models: Vec<String>,
    /// Flows that are registered in Rust. Workflows are in the store.
    pub flows: Vec<String>,
    /// Tools and skills that are registered in Rust.
    pub functions: Vec<String>,
    /// The setting `secrets.allow`.
    pub secrets: Vec<String>,
    /// The setting `http.allow_private`.
    pub allow_private: Vec<String>,
    /// When it started, by its own clock.
    pub started_at: Option<Timestamp>,
}

impl Process {
    /// True when it runs turns.
    pub fn is_worker(&self) -> bool {
        self.roles.iter().any(|role| role == "worker")
    }
}
