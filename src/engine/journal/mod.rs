//! The journal of a turn or run: records each step that reaches the outside, so that a repeated attempt replays it.
//!
//! [`Journal::step`] runs an operation and records its result; the first record of a step wins. If a turn is repeated
//! after a crash, the step returns the recorded result and the operation does not run. So each result counts exactly
//! once. The operation itself runs at least once: it runs again, under the same idempotency key, only if the crash fell
//! between its effect and its record.
//!
//! [`Durability`] says when the record of a step is written: before the step returns, or a moment later together with
//! others. [`Done::with_commit`] leaves it to the commit. A [`Guard`] keeps a worker that has lost its lease from
//! starting a step.
//!
//! - `step`: the label, result and figures of a step. `error`: the reasons for which a step has no result.
//! - `turn`: the records of one turn, shared by all its parts, and how they are written. `deferred`: the steps that are
//!   not written yet. `running_steps`: the number of running steps. `under_way`: the steps whose operations run.
//!   `copied`: steps of another run.
//! - `recorded`: the steps that a part of the journal has. `guard`: the check of the lease and of the cancellation.
//!   `usage`: the tokens used. `span`: a step's tracing span.

mod copied;
mod deferred;
mod error;
mod guard;
mod recorded;
mod running_steps;
mod span;
mod step;
mod turn;
mod under_way;
mod usage;

pub use error::{JournalError, StepError};
use guard::NoLease;
pub use guard::{Guard, LeaseCheck};
pub use step::{Done, Durability, Label, Stepped};
use types::step::StepRecord;
pub use usage::TurnUsage;

use base::clock::Clock;
use deferred::MAX_DEFERRED;
use running_steps::RunningStep;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use storage::store::Store;
use tracing::Instrument;
use turn::TurnJournal;
use types::canonical;
use types::timestamp::Timestamp;
use under_way::Begin;
use usage::UsageLog;

/// A turn of a lane, and the lease under which its journal records steps.
pub struct LeasedTurn<'t> {
    /// Holds the recorded steps.
    pub store: Arc<dyn Store>,
    /// Gives the times of the records.
    pub clock: Clock,
    /// The session of the lane.
    pub session_id: &'t str,
    /// The id of the turn.
    pub turn_id: &'t str,
    /// The epoch of the lease.
    pub epoch: u64,
    /// Checked before each step.
    pub guard: Guard,
    /// Masks the prompts of model calls; `None` if prompts are not kept.
    pub prompt_mask: Option<PromptMask>,
}

/// Masks secrets in a text.
pub type PromptMask = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// The journal of one turn or run, or of a part of it. Cheap to clone. Steps may run concurrently.
#[derive(Clone)]
pub struct Journal {
    turn: Arc<TurnJournal>,
    prefix: String,
}

impl Journal {
    /// Opens the journal of a turn. For a resumed turn this reads the recorded steps from the store.
    pub async fn open(turn: LeasedTurn<'_>, resumed: bool) -> Result<Self, JournalError> {
        let steps = if resumed { turn.store.steps(turn.session_id, turn.turn_id).await? } else { Vec::new() };
        Ok(Self::from_steps(steps, turn))
    }

    /// Opens the journal of an earlier turn of the session, in order to continue the work that it started. Tokens that
    /// its further steps use count for the current turn, and so do the steps passed to [`Journal::count`].
    pub(crate) async fn resume_from(&self, turn_id: &str) -> Result<Self, JournalError> {
        let TurnJournal { store, clock, session_id, epoch, guard, usage, prompt_mask, .. } = self.turn.as_ref();
        // A journal in memory has no earlier turn.
        let Some(store) = store else { return Ok(self.clone()) };
        let steps = store.steps(session_id, turn_id).await?;
        let (store, clock, guard) = (Arc::clone(store), clock.clone(), guard.clone());
        let prompt_mask = prompt_mask.clone();
        let turn = LeasedTurn { store, clock, session_id, turn_id, epoch: *epoch, guard, prompt_mask };
        Ok(Self::new(steps, turn, Arc::clone(usage)))
    }

