//! Deletion of a session, or of a run in a lane of its own, with everything that belongs to it.
//!
//! A session is deleted as the holder of its lane. [`Erasure::seize`](storage::store::Erasure::seize) takes the lane
//! from any worker, which can then no longer commit, and keeps other workers out. A worker that was in the lane
//! may still write steps and events until its former lease ends. So the deletion then waits for that time and deletes
//! again. At the end it removes the session, and the lane is free: a later message of the same id begins a new session.
//!
//! Runs in lanes of their own belong to the session that asked for them. Their lanes are taken together with the
//! session's, since the end of a run is a job in the session's lane.
//!
//! [`LaneErasure::expired`] deletes a conversation that no one asked to delete, so it loses no message: a message that
//! waits keeps the session, and one that arrives meanwhile begins a new session.

use base::clock::Clock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use storage::queue::{CancelHint, Queue, QueueError, StoredDeadLetter};
use storage::store::{SeizedLane, Store, StoreError};
use tracing::debug;
use types::run::{RunQuery, RunRecord, RunStatus};
use types::timestamp::Timestamp;

/// How long a deletion holds the lanes, beyond the former holders' leases.
const LEASE: Duration = Duration::from_secs(60);
/// How often lanes are looked at again, because runs began meanwhile or workers were in the lanes.
const MAX_ROUNDS: usize = 20;
/// The number of dead letters or runs that are read together.
const PAGE_SIZE: usize = 200;
/// The number of dead letters that are read together. One may have a megabyte.
const LETTERS: usize = 16;

/// Why a deletion failed. It can be repeated.
#[derive(Debug, thiserror::Error)]
pub enum ErasureError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The queue failed.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// Another process uses or deletes the session.
    #[error("session `{0}` is being used or deleted by another process")]
    Overtaken(String),
}

type Result<T> = std::result::Result<T, ErasureError>;

/// The number of deleted things of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeletedData {
    /// Sessions, and lanes of runs.
    pub sessions: u64,
    /// Committed turns.
    pub turns: u64,
    /// Steps of the journals.
    pub steps: u64,
    /// Runs of workflows.
    pub runs: u64,
    /// Plans that belonged to the sessions.
    pub plans: u64,
    /// Pending timers.
    pub timers: u64,
    /// Jobs that waited in the lanes.
    pub jobs: u64,
    /// Events in the stream.
    pub events: u64,
    /// Dead letters.
    pub dead_letters: u64,
}

impl DeletedData {
    /// Adds the counts of another deletion.
    pub fn add(&mut self, other: &Self) {
        self.sessions += other.sessions;
        self.turns += other.turns;
        self.steps += other.steps;
        self.runs += other.runs;
        self.plans += other.plans;
        self.timers += other.timers;
        self.jobs += other.jobs;
        self.events += other.events;
        self.dead_letters += other.dead_letters;
    }

    /// Returns the counts that are not 0, in words.
    pub fn words(&self) -> String {
        let counts = [
            (self.sessions, "session", "sessions"),
            (self.turns, "turn", "turns"),
            (self.steps, "step", "steps"),
            (self.runs, "run", "runs"),
            (self.plans, "plan", "plans"),
            (self.timers, "timer", "timers"),
            (self.jobs, "waiting job", "waiting jobs"),
            (self.events, "event", "events"),
            (self.dead_letters, "dead letter", "dead letters"),
        ];
        let told = counts.into_iter().filter(|(count, ..)| *count > 0);
        let told: Vec<_> =
            told.map(|(count, one, many)| format!("{count} {}", if count == 1 { one } else { many })).collect();
        if told.is_empty() { "nothing".to_owned() } else { told.join(", ") }
    }
}

/// The session whose lane has the job of a dead letter.
pub fn session_of(kept: &StoredDeadLetter) -> &str {
    kept.letter.subject.rsplit('.').next().unwrap_or_default()
}

/// Deletes lanes and what belongs to them.
#[derive(Clone, Copy)]
pub struct LaneErasure<'a> {
    queue: &'a dyn Queue,
    store: &'a dyn Store,
    /// The setting `worker.ack_wait`: how long a worker may take to publish the events of a committed turn.
    ack_wait: Duration,
}

/// The lanes that a deletion holds, with their epochs, and the counts of deleted things.
#[derive(Default)]
struct Held {
    epochs: BTreeMap<String, u64>,
    deleted: DeletedData,
    /// The session whose waiting jobs and dead letters stay.
    expired: Option<String>,
}

impl Held {
    fn add(&mut self, lane: &str, seized: &SeizedLane) {
        self.epochs.insert(lane.to_owned(), seized.epoch);
        self.deleted.sessions += u64::from(seized.existed);
        self.deleted.timers += seized.timers;
    }
}

impl<'a> LaneErasure<'a> {
    /// A deletion in this queue and store. `ack_wait` is the workers' setting.
    pub fn new(queue: &'a dyn Queue, store: &'a dyn Store, ack_wait: Duration) -> Self {
        Self { queue, store, ack_wait }
    }

    /// Deletes a session, or a run in a lane of its own, also while workers use it. Durable on return. Takes
    /// milliseconds if no worker is in the lane, else at most about the time `worker.ack_wait`.
    pub async fn session(self, session_id: &str) -> Result<DeletedData> {
        let mut held = Held::default();
        self.finish(session_id, &mut held).await?;
        Ok(held.deleted)
    }

