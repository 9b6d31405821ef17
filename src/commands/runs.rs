//! Starting, cancelling and resuming runs of workflows.

use super::enqueue::{enqueue, new_id};
use super::operator::{self, OperatorCommand};
use super::run_details::load;
use super::run_inputs::{self, RunInputs};
use super::workflows::check_ready;
use crate::error::{CommandError, ErrorKind};
use base::clock;
use definitions::workflow::definition::Workflow;
use engine::execution::CancelReason;
use engine::run::{self, StartRecord};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::Arc;
use storage::queue::Queue;
use storage::store::Store;
use tracing::warn;
use types::ids;
use types::job::{Command, Job, JobBody};
use types::run::{RunRecord, RunStatus};
use types::run_outcome::RunFailure;
use types::session::Kind;

/// The channel of a run that names no channel.
const DEFAULT_CHANNEL: &str = "default";

/// A run to be started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewRun {
    /// The workflow to run. With `from_run` it may be omitted: the workflow is that of the repeated run.
    #[serde(default)]
    pub workflow_id: String,
    /// The query for the workflow. A graph needs none. With `from_run` it is ignored: the query is that of the repeated
    /// run.
    #[serde(default)]
    pub query: String,
    /// The inputs of a graph. With `from_run` they are ignored: the inputs are those of the repeated run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Map<String, Value>>,
    /// The chat session whose conversation the run can read, and to which its events are published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The user that the run is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// The channel to which the run's events are published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// The id for deduplication: two requests with the same id start one run. A random id by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The run to repeat. The results of its stages before `from_stage` are reused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_run: Option<String>,
    /// The stage from which `from_run` is repeated, such as `plan` or `outer_loop[2]/parallel_result`. Without it, all
    /// stages are repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_stage: Option<String>,
}

impl NewRun {
    /// A run of a workflow, under a random id.
    pub fn new(workflow_id: impl Into<String>, query: impl Into<String>) -> Self {
        Self { workflow_id: workflow_id.into(), query: query.into(), ..Self::default() }
    }
}

/// A run that was started, cancelled or resumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StartedRun {
    /// The id of the run.
    pub run_id: String,
    /// The id of its workflow.
    pub workflow_id: String,
}

/// Puts a run on a lane of its own. Durable on return. A second request with the same `run_id` and the same content
/// changes nothing; with other content it fails with `run_id_taken`.
///
/// A run with inputs has its record before its job is on the queue, because the job does not have them.
pub async fn start_run(queue: &dyn Queue, store: &dyn Store, new: NewRun) -> Result<StartedRun, CommandError> {
    let new = complete(store, new).await?;
    let params = check(store, &new).await?;
    let run_id = new.run_id.clone().unwrap_or_else(new_id);
    let started = StartedRun { run_id: run_id.clone(), workflow_id: new.workflow_id.clone() };
    if let Some(known) = store.run(&run_id).await? {
        return match is_repeat(&known, &new) {
            // Its job may be missing, if the first request has stored the record only.
            true if known.params.is_some() && known.status == RunStatus::Pending && known.started_at.is_none() => {
                enqueue(queue, Job { session_id: run_id.clone(), job_id: run_id, body: body_of(new) }).await?;
                Ok(started)
            }
            true => Ok(started),
            false => Err(taken(&run_id)),
        };
    }
    if store.session(&run_id).await?.is_some_and(|session| session.kind != Kind::Run) {
        return Err(taken(&run_id));
    }
    let body = body_of(new.clone());
    let job = Job { session_id: run_id.clone(), job_id: run_id, body };
    job.check()?;
    let record = pending(&job, params);
    let has_params = record.as_ref().is_some_and(|record| record.params.is_some());
    if let Some(record) = record.clone().filter(|_| has_params)
        && !store.put_run(record).await?
        && !store.run(&started.run_id).await?.is_some_and(|known| is_repeat(&known, &new))
    {
        // Another caller has used the same id concurrently.
        return Err(taken(&started.run_id));
    }
    let published = match enqueue(queue, job.clone()).await {
        Ok((_, published)) => published,
        Err(refused) => {
            if let Some(record) = record.filter(|_| has_params) {
                abandon_unqueued(store, record, &refused).await;
            }
            return Err(refused);
        }
    };
    if published.duplicate && !is_of(queue, store, &job, &new, published.seq).await? {
        return Err(taken(&started.run_id));
    }
    if let Some(run) = record.filter(|_| !has_params)
        && let Err(error) = store.put_run(run).await
    {
        warn!(run_id = started.run_id, "the run is queued, but listings do not show it before it starts: {error}");
    }
    Ok(started)
}

/// Ends the record of a run whose job the queue has refused, so that the record expires. When the queue was unreachable
/// it may have stored the job all the same: then the run executes, and its record counts again.
async fn abandon_unqueued(store: &dyn Store, record: RunRecord, refused: &CommandError) {
    let run_id = record.run_id.clone();
    let error = Some(RunFailure { path: String::new(), cause: refused.message.clone(), attempts: 1 });
    let failed = RunRecord { status: RunStatus::Failed, error, ended_at: Some(clock::now()), ..record };
    if let Err(error) = store.update_run(failed, 0).await {
        warn!(run_id, "the run's job was refused, and its record stays pending: {error}");
    }
}

