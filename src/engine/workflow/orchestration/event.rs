//! Events of a run, published on the subject `tw.out.<channel>.<session or run>.run`, and of its decisions, on
//! `….decision`.

use crate::model::paced::Delta;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Type of a run's event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunEventType {
    /// A workflow, task agent or function has started.
    RunStarted,
    /// A workflow, task agent or function has completed. `data.output` has its output.
    RunCompleted,
    /// A workflow, task agent or function has failed. `error` has the reason.
    RunFailed,
    /// A piece of a model's answer, in `delta`.
    StepDelta,
    /// A model's whole answer or a tool's result, in `snapshot`.
    StepCompleted,
    /// A stage has started.
    StageStarted,
    /// A stage has completed. `data.output` has its output.
    StageCompleted,
    /// A loop has started an iteration: `iteration` of at most `data.max_iterations`.
    LoopIteration,
    /// A branch has started.
    BranchStarted,
    /// A branch has completed. `data.output` has its output.
    BranchCompleted,
}

impl RunEventType {
    /// The name of the type in JSON.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunEvent {
    /// Type of the event.
    #[serde(rename = "type")]
    pub kind: RunEventType,
    /// Id of the workflow's, agent's or function's own run, to which the event belongs.
    pub run_id: String,
    /// Id of the outermost run.
    pub root_run_id: String,
    /// Id of the event. It stays the same if the run is repeated after a crash, so clients can drop duplicates by it.
    pub event_id: String,
    /// Id of the model call or tool call.
    pub step_id: Option<String>,
    /// Stage to which the event belongs.
    pub stage_id: Option<String>,
    /// Branch to which the event belongs.
    pub branch_id: Option<String>,
    /// Iteration of the innermost loop, from 1.
    pub iteration: Option<u32>,
    /// Nesting depth; 0 for the outermost run.
    pub depth: u32,
    /// Place in the run, such as `outer_loop[2]/parallel/verify`. Empty for the outermost run.
    #[serde(default)]
    pub path: String,
    /// A piece of a model's answer.
    pub delta: Option<Delta>,
    /// A whole message: a model's answer, a tool's result, or a question to the user and its answer.
    pub snapshot: Option<Snapshot>,
    /// Further fields, such as `output`, `iterations`, `max_iterations` and `branch_outputs`.
    pub data: Option<Map<String, Value>>,
    /// Why the workflow, agent, function or branch has failed.
    pub error: Option<String>,
}

/// A whole message: of a task agent's conversation with its model, or of a question to the user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// `assistant`, `tool` or `user`.
    pub role: String,
    /// The text, or the tool's result as JSON.
    pub content: String,
    /// Tool calls that the model asks for. Null without tool calls.
    #[schemars(with = "Option<Vec<Map<String, Value>>>")]
    pub tool_calls: Option<Vec<Value>>,
}

/// An event on its way to the stream. One queue holds both kinds, so that they are published in the order in which they
/// happened.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "nearly all events are events of a run")]
pub enum QueuedEvent {
    /// An event of a workflow, a stage or a step.
    Run(RunEvent),
    /// An event of a recovery or a replan.
    Decision(QueuedDecision),
}

/// An event about a decision of a run. Its publisher adds the session and the turn.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedDecision {
    /// Id of the message, `<run>/<node>/decision/<n>`. It stays the same if the run is repeated after a crash.
    pub event_id: String,
    /// A [`DecisionEvent`](decisions::event::DecisionEvent) as JSON, with secrets masked.
    pub event: Value,
}
