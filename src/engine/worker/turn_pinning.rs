//! Fixes the configuration and the jobs of a turn before it starts, and records them, so that every attempt of the turn
//! uses the same ones.

use super::WorkerState;
use super::intake::{self, IntakeError};
use super::stop::Stop;
use crate::execution::TurnId;
use definitions::agent::AgentRecord;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use storage::queue::Message;
use storage::store::records::{Record, Recorded};
use types::agent::DoubleText;
use types::canonical;
use types::job::Job;
use types::session::Session;
use types::step::StepRecord;
use types::timestamp::Timestamp;

/// Maximum number of messages that are merged into one turn.
const MAX_MERGED_MESSAGES: usize = 50;

/// A turn of this many bytes takes no further message.
const MAX_MERGED_BYTES: usize = 1024 * 1024;

/// The fixed input of a turn.
pub(super) struct PinnedTurn {
    pub(super) agent: Arc<AgentRecord>,
    pub(super) jobs: Arc<[Job]>,
    /// The last message that the turn processes.
    pub(super) through: LastMessage,
}

/// The last message that a turn or a skipped job processes.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastMessage {
    /// Creation time of the message's stream.
    pub(super) stream: Timestamp,
    pub(super) seq: u64,
    /// Time at which the stream stored the message; for merged messages the latest of their times.
    pub(super) at: Timestamp,
}

impl LastMessage {
    pub(super) fn from_message(message: &Message) -> Self {
        Self { stream: message.stream, seq: message.seq, at: message.at }
    }
}

/// Output of the `begin` step.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct TurnPinRecord {
    agent_id: String,
    hash: String,
    through: u64,
    /// Creation time of the stream of `through`. Missing in records of earlier versions, which had no ids either.
    #[serde(default)]
    stream: Option<Timestamp>,
    /// The ids of the merged jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    merged: Vec<String>,
}

/// The end of a turn's messages.
#[derive(Clone, Copy)]
enum End<'a> {
    /// A new turn takes the waiting messages, within its limits.
    Limits,
    /// A repeated turn takes the messages with these ids. Their sequences may have changed: the stream may have been
    /// created again, or may have lost its newest messages. With `known` set, the queue asks the stream's leader before
    /// it reports a message up to this sequence as missing.
    Merged { ids: &'a [String], known: u64 },
    /// A turn that an earlier version began takes the messages up to this sequence.
    Through(u64),
}

/// Fixes the agent version and the messages of the turn of `job`. For the job that woke the worker, the acquisition has
/// pinned the version already. For other jobs, and for merged turns, the `begin` step records them; an attempt that
/// finds the step recorded uses the recorded values.
pub(super) async fn pin_turn(
    shared: &WorkerState,
    session: &Session,
    message: &Message,
    turn: &TurnId,
    job: Job,
) -> Result<PinnedTurn, IntakeError> {
    let pin = session.turn.as_ref().filter(|turn| turn.seq == message.seq);
    let pinned = match pin {
        // Versions never change and are cached, so this does not query the store.
        Some(pin) => intake::skip_unreadable(shared.store().agent_version(&pin.agent_id, &pin.hash).await)?,
        None => None,
    };
    let agent = match pinned {
        Some(agent) => agent,
        None => intake::agent_of(shared, &job, Some(session)).await?,
    };
    let merges = agent.config.double_text == DoubleText::Merge && job.user_message().is_some();
    if pin.is_some() && !merges {
        return Ok(PinnedTurn { agent, jobs: [job].into(), through: LastMessage::from_message(message) });
    }
    let mut merged =
        if merges { messages_to_merge(shared, session, message, &job, End::Limits).await? } else { Vec::new() };
    let through = merged.last().map_or(message.seq, |merged| merged.seq);
    let asked = TurnPinRecord {
        agent_id: agent.config.id.clone(),
        hash: agent.hash.clone(),
        through,
        stream: Some(message.stream),
        merged: merged.iter().map(|merged| merged.job.job_id.clone()).collect(),
    };
    let record = record_pin(shared, session, &turn.id, &job, asked.clone()).await?;
    let agent = recorded_version(shared, agent, &record).await?;
    if record != asked {
        let end = match record.stream {
            Some(stream) => {
                let known = if stream == message.stream { record.through } else { 0 };
                End::Merged { ids: &record.merged, known }
            }
            None => End::Through(record.through),
        };
        merged = messages_to_merge(shared, session, message, &job, end).await?;
    }
    let at = merged.iter().fold(message.at, |at, merged| at.max(merged.at));
    let seq = merged.last().map_or(message.seq, |merged| merged.seq);
    let through = LastMessage { seq, at, ..LastMessage::from_message(message) };
    let mut jobs = vec![job];
    for Merged { job, .. } in merged {
        if !jobs.iter().any(|known| known.job_id == job.job_id) {
            jobs.push(job);
        }
    }
    Ok(PinnedTurn { agent, jobs: jobs.into(), through })
}

