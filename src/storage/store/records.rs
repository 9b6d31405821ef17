//! The requests and results of the [`Store`](super::Store).

pub use super::session_query::{SessionPage, SessionPlace, SessionQuery};
use base::clock::Moment;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use types::access::Scope;
use types::event::OutEvent;
use types::page::{Bounds, Page};
use types::run::RunRecord;
use types::session::{Entry, Handoff, Kind, Session, Status, Task, Waiting, WorkflowState};
use types::step::StepRecord;
use types::timer::{NewTimer, Timer};
use types::timestamp::Timestamp;
use types::turn::{DayUse, TurnMark, TurnRecord};

/// A request for the lease of a session's lane.
#[derive(Clone, Debug)]
pub struct Acquire {
    /// The session whose lane is requested.
    pub session_id: String,
    /// The sequence of the job that woke the caller.
    pub seq: u64,
    /// The creation time of the stream that `seq` counts in.
    pub stream: Timestamp,
    /// Moves the session's sequences back before the acquisition.
    pub rewind: Option<Rewind>,
    /// The id of the job that woke the caller.
    pub job_id: String,
    /// The id of the worker process.
    pub owner: String,
    /// A random value, unique to this request. It shows which request the lease was granted to.
    pub token: String,
    /// The duration of the lease, unless it is renewed.
    pub lease: Duration,
    /// The fields of the session, if the acquisition creates it.
    pub new_session: NewSession,
    /// The configuration for a turn that this acquisition begins. Ignored when an unfinished turn is resumed.
    pub pin: Option<Pin>,
}

/// Moves the sequences of a session back, because its stream was created again or has lost its last messages. Takes
/// effect only if the lane is free and the session still has the values that the caller has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewind {
    /// The session's stream, as the caller has read it.
    pub stream: Option<Timestamp>,
    /// The session's `last_seq`, as the caller has read it.
    pub last_seq: u64,
    /// The new `last_seq`, in the stream of the request.
    pub to: u64,
}

/// The fields of a session that an acquisition creates.
#[derive(Clone, Debug, Default)]
pub struct NewSession {
    /// The session's agent.
    pub agent_id: String,
    /// The session's user.
    pub user_id: String,
    /// The session's channel.
    pub channel: String,
    /// Whether the session is a chat or the lane of a run.
    pub kind: Kind,
}

/// The agent's configuration that a turn runs with.
#[derive(Clone, Debug)]
pub struct Pin {
    /// The agent's id.
    pub agent_id: String,
    /// The md5 hash of the agent's configuration.
    pub hash: String,
    /// Sets the status `processing` at the acquisition, if the session has the same hash and its status is `ready` or
    /// `cancelled`.
    pub announce: bool,
}

/// The result of an [`Acquire`].
#[derive(Clone, Debug)]
pub enum Acquired {
    /// The caller holds the lane now.
    Granted(Box<Grant>),
    /// Another worker holds the lane until this time, unless it renews its lease. `pending_seq` now covers the caller's
    /// job.
    Busy(Timestamp),
    /// The caller's job is already processed (`seq <= last_seq`), unless the stream has lost its last messages. The
    /// session is unchanged.
    Handled,
    /// The session's sequences belong to another stream. The session is unchanged.
    OtherStream,
}

/// A granted lease.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The session after the acquisition. `session.epoch` and `session.turn` are those of this grant.
    pub session: Session,
    /// True when an earlier lease holder began this turn. There may be recorded steps.
    pub resumed: bool,
    /// The recorded turn under the id of the caller's job: `None` when the store did not look for it, `Some(None)` when
    /// there is no such turn. The store looks for it only if the session may have dropped the job from `recent_jobs`.
    pub earlier: Option<Option<TurnMark>>,
}

/// A request to record steps of a turn.
#[derive(Clone, Debug)]
pub struct Record {
    /// The session that the turn belongs to.
    pub session_id: String,
    /// The epoch of the caller's lease.
    pub epoch: u64,
    /// The turn that the steps belong to.
    pub turn_id: String,
    /// The steps to record.
    pub steps: Vec<Arc<StepRecord>>,
    /// The status to set in the session document.
    pub status: Option<Status>,
}

