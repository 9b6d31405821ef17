//! Reads the state of one lane through the public traits.

use super::Unreadable;
use super::authoring::StoredDialogue;
use base::clock;
use base::error::SharedError;
use bytes::Bytes;
use engine::workflow::orchestration::event::RunEvent;
use futures::StreamExt;
use serde_json::json;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use storage::queue::{From, Message, Queue};
use storage::store::Store;
use storage::store::authoring::AuthoringQuery;
use types::authoring::Artifact;
use types::event::{Event, EventType, OutEvent, Reply, ReplyKind, StatusEvent, TurnEnd};
use types::job::Job;
use types::run::{RunQuery, RunRecord};
use types::session::{Kind, RECENT_JOBS, Session};
use types::step::StepRecord;
use types::timestamp::Timestamp;
use types::turn::TurnRecord;

use storage::queue::DeadLetter as Letter;

/// Timers due later than this are ignored.
const TIMER_HORIZON: Duration = Duration::from_secs(60);
/// Maximum of runs that are read for one session.
const MAX_RUNS: usize = 1_000;
/// Maximum of dialogues of one user that are read.
const MAX_DIALOGUES: usize = 10_000;
/// Time limit for reading the events of a session.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// A message that the queue accepted.
#[derive(Clone, Debug)]
pub struct AcceptedMessage {
    /// The session.
    pub session_id: String,
    /// Stream sequence of the message.
    pub seq: u64,
    /// The payload: a job with a `job_id`, or an invalid job.
    pub payload: Bytes,
}

/// A call that a model or an API has received.
#[derive(Clone, Debug)]
pub struct SeenCall {
    /// Idempotency key: `<session>/<turn>/<step>`.
    pub key: String,
    /// The request.
    pub what: String,
    /// Time of arrival.
    pub at: Timestamp,
    /// Time of arrival on the monotonic clock, for comparison with other calls.
    pub began: Instant,
    /// Time of the response; `None` if the caller disconnected before.
    pub ended: Option<Instant>,
}

/// Everything that was observed outside of queue and store.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// All messages that the queue accepted, in stream order.
    pub sent: Vec<AcceptedMessage>,
    /// Events by session if the caller has read them already. Otherwise [`check`](super::check) reads them.
    pub events: Option<HashMap<String, Vec<Event>>>,
    /// Calls that models have received.
    pub model: Vec<SeenCall>,
    /// Calls that APIs have received.
    pub api: Vec<SeenCall>,
    /// A worker continued after its lease had expired. Its calls may overlap with those of its successor or repeat
    /// them, but it can record nothing. So in such a run, overlapping turns and repeated steps are no violations; all
    /// other invariants must hold.
    pub outlived: bool,
}

/// One session with all its traces.
pub(super) struct Lane {
    pub(super) session: Option<Session>,
    pub(super) sent: Vec<AcceptedMessage>,
    jobs: Vec<(u64, Option<Job>)>,
    /// In the order of processing.
    pub(super) turns: Vec<TurnRecord>,
    /// Job ids in the order of processing.
    pub(super) handled: Vec<String>,
    pub(super) events: Vec<Event>,
    pub(super) letters: Vec<Letter>,
    pub(super) steps: HashMap<String, Vec<StepRecord>>,
    pub(super) model: Vec<SeenCall>,
    pub(super) api: Vec<SeenCall>,
    /// Runs in this lane, and their events in the session's stream.
    pub(super) runs: Vec<RunRecord>,
    pub(super) run_events: Vec<RunEvent>,
    /// The authoring dialogue, if the session is one.
    pub(super) dialogue: Option<StoredDialogue>,
}

