//! Drives the lane of one session: reads its job, acquires the lease, runs its turns in stream order, acknowledges
//! them.

use super::intake::{self, IntakeError, RejectedJob};
use super::lane_session::LaneSession;
use super::lanes::LanePosition;
use super::rewind::{self, Standing};
use super::stop::{Stop, leave_lane};
use super::{WorkerState, cancellation};
use crate::authoring::AGENT_ID;
use crate::run;
use futures::FutureExt;
use futures::future::{MaybeDone, maybe_done};
use std::future::{Future, poll_fn};
use storage::queue::{DeliveryToken, Message};
use storage::store::records::{Acquire, Acquired, NewSession, Pin, Rewind};
use tracing::{Instrument, debug, info_span, warn};
use types::cause::Cause;
use types::job::{Job, JobBody};
use types::session::{Kind, Session};
use types::timestamp::Timestamp;

/// Processes a lane until no delivery of it waits in this worker, or until it must be left.
pub(super) async fn drive(shared: &WorkerState, session_id: &str) {
    let span = info_span!("lane", session_id);
    async {
        while let Some((seq, wake)) = shared.lanes.next_or_end(session_id) {
            if shared.stopping.is_cancelled() {
                return leave_lane(shared, session_id, Stop::Stopping).await;
            }
            match Box::pin(process_wake_up(shared, session_id, seq, wake)).await {
                Ok(position) => acknowledge(shared, session_id, &position).await,
                Err(stop) => return leave_lane(shared, session_id, stop).await,
            }
        }
    }
    .instrument(span)
    .await;
}

/// Acknowledges the deliveries that the lane has processed. If an acknowledgement is lost, the queue redelivers the
/// message, and the lane drops it.
pub(super) async fn acknowledge(shared: &WorkerState, session_id: &str, position: &LanePosition) {
    remove(shared, shared.lanes.take_processed(session_id, position)).await;
}

/// Acknowledges these deliveries. A failure is only logged.
pub(super) async fn remove(shared: &WorkerState, tokens: Vec<DeliveryToken>) {
    for token in tokens {
        if let Err(error) = shared.queue().ack(&token).await {
            debug!("acknowledgement failed; the message will be redelivered: {error}");
        }
    }
}

/// Processes one wake-up. Reads its message from the stream unless the caller has it.
async fn process_wake_up(
    shared: &WorkerState,
    session_id: &str,
    seq: u64,
    wake: Option<Message>,
) -> Result<LanePosition, Stop> {
    let wake = match wake {
        Some(wake) => Some(wake),
        None => shared.queue().next_in_lane(session_id, seq - 1, seq).await?,
    };
    match wake.filter(|wake| wake.seq == seq) {
        Some(wake) => enter_or_discard(shared, &wake).await,
        // It is no longer in the stream: another worker has processed it, or it was removed.
        None => discard(shared, session_id, seq).await,
    }
}

/// Enters the lane for one message. Returns the position up to which the lane is processed, as far as known.
async fn enter_or_discard(shared: &WorkerState, wake: &Message) -> Result<LanePosition, Stop> {
    let mut prepared = prepare(shared, wake).await;
    if let Err(UnreadyJob::NoSession(_)) = prepared {
        // A message before this one may create the session, even if another worker was woken for that message. The
        // order of the stream counts.
        if let Some(handled) = Box::pin(enter_earlier(shared, wake)).await? {
            return Ok(handled);
        }
        // The missing earlier messages were processed by another worker, so the session may exist now.
        prepared = prepare(shared, wake).await;
    }
    let rejected = match prepared {
        Ok(prepared) => return enter(shared, wake, prepared).await,
        Err(UnreadyJob::NoSession(rejected)) => rejected,
        Err(UnreadyJob::Intake(IntakeError::Rejected(rejected))) => Some(rejected),
        Err(UnreadyJob::Intake(IntakeError::Stop(stop))) => return Err(stop),
    };
    if let Some(rejected) = rejected {
        Box::pin(intake::dead_letter(shared, wake, rejected)).await?;
    }
    discard(shared, &wake.session_id, wake.seq).await
}

