//! What goes into and comes out of the [`Store`](super::Store).

use base::clock::Moment;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use types::event::OutEvent;
use types::run::RunRecord;
use types::session::{Entry, Handoff, Kind, Session, Status, Waiting, WorkflowState};
use types::step::StepRecord;
use types::timer::{NewTimer, Timer};
use types::timestamp::Timestamp;
use types::turn::{DayUse, TurnMark, TurnRecord};

/// A wish for a session's lane.
#[derive(Clone, Debug)]
pub struct Acquire {
    /// The session.
    pub session_id: String,
    /// Sequence of the job that woke the caller.
    pub seq: u64,
    /// When the stream was made that it counts in.
    pub stream: Timestamp,
    /// Sets the session's sequences back first.
    pub rewind: Option<Rewind>,
    /// The job's id.
    pub job_id: String,
    /// The worker process.
    pub owner: String,
    /// Unique to this call.
    pub token: String,
    /// How long the lease lasts unless renewed.
    pub lease: Duration,
    /// What a session is created with.
    pub new_session: NewSession,
    /// What a turn begun by this acquisition is pinned to; ignored when an unfinished turn is there already.
    pub pin: Option<Pin>,
}

/// Sets the sequences of a session back whose stream has begun again, or has lost its end. It counts only if the lane is free
/// and the session still stands where the caller has found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewind {
    /// The session's stream, as found.
    pub stream: Option<Timestamp>,
    /// The session's `last_seq`, as found.
    pub last_seq: u64,
    /// What `last_seq` becomes, in the stream of the request.
    pub to: u64,
}

/// What an unknown session starts with.
#[derive(Clone, Debug, Default)]
pub struct NewSession {
    /// The agent.
    pub agent_id: String,
    /// The user.
    pub user_id: String,
    /// The channel.
    pub channel: String,
    /// What it is for.
    pub kind: Kind,
}

/// The configuration that a turn is to run with.
#[derive(Clone, Debug)]
pub struct Pin {
    /// The agent.
    pub agent_id: String,
    /// md5 of its configuration.
    pub hash: String,
    /// Show `processing` in the document if its hash equals `hash` and its status is `ready` or `cancelled`.
    pub announce: bool,
}

/// The answer to an [`Acquire`].
#[derive(Clone, Debug)]
pub enum Acquired {
    /// The caller holds the lane.
    Granted(Box<Grant>),
    /// Somebody else does, until then unless renewed; `pending_seq` now covers the caller's job.
    Busy(Timestamp),
    /// The caller's job has been handled (`seq <= last_seq`), unless the stream has lost its end; nothing has changed.
    Handled,
    /// The session's sequences are those of another stream; nothing has changed.
    OtherStream,
}

/// A lane held.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The session as of the acquisition; `session.epoch` and `session.turn` are those of this grant.
    pub session: Session,
    /// An earlier holder began this turn: there may be recorded steps.
    pub resumed: bool,
    /// Whether there is a turn on record under the id of the caller's job, where that was looked for: a session that has not
    /// forgotten any of its jobs has none.
    pub earlier: Option<Option<TurnMark>>,
}

/// Steps to be recorded.
#[derive(Clone, Debug)]
pub struct Record {
    /// The session.
    pub session_id: String,
    /// The caller's epoch.
    pub epoch: u64,
    /// The turn.
    pub turn_id: String,
    /// The steps.
    pub steps: Vec<Arc<StepRecord>>,
    /// To be shown in the session document.
    pub status: Option<Status>,
}

/// What became of one step.
#[derive(Clone, Debug, PartialEq)]
pub enum Recorded {
    /// It is recorded as given.
    New,
    /// Another record was there first, and counts.
    Existing(Arc<StepRecord>),
}

/// The end of a turn.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The session.
    pub session_id: String,
    /// The caller's epoch.
    pub epoch: u64,
    /// Everything up to here is handled now.
    pub last_seq: u64,
    /// When the stream was made that this counts in.
    pub stream: Timestamp,
    /// When the stream took the last message that is handled now.
    pub at: Timestamp,
    /// How long the lease goes on if it is not released.
    pub lease: Duration,
    /// Until when the caller's lease lasts for certain, if it knows: from then on another worker may have taken the lane.
    pub sure_until: Option<Moment>,
    /// What the turn changed; `None` when the job was nothing to be handled.
    pub change: Option<Box<Change>>,
}