/// The result for one step of a [`Record`].
#[derive(Clone, Debug, PartialEq)]
pub enum Recorded {
    /// The step is recorded as given.
    New,
    /// The step already had a record, which counts instead of the given one.
    Existing(Arc<StepRecord>),
}

/// A request to commit a turn.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The session that the turn belongs to.
    pub session_id: String,
    /// The epoch of the caller's lease.
    pub epoch: u64,
    /// The sequence up to which the lane is processed now.
    pub last_seq: u64,
    /// The creation time of the stream that `last_seq` counts in.
    pub stream: Timestamp,
    /// When the stream stored the last message that is processed now.
    pub at: Timestamp,
    /// The duration of the renewed lease, if the commit does not release it.
    pub lease: Duration,
    /// The time until which the caller's lease is certainly valid; `None` when the caller does not know it. From then
    /// on another worker may have taken the lane, so the store checks the lease before it writes the turn's record.
    pub sure_until: Option<Moment>,
    /// The changes of the turn; `None` when the job needed no processing.
    pub change: Option<Box<Change>>,
}

/// The changes of a turn to its session, and the records that are stored with them.
#[derive(Clone, Debug)]
pub struct Change {
    /// The agent that handled the turn.
    pub agent_id: String,
    /// The session's user.
    pub user_id: String,
    /// The session's channel.
    pub channel: String,
    /// The new hash, greeting flag and status.
    pub workflow_state: WorkflowState,
    /// The reason for the status `cancelled`.
    pub status_reason: Option<String>,
    /// The whole user profile, when the turn changed it.
    pub profile: Option<Map<String, Value>>,
    /// Entries to append to the history.
    pub history: Vec<Entry>,
    /// The number of entries to drop from the beginning of the history: see [`types::session::history::excess`].
    pub history_drop: usize,
    /// The ids of the jobs that the turn processed.
    pub jobs: Vec<String>,
    /// The new timer generation.
    pub timer_generation: u64,
    /// The change of the pending timers.
    pub timers: TimerChange,
    /// When the conversation was closed; `None` while it is open.
    pub closed_at: Option<Timestamp>,
    /// Present while a human handles the conversation.
    pub handoff: Option<Handoff>,
    /// The tokens that the conversation has used in total.
    pub tokens: u64,
    /// The tokens to add to the daily counters of agents.
    pub days: Vec<DayUse>,
    /// Present while a flow waits for the user's input.
    pub waiting: Option<Box<Waiting>>,
    /// Present while a coordinator agent waits for the user's answer.
    pub task: Option<Box<Task>>,
    /// The session's plan that was last created, changed or run.
    pub current_workflow: Option<String>,
    /// The turn's record.
    pub turn: TurnRecord,
    /// The final record of the run that the turn executed.
    pub run: Option<RunRecord>,
    /// Steps that are not recorded yet.
    pub steps: Vec<Arc<StepRecord>>,
    /// The events to publish after the commit, in this order.
    pub outbox: Arc<[OutEvent]>,
}

/// How long the daily token counters of agents are kept.
pub const DAYS_KEPT: Duration = Duration::from_secs(31 * 86_400);

/// The change of a session's pending timers.
#[derive(Clone, Debug)]
pub enum TimerChange {
    /// Leaves the timers unchanged.
    Keep,
    /// Removes the timers with these ids: a timer that has fired, or timers that an operator cancels.
    Remove(Vec<String>),
    /// Removes the timers with these ids, and adds others. All further ones stay.
    Exchange {
        /// The ids of the timers to remove.
        removed: Vec<String>,
        /// The timers to add. Due times count from the store's time of the commit.
        added: Vec<NewTimer>,
    },
    /// Replaces all timers; an empty list cancels them. Due times count from the store's time of the commit.
    Replace(Vec<NewTimer>),
}

/// The result of a [`Commit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// The turn is committed, and the lane is free.
    Released,
    /// The turn is committed, and the caller still holds the lane: a job with a sequence above `last_seq` is waiting.
    Held,
    /// The caller's epoch is stale. The session is unchanged.
    Fenced,
}

/// A lease, identified by session and epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseKey {
    /// The session whose lane is held.
    pub session_id: String,
    /// The epoch of the lease.
    pub epoch: u64,
}