/// The agent version that the `begin` step recorded, possibly by another worker. Returns `agent` if that version is not
/// stored.
async fn recorded_version(
    shared: &WorkerState,
    agent: Arc<AgentRecord>,
    record: &TurnPinRecord,
) -> Result<Arc<AgentRecord>, Stop> {
    let TurnPinRecord { agent_id, hash, .. } = record;
    if (agent.config.id == *agent_id && agent.hash == *hash) || hash.is_empty() {
        return Ok(agent);
    }
    let stored = intake::skip_unreadable(shared.store().agent_version(agent_id, hash).await)?;
    Ok(stored.unwrap_or(agent))
}

/// A message that is merged into the turn of an earlier message.
struct Merged {
    seq: u64,
    at: Timestamp,
    job: Job,
}

/// Returns the user messages that wait behind `message`. Stops at a job of another type, at a job for another agent or
/// version of it, or at the end of the lane.
async fn messages_to_merge(
    shared: &WorkerState,
    session: &Session,
    message: &Message,
    first: &Job,
    end: End<'_>,
) -> Result<Vec<Merged>, Stop> {
    let (mut after, mut bytes) = (message.seq, message.payload.len());
    let mut found: Vec<Merged> = Vec::new();
    let same_agent = |job: &Job| {
        let of = |job: &Job| job.user_message().and_then(|message| message.agent_id.clone());
        let version = |job: &Job| job.user_message().and_then(|message| message.agent_version.clone());
        let is_same = of(job).is_none_or(|agent_id| Some(agent_id) == of(first)) && version(job) == version(first);
        job.user_message().is_some() && is_same
    };
    let known = match end {
        End::Limits => 0,
        End::Merged { known, .. } | End::Through(known) => known,
    };
    loop {
        let has_all = match end {
            End::Limits => found.len() >= MAX_MERGED_MESSAGES || bytes >= MAX_MERGED_BYTES,
            End::Through(through) => after >= through,
            End::Merged { ids, .. } => found.len() >= ids.len(),
        };
        if has_all {
            break;
        }
        let Some(next) = shared.queue().next_in_lane(&session.session_id, after, known).await? else { break };
        if matches!(end, End::Through(through) if next.seq > through) {
            break;
        }
        bytes += next.payload.len();
        let belongs = |job: &Job| match end {
            End::Merged { ids, .. } => ids.contains(&job.job_id),
            End::Limits | End::Through(_) => true,
        };
        match intake::decode(&next) {
            Ok(job) if same_agent(&job) && !session.has_handled(&job.job_id) && belongs(&job) => {
                found.push(Merged { seq: next.seq, at: next.at, job })
            }
            // The turn that is repeated covers this message, so only a worker that can read it may repeat the turn.
            Err(IntakeError::Stop(stop)) if !matches!(end, End::Limits) => return Err(stop),
            _ => break,
        }
        after = next.seq;
    }
    Ok(found)
}

async fn record_pin(
    shared: &WorkerState,
    session: &Session,
    turn_id: &str,
    job: &Job,
    asked: TurnPinRecord,
) -> Result<TurnPinRecord, Stop> {
    let step = StepRecord {
        key: "begin".into(),
        kind: "begin".into(),
        target: asked.agent_id.clone(),
        input_hash: canonical::hash(&json!(job.job_id)),
        output: json!(asked),
        ok: true,
        ms: 0,
        model: None,
        tokens: None,
        attempts: None,
        charged: None,
        at: shared.clock().now(),
        prompt: None,
    };
    let request = Record {
        session_id: session.session_id.clone(),
        epoch: session.epoch,
        turn_id: turn_id.to_owned(),
        steps: vec![Arc::new(step)],
        status: None,
    };
    let output = match shared.store().record(request).await?.into_iter().next() {
        Some(Recorded::Existing(earlier)) => earlier.output.clone(),
        Some(Recorded::New) | None => Value::Null,
    };
    Ok(serde_json::from_value(output).unwrap_or(asked))
}
