//! Execution of one stage, with its retries and its timeout.

use super::event::RunEventType;
use super::failure::Failure;
use super::resolved::Runnable;
use super::stage_context::{EventPayload, StageContext};
use super::workflow::{self, WorkflowOutput};
use super::{function, task_agent};
use crate::journal::{Done, Durability, Label, StepError};
use definitions::workflow::definition::{Shape, StageDefinition, Target};
use definitions::workflow::scope::Scope;
use std::borrow::Cow;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use types::duration;
use types::run_outcome::RunFailure;

/// Journal key of an attempt's recorded failure.
pub(in crate::workflow) const FAILED_KEY: &str = "failed";

/// Executes a stage whose condition holds, with its retries. `context` is the stage's own; its templates see `scope`.
pub(in crate::workflow) async fn run(
    context: &StageContext,
    stage: &StageDefinition,
    scope: &Scope,
) -> Result<WorkflowOutput, Failure> {
    context.run().event_buffer.wait_for_room().await;
    let input = stage.input.build(scope);
    let mut backoff = stage.retry.backoff;
    let mut attempt = 1;
    loop {
        let failure = match run_and_note(&context.attempt(attempt), stage, attempt, &input, scope).await {
            Ok(output) => return Ok(output),
            Err(Failure::Failed { failure, fatal: false }) => failure,
            Err(failure) => return Err(failure),
        };
        if attempt >= stage.retry.max_attempts {
            // An inner stage may have had more attempts than this one.
            let attempts = failure.attempts.max(attempt);
            return Err(Failure::Failed { failure: RunFailure { attempts, ..failure }, fatal: false });
        }
        if context.run().notes.is_none() {
            let _kept = context.run().pauses.keep_worker();
            context.journal().clock().sleep(remaining_pause(context, attempt, backoff)).await;
        }
        backoff = backoff.saturating_mul(2);
        attempt += 1;
    }
}

/// Returns the rest of the pause after an attempt. A repeated run counts from the recorded failure, so it does not
/// pause a second time.
fn remaining_pause(context: &StageContext, attempt: u32, backoff: Duration) -> Duration {
    if !context.attempt(attempt + 1).journal().recorded().is_empty() {
        return Duration::ZERO;
    }
    let failure = context.attempt(attempt).journal().record_of(FAILED_KEY);
    failure.map_or(backoff, |failure| backoff.saturating_sub(failure.at.until(context.journal().clock().now())))
}

/// Executes one attempt, and notes it if the run is replayed for a timeline.
async fn run_and_note(
    context: &StageContext,
    stage: &StageDefinition,
    attempt: u32,
    input: &str,
    scope: &Scope,
) -> Result<WorkflowOutput, Failure> {
    let notes = context.run().notes.as_ref();
    let place = notes.map(|notes| notes.start(context, stage.runnable.id(), attempt, input));
    let ended = run_attempt(context, stage, input, scope).await;
    if let Some((notes, place)) = notes.zip(place) {
        notes.end(place, ended.as_ref().map(|output| &output.text));
    }
    ended
}

/// Executes one attempt. Its failure is recorded if the stage has a timeout or retries, or if the run continues after
/// failures: in a repeated run the attempt might otherwise end differently.
async fn run_attempt(
    context: &StageContext,
    stage: &StageDefinition,
    input: &str,
    scope: &Scope,
) -> Result<WorkflowOutput, Failure> {
    let recorded = stage.timeout.is_some() || stage.retry.max_attempts > 1 || context.keeps_failures();
    if recorded && context.journal().has(FAILED_KEY, FAILED_KEY) {
        return Err(record_failure(context, None).await);
    }
    context.run().counters.count_stage(context.depth()).map_err(|limit| Failure::fatal(context, limit))?;
    let running = run_target(context, stage, input, scope);
    let ended = match stage.timeout {
        None => running.await,
        Some(limit) => match context.journal().clock().timeout(limit, running).await {
            Some(ended) => ended,
            // The time that the user takes for an answer does not count against the stage's timeout.
            None if context.run().asking.waits_within(&context.journal()) => pending().await,
            None => Err(Failure::retryable(
                context,
                format!("the stage took longer than {}; raise its `timeout`", duration::format(limit)),
            )),
        },
    };
    match ended {
        Err(Failure::Failed { failure, fatal: false }) if recorded => Err(record_failure(context, Some(failure)).await),
        ended => ended,
    }
}

