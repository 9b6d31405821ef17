//! The journal: the one way to the outside, recorded step by step.
//!
//! [`Journal::step`] runs an operation once and records what came of it, first writer wins; a turn that is repeated after
//! a crash gets the recorded result instead. A result therefore counts exactly once, while the operation itself runs at
//! least once: again only where a crash fell between its effect and its record, under the same idempotency key. A turn's
//! last step may be noted in place of that, and is written with the commit: see [`Journal::last_step`]. What has no effect
//! but its result may be written a moment later, with others: see [`Journal::deferred_step`]. A [`Guard`] keeps a worker that
//! has lost its lane from beginning anything.

mod deferred;
mod error;
mod guard;
mod span;
mod spending;
mod step;
mod turn;
mod under_way;

pub use error::{JournalError, StepError};
use guard::Nobody;
pub use guard::{Guard, Holding};
pub use spending::Spending;
pub use step::{Done, Label, Stepped};
use types::step::StepRecord;

use base::clock::Clock;
use deferred::{Deferred, MAX_DEFERRED};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use spending::Spent;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use storage::store::Store;
use tracing::Instrument;
use turn::TurnJournal;
use types::canonical;
use types::timestamp::Timestamp;
use under_way::{Begun, UnderWay};

/// The journal of one turn or run, or of a part of it. Cheap to clone; parts may run in parallel.
#[derive(Clone)]
pub struct Journal {
    turn: Arc<TurnJournal>,
    prefix: String,
}

impl Journal {
    /// The journal of a turn held under `epoch`, for as long as `guard` says, with the times of `clock`. A resumed turn's recorded
    /// steps are read first.
    pub async fn open(
        (store, clock): (Arc<dyn Store>, Clock),
        (session_id, turn_id): (&str, &str),
        (epoch, guard): (u64, Guard),
        resumed: bool,
    ) -> Result<Self, JournalError> {
        let steps = if resumed { store.steps(session_id, turn_id).await? } else { Vec::new() };
        Ok(Self::over(steps, (store, clock), (session_id, turn_id), (epoch, guard)))
    }

    /// The journal of an earlier turn of the session, to go on with what that has begun. What is used in it from now on counts
    /// as this turn's, and so does what [`Journal::count`] is given.
    pub async fn of_earlier(&self, turn_id: &str) -> Result<Self, JournalError> {
        let TurnJournal { store, clock, session_id, epoch, guard, spent, .. } = self.turn.as_ref();
        let steps = store.steps(session_id, turn_id).await?;
        let turn = (session_id.as_str(), turn_id);
        let place = (Arc::clone(store), clock.clone());
        Ok(Self::with(steps, place, turn, (*epoch, guard.clone()), Arc::clone(spent)))
    }

    /// The journal of a turn that is only looked at: what is not among `steps` does not run, and is [`JournalError::Lost`].
    pub fn looked_at(store: Arc<dyn Store>, turn: (&str, &str), steps: Vec<StepRecord>) -> Self {
        Self::over(steps, (store, Clock::system()), turn, (0, Guard::new(Nobody)))
    }

    fn over(
        steps: Vec<StepRecord>,
        place: (Arc<dyn Store>, Clock),
        (session_id, turn_id): (&str, &str),
        (epoch, guard): (u64, Guard),
    ) -> Self {
        let spent = Arc::<Spent>::default();
        steps.iter().for_each(|step| spent.add(turn_id, step));
        Self::with(steps, place, (session_id, turn_id), (epoch, guard), spent)
    }

    fn with(
        steps: Vec<StepRecord>,
        (store, clock): (Arc<dyn Store>, Clock),
        (session_id, turn_id): (&str, &str),
        (epoch, guard): (u64, Guard),
        spent: Arc<Spent>,
    ) -> Self {
        let recorded = steps.into_iter().map(|step| (step.key.clone(), Arc::new(step))).collect();
        let turn = TurnJournal {
            store,
            clock,
            session_id: session_id.to_owned(),
            turn_id: turn_id.to_owned(),
            epoch,
            guard,
            recorded: Mutex::new(recorded),
            notes: Mutex::new(Vec::new()),
            deferred: Deferred::default(),
            spent,
            halted: AtomicBool::new(false),
            under_way: UnderWay::default(),
        };
        Self { turn: Arc::new(turn), prefix: String::new() }
    }

    /// The part of this journal under `path`, such as `loop[1]` or `parallel/verify`.
    pub fn scope(&self, path: &str) -> Self {
        Self { turn: Arc::clone(&self.turn), prefix: self.full_key(path) }
    }

    /// The recorded steps of this part, and of its iterations.
    pub fn recorded(&self) -> Vec<StepRecord> {
        self.recorded_within(&['/', '['])
    }

    /// The recorded steps of this part alone.
    pub fn recorded_once(&self) -> Vec<StepRecord> {
        self.recorded_within(&['/'])
    }