/// The lane's first message before `wake` with which a session can start.
async fn find_earlier(shared: &WorkerState, wake: &Message) -> Result<Option<(Message, ReadyJob)>, Stop> {
    let mut after = 0;
    while let Some(first) = shared.queue().next_in_lane(&wake.session_id, after, wake.seq).await?
        && first.seq < wake.seq
    {
        after = first.seq;
        match prepare(shared, &first).await {
            Ok(prepared) => return Ok(Some((first, prepared))),
            Err(UnreadyJob::Intake(IntakeError::Stop(stop))) => return Err(stop),
            Err(UnreadyJob::NoSession(_) | UnreadyJob::Intake(IntakeError::Rejected(_))) => {}
        }
    }
    Ok(None)
}

/// Enters the lane with an earlier message than `wake`. Returns `None` if no earlier message can start a session.
async fn enter_earlier(shared: &WorkerState, wake: &Message) -> Result<Option<LanePosition>, Stop> {
    match find_earlier(shared, wake).await? {
        Some((first, prepared)) => enter(shared, &first, prepared).await.map(Some),
        None => Ok(None),
    }
}

/// Acquires the lane for a message and processes it.
async fn enter(shared: &WorkerState, wake: &Message, prepared: ReadyJob) -> Result<LanePosition, Stop> {
    let ReadyJob { job, pin, model, kind } = prepared;
    let _of_agent = match &shared.agents {
        Some(agents) => Some(agents.acquire(&pin.agent_id).await.map_err(Stop::Saturated)?),
        None => None,
    };
    let _of_model = shared.models.acquire(&model).await.map_err(Stop::Saturated)?;
    let request = acquire_request(shared, wake, &job, pin, kind);
    let until = shared.clock().moment() + shared.ack_wait;
    // Runs concurrently with the acquisition: it nearly always reads the message that the lane processes next.
    let mut first = maybe_done(shared.queue().next_in_lane(&wake.session_id, 0, 0));
    let acquired = poll_alongside(shared.store().acquire(request), &mut first).await;
    match acquired? {
        Acquired::Granted(grant) => {
            Box::pin(LaneSession::new(shared, *grant, until, wake.seq, job).process(first)).await
        }
        Acquired::Handled | Acquired::OtherStream => {
            drop(first);
            match Box::pin(rewind::check_standing(shared, wake, &job)).await? {
                Standing::Handled => discard(shared, &wake.session_id, wake.seq).await,
                Standing::New { stream, rewind } => Box::pin(enter_again(shared, wake, stream, rewind)).await,
            }
        }
        Acquired::Busy(until) => leave_busy(shared, wake.seq, &job, until).await,
    }
}

fn acquire_request(shared: &WorkerState, wake: &Message, job: &Job, pin: Pin, kind: Kind) -> Acquire {
    Acquire {
        session_id: wake.session_id.clone(),
        seq: wake.seq,
        stream: wake.stream,
        rewind: None,
        job_id: job.job_id.clone(),
        owner: shared.owner.clone(),
        token: uuid::Uuid::new_v4().simple().to_string(),
        lease: shared.ack_wait,
        new_session: NewSession {
            agent_id: pin.agent_id.clone(),
            user_id: user_of(job).unwrap_or_default(),
            channel: channel_of(job).unwrap_or_else(|| "default".into()),
            kind,
        },
        pin: Some(pin),
    }
}