/// Records the failure of an attempt, or returns the recorded failure.
async fn record_failure(context: &StageContext, failure: Option<RunFailure>) -> Failure {
    let label = Label { kind: "stage", target: context.path() };
    let unknown = || RunFailure { path: context.path().to_owned(), cause: "the stage failed".into(), attempts: 1 };
    let journal = context.journal();
    let step = journal.step(FAILED_KEY, label, Durability::OnReturn, FAILED_KEY, |_| async {
        Ok::<_, Infallible>(Done { ok: false, ..Done::ok(failure.unwrap_or_else(unknown)) })
    });
    match Box::pin(step).await {
        Ok(stepped) => Failure::Failed { failure: stepped.output, fatal: false },
        Err(StepError::Journal(error)) => Failure::Journal(error),
        Err(StepError::Operation(never)) => match never {},
    }
}

/// Runs the stage's agent, function or workflow on `input`.
pub(super) async fn run_target(
    context: &StageContext,
    stage: &StageDefinition,
    input: &str,
    scope: &Scope,
) -> Result<WorkflowOutput, Failure> {
    let inner = context.inner();
    match &stage.runnable {
        Target::Inline(nested) => {
            let output = Box::pin(workflow::run(&inner, nested, scope.enter(&nested.shape, input))).await?;
            Ok(visible_outputs(stage, &nested.shape, output))
        }
        Target::Reference(id) => match context.run().resolved.find(id) {
            Some(Runnable::Agent(agent)) => {
                let agent = match &stage.model {
                    Some(models) => Cow::Owned(agent.asking(models)),
                    None => Cow::Borrowed(agent.as_ref()),
                };
                Ok(task_agent::run(&inner, &agent, input).await?.into())
            }
            Some(Runnable::Workflow(nested)) => {
                let output = Box::pin(workflow::run(&inner, nested, Scope::root(input, None))).await?;
                Ok(visible_outputs(stage, &nested.shape, output))
            }
            Some(Runnable::Flow(flow)) => {
                let models = stage.model.as_ref();
                Ok(Box::pin(function::run(&inner, id, flow, input, models)).await?.into())
            }
            None => Err(Failure::fatal(context, format!("Runnable not found: {id}"))),
        },
    }
}

/// Reduces the outputs of the workflow that `stage` has run to the outputs that the surrounding workflow sees, as
/// [`StageDefinition::output_ids`] lists them.
fn visible_outputs(stage: &StageDefinition, shape: &Shape, output: WorkflowOutput) -> WorkflowOutput {
    let further: Vec<_> = match shape {
        Shape::Parallel { .. } => {
            let is_inline = matches!(stage.runnable, Target::Inline(_));
            output.further.into_iter().filter(|(id, _)| is_inline || !id.contains('.')).collect()
        }
        _ if stage.shows().is_some() => {
            let under = |id: Arc<str>| format!("{}.{id}", stage.id).into();
            output.further.into_iter().map(|(id, text)| (under(id), text)).collect()
        }
        Shape::Pipeline { .. }
        | Shape::Loop { .. }
        | Shape::Conditional { .. }
        | Shape::Dynamic(_)
        | Shape::Graph(_) => Vec::new(),
    };
    WorkflowOutput { further, ..output }
}

/// Executes a stage, with the events of its start and end.
pub(super) async fn run_with_events(
    context: &StageContext,
    stage: &StageDefinition,
    scope: &Scope,
) -> Result<WorkflowOutput, Failure> {
    context.emit(RunEventType::StageStarted, EventPayload::default());
    let output = run(context, stage, scope).await?;
    context.emit(RunEventType::StageCompleted, EventPayload::output(&output.text));
    Ok(output)
}