    /// The recorded steps whose keys have one of these after the prefix.
    fn recorded_within(&self, ends: &[char]) -> Vec<StepRecord> {
        let within = |key: &str| {
            self.prefix.is_empty() || key.strip_prefix(&self.prefix).is_some_and(|rest| rest.starts_with(ends))
        };
        let recorded = lock(&self.turn.recorded);
        let from = recorded.range(self.prefix.clone()..).map(|(_, step)| step);
        let begins = |step: &&Arc<StepRecord>| step.key.starts_with(&self.prefix);
        from.take_while(begins).filter(|step| within(&step.key)).map(|step| step.as_ref().clone()).collect()
    }

    /// The clock that its steps' times are read from.
    pub fn clock(&self) -> &Clock {
        &self.turn.clock
    }

    /// The session, or run, whose turn this is.
    pub fn session_id(&self) -> &str {
        &self.turn.session_id
    }

    /// True when the step has been recorded for this input.
    pub fn has<I: Serialize + ?Sized>(&self, key: &str, input: &I) -> bool {
        lock(&self.turn.recorded).get(&self.full_key(key)).is_some_and(|step| step.input_hash == hash(input))
    }

    /// True when the step has been recorded, whatever its input was.
    pub fn is_recorded(&self, key: &str) -> bool {
        lock(&self.turn.recorded).contains_key(&self.full_key(key))
    }

    /// The record of a step of this part, if there is one.
    pub(crate) fn record_of(&self, key: &str) -> Option<Arc<StepRecord>> {
        lock(&self.turn.recorded).get(&self.full_key(key)).cloned()
    }

    /// Returns when the turn is cancelled and at most `outer` of its steps are under way: a step under way ends by itself. For code that
    /// waits outside of steps.
    pub(crate) async fn broken_off(&self, outer: usize) {
        self.turn.guard.cancelled().await;
        self.idle(outer).await;
    }

    /// The turn that this is the journal of.
    pub fn turn_id(&self) -> &str {
        &self.turn.turn_id
    }

    /// How many steps of the turn are under way. One may be around others, as a whole run is a step of its turn.
    pub fn under_way(&self) -> usize {
        self.turn.under_way.count()
    }

