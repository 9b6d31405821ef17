//! Stages that are flows registered in Rust. The output of the flow is recorded, so that a timeline does not call the
//! function.

use super::event::RunEventType;
use super::failure::Failure;
use super::stage_context::{EventPayload, StageContext};
use super::task_agent;
use crate::action::would_call::WouldCall;
use crate::journal::{Done, Durability, Label, StepError};
use crate::model::delta::Deltas;
use crate::workflow::{Asker, Flow, FlowContext, FlowError, Listener};
use async_trait::async_trait;
use decisions::reference::resolve::as_text;
use definitions::agent::AgentRecord;
use serde_json::{Map, json};
use std::convert::Infallible;
use std::sync::Arc;
use types::model_names::ModelNames;
use types::timestamp::Timestamp;

/// Journal key of a flow's output. The flow's own steps cannot have this key, because `own_key` renames it.
pub(in crate::workflow) const OUTPUT_KEY: &str = "(returned)";
/// Limit in bytes on a recorded output. A longer output would not fit into the store: it is not recorded, and a
/// timeline shows its stage as running.
const MAX_RECORDED_OUTPUT: usize = 1024 * 1024;

/// Publishes the text of [`FlowContext::say`] as events of the run.
struct RunEventListener(StageContext);

#[async_trait]
impl Listener for RunEventListener {
    async fn publish_pieces(&self, step: &str, pieces: Deltas) {
        task_agent::publish_pieces(&self.0, step, pieces).await;
    }
}

/// Runs `flow` as a stage. Its context has an agent with the flow's id and the stage's `models`, by default the model
/// `default`.
pub(super) async fn run(
    context: &StageContext,
    id: &str,
    flow: &Arc<dyn Flow>,
    input: &str,
    models: Option<&ModelNames>,
) -> Result<Arc<str>, Failure> {
    if context.run().notes.is_some() {
        return record_output(context, id, input, String::new()).await;
    }
    if let Some(stand_in) = context.services().http.stand_in() {
        stand_in.called(id, || WouldCall::Function { function: id.to_owned(), params: input.into() });
        let Some(output) = stand_in.output(id) else { return Err(Failure::fatal(context, stand_in.refuse(id))) };
        context.emit(RunEventType::RunStarted, EventPayload::default());
        let output = record_output(context, id, input, as_text(&output)).await?;
        context.emit(RunEventType::RunCompleted, EventPayload::output(&output));
        return Ok(output);
    }
    let models = models.cloned().unwrap_or_else(|| "default".into());
    let model = context.services().models.chain(&models).map_err(|error| Failure::fatal(context, error))?;
    let bare = AgentRecord::from_document(json!({ "id": id, "model": models }), Timestamp::from_millis(0));
    let flow_context = FlowContext {
        input: input.to_owned(),
        params: Map::new(),
        session_id: context.journal().session_id().to_owned(),
        agent: Arc::new(bare.map_err(|error| Failure::fatal(context, error))?),
        model,
        journal: context.journal(),
        listener: Arc::new(RunEventListener(context.clone())),
        asker: Asker::Stage(context.clone()),
    };
    context.emit(RunEventType::RunStarted, EventPayload::default());
    // A flow may wait outside of steps.
    let kept = context.run().pauses.keep_worker();
    let ended = flow.run(flow_context).await;
    drop(kept);
    let failure = match ended {
        Ok(output) => {
            let output = if output.len() > MAX_RECORDED_OUTPUT {
                output.into()
            } else {
                record_output(context, id, input, output).await?
            };
            context.emit(RunEventType::RunCompleted, EventPayload::output(&output));
            return Ok(output);
        }
        Err(FlowError::Journal(error)) => return Err(error.into()),
        // A retry cannot help: the run still belongs to no conversation, and the limit stays exceeded.
        Err(error @ (FlowError::Nobody | FlowError::Limit(_))) => Failure::fatal(context, error),
        Err(FlowError::Model(error)) => Failure::from_model_error(context, StepError::Operation(error)),
        Err(error) => Failure::retryable(context, error),
    };
    if let Failure::Failed { failure, .. } = &failure {
        context.emit(RunEventType::RunFailed, EventPayload::error(&failure.cause));
    }
    Err(failure)
}

/// Records the output of a flow, or returns the recorded one: a repeated run continues with the recorded output.
async fn record_output(context: &StageContext, id: &str, input: &str, output: String) -> Result<Arc<str>, Failure> {
    let (journal, label) = (context.journal(), Label { kind: "flow", target: id });
    let step = journal
        .step(OUTPUT_KEY, label, Durability::Deferred, input, |_| async { Ok::<_, Infallible>(Done::ok(output)) });
    match step.await {
        Ok(stepped) => Ok(stepped.output.into()),
        Err(StepError::Journal(error)) => Err(error.into()),
        Err(StepError::Operation(never)) => match never {},
    }
}