    /// A read-only journal with these recorded steps. Any other step fails with [`JournalError::Lost`] and does not
    /// run.
    pub(crate) fn read_only(store: Arc<dyn Store>, session_id: &str, turn_id: &str, steps: Vec<StepRecord>) -> Self {
        let (clock, guard) = (Clock::system(), Guard::new(NoLease));
        let turn = LeasedTurn { store, clock, session_id, turn_id, epoch: 0, guard, prompt_mask: None };
        Self::from_steps(steps, turn)
    }

    fn from_steps(steps: Vec<StepRecord>, turn: LeasedTurn<'_>) -> Self {
        let usage = Arc::<UsageLog>::default();
        steps.iter().for_each(|step| usage.add(turn.turn_id, step));
        Self::new(steps, turn, usage)
    }

    fn new(steps: Vec<StepRecord>, turn: LeasedTurn<'_>, usage: Arc<UsageLog>) -> Self {
        let LeasedTurn { store, clock, session_id, turn_id, epoch, guard, prompt_mask } = turn;
        let recorded = steps.into_iter().map(|step| (step.key.clone(), Arc::new(step))).collect();
        let empty = TurnJournal::in_memory(clock, session_id, turn_id, guard);
        let recorded = Mutex::new(recorded);
        let turn = TurnJournal { store: Some(store), epoch, recorded, usage, prompt_mask, ..empty };
        Self { turn: Arc::new(turn), prefix: String::new() }
    }

    /// A journal in memory, for work on which no lane depends. Nothing of it survives the process.
    pub fn unrecorded(clock: Clock, session_id: &str, turn_id: &str) -> Self {
        let turn = TurnJournal::in_memory(clock, session_id, turn_id, Guard::always());
        Self { turn: Arc::new(turn), prefix: String::new() }
    }

    /// The part of this journal under `path`, for example `loop[1]` or `parallel/verify`. Keys of its steps start with
    /// `path`.
    pub fn scope(&self, path: &str) -> Self {
        Self { turn: Arc::clone(&self.turn), prefix: self.full_key(path) }
    }

    /// Masks the prompts of model calls; `None` if the journal does not keep them.
    pub(crate) fn prompt_mask(&self) -> Option<&PromptMask> {
        self.turn.prompt_mask.as_ref()
    }

    /// The clock that gives the times of the records.
    pub fn clock(&self) -> &Clock {
        &self.turn.clock
    }

    /// The id of the session, or of the run, to which the turn belongs.
    pub fn session_id(&self) -> &str {
        &self.turn.session_id
    }

    /// Returns when the turn is cancelled and at most `outer` of its steps are running. A running step ends by itself.
    /// For code that waits outside of steps.
    pub(crate) async fn wait_cancelled(&self, outer: usize) {
        self.turn.guard.cancelled().await;
        self.wait_idle(outer).await;
    }

    /// The id of the turn.
    pub fn turn_id(&self) -> &str {
        &self.turn.turn_id
    }

    /// Number of the turn's running steps. A step may contain others: a whole run inside a chat is one step of its
    /// turn.
    pub(crate) fn running_steps(&self) -> usize {
        self.turn.running_steps.count()
    }

    /// When the operation of a step began that runs now, by its key in this part. `None` for a step that is replayed or
    /// has ended.
    pub(crate) fn under_way_since(&self, key: &str) -> Option<Begin> {
        self.turn.under_way.since(&self.full_key(key))
    }

