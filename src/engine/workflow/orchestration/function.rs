//! Stages that are flows registered in Rust. The output of the flow is recorded, so that a timeline does not call the
//! function.

use super::event::RunEventType;
use super::failure::Failure;
use super::part::{Part, Told};
use super::task_agent;
use crate::journal::{Done, Durability, Label, StepError};
use crate::model::delta::Deltas;
use crate::workflow::{Asker, Flow, FlowContext, FlowError, Listener};
use async_trait::async_trait;
use definitions::agent::AgentRecord;
use serde_json::{Map, json};
use std::convert::Infallible;
use std::sync::Arc;
use types::model_names::ModelNames;
use types::timestamp::Timestamp;

/// Journal key of a flow's output. The flow's own steps cannot have this key, because `own_key` renames it.
pub(in crate::workflow) const RETURNED: &str = "(returned)";
/// Limit in bytes on a recorded output. A longer output would not fit into the store: it is not recorded, and a
/// timeline shows its stage as running.
const MAX_RECORDED: usize = 1024 * 1024;

/// Publishes the text of [`FlowContext::say`] as events of the run.
struct Watchers(Part);

#[async_trait]
impl Listener for Watchers {
    async fn hear(&self, step: &str, pieces: Deltas) {
        task_agent::show(&self.0, step, pieces).await;
    }
}

/// Runs `flow` as a stage. Its context has an agent with the flow's id and the stage's `models`, by default the model
/// `default`.
pub(super) async fn run(
    part: &Part,
    (id, flow): (&str, &Arc<dyn Flow>),
    input: &str,
    models: Option<&ModelNames>,
) -> Result<Arc<str>, Failure> {
    if part.run().notes.is_some() {
        return returned(part, id, input, String::new()).await;
    }
    let models = models.cloned().unwrap_or_else(|| "default".into());
    let model = part.services().models.chain(&models).map_err(|error| Failure::fatal(part, error))?;
    let bare = AgentRecord::from_document(json!({ "id": id, "model": models }), Timestamp::from_millis(0));
    let context = FlowContext {
        input: input.to_owned(),
        params: Map::new(),
        session_id: part.journal().session_id().to_owned(),
        agent: Arc::new(bare.map_err(|error| Failure::fatal(part, error))?),
        model,
        journal: part.journal(),
        listener: Arc::new(Watchers(part.clone())),
        asker: Asker::Stage(part.clone()),
    };
    part.tell(RunEventType::RunStarted, Told::default());
    let failure = match flow.run(context).await {
        Ok(output) => {
            let output =
                if output.len() > MAX_RECORDED { output.into() } else { returned(part, id, input, output).await? };
            part.tell(RunEventType::RunCompleted, Told::output(&output));
            return Ok(output);
        }
        Err(FlowError::Journal(error)) => return Err(error.into()),
        // A retry cannot help: the run still belongs to no conversation, and the limit stays exceeded.
        Err(error @ (FlowError::Nobody | FlowError::Limit(_))) => Failure::fatal(part, error),
        Err(FlowError::Model(error)) => Failure::of_model(part, StepError::Operation(error)),
        Err(error) => Failure::of(part, error),
    };
    if let Failure::Failed { failure, .. } = &failure {
        part.tell(RunEventType::RunFailed, Told::error(&failure.cause));
    }
    Err(failure)
}

/// Records the output of a flow, or returns the recorded one: a repeated run continues with the recorded output.
async fn returned(part: &Part, id: &str, input: &str, output: String) -> Result<Arc<str>, Failure> {
    let (journal, label) = (part.journal(), Label { kind: "flow", target: id });
    let step =
        journal.step(RETURNED, label, Durability::Deferred, input, |_| async { Ok::<_, Infallible>(Done::ok(output)) });
    match step.await {
        Ok(stepped) => Ok(stepped.output.into()),
        Err(StepError::Journal(error)) => Err(error.into()),
        Err(StepError::Operation(never)) => match never {},
    }
}
