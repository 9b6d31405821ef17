//! What one lane shows, in public.

use super::Unreadable;
use base::clock;
use bytes::Bytes;
use engine::workflow::orchestration::event::RunEvent;
use futures::StreamExt;
use serde_json::json;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use storage::queue::{From, Message, Queue};
use storage::store::Store;
use types::event::{Event, EventType, OutEvent, Reply, ReplyKind, StatusEvent};
use types::job::Job;
use types::run::{RunQuery, RunRecord};
use types::session::{RECENT_JOBS, Session};
use types::step::StepRecord;
use types::timestamp::Timestamp;
use types::turn::TurnRecord;

use storage::queue::DeadLetter as Letter;

/// A timer due later than this is not waited for.
const SOON: Duration = Duration::from_secs(60);
/// The most runs of one session that are looked at.
const RUNS: usize = 1_000;
/// How long reading the events of a session may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A message that the queue accepted.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The session.
    pub session_id: String,
    /// Its place in the queue.
    pub seq: u64,
    /// A job, which names its `job_id`; or something that is none.
    pub payload: Bytes,
}

/// A call that a model or an API has seen.
#[derive(Clone, Debug)]
pub struct Seen {
    /// `<session>/<turn>/<step>`.
    pub key: String,
    /// What was asked.
    pub what: String,
    /// When, by the wall clock.
    pub at: Timestamp,
    /// The same, to be compared with other calls.
    pub began: Instant,
    /// When it was answered.
    pub ended: Option<Instant>,
}

/// What is known of a run from outside.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Everything that the queue accepted, in its order.
    pub sent: Vec<Sent>,
    /// The events of each session, when they have been read already; else they are read one session after the other.
    pub events: Option<HashMap<String, Vec<Event>>>,
    /// Calls that models have seen.
    pub model: Vec<Seen>,
    /// Calls that APIs have seen.
    pub api: Vec<Seen>,
    /// Some worker lived on after its lease was over. What such a worker still asks for may coincide with, and repeat,
    /// what its successor does, but must not count: nothing of it is recorded. So in such a run it is not a violation when
    /// two turns of a session overlap at the model, or a step runs again that was recorded; all else has to hold.
    pub outlived: bool,
}

