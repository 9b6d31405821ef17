//! What a turn begins with: its configuration and its jobs, recorded so that whoever repeats it begins alike.

use super::Shared;
use super::intake::{self, Unfit};
use super::lane::Stop;
use crate::agent::{AgentRecord, DoubleText, canonical};
use crate::clock;
use crate::journal::StepRecord;
use crate::queue::{Job, Message};
use crate::session::Session;
use crate::store::{Record, Recorded};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;

/// The most messages that become one turn.
const MERGE_MAX: usize = 50;

/// No further message is added to a turn of so many bytes.
const MERGE_BYTES: usize = 1024 * 1024;

/// See the module.
pub(super) struct Begun {
    pub(super) agent: Arc<AgentRecord>,
    pub(super) jobs: Arc<[Job]>,
    /// The last sequence that is handled with the turn.
    pub(super) through: u64,
}

/// The `begin` step's output.
#[derive(Serialize, Deserialize)]
struct Beginning {
    agent_id: String,
    hash: String,
    through: u64,
}

/// Settles what the turn of `job` runs with. The acquisition has pinned it already for the job that woke the worker; for
/// others, and for merged turns, it is recorded as a step.
pub(super) async fn begin(
    shared: &Shared,
    session: &Session,
    message: &Message,
    job: Job,
) -> Result<Result<Begun, Unfit>, Stop> {
    let pin = session.turn.as_ref().filter(|turn| turn.seq == message.seq);
    let pinned = match pin {
        // Versions never change and are cached: no question to the store.
        Some(pin) => intake::readable(shared.store().agent_version(&pin.agent_id, &pin.hash).await)?,
        None => None,
    };
    let agent = match pinned {
        Some(agent) => agent,
        None => match intake::agent_of(shared, &job, Some(session)).await? {
            Ok(agent) => agent,
            Err(unfit) => return Ok(Err(unfit)),
        },
    };
    let merges = agent.config.double_text == DoubleText::Merge && job.user_message().is_some();
    if pin.is_some() && !merges {
        return Ok(Ok(Begun { agent, jobs: [job].into(), through: message.seq }));
    }
    let mut merged =
        if merges { following(shared, session, message, &job, MERGE_MAX, None).await? } else { Vec::new() };
    let through = merged.last().map_or(message.seq, |(seq, _)| *seq);
    let asked = Beginning { agent_id: agent.config.id.clone(), hash: agent.hash.clone(), through };
    let begun = record(shared, session, &job, asked).await?;
    let agent = version(shared, agent, &begun.hash).await?;
    if begun.through != through {
        merged = following(shared, session, message, &job, usize::MAX, Some(begun.through)).await?;
    }
    let mut jobs = vec![job];
    for (_, job) in merged {
        if !jobs.iter().any(|known| known.job_id == job.job_id) {
            jobs.push(job);
        }
    }
    Ok(Ok(Begun { agent, jobs: jobs.into(), through: begun.through }))
}

/// The agent as it was under `hash`; as it is now when nothing older is stored.
async fn version(shared: &Shared, agent: Arc<AgentRecord>, hash: &str) -> Result<Arc<AgentRecord>, Stop> {
    if agent.hash == hash || hash.is_empty() {
        return Ok(agent);
    }
    let stored = intake::readable(shared.store().agent_version(&agent.config.id, hash).await)?;
    Ok(stored.unwrap_or(agent))
}

/// User messages that wait behind `message`, up to another kind of job, another agent, or `through`.
async fn following(
    shared: &Shared,
    session: &Session,
    message: &Message,
    first: &Job,
    limit: usize,
    through: Option<u64>,
) -> Result<Vec<(u64, Job)>, Stop> {
    let mut after = message.seq;
    let mut found = Vec::new();
    let same_agent = |job: &Job| {
        let of = |job: &Job| job.user_message().and_then(|message| message.agent_id.clone());
        job.user_message().is_some() && of(job).is_none_or(|agent_id| Some(agent_id) == of(first))
    };
    let mut bytes = message.payload.len();
    while found.len() < limit
        && (through.is_some() || bytes < MERGE_BYTES)
        && through.is_none_or(|through| after < through)
    {
        let Some(next) = shared.queue().next_in_lane(&session.session_id, after, 0).await? else { break };
        bytes += next.payload.len();
        match intake::decode(&next) {
            Ok(job) if same_agent(&job) && !session.has_handled(&job.job_id) => found.push((next.seq, job)),
            _ => break,
        }
        after = next.seq;
    }
    Ok(found)
}

async fn record(shared: &Shared, session: &Session, job: &Job, asked: Beginning) -> Result<Beginning, Stop> {
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
        at: clock::now(),
    };
    let request = Record {
        session_id: session.session_id.clone(),
        epoch: session.epoch,
        turn_id: job.job_id.clone(),
        steps: vec![Arc::new(step)],
        status: None,
    };
    let output = match shared.store().record(request).await?.into_iter().next() {
        Some(Recorded::Existing(earlier)) => earlier.output.clone(),
        Some(Recorded::New) | None => Value::Null,
    };
    Ok(serde_json::from_value(output).unwrap_or(asked))
}