/// What a turn changed.
#[derive(Clone, Debug)]
pub struct Change {
    /// The agent that answered.
    pub agent_id: String,
    /// The user.
    pub user_id: String,
    /// The channel.
    pub channel: String,
    /// Hash, greeting flag and status as of now.
    pub workflow_state: WorkflowState,
    /// Why the status is `cancelled`.
    pub status_reason: Option<String>,
    /// The whole profile, when it changed.
    pub profile: Option<Map<String, Value>>,
    /// To be appended to the history, whose oldest `history_drop` entries go.
    pub history: Vec<Entry>,
    /// See [`types::session::history::excess`].
    pub history_drop: usize,
    /// Ids of the jobs handled.
    pub jobs: Vec<String>,
    /// The generation as of now.
    pub timer_generation: u64,
    /// What becomes of the pending timers.
    pub timers: TimerChange,
    /// When the conversation was closed, if it is.
    pub closed_at: Option<Timestamp>,
    /// Set while a human has the conversation.
    pub handoff: Option<Handoff>,
    /// What the conversation has used as of now.
    pub tokens: u64,
    /// What the turn adds to the days of agents.
    pub days: Vec<DayUse>,
    /// Set while a flow waits for the user's answer.
    pub waiting: Option<Box<Waiting>>,
    /// The turn's record.
    pub turn: TurnRecord,
    /// The run that the turn is for, as it has ended.
    pub run: Option<RunRecord>,
    /// Steps not recorded yet.
    pub steps: Vec<Arc<StepRecord>>,
    /// To be published once this is committed, in order.
    pub outbox: Arc<[OutEvent]>,
}

/// How long it is known what agents have used on a day.
pub const DAYS_KEPT: Duration = Duration::from_secs(31 * 86_400);

/// What a turn does to the pending timers.
#[derive(Clone, Debug)]
pub enum TimerChange {
    /// Nothing.
    Keep,
    /// Removes those of these ids: one that has fired, or those that an operator cancels.
    Remove(Vec<String>),
    /// Replaces all, by none to cancel. Due times count from the store's time of the commit.
    Replace(Vec<NewTimer>),
}

/// The answer to a [`Commit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// Done, and the lane is free.
    Released,
    /// Done, and the caller still holds the lane: a job with a sequence above `last_seq` is waiting.
    Held,
    /// The caller's epoch is stale: nothing has changed.
    Fenced,
}

/// A lease by session and epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// The session.
    pub session_id: String,
    /// The epoch.
    pub epoch: u64,
}

/// Which sessions to list; the lanes of runs are none.
#[derive(Clone, Debug)]
pub struct SessionQuery {
    /// Only those in this status.
    pub status: Option<Status>,
    /// Only those of this agent.
    pub agent_id: Option<String>,
    /// The most to answer.
    pub limit: usize,
}

impl Default for SessionQuery {
    fn default() -> Self {
        Self { status: None, agent_id: None, limit: 50 }
    }
}

/// Timers that are due, or will be soon.
#[derive(Clone, Debug)]
pub struct DueTimers {
    /// The store's time when it answered, or a moment before.
    pub now: Timestamp,
    /// When that was here: whoever reads thousands of them is not late by it.
    pub at: Moment,
    /// The timers with their sessions, earliest first.
    pub timers: Vec<DueTimer>,
}

/// A timer and its session.
#[derive(Clone, Debug)]
pub struct DueTimer {
    /// The session.
    pub session_id: String,
    /// The timer.
    pub timer: Timer,
}

/// A lane with work and no holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbandonedLane {
    /// The session.
    pub session_id: String,
    /// Its epoch.
    pub epoch: u64,
}

/// A conversation that nobody has touched for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleSession {
    /// The session.
    pub session_id: String,
    /// Up to where its lane is handled: later it has been touched.
    pub last_seq: u64,
}