/// Which handoffs to list.
#[derive(Clone, Debug)]
pub struct HandoffQuery {
    /// Only sessions that this scope covers.
    pub scope: Scope,
    /// Only handoffs of this agent's conversations.
    pub agent_id: Option<String>,
    /// Only handoffs of this channel's conversations.
    pub channel: Option<String>,
    /// The person whose claims are counted, and listed if `state` says so.
    pub by: Option<String>,
    /// The handoffs to list.
    pub state: HandoffState,
    /// The part of the listing.
    pub bounds: Bounds<HandoffPlace>,
}

/// The state of a handoff.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HandoffState {
    /// No one has the claim.
    #[default]
    Waiting,
    /// The person of the query has the claim.
    Mine,
    /// All handoffs.
    All,
}

/// How many handoffs there are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HandoffCounts {
    /// Without a claim.
    pub waiting: u64,
    /// With a claim of the person who asks.
    pub mine: u64,
    /// All handoffs.
    pub all: u64,
}

/// A part of the handoffs.
#[derive(Clone, Debug)]
pub struct HandoffPage {
    /// The sessions, which lack their histories except for the last entry.
    pub page: Page<Session>,
    /// The number of handoffs that the query's scope, agent and channel cover.
    pub counts: HandoffCounts,
}

/// The place of a handoff in the listing: 0 if the user waits and 1 otherwise; since when the user waits, or else when
/// the handoff began; the session.
pub type HandoffPlace = (u64, (Timestamp, String));

impl HandoffQuery {
    /// All handoffs, for `by`.
    pub fn all(by: Option<&str>, limit: usize) -> Self {
        Self {
            scope: Scope::default(),
            agent_id: None,
            channel: None,
            by: by.map(str::to_owned),
            state: HandoffState::All,
            bounds: Bounds::first(limit),
        }
    }
}

/// The place of a session in the listing of handoffs; `None` if it is not handed off.
pub fn handoff_place(session: &Session) -> Option<HandoffPlace> {
    let handoff = session.handoff.as_ref()?;
    let class = u64::from(handoff.waiting_since.is_none());
    Some((class, (handoff.waiting_since.unwrap_or(handoff.since), session.session_id.clone())))
}

/// The place of a turn among those of its session: its start, its commit, its id.
pub type TurnPlace = (Timestamp, (Timestamp, String));
/// The place of a timer in the listing: when it is due, its session, its id.
pub type TimerPlace = (Timestamp, (String, String));

/// Timers that are due, or will be soon.
#[derive(Clone, Debug)]
pub struct DueTimers {
    /// The store's time of the response, or slightly earlier.
    pub now: Timestamp,
    /// The local time at which `now` was true, so that the time for reading thousands of timers does not delay them.
    pub at: Moment,
    /// The timers with their sessions, earliest first.
    pub timers: Vec<DueTimer>,
}

/// A timer and the session that it belongs to.
#[derive(Clone, Debug)]
pub struct DueTimer {
    /// The session that the timer belongs to.
    pub session_id: String,
    /// The pending timer.
    pub timer: Timer,
}

/// A lane with work and no lease holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbandonedLane {
    /// The session whose lane it is.
    pub session_id: String,
    /// The lane's epoch.
    pub epoch: u64,
}

/// The size of a session in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSize {
    /// The session, or the run in a lane of its own.
    pub session_id: String,
    /// Bytes of the session with its history.
    pub session_bytes: u64,
    /// Bytes of its recorded steps.
    pub step_bytes: u64,
}

impl SessionSize {
    /// All bytes.
    pub fn total(&self) -> u64 {
        self.session_bytes + self.step_bytes
    }

    /// Sorts sessions by their size, and leaves the `limit` largest.
    pub fn largest(mut sizes: Vec<Self>, limit: usize) -> Vec<Self> {
        sizes.sort_by(|one, other| (other.total(), &one.session_id).cmp(&(one.total(), &other.session_id)));
        sizes.truncate(limit);
        sizes
    }
}

/// A conversation without recent changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleSession {
    /// The id of the idle session.
    pub session_id: String,
    /// The sequence up to which its lane is processed. A higher value later means that the conversation has continued.
    pub last_seq: u64,
}
