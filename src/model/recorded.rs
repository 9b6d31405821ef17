//! A model call as a step of the journal, with model, tokens and attempts in its record. That a model did not answer is a
//! result like any other: a turn that has gone on without the answer, and is repeated, goes on without it again.

use super::{Model, ModelError, ModelRequest};
use crate::journal::{Done, Journal, Label, StepError, Stepped};
use serde::{Deserialize, Serialize};
use std::convert::Infallible;

/// What is recorded: the answer as it is, or why there is none.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Outcome {
    Content(String),
    Failed(ModelError),
}

/// Like [`ask_last`], recorded in any case.
pub async fn ask(
    journal: &Journal,
    key: &str,
    model: (&str, &dyn Model),
    input: &(impl Serialize + ?Sized),
    request: ModelRequest,
) -> Result<Stepped<String>, StepError<ModelError>> {
    ask_last(journal, key, model, input, request, |_| false).await
}

/// Asks `model`, named `target` in the settings, unless the step is recorded; answers the text. `input` is what the
/// question depends on, not the rendered prompt, so that a prompt may be edited while turns are in hand. An answer that
/// `is_last` says the turn ends with is left to the commit ([`Journal::last_step`]).
pub async fn ask_last(
    journal: &Journal,
    key: &str,
    (target, model): (&str, &dyn Model),
    input: &(impl Serialize + ?Sized),
    mut request: ModelRequest,
    is_last: impl FnOnce(&str) -> bool,
) -> Result<Stepped<String>, StepError<ModelError>> {
    let label = Label { kind: "model", target };
    let ends = |outcome: &Outcome| matches!(outcome, Outcome::Content(content) if is_last(content));
    let step = journal.last_step(key, label, input, ends, |idempotency_key| async move {
        request.idempotency_key = idempotency_key;
        Ok::<_, Infallible>(match model.complete(request).await {
            Ok(reply) => Done {
                output: Outcome::Content(reply.content),
                ok: true,
                model: Some(reply.model),
                tokens: Some(reply.tokens),
                attempts: Some(reply.attempts),
            },
            Err(error) => Done { ok: false, ..Done::ok(Outcome::Failed(error)) },
        })
    });
    let Stepped { output, ok, ms, key } = match step.await {
        Ok(stepped) => stepped,
        Err(StepError::Journal(error)) => return Err(error.into()),
        Err(StepError::Operation(never)) => match never {},
    };
    match output {
        Outcome::Content(output) => Ok(Stepped { output, ok, ms, key }),
        Outcome::Failed(error) => Err(StepError::Operation(error)),
    }
}