/// True when `job`, which the queue dropped as a duplicate, has the same content as the stored one. Another caller may
/// have used the same id concurrently for another run.
async fn is_of(queue: &dyn Queue, store: &dyn Store, job: &Job, new: &NewRun, seq: u64) -> Result<bool, CommandError> {
    let first = queue.next_in_lane(&job.session_id, seq.saturating_sub(1), seq).await?;
    if let Some(first) = first.filter(|first| first.seq == seq) {
        return Ok(first.job().is_ok_and(|first| first.body == job.body));
    }
    // The first job is processed, so the run has a record.
    Ok(store.run(&job.session_id).await?.is_none_or(|known| is_repeat(&known, new)))
}

fn body_of(new: NewRun) -> JobBody {
    let NewRun { workflow_id, query, session_id: origin_session, user_id, channel, from_run, from_stage, .. } = new;
    JobBody::Run { workflow_id, query, origin_session, user_id, channel, from_run, from_stage }
}

/// Fills in missing fields from the run that is repeated.
async fn complete(store: &dyn Store, new: NewRun) -> Result<NewRun, CommandError> {
    let Some(from_run) = &new.from_run else { return Ok(new) };
    ids::check("from_run", from_run)?;
    let source = load(store, from_run).await?;
    if let Some(stage) = &new.from_stage {
        check_stage(store, &source, stage).await?;
    }
    if !new.workflow_id.is_empty() && new.workflow_id != source.workflow_id {
        let message =
            format!("run `{from_run}` is one of workflow `{}`, not of `{}`", source.workflow_id, new.workflow_id);
        return Err(CommandError::invalid("other_workflow", message, "omit `workflow_id`"));
    }
    // The query and the inputs stay, because the reused results belong to them.
    Ok(NewRun {
        workflow_id: source.workflow_id,
        query: source.query,
        input: source.params,
        session_id: new.session_id.or(source.origin_session),
        user_id: new.user_id.or(source.user_id),
        channel: new.channel.or(Some(source.channel).filter(|channel| !channel.is_empty())),
        ..new
    })
}

/// Checks a new run, and returns its inputs.
async fn check(store: &dyn Store, new: &NewRun) -> Result<RunInputs, CommandError> {
    let NewRun { workflow_id, query, session_id, user_id, run_id, .. } = new;
    let workflow = &Some(workflow_id.clone());
    for (field, id) in [("workflow_id", workflow), ("session_id", session_id), ("user_id", user_id), ("run_id", run_id)]
    {
        if let Some(id) = id {
            ids::check(field, id)?;
        }
    }
    if new.from_run.is_some() {
        return Ok(new.input.clone());
    }
    let found = engine::execution::stored::workflow(store, workflow_id).await?;
    if found.is_none() && engine::execution::stored::runs(store, workflow_id).await?.is_none() {
        return Err(CommandError::unknown_workflow(workflow_id));
    }
    check_ready(store, workflow_id, session_id.as_deref()).await?;
    run_inputs::check(found.as_deref(), query, new.input.as_ref())
}

/// Fails when the repeated run does not have the stage.
async fn check_stage(store: &dyn Store, source: &RunRecord, stage: &str) -> Result<(), CommandError> {
    let steps = run::steps_of_run(store.steps(&source.lane, &source.turn_id).await?, &source.prefix);
    let Some(StartRecord { manifest, .. }) = StartRecord::from_steps(&steps, "") else {
        let message = format!("the steps of run `{}` have expired, or are not recorded yet", source.run_id);
        let hint = "steps are kept for `retention.turns`; start a new run";
        return Err(CommandError::new(ErrorKind::Conflict, "no_steps", message, hint));
    };
    let mut by_id: HashMap<String, Arc<Workflow>> = HashMap::new();
    for (id, hash) in &manifest.workflows {
        let version = store.workflow_version(id, hash).await?;
        by_id.extend(version.map(|version| (id.clone(), Arc::clone(&version.workflow))));
    }
    let Some(root) = by_id.get(&manifest.workflow_id).cloned() else {
        return Err(CommandError::unknown_workflow(&manifest.workflow_id));
    };
    let checked = run::check_stage(&root, &|id| by_id.get(id).cloned(), &steps, stage);
    let hint = "`from_stage` is a path, such as `plan` or `outer_loop[2]/parallel_result`";
    checked.map_err(|problem| CommandError::invalid("unknown_stage", problem, hint))
}

fn is_repeat(known: &RunRecord, new: &NewRun) -> bool {
    let channel = new.channel.as_deref().unwrap_or(DEFAULT_CHANNEL);
    let of_known = (&known.workflow_id, &known.query, &known.origin_session, &known.user_id, known.channel.as_str());
    of_known == (&new.workflow_id, &new.query, &new.session_id, &new.user_id, channel)
        && (&known.from_run, &known.from_stage) == (&new.from_run, &new.from_stage)
        && known.params.as_ref() == new.input.as_ref().filter(|input| !input.is_empty())
}

