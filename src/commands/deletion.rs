//! Deletion of sessions, of a user's data, of agents, workflows and dead letters.
//!
//! A session is deleted as the holder of its lane. [`Erasure::seize`](storage::store::Erasure::seize) takes the lane
//! from any worker, which can then no longer commit, and keeps other workers out. A worker that was in the lane
//! may still write steps and events until its former lease ends. So the deletion then waits for that time and deletes
//! again. At the end it removes the session, and the lane is free: a later message of the same id begins a new session.
//!
//! Runs in lanes of their own belong to the session that asked for them. Their lanes are taken together with the
//! session's, since the end of a run is a job in the session's lane.

use crate::dead_letters::{self, DeadLetterSummary, READ_AHEAD};
use crate::error::{CommandError, ErrorKind};
use crate::messages::require_known;
use base::clock::Clock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use storage::queue::{CancelHint, Queue, StoredDeadLetter};
use storage::store::Store;
use tracing::{debug, info};
use types::ids;
use types::run::RunQuery;

/// How long a deletion holds the lanes, beyond the former holders' leases.
const LEASE: Duration = Duration::from_secs(60);
/// How often lanes are looked at again, because runs began meanwhile or workers were in the lanes.
const MAX_ROUNDS: usize = 20;
/// The number of runs that are read together.
const PAGE_SIZE: usize = 200;
/// The most sessions of a user that a call deletes.
pub const MAX_SESSIONS: usize = 100;

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

/// A deleted session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeletedSession {
    /// The id of the session.
    pub session_id: String,
    /// The numbers of deleted things.
    #[serde(flatten)]
    pub deleted: DeletedData,
}

/// The deleted data of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeletedUser {
    /// The id of the user.
    pub user_id: String,
    /// False if the user has more sessions than one request deletes: repeat the request.
    pub complete: bool,
    /// The numbers of deleted things.
    #[serde(flatten)]
    pub deleted: DeletedData,
}

/// A deleted dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeletedLetter {
    /// The number of the letter.
    pub seq: u64,
    /// The session of its job.
    pub session_id: String,
}

/// Deletes sessions and what belongs to them.
#[derive(Clone, Copy)]
pub struct Deletion<'a> {
    queue: &'a dyn Queue,
    store: &'a dyn Store,
    /// The setting `worker.ack_wait`: how long a worker may take to publish the events of a committed turn.
    ack_wait: Duration,
}

impl<'a> Deletion<'a> {
    /// A deletion in this queue and store. `ack_wait` is the workers' setting.
    pub fn new(queue: &'a dyn Queue, store: &'a dyn Store, ack_wait: Duration) -> Self {
        Self { queue, store, ack_wait }
    }

    /// Deletes a session, or a run in a lane of its own, with everything that belongs to it. Durable on return. Takes
    /// milliseconds if no worker is in the lane, else at most about the time `worker.ack_wait`.
    pub async fn session(self, session_id: &str) -> Result<DeletedSession, CommandError> {
        ids::check("session_id", session_id)?;
        if self.store.run(session_id).await?.is_none() {
            require_known(self.queue, self.store, session_id).await?;
        }
        let deleted = self.lanes_of(session_id).await?;
        info!(session_id, "session deleted: {}", deleted.words());
        Ok(DeletedSession { session_id: session_id.to_owned(), deleted })
    }

    /// Deletes the sessions and runs of a user, and the dead letters of the user's messages. Fails with `unknown_user`
    /// if the user has no data.
    pub async fn user(self, user_id: &str) -> Result<DeletedUser, CommandError> {
        ids::check("user_id", user_id)?;
        let found = self.store.lanes_of_user(user_id, MAX_SESSIONS + 1).await?;
        let mut deleted = DeletedData::default();
        for session_id in found.iter().take(MAX_SESSIONS) {
            deleted.add(&self.lanes_of(session_id).await?);
        }
        deleted.dead_letters += self.letters(|kept| names_user(kept, user_id)).await?;
        if deleted == DeletedData::default() {
            let message = format!("there is no data of user `{user_id}`");
            let hint = "`turnwheel sessions list` shows the users of sessions";
            return Err(CommandError::new(ErrorKind::NotFound, "unknown_user", message, hint));
        }
        info!("data of a user deleted: {}", deleted.words());
        Ok(DeletedUser { user_id: user_id.to_owned(), complete: found.len() <= MAX_SESSIONS, deleted })
    }

    /// Deletes one dead letter, by its number or its job id.
    pub async fn letter(self, which: &str) -> Result<DeletedLetter, CommandError> {
        let kept = dead_letters::find(self.queue, which).await?;
        self.queue.remove_dead_letter(kept.seq).await?;
        let DeadLetterSummary { seq, session_id, .. } = DeadLetterSummary::from(&kept);
        Ok(DeletedLetter { seq, session_id })
    }