/// One session, with all that it has left behind.
pub(super) struct Lane {
    pub(super) session: Option<Session>,
    pub(super) sent: Vec<Sent>,
    jobs: Vec<(u64, Option<Job>)>,
    /// In the order in which they were handled.
    pub(super) turns: Vec<TurnRecord>,
    /// Job ids in the order in which they were handled.
    pub(super) handled: Vec<String>,
    pub(super) events: Vec<Event>,
    pub(super) letters: Vec<Letter>,
    pub(super) steps: HashMap<String, Vec<StepRecord>>,
    pub(super) model: Vec<Seen>,
    pub(super) api: Vec<Seen>,
    /// Runs in this lane, and what is told of them here.
    pub(super) runs: Vec<RunRecord>,
    pub(super) run_events: Vec<RunEvent>,
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
        let of_lane = |seen: &[Seen]| seen.iter().filter(|seen| seen.key.starts_with(&prefix)).cloned().collect();
        let runs = runs(store, session_id).await?;
        let run_events = if runs.is_empty() { Vec::new() } else { run_events(queue, session_id).await? };
        Ok(Self {
            runs,
            run_events,
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

    /// Messages that are no jobs.
    pub(super) fn undecodable(&self) -> impl Iterator<Item = &Sent> {
        self.sent.iter().zip(&self.jobs).filter(|(_, (_, job))| job.is_none()).map(|(sent, _)| sent)
    }

    /// The ids of the jobs sent, each once, in order.
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

    /// The turn that a handled job is part of: its own, or that of the job which it was merged with.
    pub(super) fn turn_of(&self, job_id: &str) -> Option<&str> {
        let place = self.handled.iter().position(|id| id == job_id)?;
        let own = |id: &&String| self.turns.iter().any(|turn| turn.turn_id == **id);
        self.handled[..=place].iter().rev().find(own).map(String::as_str)
    }

    /// Whole texts, and the pieces of those that were said while they were made.
    pub(super) fn said(&self) -> impl Iterator<Item = &Reply> {
        self.events.iter().filter_map(|event| if let Event::Reply(reply) = event { Some(reply) } else { None })
    }

    pub(super) fn replies(&self) -> impl Iterator<Item = &Reply> {
        self.said().filter(|reply| reply.kind != ReplyKind::Chunk)
    }

    pub(super) fn statuses(&self) -> impl Iterator<Item = &StatusEvent> {
        self.events.iter().filter_map(|event| if let Event::Status(status) = event { Some(status) } else { None })
    }
}

/// The run that has the lane, and those within its turns.
async fn runs(store: &dyn Store, session_id: &str) -> Result<Vec<RunRecord>, Unreadable> {
    let of_session = RunQuery { origin_session: Some(session_id.to_owned()), limit: RUNS, ..RunQuery::default() };
    let within = store.runs(of_session).await?.into_iter().filter(|run| run.lane == session_id);
    Ok(store.run(session_id).await?.into_iter().filter(|run| run.origin_session.is_none()).chain(within).collect())
}

/// The jobs handled, in order. The session's own list is bounded: of what it has dropped there are the turns.
fn handled(session: Option<&Session>, turns: &[TurnRecord]) -> Vec<String> {
    let recent = session.map(|session| session.recent_jobs.to_vec()).unwrap_or_default();
    let dropped =
        turns.iter().map(|turn| &turn.turn_id).filter(|id| recent.len() >= RECENT_JOBS && !recent.contains(id));
    dropped.cloned().collect::<Vec<_>>().into_iter().chain(recent.iter().cloned()).collect()
}

fn decode(sent: &Sent) -> Option<Job> {
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

/// Everything published for a session so far, but for what runs of workflows have told.
///
/// # Errors
/// When the events cannot be read, or their end does not come.
pub async fn events(queue: &dyn Queue, session_id: &str) -> Result<Vec<Event>, Unreadable> {
    let all = published(queue, session_id).await?;
    Ok(all.into_iter().filter(|event| !matches!(event, Event::Run(_))).collect())
}

/// What runs of workflows have told on a stream so far: that of a session, or a run's own.
///
/// # Errors
/// When the events cannot be read, or their end does not come.
pub async fn run_events(queue: &dyn Queue, stream: &str) -> Result<Vec<RunEvent>, Unreadable> {
    let all = published(queue, stream).await?;
    let told = all.into_iter().filter_map(|event| match event {
        Event::Run(event) => serde_json::from_value(event).ok(),
        _ => None,
    });
    Ok(told.collect())
}

/// Everything published so far: up to a mark that this call publishes itself.
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
    let unreadable = |problem: &str| Unreadable::Events(session_id.to_owned(), problem.to_owned());
    loop {
        let next = tokio::time::timeout(PATIENCE, stream.next()).await;
        let next = next.map_err(|_| unreadable("the last of them does not come"))?;
        let event = next.ok_or_else(|| unreadable("they end too early"))??;
        match Event::decode(event.event_type, &event.payload).map_err(|error| unreadable(&error.to_string()))? {
            Event::Run(value) if value == mark => return Ok(events),
            event => events.push(event),
        }
    }
}

/// What is left to be done in a lane, in words.
pub(super) async fn unrest(queue: &dyn Queue, store: &dyn Store, session_id: &str) -> Result<Vec<String>, Unreadable> {
    let mut left = Vec::new();
    if let Some(message) = queue.next_in_lane(session_id, 0, 0).await? {
        left.push(format!("message {} is still in the lane", message.seq));
    }
    let Some(session) = store.session(session_id).await? else { return Ok(left) };
    if let Some(lease) = &session.lease {
        left.push(format!("the lane is held by {}", lease.owner));
    }
    if session.turn.is_some() || session.pending_seq > session.last_seq {
        let Session { pending_seq, last_seq, turn, .. } = &session;
        left.push(format!("the lane has work: pending {pending_seq}, handled {last_seq}, turn {turn:?}"));
    }
    if session.timers.is_empty() {
        return Ok(left);
    }
    // Timers go by the store's clock.
    let soon = store.due_timers(Duration::ZERO, 1).await?.now.plus(SOON);
    left.extend(
        session
            .timers
            .iter()
            .filter(|timer| timer.due_at < soon)
            .map(|timer| format!("timer {} of generation {} has not fired", timer.name, timer.generation)),
    );
    Ok(left)
}