    /// Counts as a step under way until it is dropped: what follows from one, and waits for something else before it goes on.
    pub(crate) fn busy(&self) -> Begun<'_> {
        self.turn.under_way.begin()
    }

    /// Returns when no more steps of the turn are under way than `outer`, which is at once when there are not.
    pub async fn idle(&self, outer: usize) {
        self.turn.under_way.only(outer).await;
    }

    /// `<session>/<turn>/<key>`: the idempotency key of the step.
    pub fn idempotency_key(&self, key: &str) -> String {
        let (session_id, turn_id) = (self.turn.session_id.as_str(), self.turn.turn_id.as_str());
        let between = if self.prefix.is_empty() { "" } else { "/" };
        [session_id, "/", turn_id, "/", &self.prefix, between, key].concat()
    }

    /// Runs `operation` unless the step is recorded, and answers its recorded result. `key` must be unique in the scope
    /// and stable when code moves. The operation is given its idempotency key and must send it on. Durable on return.
    pub async fn step<I, O, E, F, Fut>(
        &self,
        key: &str,
        label: Label<'_>,
        input: &I,
        operation: F,
    ) -> Result<Stepped<O>, StepError<E>>
    where
        I: Serialize + ?Sized,
        O: Serialize + DeserializeOwned,
        F: FnOnce(String) -> Fut,
        Fut: Future<Output = Result<Done<O>, E>>,
    {
        self.last_step(key, label, input, |_| false, operation).await
    }

    /// Like [`Journal::step`], but a result of which `is_last` says that the turn does nothing after it is only noted:
    /// until the commit, which writes it, nobody else has seen it, and a repeat of the turn may come to another one.
    pub async fn last_step<I, O, E, F, Fut>(
        &self,
        key: &str,
        label: Label<'_>,
        input: &I,
        is_last: impl FnOnce(&O) -> bool,
        operation: F,
    ) -> Result<Stepped<O>, StepError<E>>
    where
        I: Serialize + ?Sized,
        O: Serialize + DeserializeOwned,
        F: FnOnce(String) -> Fut,
        Fut: Future<Output = Result<Done<O>, E>>,
    {
        let _under_way = self.turn.under_way.begin();
        // What it may depend on has to be durable before it has an effect.
        if !self.turn.deferred.is_empty() {
            self.settle().await?;
        }
        let (step, output) = match self.attempt(key, label, input, operation).await? {
            Attempted::Repeated(stepped) => return Ok(stepped),
            Attempted::Performed(step, output) => (step, output),
        };
        let (ok, ms, key, target) = (step.ok, step.ms, step.key.clone(), step.target.clone());
        if is_last(&output) {
            lock(&self.turn.notes).push(step);
            return Ok(Stepped { output, ok, ms, key, target });
        }
        let input_hash = step.input_hash.clone();
        match self.turn.record(step).await? {
            None => Ok(Stepped { output, ok, ms, key, target }),
            Some(earlier) if earlier.input_hash != input_hash => {
                let (turn_id, key) = (self.turn.turn_id.clone(), earlier.key.clone());
                Err(JournalError::Overtaken { turn_id, key }.into())
            }
            Some(earlier) => Ok(self.turn.replay(earlier, &input_hash)?),
        }
    }

    /// Like [`Journal::step`] for an operation whose only effect is its result, such as a question to a model: the result
    /// counts at once, and is written with others soon after. It is durable once [`Journal::settle`] has returned; before
    /// that nothing that follows from it may be seen outside, and no [`Journal::step`] begins.
    pub async fn deferred_step<I, O, E, F, Fut>(
        &self,
        key: &str,
        label: Label<'_>,
        input: &I,
        operation: F,
    ) -> Result<Stepped<O>, StepError<E>>
    where
        I: Serialize + ?Sized,
        O: Serialize + DeserializeOwned,
        F: FnOnce(String) -> Fut,
        Fut: Future<Output = Result<Done<O>, E>>,
    {
        let _under_way = self.turn.under_way.begin();
        let (step, output) = match self.attempt(key, label, input, operation).await? {
            Attempted::Repeated(stepped) => return Ok(stepped),
            Attempted::Performed(step, output) => (step, output),
        };
        let (ok, ms, key, target) = (step.ok, step.ms, step.key.clone(), step.target.clone());
        lock(&self.turn.recorded).insert(key.clone(), Arc::clone(&step));
        if self.turn.deferred.push(step) >= MAX_DEFERRED {
            self.settle().await?;
        }
        Ok(Stepped { output, ok, ms, key, target })
    }

    /// Writes what is deferred. On return every step before is durable.
    pub async fn settle(&self) -> Result<(), JournalError> {
        self.turn.settle().await
    }

    /// What the steps have used, by their records: those of earlier attempts, too.
    pub fn spending(&self) -> Spending {
        self.turn.spent.sum()
    }

    /// Leaves out what was recorded before, for a turn that has taken steps over from another one.
    pub fn disregard(&self, before: Timestamp) {
        self.turn.spent.forget(before);
    }

    /// Counts what an earlier attempt has recorded, where its steps are not repeated.
    pub fn count(&self, steps: &[StepRecord]) {
        steps.iter().for_each(|step| self.turn.spent.add(&self.turn.turn_id, step));
    }

    /// From here on no step begins: what is under way comes to its end, so that it need not be asked again.
    pub fn halt(&self) {
        self.turn.halt();
    }

    /// True after [`Journal::halt`].
    pub fn is_halted(&self) -> bool {
        self.turn.halted.load(Ordering::Acquire)
    }

    /// Returns when a step has been deferred since the last return.
    pub async fn deferred(&self) {
        self.turn.deferred.pushed.notified().await;
    }

    /// Runs the operation unless its step is recorded; nothing is written.
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
            return Ok(Attempted::Repeated(self.turn.replay(step, &input_hash)?));
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
        let done = tokio::select! {
            biased;
            done = operation(self.idempotency_key(key)).instrument(span.clone()) => done,
            // The operation may take minutes; what it has come to so far is nobody's any more.
            () = self.turn.guard.cancelled() => return Err(JournalError::Cancelled.into()),
        };
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
        };
        self.turn.spent.add(&self.turn.turn_id, &step);
        Ok(Attempted::Performed(Arc::new(step), done.output))
    }

    /// Notes a step whose effect may be repeated at will, such as a reply under its id: it is written with the next
    /// recorded step, at the latest with the commit.
    pub fn note(&self, key: &str, label: Label<'_>, input: &impl Serialize, (done, ms): (Done<Value>, u64)) {
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
        }));
    }

    /// The notes not written yet, for the commit.
    pub fn take_notes(&self) -> Vec<Arc<StepRecord>> {
        std::mem::take(&mut lock(&self.turn.notes))
    }

    /// The key within the turn.
    pub(crate) fn full_key(&self, key: &str) -> String {
        if self.prefix.is_empty() { key.to_owned() } else { [&self.prefix, "/", key].concat() }
    }
}

/// What came of asking for a step.
enum Attempted<O> {
    /// It was recorded.
    Repeated(Stepped<O>),
    /// It ran, and is not written yet.
    Performed(Arc<StepRecord>, O),
}

fn hash<I: Serialize + ?Sized>(input: &I) -> String {
    canonical::hash(&to_value(input))
}

fn to_value<T: Serialize + ?Sized>(value: &T) -> Value {
    // Plain data with text keys always serialises; a type that does not is equal to nothing.
    serde_json::to_value(value).unwrap_or(Value::Null)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