    async fn lanes_of(self, session_id: &str) -> Result<DeletedData, CommandError> {
        let (mut held, mut deleted) = (Held::default(), DeletedData::default());
        for _ in 0..MAX_ROUNDS {
            let wait = self.sweep(session_id, &mut held, &mut deleted).await?;
            if wait.is_zero() {
                for (lane, epoch) in &held.epochs {
                    self.leave(lane, *epoch).await?;
                }
                return Ok(deleted);
            }
            Clock::system().sleep(wait).await;
        }
        Err(overtaken(session_id))
    }

    /// Takes the lanes that are not taken yet, and deletes their data. Returns the time after which the same has to
    /// be done again; zero if no worker can have written meanwhile.
    async fn sweep(
        self,
        session_id: &str,
        held: &mut Held,
        deleted: &mut DeletedData,
    ) -> Result<Duration, CommandError> {
        let mut wait = Duration::ZERO;
        // The runs first: afterwards their records are gone.
        let lanes = self.lanes(session_id).await?;
        for lane in &lanes {
            wait = wait.max(self.take(lane, held, deleted).await?);
        }
        for lane in held.epochs.keys() {
            let erased = self.store.erase_records(lane).await?;
            deleted.turns += erased.turns;
            deleted.steps += erased.steps;
            deleted.runs += erased.runs;
            deleted.plans += erased.plans;
            deleted.jobs += self.queue.purge_lane(lane).await?;
            deleted.events += self.queue.purge_events(lane).await?;
        }
        deleted.dead_letters +=
            self.letters(|kept| held.epochs.contains_key(dead_letters::session_of(&kept.letter))).await?;
        Ok(wait)
    }

    /// Takes a lane, unless it is taken already. Returns how long its former holder may still write.
    async fn take(self, lane: &str, held: &mut Held, deleted: &mut DeletedData) -> Result<Duration, CommandError> {
        if held.epochs.contains_key(lane) {
            return Ok(Duration::ZERO);
        }
        let owner = format!("deletion-{}", crate::enqueue::new_id());
        let seized = self.store.seize(lane, &owner, LEASE + self.ack_wait * 2).await?;
        held.epochs.insert(lane.to_owned(), seized.epoch);
        deleted.sessions += u64::from(seized.existed);
        deleted.timers += seized.timers;
        let hint = CancelHint { session_id: lane.to_owned(), seq: 0, deleted: true };
        if let Err(error) = self.queue.hint_cancel(hint).await {
            debug!("workers learn of the deletion when they renew their leases: {error}");
        }
        // A message in the lane: a worker may be publishing the events of its turn, or burying it, without the lease.
        let publishing = self.queue.next_in_lane(lane, 0, 0).await?.is_some();
        Ok(if publishing { seized.busy_for.max(self.ack_wait) } else { seized.busy_for })
    }

    /// The lane of the session, and those of its runs.
    async fn lanes(self, session_id: &str) -> Result<Vec<String>, CommandError> {
        let mut lanes = vec![session_id.to_owned()];
        let mut limit = PAGE_SIZE;
        loop {
            let query = RunQuery { origin_session: Some(session_id.to_owned()), limit, ..RunQuery::default() };
            let runs = self.store.runs(query).await?;
            if runs.len() < limit {
                lanes.extend(runs.into_iter().filter(|run| run.lane == run.run_id).map(|run| run.run_id));
                return Ok(lanes);
            }
            limit *= 4;
        }
    }

    async fn leave(self, lane: &str, epoch: u64) -> Result<(), CommandError> {
        let erased = self.store.erase_lane(lane, epoch).await?;
        // Another deletion of the same session may have removed it.
        if erased || self.store.session(lane).await?.is_none() { Ok(()) } else { Err(overtaken(lane)) }
    }

    /// Removes the dead letters that `is_of` selects. Returns their number.
    async fn letters(self, is_of: impl Fn(&StoredDeadLetter) -> bool) -> Result<u64, CommandError> {
        let (mut after, mut removed) = (0, 0);
        loop {
            let page = self.queue.dead_letters(after, READ_AHEAD).await?;
            let Some(last) = page.last() else { return Ok(removed) };
            after = last.seq;
            for kept in page.iter().filter(|kept| is_of(kept)) {
                removed += u64::from(self.queue.remove_dead_letter(kept.seq).await?);
            }
        }
    }
}

/// The lanes that a deletion holds, with their epochs.
#[derive(Default)]
struct Held {
    epochs: BTreeMap<String, u64>,
}

fn names_user(kept: &StoredDeadLetter, user_id: &str) -> bool {
    #[derive(Deserialize)]
    struct OfUser {
        user_id: Option<String>,
    }
    serde_json::from_slice::<OfUser>(&kept.letter.payload).is_ok_and(|job| job.user_id.as_deref() == Some(user_id))
}

fn overtaken(session_id: &str) -> CommandError {
    let message = format!("session `{session_id}` is being used or deleted by another process");
    CommandError::unavailable("deletion_overtaken", message, "repeat the deletion")
}
