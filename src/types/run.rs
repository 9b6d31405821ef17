//! Runs of workflows, as they are stored.

use crate::run_outcome::{RunFailure, RunUsage};
use crate::timestamp::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How far a run has come; none of these is a session's status (K-01).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// On the queue.
    #[default]
    Pending,
    /// Begun.
    Running,
    /// It has asked its session's user something, and goes on with the answer.
    Waiting,
    /// It has an output.
    Completed,
    /// It has an error.
    Failed,
    /// An operator has ended it.
    Cancelled,
}

impl RunStatus {
    /// The lower-case name used on every wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// True when nothing more comes of it by itself.
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// One execution of a workflow (`workflow_runs`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunRecord {
    /// Key of the run; also its lane, unless it runs within a session's turn.
    #[serde(alias = "_id")]
    pub run_id: String,
    /// The workflow.
    pub workflow_id: String,
    /// md5 of the definition that it started with; empty while it is pending.
    #[serde(default)]
    pub hash: String,
    /// How far it has come.
    pub status: RunStatus,
    /// What it was asked.
    #[serde(default)]
    pub query: String,
    /// The session that its events go to.
    #[serde(default)]
    pub origin_session: Option<String>,
    /// The user that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// The channel that its events go to.
    #[serde(default)]
    pub channel: String,
    /// The lane whose turn has the steps: the run's own, or the session's.
    #[serde(default)]
    pub lane: String,
    /// The turn that has the steps.
    #[serde(default)]
    pub turn_id: String,
    /// What their keys begin with; empty in a lane of its own.
    #[serde(default)]
    pub prefix: String,
    /// What came out, up to its bound.
    #[serde(default)]
    pub output: Option<String>,
    /// Why there is none.
    #[serde(default)]
    pub error: Option<RunFailure>,
    /// What it has used.
    #[serde(default)]
    pub usage: RunUsage,
    /// The run that it repeats from `from_stage` on.
    #[serde(default)]
    pub from_run: Option<String>,
    /// See `from_run`.
    #[serde(default)]
    pub from_stage: Option<String>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it was begun.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
}

/// Which runs to list, newest first unless it says otherwise.
#[derive(Clone, Debug)]
pub struct RunQuery {
    /// Only those of this workflow.
    pub workflow_id: Option<String>,
    /// Only those in this status.
    pub status: Option<RunStatus>,
    /// Only those that this session asked for.
    pub origin_session: Option<String>,
    /// Only those whose steps are in this lane.
    pub lane: Option<String>,
    /// Only those that have ended, the last one first.
    pub by_end: bool,
    /// The most to answer.
    pub limit: usize,
}

impl Default for RunQuery {
    fn default() -> Self {
        Self { workflow_id: None, status: None, origin_session: None, lane: None, by_end: false, limit: 50 }
    }
}