impl Lane {
    pub(super) async fn read(
        queue: &dyn Queue,
        store: &dyn Store,
        evidence: &Evidence,
        session_id: &str,
        letters: &[Letter],
    ) -> Result<Self, Unreadable> {
        let session = store.session(session_id).await?;
        let mut turns = store.turns(session_id, usize::MAX >> 1).await?;
        turns.sort_by_key(|turn| turn.committed_at);
        let handled = handled(session.as_ref(), &turns);
        turns.sort_by_key(|turn| handled.iter().position(|id| *id == turn.turn_id));
        let mut steps = HashMap::new();
        for turn in &turns {
            let of_turn = store.steps(session_id, &turn.turn_id).await?;
            steps.insert(turn.turn_id.clone(), of_turn);
        }
        let sent: Vec<_> = evidence.sent.iter().filter(|sent| sent.session_id == session_id).cloned().collect();
        let subject = format!(".{session_id}");
        let prefix = format!("{session_id}/");
        let of_lane = |seen: &[SeenCall]| seen.iter().filter(|seen| seen.key.starts_with(&prefix)).cloned().collect();
        let runs = runs(store, session_id).await?;
        let run_events = if runs.is_empty() { Vec::new() } else { run_events(queue, session_id).await? };
        let dialogue = match &session {
            Some(session) if session.kind == Kind::Authoring => Some(dialogue(store, session).await?),
            _ => None,
        };
        Ok(Self {
            runs,
            run_events,
            dialogue,
            session,
            jobs: sent.iter().map(|sent| (sent.seq, decode(sent))).collect(),
            sent,
            turns,
            handled,
            events: match &evidence.events {
                Some(known) => known.get(session_id).cloned().unwrap_or_default(),
                None => events(queue, session_id).await?,
            },
            letters: letters.iter().filter(|letter| letter.subject.ends_with(&subject)).cloned().collect(),
            steps,
            model: of_lane(&evidence.model),
            api: of_lane(&evidence.api),
        })
    }

    /// Messages that are invalid jobs.
    pub(super) fn undecodable(&self) -> impl Iterator<Item = &AcceptedMessage> {
        self.sent.iter().zip(&self.jobs).filter(|(_, (_, job))| job.is_none()).map(|(sent, _)| sent)
    }

    /// Distinct ids of the published jobs, in order.
    pub(super) fn job_ids(&self) -> Vec<&String> {
        let mut ids = Vec::new();
        for (_, job) in &self.jobs {
            ids.extend(job.as_ref().map(|job| &job.job_id).filter(|id| !ids.contains(id)));
        }
        ids
    }

    pub(super) fn job(&self, job_id: &str) -> Option<&Job> {
        self.jobs.iter().filter_map(|(_, job)| job.as_ref()).find(|job| job.job_id == job_id)
    }

    /// Id of the turn that processed a job: its own turn, or the turn into which the job was merged.
    pub(super) fn turn_of(&self, job_id: &str) -> Option<&str> {
        let place = self.handled.iter().position(|id| id == job_id)?;
        let own = |id: &&String| self.turns.iter().any(|turn| turn.turn_id == **id);
        self.handled[..=place].iter().rev().find(own).map(String::as_str)
    }

    /// All replies, including chunks.
    pub(super) fn said(&self) -> impl Iterator<Item = &Reply> {
        self.events.iter().filter_map(|event| if let Event::Reply(reply) = event { Some(reply) } else { None })
    }

    pub(super) fn replies(&self) -> impl Iterator<Item = &Reply> {
        self.said().filter(|reply| reply.kind != ReplyKind::Chunk)
    }

    /// The ends of turns, each with the turn's id.
    pub(super) fn ends(&self) -> impl Iterator<Item = (&str, &TurnEnd)> {
        self.events.iter().filter_map(Event::end)
    }

    pub(super) fn statuses(&self) -> impl Iterator<Item = &StatusEvent> {
        self.events.iter().filter_map(|event| if let Event::Status(status) = event { Some(status) } else { None })
    }
}

/// The run that owns the lane, and the runs within the session's turns.
async fn runs(store: &dyn Store, session_id: &str) -> Result<Vec<RunRecord>, Unreadable> {
    let of_session = RunQuery { origin_session: Some(session_id.to_owned()), limit: MAX_RUNS, ..RunQuery::default() };
    let within = store.runs(of_session).await?.into_iter().filter(|run| run.lane == session_id);
    Ok(store.run(session_id).await?.into_iter().filter(|run| run.origin_session.is_none()).chain(within).collect())
}

/// An authoring dialogue as it is stored.
async fn dialogue(store: &dyn Store, session: &Session) -> Result<StoredDialogue, Unreadable> {
    let state = store.authoring(&session.session_id).await?;
    let user_id = state.as_ref().map(|loaded| loaded.state.state.user_id.clone());
    let query = AuthoringQuery { user_id, limit: MAX_DIALOGUES, ..AuthoringQuery::default() };
    let states = store.authorings(query).await?.iter().filter(|one| one.session_id == session.session_id).count();
    let mut dialogue = StoredDialogue { state, states, versions: 0, in_use: None };
    let stored = dialogue.state.as_ref().map(|loaded| &loaded.state);
    let Some((id, stored)) = stored.and_then(|stored| Some((stored.state.workflow_id.clone()?, stored))) else {
        return Ok(dialogue);
    };
    (dialogue.versions, dialogue.in_use) = match stored.artifact {
        Artifact::Workflow => {
            let workflow = store.workflow(&id).await?;
            (store.workflow_version_count(&id).await?, workflow.map(|workflow| workflow.hash.clone()))
        }
        Artifact::Agent => {
            let agent = store.agent(&id).await?;
            (store.agent_version_count(&id).await?, agent.map(|agent| agent.hash.clone()))
        }
    };
    Ok(dialogue)
}

