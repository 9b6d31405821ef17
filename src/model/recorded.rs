//! A model call as a step of the journal, with model, tokens and attempts in its record.

use super::{Model, ModelError, ModelRequest};
use crate::journal::{Done, Journal, Label, StepError, Stepped};
use serde::Serialize;

/// Asks `model`, named `target` in the settings, unless the step is recorded; answers the text. `input` is what the
/// question depends on, not the rendered prompt, so that a prompt may be edited while turns are in hand.
pub async fn ask(
    journal: &Journal,
    key: &str,
    (target, model): (&str, &dyn Model),
    input: &(impl Serialize + ?Sized),
    mut request: ModelRequest,
) -> Result<Stepped<String>, StepError<ModelError>> {
    let label = Label { kind: "model", target };
    let step = journal.step(key, label, input, |idempotency_key| async move {
        request.idempotency_key = idempotency_key;
        let reply = model.complete(request).await?;
        Ok(Done {
            output: reply.content,
            ok: true,
            model: Some(reply.model),
            tokens: Some(reply.tokens),
            attempts: Some(reply.attempts),
        })
    });
    step.await
}
