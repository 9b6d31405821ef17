//! Reading the kept prompts of model calls.

use crate::error::{CommandError, ErrorKind};
use crate::sessions::TurnDetails;
use engine::model::kept_prompt::decode;
use serde::{Deserialize, Serialize};
use storage::store::{Store, StoreError};
use types::ids;
use types::prompt::KeptPrompt;

/// The prompt of a model call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StepPrompt {
    /// The session, or the run in a lane of its own.
    pub session_id: String,
    /// The turn.
    pub turn_id: String,
    /// The key of the model call's step.
    pub key: String,
    /// The messages.
    #[serde(flatten)]
    pub prompt: KeptPrompt,
}

/// Reads the prompt of a step. Fails with `unknown_prompt` if none is stored.
pub async fn step_prompt(
    store: &dyn Store,
    session_id: &str,
    turn_id: &str,
    key: &str,
) -> Result<StepPrompt, CommandError> {
    ids::check("session_id", session_id)?;
    ids::check("turn_id", turn_id)?;
    let found = store.prompt(session_id, turn_id, key).await?;
    let compressed = found.ok_or_else(|| unknown_prompt(session_id, turn_id, key))?;
    let prompt =
        decode(&compressed).map_err(|error| StoreError::damaged(format!("the prompt of step `{key}`"), error))?;
    let (session_id, turn_id, key) = (session_id.to_owned(), turn_id.to_owned(), key.to_owned());
    Ok(StepPrompt { session_id, turn_id, key, prompt })
}

fn unknown_prompt(session_id: &str, turn_id: &str, key: &str) -> CommandError {
    let message = format!("no prompt of step `{key}` of turn `{turn_id}` of session `{session_id}` is stored");
    let hint =
        "set `journal.prompts` of the workers to `full`: later model calls keep their prompts for `retention.turns`";
    CommandError::new(ErrorKind::NotFound, "unknown_prompt", message, hint)
}

/// The keys of a turn's model calls, in the order of their records.
pub fn model_calls(turn: &TurnDetails) -> Vec<&str> {
    let mut calls: Vec<_> = turn.steps.iter().filter(|step| step.model.is_some() || step.kind == "model").collect();
    calls.sort_by_key(|step| step.at);
    calls.into_iter().map(|step| step.key.as_str()).collect()
}