/// Acquires the lane for a message that is new although its sequence is not above the session's position.
async fn enter_again(
    shared: &WorkerState,
    wake: &Message,
    stream: Timestamp,
    rewind: Option<Rewind>,
) -> Result<LanePosition, Stop> {
    let ReadyJob { job, pin, kind, .. } = match prepare(shared, wake).await {
        Ok(prepared) => prepared,
        Err(UnreadyJob::Intake(IntakeError::Stop(stop))) => return Err(stop),
        Err(UnreadyJob::NoSession(_) | UnreadyJob::Intake(IntakeError::Rejected(_))) => return Err(Stop::OtherStream),
    };
    let until = shared.clock().moment() + shared.ack_wait;
    let request = Acquire { stream, rewind, ..acquire_request(shared, wake, &job, pin, kind) };
    match shared.store().acquire(request).await? {
        Acquired::Granted(grant) => {
            if let Some(found) = &rewind {
                rewind::log_rewind(wake, stream, found);
            }
            // The first message and the job's default id may have been read from the former stream, so both are read
            // again.
            Box::pin(LaneSession::new(shared, *grant, until, 0, job).process(MaybeDone::Done(Ok(None)))).await
        }
        Acquired::Busy(until) => leave_busy(shared, wake.seq, &job, until).await,
        // Another worker has processed the lane meanwhile.
        Acquired::Handled | Acquired::OtherStream => Err(Stop::OtherStream),
    }
}

async fn leave_busy(shared: &WorkerState, seq: u64, job: &Job, until: Timestamp) -> Result<LanePosition, Stop> {
    debug!(%until, "another worker holds the lane");
    cancellation::notify_workers(shared, job, seq).await;
    Err(Stop::Busy(until))
}

/// Runs `main` to completion and returns its result. `other` runs concurrently; it may be unfinished on return.
async fn poll_alongside<T>(mut main: impl Future<Output = T> + Unpin, other: &mut (impl Future + Unpin)) -> T {
    poll_fn(|context| {
        let done = main.poll_unpin(context);
        let _ = other.poll_unpin(context);
        done
    })
    .await
}

/// Acknowledges one message that leads to no turn.
async fn discard(shared: &WorkerState, session_id: &str, seq: u64) -> Result<LanePosition, Stop> {
    if let Some(token) = shared.lanes.take_delivery(session_id, seq) {
        shared.queue().ack(&token).await?;
    }
    Ok(LanePosition::default())
}

/// A job that can run.
struct ReadyJob {
    job: Job,
    /// The agent or workflow version with which its turn runs.
    pin: Pin,
    /// The first model of its agent, which [`Bulkhead`](super::bulkhead::Bulkhead) limits. For a run:
    /// the name of its workflow.
    model: String,
    /// The kind of session that a new lane gets.
    kind: Kind,
}

fn channel_of(job: &Job) -> Option<String> {
    match &job.body {
        JobBody::UserMessage(message) => message.channel.clone(),
        JobBody::Run { channel, .. } => channel.clone(),
        JobBody::Resume { outcome, .. } => outcome["channel"].as_str().map(str::to_owned),
        _ => None,
    }
}

fn user_of(job: &Job) -> Option<String> {
    match &job.body {
        JobBody::UserMessage(message) => message.user_id.clone(),
        JobBody::Run { user_id, .. } => user_id.clone(),
        JobBody::Resume { outcome, .. } => outcome["user_id"].as_str().map(str::to_owned),
        _ => None,
    }
}

/// The reason for which a message has no job that can run.
enum UnreadyJob {
    /// The job needs a session, and no such session exists. With the dead letter, if the job must not be dropped.
    NoSession(Option<RejectedJob>),
    /// The job can never run, or queue or store have failed.
    Intake(IntakeError),
}

impl<E: Into<IntakeError>> From<E> for UnreadyJob {
    fn from(error: E) -> Self {
        Self::Intake(error.into())
    }
}

