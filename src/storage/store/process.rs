//! The announcements of running processes, against which commands validate agents.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use types::timestamp::Timestamp;

/// The interval at which a process announces itself.
pub const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(5);
/// How long an announcement counts. A process that was killed stays listed for this time.
pub const ANNOUNCEMENT_EXPIRY: Duration = Duration::from_secs(20);

/// The announcement of a running process: the names in its settings, without any secret value or address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Process {
    /// The process's id, new at each start.
    pub process_id: String,
    /// The roles of the process: any of `worker`, `scheduler`, `gateway`.
    pub roles: Vec<String>,
    /// The version of the program.
    pub version: String,
    /// The models of its settings and the models that are registered in Rust.
    pub models: Vec<String>,
    /// The flows that are registered in Rust. Workflows are in the store.
    pub flows: Vec<String>,
    /// The tools and skills that are registered in Rust.
    pub functions: Vec<String>,
    /// The secrets of the setting `secrets.allow`: `NAME@host` for each host, or the name alone for all hosts.
    pub secrets: Vec<String>,
    /// The hosts in the setting `http.allow_private`.
    pub allow_private: Vec<String>,
    /// The names of its connectors.
    #[serde(default)]
    pub connectors: Vec<String>,
    /// The highest format of jobs and documents that it reads; 0 for a version that does not know formats.
    #[serde(default)]
    pub format: u32,
    /// When it last left a job to workers of a newer version, by its own clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newer_at: Option<Timestamp>,
    /// When the process started, by its own clock.
    pub started_at: Option<Timestamp>,
}

impl Process {
    /// Sorts processes as [`Store::processes`](super::Store::processes) returns them.
    pub fn sort(processes: &mut [Self]) {
        processes.sort_by(|a, b| (a.started_at, &a.process_id).cmp(&(b.started_at, &b.process_id)));
    }

    /// True when the process has the role `worker`.
    pub fn is_worker(&self) -> bool {
        self.roles.iter().any(|role| role == "worker")
    }
}
