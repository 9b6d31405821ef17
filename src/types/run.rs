//! Runs of workflows, as stored.

use crate::run_outcome::{RunFailure, RunUsage};
use crate::timestamp::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Progress of a run. It is independent of a session's status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// The run waits on the queue.
    #[default]
    Pending,
    /// The run has started.
    Running,
    /// The run has asked the user a question, and resumes with the answer.
    Waiting,
    /// The run has ended with an output.
    Completed,
    /// The run has ended with an error.
    Failed,
    /// An operator has cancelled the run.
    Cancelled,
}

impl RunStatus {
    /// The lower-case name in JSON and in metrics.
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

    /// True if the run has ended. It may still be resumed by an operator.
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// State of a node of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeStatus {
    /// Nodes before it have not ended.
    Pending,
    /// It has started and not ended. In a run that has ended, the run ended before the node did.
    Running,
    /// It has an output.
    Completed,
    /// It has failed for good.
    Failed,
    /// No edge that leads to it was taken, or a recovery has skipped it.
    Skipped,
}

/// A node of the graph that a run executes. The nodes within a LOOP are not listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeState {
    /// Id of the node.
    pub node_id: String,
    /// Type of the node, such as `HTTP`.
    #[serde(rename = "type")]
    pub kind: String,
    /// State of the node.
    pub status: NodeStatus,
    /// Attempts so far.
    #[serde(default)]
    pub attempts: u32,
    /// Time from its first step to its last one, in milliseconds.
    #[serde(default)]
    pub ms: Option<u64>,
    /// Code of its last failure, such as `TIMEOUT`.
    #[serde(default)]
    pub error_code: Option<String>,
}

impl NodeState {
    /// The state of a node before it starts.
    pub fn pending(node_id: &str, kind: &str) -> Self {
        let (node_id, kind, status) = (node_id.to_owned(), kind.to_owned(), NodeStatus::Pending);
        Self { node_id, kind, status, attempts: 0, ms: None, error_code: None }
    }
}

/// One run of a workflow, as stored in `workflow_runs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunRecord {
    /// Id of the run. It is also the id of the run's lane, unless the run is part of a session's turn.
    #[serde(alias = "_id")]
    pub run_id: String,
    /// The workflow that runs.
    pub workflow_id: String,
    /// Hash of the definition that the run started with; empty while the run is pending.
    #[serde(default)]
    pub hash: String,
    /// Progress of the run.
    pub status: RunStatus,
    /// The input of the run.
    #[serde(default)]
    pub query: String,
    /// The inputs of a graph. Without them, the inputs are those in the query, if that is a JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<Map<String, Value>>,
    /// For a run that a coordinator agent has started in a lane of its own: true if the session receives a notice of its
    /// end. Absent for other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<bool>,
    /// The session that asked for the run and receives its events.
    #[serde(default)]
    pub origin_session: Option<String>,
    /// The user that the run is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// The channel under which the run's events are published.
    #[serde(default)]
    pub channel: String,
    /// The lane of the turn that has the run's steps: the run's own or the session's.
    #[serde(default)]
    pub lane: String,
    /// The turn that has the run's steps.
    #[serde(default)]
    pub turn_id: String,
    /// Prefix of the keys of the run's steps; empty in a lane of its own.
    #[serde(default)]
    pub prefix: String,
    /// The output, cut at its limit.
    #[serde(default)]
    pub output: Option<String>,
    /// Why the run failed.
    #[serde(default)]
    pub error: Option<RunFailure>,
    /// For a graph: the number of its last replan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u32>,
    /// For a graph: its nodes, as of the end of the run or of its last turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Vec<NodeState>>,
    /// Stages, model calls and tokens that the run used.
    #[serde(default)]
    pub usage: RunUsage,
    /// The run that this run repeats, from `from_stage` on.
    #[serde(default)]
    pub from_run: Option<String>,
    /// The stage from which this run repeats `from_run`.
    #[serde(default)]
    pub from_stage: Option<String>,
    /// When the run was requested.
    pub created_at: Timestamp,
    /// When the run started.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// When the run ended.
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
}

impl RunRecord {
    /// Creates the record of a run in a lane of its own that waits on the queue. `turn_id` is the id of the job that
    /// starts it.
    pub fn pending(run_id: &str, turn_id: &str, workflow_id: &str, created_at: Timestamp) -> Self {
        Self {
            run_id: run_id.to_owned(),
            workflow_id: workflow_id.to_owned(),
            hash: String::new(),
            status: RunStatus::Pending,
            query: String::new(),
            params: None,
            notify: None,
            origin_session: None,
            user_id: None,
            channel: String::new(),
            lane: run_id.to_owned(),
            turn_id: turn_id.to_owned(),
            prefix: String::new(),
            output: None,
            error: None,
            revision: None,
            graph: None,
            usage: RunUsage::default(),
            from_run: None,
            from_stage: None,
            created_at,
            started_at: None,
            ended_at: None,
        }
    }
}

/// A query for runs. Results are sorted newest first, unless `by_end` is set.
#[derive(Clone, Debug)]
pub struct RunQuery {
    /// Returns only runs of this workflow.
    pub workflow_id: Option<String>,
    /// Returns only runs with this status.
    pub status: Option<RunStatus>,
    /// Returns only runs that this session asked for.
    pub origin_session: Option<String>,
    /// Returns only runs whose steps are in this lane.
    pub lane: Option<String>,
    /// Returns only runs whose steps belong to this turn of their lane.
    pub turn_id: Option<String>,
    /// Returns only runs that have ended, sorted by their end, latest first.
    pub by_end: bool,
    /// The largest number of results.
    pub limit: usize,
    /// Returns only runs behind this place: the time by which they are sorted, and the run id.
    pub after: Option<RunPlace>,
    /// The results end before the run with which they would have more bytes, but not before the first one.
    pub max_bytes: usize,
}

/// The place of a run in a listing: the time by which it is sorted, and its id.
pub type RunPlace = (Timestamp, String);

impl Default for RunQuery {
    fn default() -> Self {
        Self {
            workflow_id: None,
            status: None,
            origin_session: None,
            lane: None,
            turn_id: None,
            by_end: false,
            limit: 50,
            after: None,
            max_bytes: usize::MAX,
        }
    }
}