    /// Counts as a running step until the result is dropped. For work that follows from a step and waits for something
    /// else.
    pub(crate) fn enter(&self) -> RunningStep<'_> {
        self.turn.running_steps.start()
    }

    /// Returns when at most `outer` steps of the turn are running; immediately if that is so now.
    pub(crate) async fn wait_idle(&self, outer: usize) {
        self.turn.running_steps.wait_at_most(outer).await;
    }

    /// The idempotency key of the step: `<session>/<turn>/<key>`.
    pub fn idempotency_key(&self, key: &str) -> String {
        let (session_id, turn_id) = (self.turn.session_id.as_str(), self.turn.turn_id.as_str());
        let between = if self.prefix.is_empty() { "" } else { "/" };
        [session_id, "/", turn_id, "/", &self.prefix, between, key].concat()
    }

    /// Runs `operation`, or returns its recorded result if the step is recorded. `key` must be unique in the scope and
    /// must not change when code moves. The operation receives its idempotency key and must send it with its request.
    /// The argument `durability` and the flag [`Done::with_commit`] decide when the result is durable.
    ///
    /// Fails without running the operation if the turn is cancelled, the lease is lost, the journal is halted, or the
    /// step is recorded with another input.
    pub async fn step<I, O, E, F, Fut>(
        &self,
        key: &str,
        label: Label<'_>,
        durability: Durability,
        input: &I,
        operation: F,
    ) -> Result<Stepped<O>, StepError<E>>
    where
        I: Serialize + ?Sized,
        O: Serialize + DeserializeOwned,
        F: FnOnce(String) -> Fut,
        Fut: Future<Output = Result<Done<O>, E>>,
    {
        let _running = self.turn.running_steps.start();
        // An operation with an effect may depend on deferred results, so these must be durable before it starts.
        if durability != Durability::Deferred && !self.turn.deferred.is_empty() {
            self.settle().await?;
        }
        let (step, output, with_commit) = match self.attempt(key, label, input, operation).await? {
            Attempted::Repeated(stepped) => return Ok(stepped),
            Attempted::Performed { step, output, with_commit } => (step, output, with_commit),
        };
        let stepped = Stepped::new(&step, output);
        if with_commit {
            lock(&self.turn.notes).push(step);
            return Ok(stepped);
        }
        if durability == Durability::Deferred {
            lock(&self.turn.recorded).insert(step.key.clone(), Arc::clone(&step));
            if self.turn.deferred.push(step) >= MAX_DEFERRED {
                self.settle().await?;
            }
            return Ok(stepped);
        }
        let input_hash = step.input_hash.clone();
        match self.turn.record(step).await? {
            None => Ok(stepped),
            Some(earlier) if earlier.input_hash != input_hash => {
                let (turn_id, key) = (self.turn.turn_id.clone(), earlier.key.clone());
                Err(JournalError::Overtaken { turn_id, key }.into())
            }
            Some(earlier) => Ok(self.turn.replay(&earlier, &input_hash)?),
        }
    }

    /// Writes the deferred steps. On return every step so far is durable.
    pub async fn settle(&self) -> Result<(), JournalError> {
        self.turn.settle().await
    }

    /// The tokens that the recorded steps have used, including those of earlier attempts.
    pub fn usage(&self) -> TurnUsage {
        self.turn.usage.sum()
    }

    /// Excludes the usage that was recorded before this time. For a turn that has taken over steps of another one.
    pub(crate) fn exclude_before(&self, before: Timestamp) {
        self.turn.usage.forget(before);
    }

    /// Counts the usage of steps of an earlier attempt that are not replayed.
    pub fn count(&self, steps: &[StepRecord]) {
        steps.iter().for_each(|step| self.turn.usage.add(&self.turn.turn_id, step));
    }

    /// Lets no further step start. Running steps complete, so that their model calls need not be repeated.
    pub(crate) fn halt(&self) {
        self.turn.halt();
    }

    /// Whether [`Journal::halt`] was called, or a write has failed.
    pub(crate) fn is_halted(&self) -> bool {
        self.turn.halted.load(Ordering::Acquire)
    }

    /// Returns when a step has been deferred since the last return.
    pub(crate) async fn deferred(&self) {
        self.turn.deferred.pushed.notified().await;
    }

    /// Runs the operation unless its step is recorded. Writes nothing.
    async fn attempt<I, O, E, F, Fut>(
        &self,
        key: &str,
        label: Label<'_>,
        input: &I,
        operation: F,
    ) -> Result<Attempted<O>, StepError<E>>
    where
        I: Serialize + ?Sized,
        O: Serialize + DeserializeOwned,
        F: FnOnce(String) -> Fut,
        Fut: Future<Output = Result<Done<O>, E>>,
    {
        if self.turn.guard.is_cancelled() {
            return Err(JournalError::Cancelled.into());
        }
        let full_key = self.full_key(key);
        let input_hash = hash(input);
        let known = lock(&self.turn.recorded).get(&full_key).cloned();
        if let Some(step) = known {
            return Ok(Attempted::Repeated(self.turn.replay(&step, &input_hash)?));
        }
        if self.is_halted() {
            return Err(JournalError::Halted.into());
        }
        match self.turn.guard.holds().await {
            Ok(true) => {}
            Ok(false) => return Err(JournalError::Lost.into()),
            Err(error) => return Err(JournalError::from(error).into()),
        }
        let begun = Instant::now();
        let span = span::begin(&full_key, label);
        let under_way = self.turn.under_way.begin(&full_key, &self.turn.clock);
        let done = tokio::select! {
            biased;
            done = operation(self.idempotency_key(key)).instrument(span.clone()) => done,
            // The operation may take minutes, and no one needs its result.
            () = self.turn.guard.cancelled() => return Err(JournalError::Cancelled.into()),
        };
        drop(under_way);
        span::end(&span, &done);
        let done = done.map_err(StepError::Operation)?;
        let step = StepRecord {
            key: full_key,
            kind: label.kind.to_owned(),
            target: done.target.unwrap_or_else(|| label.target.to_owned()),
            input_hash,
            output: to_value(&done.output),
            ok: done.ok,
            ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            model: done.model,
            tokens: done.tokens,
            attempts: done.attempts,
            charged: done.charged,
            at: self.turn.clock.now(),
            prompt: done.prompt,
        };
        self.turn.usage.add(&self.turn.turn_id, &step);
        Ok(Attempted::Performed { step: Arc::new(step), output: done.output, with_commit: done.with_commit })
    }

    /// Notes a step whose effect may be repeated without harm, for example a reply, which has an id. The note is
    /// written with the next recorded step, at the latest with the commit.
    pub fn note(&self, key: &str, label: Label<'_>, input: &impl Serialize, done: Done<Value>, ms: u64) {
        let key = self.full_key(key);
        if lock(&self.turn.recorded).contains_key(&key) {
            return;
        }
        lock(&self.turn.notes).push(Arc::new(StepRecord {
            key,
            kind: label.kind.to_owned(),
            target: label.target.to_owned(),
            input_hash: hash(input),
            output: done.output,
            ok: done.ok,
            ms,
            model: done.model,
            tokens: done.tokens,
            attempts: done.attempts,
            charged: done.charged,
            at: self.turn.clock.now(),
            prompt: done.prompt,
        }));
    }

    /// Removes and returns the notes that are not written yet, for the commit.
    pub(crate) fn take_notes(&self) -> Vec<Arc<StepRecord>> {
        std::mem::take(&mut lock(&self.turn.notes))
    }

    /// The key of a step within the turn: the prefix of this part and `key`.
    pub(crate) fn full_key(&self, key: &str) -> String {
        if self.prefix.is_empty() { key.to_owned() } else { [&self.prefix, "/", key].concat() }
    }
}

/// The outcome of [`Journal::attempt`].
enum Attempted<O> {
    /// The step was recorded.
    Repeated(Stepped<O>),
    /// The operation ran; its record is not written yet.
    Performed { step: Arc<StepRecord>, output: O, with_commit: bool },
}

fn hash<I: Serialize + ?Sized>(input: &I) -> String {
    canonical::hash(&to_value(input))
}

fn to_value<T: Serialize + ?Sized>(value: &T) -> Value {
    // Plain data with text keys always serialises. A type that does not serialise would match no recorded input.
    serde_json::to_value(value).unwrap_or(Value::Null)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
