//! Trials of a dialogue's draft, and replays against it, before the draft is in use.

use super::{Author, Dialogue};
use crate::authoring::artifact::no_draft;
use crate::error::{CommandError, ErrorKind};
use base::clock::Clock;
use base::config::Budget;
use definitions::agent::AgentRecord;
use engine::authoring::{Workbench, artifact, checks, day_meter};
use engine::execution::stored;
use engine::model::ModelError;
use engine::rehearsal::trial::{Trial, TrialError};
use engine::rehearsal::{Draft, DraftKnowledge};
use engine::replay::{RecordedTurn, last_turns};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use storage::store::{Definition, Store};
use types::authoring::{Artifact, Origin};
use types::ids::{self, Id};

/// The largest message to a draft, in bytes.
const MAX_TEXT: usize = 65_536;
/// The most turns of one replay.
pub const MAX_TURNS: u32 = 50;
/// How many turns are replayed by default.
pub const DEFAULT_TURNS: u32 = 20;
/// The hint for a draft that cannot work.
const CORRECT: &str = "describe the change in the dialogue";

/// One message to the draft of an agent, or one run of the draft of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialRequest {
    /// The message to an agent. For a workflow with a text as its input, it is the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The input of a workflow: a text, or the inputs of a graph by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The outputs of skills, tools, flows and nodes by id, in place of calls; `handoff` is the endpoint of a handoff.
    /// A call without one fails.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub answers: Map<String, Value>,
    /// Makes the calls instead of using `answers`. For operators.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub live: bool,
}

/// Recorded turns to replay against the draft of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayRequest {
    /// The number of turns: the last ones of users' messages.
    #[schemars(range(min = 1, max = MAX_TURNS), extend("default" = DEFAULT_TURNS))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// The agent whose turns are replayed. By default the source of the dialogue, or the agent that it has published.
    #[schemars(with = "Option<Id>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
}

/// A replay that is ready to start.
#[derive(Clone, Debug)]
pub struct ReplayOrder {
    /// The draft.
    pub agent: AgentRecord,
    /// The agent whose turns are replayed.
    pub agent_id: String,
    /// The turns, the newest first.
    pub turns: Vec<RecordedTurn>,
}

/// Fails with `token_budget` if the authoring agent has used up its day, in which the model calls of drafts count.
pub async fn has_budget(store: &Arc<dyn Store>, defaults: &Budget) -> Result<(), CommandError> {
    let Some(meter) = day_meter(store, defaults, Clock::system()).await? else { return Ok(()) };
    meter.check().await.map_err(|error| {
        let hint = "wait until tomorrow (UTC), or raise `budget.day` of the agent `authoring`";
        match error {
            ModelError::Spent { .. } => CommandError::new(ErrorKind::Conflict, "token_budget", error.to_string(), hint),
            error => CommandError::unavailable("store_unavailable", error.to_string(), "try again in a minute"),
        }
    })
}

/// Checks a trial of the last draft.
pub async fn trial(
    bench: &Workbench,
    author: &Author,
    dialogue: &Dialogue,
    request: TrialRequest,
) -> Result<Trial, CommandError> {
    if request.live && matches!(author, Author::User(_)) {
        let hint = "give the results of the calls as `answers`, or ask an operator";
        return Err(CommandError::new(ErrorKind::Forbidden, "forbidden", "`live` is for operators", hint));
    }
    let artifact = dialogue.state.artifact;
    let (text, input) = said(artifact, request.text, request.input)?;
    let (hash, draft) = draft(bench, dialogue).await?;
    let draft = match draft {
        Definition::Agent(agent) => {
            let may_read = match author {
                Author::User(name) => artifact::reads_texts(bench.store.as_ref(), &dialogue.state, name).await?,
                Author::Operator(_) => true,
            };
            Draft::Agent(agent, DraftKnowledge::stored(may_read))
        }
        Definition::Workflow(workflow) => Draft::Workflow(workflow),
    };
    let session_id = dialogue.session.session_id.clone();
    Ok(Trial { session_id, hash, draft, text, input, answers: request.answers, live: request.live })
}