fn taken(run_id: &str) -> CommandError {
    let message =
        format!("`{run_id}` is a chat session, or a run with another workflow, query, input, session, user or channel");
    CommandError::new(ErrorKind::Conflict, "run_id_taken", message, "omit `run_id` for a random one")
}

/// Creates the record of a run that waits on the queue.
fn pending(job: &Job, params: RunInputs) -> Option<RunRecord> {
    let JobBody::Run { workflow_id, query, origin_session, user_id, channel, from_run, from_stage } = &job.body else {
        return None;
    };
    Some(RunRecord {
        query: query.clone(),
        params,
        origin_session: origin_session.clone(),
        user_id: user_id.clone(),
        channel: channel.clone().unwrap_or_else(|| DEFAULT_CHANNEL.to_owned()),
        from_run: from_run.clone(),
        from_stage: from_stage.clone(),
        ..RunRecord::pending(&job.session_id, &job.job_id, workflow_id, clock::now())
    })
}

/// Cancels a run. A run within a chat ends together with its turn. The command is durable on return; the worker ends
/// the run later. Fails with `run_ended` when the run has already ended.
pub async fn cancel_run(
    queue: &dyn Queue,
    store: &dyn Store,
    run_id: &str,
    reason: Option<String>,
    by: Option<String>,
) -> Result<StartedRun, CommandError> {
    let run = load(store, run_id).await?;
    if run.status.has_ended() {
        let message = format!("run `{run_id}` has ended: it is `{}`", run.status.as_str());
        return Err(CommandError::new(
            ErrorKind::Conflict,
            "run_ended",
            message,
            "only a pending or running run can be cancelled",
        ));
    }
    let cause = CancelReason::operator(reason.as_deref(), by.as_deref()).to_string();
    let order = OperatorCommand { command: Command::Cancel, name: None, reason, by };
    operator::command(queue, store, &run.lane, order).await?;
    if run.status == RunStatus::Pending && run.started_at.is_none() {
        // The command is behind the run in its lane. The worker that takes the run finds in its record that it must not
        // start.
        let error = Some(RunFailure { path: String::new(), cause, attempts: 1 });
        let cancelled = RunRecord { status: RunStatus::Cancelled, error, ended_at: Some(clock::now()), ..run.clone() };
        if let Err(error) = store.update_run(cancelled, 0).await {
            warn!(run_id, "the run may start before a worker processes its cancellation: {error}");
        }
    }
    Ok(StartedRun { run_id: run.run_id, workflow_id: run.workflow_id })
}

/// Resumes a failed or cancelled run: the results of finished stages are reused, failed stages run again. Durable on
/// return.
pub async fn resume_run(queue: &dyn Queue, store: &dyn Store, run_id: &str) -> Result<StartedRun, CommandError> {
    let run = load(store, run_id).await?;
    let conflict = |code, message: String, hint: &str| Err(CommandError::new(ErrorKind::Conflict, code, message, hint));
    if run.lane != run.run_id {
        let message = format!("run `{run_id}` was a part of turn `{}` of session `{}`", run.turn_id, run.lane);
        return conflict("run_of_turn", message, "restart it from a stage, which starts a run of its own");
    }
    // A pending run that has started before may wait for a resumption that got lost, so it can be resumed again.
    let waits = run.status == RunStatus::Pending && run.started_at.is_some();
    if !waits && !matches!(run.status, RunStatus::Failed | RunStatus::Cancelled) {
        let message = format!("run `{run_id}` is `{}`", run.status.as_str());
        return conflict("run_not_failed", message, "only a failed or cancelled run can be resumed");
    }
    let epoch = store.session(run_id).await?.map_or(0, |session| session.epoch);
    let waiting = RunRecord { status: RunStatus::Pending, output: None, ended_at: None, ..run.clone() };
    // Before the job, since the worker that processes it writes the record under a later epoch.
    store.update_run(waiting, epoch).await?;
    let body = JobBody::Run {
        workflow_id: run.workflow_id.clone(),
        query: run.query.clone(),
        origin_session: run.origin_session.clone(),
        user_id: run.user_id.clone(),
        channel: Some(run.channel.clone()).filter(|channel| !channel.is_empty()),
        from_run: Some(run.run_id.clone()),
        from_stage: None,
    };
    let job = Job { session_id: run.run_id.clone(), job_id: new_id(), body };
    if let Err(refused) = enqueue(queue, job).await {
        store.update_run(run, epoch).await?;
        return Err(refused);
    }
    Ok(StartedRun { run_id: run.run_id, workflow_id: run.workflow_id })
}

/// Starts a new run that repeats `run_id` from a stage on.
pub async fn rerun_from(
    queue: &dyn Queue,
    store: &dyn Store,
    run_id: &str,
    from_stage: String,
) -> Result<StartedRun, CommandError> {
    let (from_run, from_stage) = (Some(run_id.to_owned()), Some(from_stage));
    start_run(queue, store, NewRun { from_run, from_stage, ..NewRun::default() }).await
}