    /// Deletes a conversation that was closed at `closed_at`, and returns the deleted lanes. Does nothing, and returns
    /// `None`, if it is in use again: a message waits, a worker has the lane, or a run of it is unfinished. Leaves its
    /// dead letters, for [`LaneErasure::letters`].
    pub async fn expired(self, session_id: &str, closed_at: Timestamp) -> Result<Option<(Vec<String>, DeletedData)>> {
        let unfinished =
            |run: &RunRecord| matches!(run.status, RunStatus::Pending | RunStatus::Running | RunStatus::Waiting);
        if self.has_jobs(session_id).await? || self.runs(session_id).await?.iter().any(unfinished) {
            return Ok(None);
        }
        let owner = owner();
        let seized = self.store.seize_closed(session_id, closed_at, &owner, LEASE + self.ack_wait * 2).await?;
        let Some(seized) = seized else { return Ok(None) };
        if self.has_jobs(session_id).await? {
            self.store.release(session_id, seized.epoch, false).await?;
            return Ok(None);
        }
        let mut held = Held { expired: Some(session_id.to_owned()), ..Held::default() };
        held.add(session_id, &seized);
        self.tell(session_id).await;
        self.finish(session_id, &mut held).await?;
        Ok(Some((held.epochs.into_keys().collect(), held.deleted)))
    }

    /// Removes the dead letters that `is_of` selects. Returns their number.
    pub async fn letters(self, is_of: impl Fn(&StoredDeadLetter) -> bool) -> Result<u64> {
        let (mut after, mut removed) = (0, 0);
        loop {
            let page = self.queue.dead_letters(after, LETTERS).await?;
            let Some(last) = page.last() else { return Ok(removed) };
            after = last.seq;
            for kept in page.iter().filter(|kept| is_of(kept)) {
                removed += u64::from(self.queue.remove_dead_letter(kept.seq).await?);
            }
        }
    }

    async fn finish(self, session_id: &str, held: &mut Held) -> Result<()> {
        for _ in 0..MAX_ROUNDS {
            let wait = self.sweep(session_id, held).await?;
            if wait.is_zero() {
                for (lane, epoch) in &held.epochs {
                    self.leave(lane, *epoch).await?;
                }
                return Ok(());
            }
            Clock::system().sleep(wait).await;
        }
        Err(ErasureError::Overtaken(session_id.to_owned()))
    }

    /// Takes the lanes that are not taken yet, and deletes their data. Returns the time after which the same has to
    /// be done again; zero if no worker can have written meanwhile.
    async fn sweep(self, session_id: &str, held: &mut Held) -> Result<Duration> {
        let mut wait = Duration::ZERO;
        // The runs first: afterwards their records are gone.
        let runs = self.runs(session_id).await?.into_iter().filter(|run| run.lane == run.run_id);
        let lanes: Vec<String> = [session_id.to_owned()].into_iter().chain(runs.map(|run| run.run_id)).collect();
        for lane in &lanes {
            wait = wait.max(self.take(lane, held).await?);
        }
        let Held { epochs, deleted, expired } = held;
        for lane in epochs.keys() {
            let erased = self.store.erase_records(lane).await?;
            deleted.turns += erased.turns;
            deleted.steps += erased.steps;
            deleted.runs += erased.runs;
            deleted.plans += erased.plans;
            if expired.as_ref() != Some(lane) {
                deleted.jobs += self.queue.purge_lane(lane).await?;
            }
            deleted.events += self.queue.purge_events(lane).await?;
        }
        if expired.is_none() {
            deleted.dead_letters += self.letters(|kept| epochs.contains_key(session_of(kept))).await?;
        }
        Ok(wait)
    }

    /// Takes a lane, unless it is taken already. Returns how long its former holder may still write.
    async fn take(self, lane: &str, held: &mut Held) -> Result<Duration> {
        if held.epochs.contains_key(lane) {
            return Ok(Duration::ZERO);
        }
        let seized = self.store.seize(lane, &owner(), LEASE + self.ack_wait * 2).await?;
        held.add(lane, &seized);
        self.tell(lane).await;
        // A message in the lane: a worker may be publishing the events of its turn, or burying it, without the lease.
        let publishing = self.has_jobs(lane).await?;
        Ok(if publishing { seized.busy_for.max(self.ack_wait) } else { seized.busy_for })
    }

    async fn tell(self, lane: &str) {
        let hint = CancelHint { session_id: lane.to_owned(), seq: 0, deleted: true };
        if let Err(error) = self.queue.hint_cancel(hint).await {
            debug!("workers learn of the deletion when they renew their leases: {error}");
        }
    }

    async fn has_jobs(self, lane: &str) -> Result<bool> {
        Ok(self.queue.next_in_lane(lane, 0, 0).await?.is_some())
    }

    /// The runs of a session.
    async fn runs(self, session_id: &str) -> Result<Vec<RunRecord>> {
        let mut limit = PAGE_SIZE;
        loop {
            let query = RunQuery { origin_session: Some(session_id.to_owned()), limit, ..RunQuery::default() };
            let runs = self.store.runs(query).await?;
            if runs.len() < limit {
                return Ok(runs);
            }
            limit *= 4;
        }
    }

    async fn leave(self, lane: &str, epoch: u64) -> Result<()> {
        let erased = self.store.erase_lane(lane, epoch).await?;
        // Another deletion of the same session may have removed it.
        let gone = erased || self.store.session(lane).await?.is_none();
        if gone { Ok(()) } else { Err(ErasureError::Overtaken(lane.to_owned())) }
    }
}

fn owner() -> String {
    format!("deletion-{}", uuid::Uuid::new_v4())
}