/// Returns the message to an agent, and the input of a workflow.
fn said(
    artifact: Artifact,
    text: Option<String>,
    input: Option<Value>,
) -> Result<(String, Option<Value>), CommandError> {
    let invalid = |message: &str| {
        let hint = "give an agent a `text`, and a workflow an `input`";
        Err(CommandError::invalid("invalid_request", message, hint))
    };
    let bytes = text.as_ref().map(String::len).unwrap_or_default();
    if bytes > MAX_TEXT {
        let message = format!("text has {bytes} bytes; the limit is {MAX_TEXT}");
        return Err(CommandError::new(ErrorKind::TooLarge, "message_too_large", message, "send a shorter text"));
    }
    match (artifact, text, input) {
        (_, Some(_), Some(_)) => invalid("only one of `text` and `input` is allowed"),
        (Artifact::Agent, _, Some(_)) => invalid("input is for workflows; the draft is an agent"),
        (Artifact::Agent, Some(text), None) if !text.trim().is_empty() => Ok((text, None)),
        (Artifact::Agent, ..) => {
            Err(CommandError::invalid("empty_message", "text is empty", "give the message as `text`"))
        }
        (Artifact::Workflow, text, input) => Ok((String::new(), input.or(text.map(Value::String)))),
    }
}

/// Checks a replay against the last draft, and reads the turns.
pub async fn replay(
    bench: &Workbench,
    dialogue: &Dialogue,
    request: ReplayRequest,
) -> Result<ReplayOrder, CommandError> {
    let turns = request.turns.unwrap_or(DEFAULT_TURNS);
    if !(1..=MAX_TURNS).contains(&turns) {
        let message = format!("turns is {turns}; it must be 1 to {MAX_TURNS}");
        return Err(CommandError::invalid("invalid_request", message, "without `turns` it is 20"));
    }
    if dialogue.state.artifact != Artifact::Agent {
        let hint = "POST …/test runs a workflow";
        let message = "the draft is a workflow; only turns of agents can be replayed";
        return Err(CommandError::new(ErrorKind::Conflict, "not_an_agent", message, hint));
    }
    let agent_id = request.agent_id.or_else(|| predecessor(dialogue)).ok_or_else(|| {
        CommandError::invalid(
            "invalid_request",
            "agent_id is missing, and the draft replaces no agent",
            "give the `agent_id` whose turns are to be replayed",
        )
    })?;
    ids::check("agent_id", &agent_id)?;
    let (_, draft) = draft(bench, dialogue).await?;
    let Definition::Agent(agent) = draft else { return Err(no_draft(dialogue)) };
    let store = bench.store.as_ref();
    if stored::agent(store, &agent_id).await?.is_none() {
        return Err(CommandError::unknown_agent(&agent_id));
    }
    let turns = last_turns(store, &agent_id, usize::try_from(turns).unwrap_or_default()).await?;
    Ok(ReplayOrder { agent, agent_id, turns })
}

/// Returns the stored agent from which the draft was made.
fn predecessor(dialogue: &Dialogue) -> Option<String> {
    let state = &dialogue.state;
    let context = &state.state.workflow_context;
    match context.origin {
        _ if state.published.is_some() => state.state.workflow_id.clone(),
        Origin::Create => None,
        Origin::Edit | Origin::Copy => Some(context.source_workflow_id.clone()),
    }
}

/// Returns the last draft with its hash, if it can work.
async fn draft(bench: &Workbench, dialogue: &Dialogue) -> Result<(String, Definition), CommandError> {
    let version = artifact::draft(bench.store.as_ref(), &dialogue.state, None).await?;
    let version = version.ok_or_else(|| no_draft(dialogue))?;
    match checks::usable(bench, &version).await? {
        Ok(definition) => Ok((version.hash, definition)),
        Err(errors) => {
            let code = match version.artifact {
                Artifact::Agent => "invalid_agent",
                Artifact::Workflow => "invalid_workflow",
            };
            let text = |error: &Value, field: &str| error[field].as_str().unwrap_or_default().to_owned();
            let first = errors.first().map(|error| format!("{}: {}", text(error, "path"), text(error, "problem")));
            let message = format!("the document cannot work: {}", first.unwrap_or_default());
            Err(CommandError::new(ErrorKind::Unprocessable, code, message, CORRECT))
        }
    }
}

/// The error for a trial that could not begin.
pub fn refused(error: TrialError) -> CommandError {
    let message = error.to_string();
    match error {
        TrialError::Busy => {
            CommandError::new(ErrorKind::Conflict, "busy", message, "send the next message when it has ended")
        }
        TrialError::TooMany(_) => CommandError::unavailable("too_many_tests", message, "try again in a minute"),
        TrialError::Start(source) => {
            let hint = "the gateway itself runs the draft: it needs the models of the settings, with their keys";
            let refused = CommandError::new(ErrorKind::Unavailable, "test_unavailable", message, hint);
            CommandError { source: Some(source), ..refused }
        }
    }
}