/// Reads the job of a wake-up and finds its agent or workflow.
async fn prepare(shared: &WorkerState, wake: &Message) -> Result<ReadyJob, UnreadyJob> {
    let job = intake::decode(wake)?;
    let named = job.user_message().and_then(|message| message.agent_id.as_deref());
    // A message for the agent of authoring dialogues needs its session.
    let named = named.is_some_and(|agent_id| agent_id != AGENT_ID);
    let session = if named { None } else { shared.store().session(&job.session_id).await? };
    if matches!(job.body, JobBody::Run { .. }) || session.as_ref().is_some_and(|session| session.kind == Kind::Run) {
        return Box::pin(prepare_run(shared, job, session)).await;
    }
    if session.as_ref().is_some_and(|session| session.kind == Kind::Authoring) {
        return Box::pin(prepare_authoring(shared, job)).await;
    }
    if session.is_none() && job.user_message().is_none() && !run::is_result_job(&job) {
        // Timers and wake-ups of a deleted session can be dropped.
        let matters = !matches!(job.body, JobBody::Timer { .. } | JobBody::Wake);
        let reason = format!("there is no session `{}`", job.session_id);
        let rejected = RejectedJob { cause: Cause::Invalid, reason, job_id: Some(job.job_id.clone()), attempts: 1 };
        return Err(UnreadyJob::NoSession(matters.then_some(rejected)));
    }
    match intake::agent_of(shared, &job, session.as_ref()).await {
        Ok(agent) => {
            let announce = job.user_message().is_some();
            let pin = Pin { agent_id: agent.config.id.clone(), hash: agent.hash.clone(), announce };
            Ok(ReadyJob { job, pin, model: agent.config.model.first().to_owned(), kind: Kind::Chat })
        }
        Err(IntakeError::Rejected(rejected)) => {
            warn!(job_id = job.job_id, "no agent for the job");
            if named && let Some(refused) = Box::pin(refused_by_dialogue(shared, &job)).await? {
                return Err(refused.into());
            }
            let needs_session = !named && session.is_none();
            Err(if needs_session { UnreadyJob::NoSession(Some(rejected)) } else { rejected.into() })
        }
        Err(error @ IntakeError::Stop(_)) => Err(error.into()),
    }
}

/// Finds the agent of a job in an authoring dialogue.
async fn prepare_authoring(shared: &WorkerState, job: Job) -> Result<ReadyJob, UnreadyJob> {
    let agent = intake::authoring_agent(shared, &job, None).await?;
    let announce = job.user_message().is_some();
    let pin = Pin { agent_id: agent.config.id.clone(), hash: agent.hash.clone(), announce };
    Ok(ReadyJob { job, pin, model: agent.config.model.first().to_owned(), kind: Kind::Authoring })
}

/// The refusal of a message for an unknown agent, if its session is an authoring dialogue.
async fn refused_by_dialogue(shared: &WorkerState, job: &Job) -> Result<Option<RejectedJob>, IntakeError> {
    let session = shared.store().session(&job.session_id).await?;
    let named = job.user_message().and_then(|message| message.agent_id.as_deref()).unwrap_or_default();
    let is_dialogue = session.is_some_and(|session| session.kind == Kind::Authoring);
    Ok(is_dialogue.then(|| intake::names_another_agent(job, named)))
}

/// Finds the workflow of a job in the lane of a run.
async fn prepare_run(shared: &WorkerState, job: Job, session: Option<Session>) -> Result<ReadyJob, UnreadyJob> {
    if let Some(session) = &session
        && !matches!(job.body, JobBody::Wake)
    {
        intake::check_job_of_run(&job, session)?;
    }
    let pin = match (&job.body, session) {
        (JobBody::Run { .. }, _) => intake::workflow_of(shared, &job).await?,
        (_, session) => {
            let (agent_id, hash) =
                session.map(|session| (session.agent_id, session.workflow_state.hash)).unwrap_or_default();
            Pin { agent_id, hash, announce: false }
        }
    };
    let model = format!("workflow {}", pin.agent_id);
    Ok(ReadyJob { job, pin, model, kind: Kind::Run })
}
