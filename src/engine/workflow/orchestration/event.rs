//! What a run tells while it goes on (O-06, O-07): `tw.out.<channel>.<session or run>.run`.

use crate::model::paced::Delta;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunEventType {
    /// A workflow or agent begins.
    RunStarted,
    /// It has come to its end: `data.output`.
    RunCompleted,
    /// It ends without one: `error`.
    RunFailed,
    /// A piece of a model's answer: `delta`.
    StepDelta,
    /// A model's answer or a tool's result is there: `snapshot`.
    StepCompleted,
    /// A stage begins.
    StageStarted,
    /// It has come to its end: `data.output`.
    StageCompleted,
    /// A loop begins an iteration: `iteration`, `data.max_iterations`.
    LoopIteration,
    /// A branch begins.
    BranchStarted,
    /// It has come to its end: `data.output`.
    BranchCompleted,
}

impl RunEventType {
    /// The name used on every wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RunStarted => "run_started",
            Self::RunCompleted => "run_completed",
            Self::RunFailed => "run_failed",
            Self::StepDelta => "step_delta",
            Self::StepCompleted => "step_completed",
            Self::StageStarted => "stage_started",
            Self::StageCompleted => "stage_completed",
            Self::LoopIteration => "loop_iteration",
            Self::BranchStarted => "branch_started",
            Self::BranchCompleted => "branch_completed",
        }
    }
}

/// One event of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunEvent {
    /// What has happened.
    #[serde(rename = "type")]
    pub kind: RunEventType,
    /// The run of the workflow or agent that tells it; each has its own.
    pub run_id: String,
    /// The outermost run that it is a part of.
    pub root_run_id: String,
    /// The same however often the run is repeated after a crash: clients drop repeats by it.
    pub event_id: String,
    /// The model call or tool call.
    pub step_id: Option<String>,
    /// The stage that it belongs to.
    pub stage_id: Option<String>,
    /// The branch that it belongs to.
    pub branch_id: Option<String>,
    /// The iteration of the innermost loop around it.
    pub iteration: Option<u32>,
    /// 0 for the outermost run.
    pub depth: u32,
    /// Where, such as `outer_loop[2]/parallel/verify`; empty for the outermost run.
    #[serde(default)]
    pub path: String,
    /// A piece of an answer.
    pub delta: Option<Delta>,
    /// A whole one.
    pub snapshot: Option<Snapshot>,
    /// `output`, `iterations`, `max_iterations`, `branch_outputs`.
    #[schema(value_type = Option<Object>)]
    pub data: Option<Map<String, Value>>,
    /// What went wrong.
    pub error: Option<String>,
}

/// A message of a task agent's conversation with its model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    /// `assistant` or `tool`.
    pub role: String,
    /// The words, or the tool's result as JSON.
    pub content: String,
    /// What the model wants called; null unless it does.
    #[schema(value_type = Option<Vec<Object>>)]
    pub tool_calls: Option<Vec<Value>>,
}