/// Ids of the processed jobs, in order. The session's own list is bounded; turn records supply the ids that it has
/// dropped.
fn handled(session: Option<&Session>, turns: &[TurnRecord]) -> Vec<String> {
    let recent = session.map(|session| session.recent_jobs.to_vec()).unwrap_or_default();
    let dropped =
        turns.iter().map(|turn| &turn.turn_id).filter(|id| recent.len() >= RECENT_JOBS && !recent.contains(id));
    dropped.cloned().collect::<Vec<_>>().into_iter().chain(recent.iter().cloned()).collect()
}

fn decode(sent: &AcceptedMessage) -> Option<Job> {
    let message = Message {
        session_id: sent.session_id.clone(),
        seq: sent.seq,
        stream: clock::now(),
        payload: sent.payload.clone(),
        msg_id: None,
        default_id: format!("message-{}", sent.seq),
        at: clock::now(),
        trace: None,
    };
    message.job().ok()
}

/// All events that were published for a session, except run events.
///
/// # Errors
/// If the events cannot be read, or the read exceeds its time limit.
pub async fn events(queue: &dyn Queue, session_id: &str) -> Result<Vec<Event>, Unreadable> {
    let all = published(queue, session_id).await?;
    Ok(all.into_iter().filter(|event| !matches!(event, Event::Run(_))).collect())
}

/// All run events of a stream: a session's, or a run's own.
///
/// # Errors
/// If the events cannot be read, or the read exceeds its time limit.
pub async fn run_events(queue: &dyn Queue, stream: &str) -> Result<Vec<RunEvent>, Unreadable> {
    let all = published(queue, stream).await?;
    let told = all.into_iter().filter_map(|event| match event {
        Event::Run(event) => serde_json::from_value(event).ok(),
        _ => None,
    });
    Ok(told.collect())
}

/// Reads all events up to a marker event that this function publishes itself.
async fn published(queue: &dyn Queue, session_id: &str) -> Result<Vec<Event>, Unreadable> {
    let mark = json!({ "mark": uuid::Uuid::new_v4().to_string() });
    let event = OutEvent {
        channel: "test".into(),
        session_id: session_id.into(),
        event_type: EventType::Run,
        msg_id: None,
        payload: mark.to_string().into(),
    };
    queue.emit([event].into()).await?;
    let mut stream = queue.events(session_id, From::After(0)).await?;
    let mut events = Vec::new();
    let unreadable = |source: SharedError| Unreadable::Events { session_id: session_id.to_owned(), source };
    loop {
        let next = tokio::time::timeout(READ_TIMEOUT, stream.next()).await;
        let next = next.map_err(|_| unreadable("timed out before the last event".into()))?;
        let event = next.ok_or_else(|| unreadable("the stream ended before the last event".into()))??;
        match Event::decode(event.event_type, &event.payload).map_err(|error| unreadable(error.into()))? {
            Event::Run(value) if value == mark => return Ok(events),
            event => events.push(event),
        }
    }
}

/// Describes the remaining work of a lane; empty if it is at rest.
pub(super) async fn unrest(queue: &dyn Queue, store: &dyn Store, session_id: &str) -> Result<Vec<String>, Unreadable> {
    let mut left = Vec::new();
    if let Some(message) = queue.next_in_lane(session_id, 0, 0).await? {
        left.push(format!("message {} is still in the lane", message.seq));
    }
    let Some(session) = store.session(session_id).await? else { return Ok(left) };
    if let Some(lease) = &session.lease {
        left.push(format!("the lease is held by {}", lease.owner));
    }
    if session.turn.is_some() || session.pending_seq > session.last_seq {
        let Session { pending_seq, last_seq, turn, .. } = &session;
        left.push(format!("the lane has work: pending up to {pending_seq}, processed up to {last_seq}, turn {turn:?}"));
    }
    if session.timers.is_empty() {
        return Ok(left);
    }
    // Due times refer to the store's clock.
    let soon = store.due_timers(Duration::ZERO, 1).await?.now.plus(TIMER_HORIZON);
    left.extend(
        session
            .timers
            .iter()
            .filter(|timer| timer.due_at < soon)
            .map(|timer| format!("timer {} of generation {} has not fired", timer.name, timer.generation)),
    );
    Ok(left)
}
