//! A lane held: its messages in stream order, one turn at a time, until it is released.
//!
//! What a turn has said at its end is published after its commit and before its message is acknowledged: a message that is
//! gone from the stream is published. So nobody goes on in a lane before all is published that it has handled.

use super::Shared;
use super::intake::{self, Unfit};
use super::lane::{acknowledge, remove};
use super::lanes::{HeldLane, Passed};
use super::opening::{self, Begun, Through};
use super::outbox::publish;
use super::rewind::is_repeat;
use super::stop::Stop;
use super::work::{Line, Subject, Work};
use crate::execution::{CancelReason, TurnError, TurnId};
use crate::journal::Guard;
use crate::timer::scheduler::HORIZON;
use base::clock::Moment;
use base::metrics::{Counted, metrics, observe};
use base::tasks::panic_text;
use futures::FutureExt;
use futures::future::{BoxFuture, MaybeDone};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::{self, Message};
use storage::store::StoreError;
use storage::store::records::{Change, Commit, Committed, Grant, Held, TimerChange};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, debug, info, warn};
use types::cause::Cause;
use types::event::{EventType, OutEvent};
use types::ids;
use types::job::{Job, JobBody};
use types::session::Session;
use types::turn::{Outcome, TurnMark};

/// The first message of a lane's subject, while it is read and once it is.
pub(super) type First<'a> = MaybeDone<BoxFuture<'a, queue::Result<Option<Message>>>>;

/// See the module.
pub(super) struct Hold<'a> {
    shared: &'a Shared,
    session: Session,
    /// An earlier holder began the turn in hand.
    resumed: bool,
    /// What the lane's last turn has said at its end, until it is clear that it is published.
    unpublished: Vec<OutEvent>,
    /// The same while it is not read.
    unread: bool,
    /// The job of the message that led here, by its sequence: nearly always the one that is next.
    woken_by: Option<(u64, Job)>,
    /// Whether there is a turn on record under that job's id, by its sequence.
    earlier: Option<(u64, Option<TurnMark>)>,
    /// Whether the lane is still surely held.
    guard: Guard,
    /// Cancelled when the lease is lost.
    lost: CancellationToken,
    _counted: Counted,
}

/// What a message has come to.
struct Handled {
    /// The last message that is handled with it.
    through: Through,
    /// To be committed.
    change: Option<Box<Change>>,
    /// The turn's, which its end belongs to.
    span: Span,
}

impl Handled {
    /// It leads to no turn.
    fn nothing(message: &Message) -> Self {
        Self { through: Through::of(message), change: None, span: Span::none() }
    }
}

impl<'a> Hold<'a> {
    /// The lane of `grant`, whose lease lasts `until` then for certain, taken for the job of one message.
    pub(super) fn new(shared: &'a Shared, grant: Grant, until: Moment, woken_by: (u64, Job)) -> Box<Self> {
        let Grant { mut session, resumed, earlier } = grant;
        let earlier = earlier.map(|earlier| (woken_by.0, earlier));
        let lost = shared.lanes.hold(&session.session_id, session.epoch, until);
        let guard = Guard::new(HeldLane {
            lanes: Arc::clone(&shared.lanes),
            store: Arc::clone(shared.store()),
            held: Held { session_id: session.session_id.clone(), epoch: session.epoch },
            ack_wait: shared.ack_wait,
        });
        let (unpublished, unread) = (std::mem::take(&mut session.outbox), session.outbox_unread);
        let _counted = Counted::on(&metrics().lanes_held);
        let woken_by = Some(woken_by);
        Box::new(Self { shared, session, resumed, unpublished, unread, woken_by, earlier, guard, lost, _counted })
    }

    /// Works the lane off, with what its subject begins with. Answers how far it is handled.
    pub(super) async fn work(mut self: Box<Self>, first: First<'_>) -> Result<Passed, Stop> {
        let mut first = Some(first);
        loop {
            match self.handle_next(&mut first).await {
                Ok(true) => {}
                Ok(false) => return Ok(self.passed()),
                Err(stop) => {
                    self.hand_back(&stop).await;
                    return Err(stop);
                }
            }
        }
    }

    /// Handles the next message. False when the lane is released.
    async fn handle_next(&mut self, first: &mut Option<First<'_>>) -> Result<bool, Stop> {
        let session_id = self.session.session_id.clone();
        let highest = self.shared.lanes.highest(&session_id);
        let Some(message) = self.next(highest, first).await? else {
            // What was delivered is in the stream no more: somebody removed it.
            self.shared.store().release(&session_id, self.session.epoch, false).await?;
            remove(self.shared, self.shared.lanes.gone(&session_id, self.session.last_seq + 1..=highest)).await;
            return Ok(false);
        };
        if self.session.stream.is_some_and(|stream| stream != message.stream) {
            return Err(Stop::OtherStream);
        }
        // A worker that was paused must not begin what another has begun, or finished, meanwhile.
        self.check().await?;
        let Handled { through, change, span } = self.handle(&message).await?;
        self.conclude(&message, through, change).instrument(span).await
    }

    fn passed(&self) -> Passed {
        let Session { stream, last_seq, last_at, .. } = self.session;
        Passed { stream, seq: last_seq, at: last_at }
    }

    /// Commits and publishes the result of a message, then acknowledges it. False when the lane is released.
    async fn conclude(
        &mut self,
        message: &Message,
        through: Through,
        change: Option<Box<Change>>,
    ) -> Result<bool, Stop> {
        let session_id = self.session.session_id.clone();
        let change_hint = change.as_deref().is_some_and(arms_soon);
        let outbox = change.as_ref().map(|change| Arc::clone(&change.outbox)).unwrap_or_default();
        let outcome = change.as_ref().map(|change| change.turn.outcome);
        if let Some(outcome) = outcome {
            Span::current().record("outcome", outcome.as_str());
        }
        let line = change.as_deref().and_then(Line::of);
        let answers = outbox.iter().any(|event| event.event_type == EventType::Reply);
        let committed = self.commit(through, change).await?;
        if let Some(line) = line {
            line.write(&self.shared.owner);
        }
        publish(self.shared, message, outbox).await?;
        count(outcome, answers.then(|| message.at.until(self.shared.clock().now())));
        if change_hint && let Err(error) = self.shared.queue().hint_timers().await {
            debug!("the scheduler gets no hint, its sweep sees the timer: {error}");
        }
        self.session.stream = Some(through.stream);
        self.session.last_seq = through.seq;
        self.session.last_at = self.session.last_at.max(Some(through.at));
        acknowledge(self.shared, &session_id, &self.passed()).await;
        match committed {
            Committed::Released => Ok(false),
            Committed::Fenced => Err(Stop::Lost),
            Committed::Held if self.shared.stopping.is_cancelled() => Err(Stop::Stopping),
            Committed::Held => self.refresh().await.map(|()| true),
        }
    }

    async fn check(&self) -> Result<(), Stop> {
        if self.guard.holds().await? { Ok(()) } else { Err(Stop::Lost) }
    }

    /// The lane's next message. While the one that was handled last is still in the stream, nobody has acknowledged it, so
    /// its turn may not be published: that comes before all else.
    async fn next(&mut self, highest: u64, first: &mut Option<First<'_>>) -> Result<Option<Message>, Stop> {
        let first = self.read(first.take()).await;
        let (session_id, last_seq) = (&self.session.session_id, self.session.last_seq);
        if let Some(first) = first.filter(|first| first.seq > last_seq) {
            // It was the first of all, so the one that was handled last was gone.
            self.unpublished.clear();
            self.unread = false;
            return Ok(Some(first));
        }
        let at_least = if highest > last_seq { highest } else { 0 };
        let next = |after: u64| self.shared.queue().next_in_lane(session_id, after, at_least);
        let unread = std::mem::take(&mut self.unread);
        if self.unpublished.is_empty() && !unread {
            return Ok(next(last_seq).await?);
        }
        let message = next(last_seq.saturating_sub(1)).await?;
        let mut unpublished = std::mem::take(&mut self.unpublished);
        let handled = match message {
            Some(message) if message.seq <= last_seq => message,
            later => return Ok(later),
        };
        if unread {
            unpublished = Box::pin(self.stored()).await?.outbox;
        }
        publish(self.shared, &handled, unpublished.into()).await?;
        Ok(next(last_seq).await?)
    }

    /// What was asked for beside the lane, unless it is later than the message that led here: then a replica was behind.
    async fn read(&self, first: Option<First<'_>>) -> Option<Message> {
        let mut first = first?;
        (&mut first).await;
        let (seq, _) = self.woken_by.as_ref()?;
        Pin::new(&mut first).take_output()?.ok().flatten().filter(|first| first.seq <= *seq)
    }

    async fn commit(&mut self, through: Through, change: Option<Box<Change>>) -> Result<Committed, Stop> {
        // Whoever keeps the session for its next turn adds to these: alone, and so without copying them.
        self.session.history = Arc::default();
        self.session.recent_jobs = Arc::default();
        let commit = Commit {
            session_id: self.session.session_id.clone(),
            epoch: self.session.epoch,
            last_seq: through.seq,
            stream: through.stream,
            at: through.at,
            lease: self.shared.ack_wait,
            sure_until: self.shared.lanes.sure_until(&self.session.session_id),
            change,
        };
        let until = self.shared.clock().moment() + self.shared.ack_wait;
        // A lease that the commit gives back is not lost; the commit itself tells when it was.
        self.shared.lanes.ending(&self.session.session_id);
        let committed = self.shared.store().commit(commit).await?;
        if committed == Committed::Held {
            self.shared.lanes.hold(&self.session.session_id, self.session.epoch, until);
        }
        if committed == Committed::Fenced {
            warn!(epoch = self.session.epoch, "the lane was taken over; this turn's result is dropped");
            return Err(Stop::Lost);
        }
        Ok(committed)
    }

    /// Goes on with the session as the commit left it.
    async fn refresh(&mut self) -> Result<(), Stop> {
        self.session = Session { outbox: Vec::new(), ..self.stored().await? };
        self.resumed = false;
        Ok(())
    }

    /// Reads the session, whose lane is held. Right after an election a store may answer with an older state: what is begun
    /// from that would be handled twice.
    async fn stored(&self) -> Result<Session, Stop> {
        let session = self.shared.store().session(&self.session.session_id).await?;
        match session.filter(|session| session.epoch == self.session.epoch) {
            Some(session) if session.last_seq >= self.session.last_seq => Ok(session),
            Some(_) => Err(Stop::Infrastructure("the store answered with a state from before its commit".into())),
            None => Err(Stop::Lost),
        }
    }

    /// What a message comes to.
    async fn handle(&mut self, message: &Message) -> Result<Handled, Stop> {
        let job = match self.woken_by.take().filter(|(seq, _)| *seq == message.seq) {
            Some((_, job)) => Ok(job),
            None => intake::decode(message),
        };
        let job = match job {
            Ok(job) => job,
            Err(unfit) => {
                Box::pin(intake::bury(self.shared, message, unfit)).await?;
                return Ok(Handled::nothing(message));
            }
        };
        if is_repeat(&self.session, message, &job) || matches!(job.body, JobBody::Wake) {
            return Ok(Handled::nothing(message));
        }
        let turn_id = self.turn_id(message, &job).await?;
        let (subject, through) = match Box::pin(self.subject(message, job, turn_id)).await? {
            Ok(subject) => subject,
            Err(unfit) => {
                Box::pin(intake::bury(self.shared, message, unfit)).await?;
                return Ok(Handled::nothing(message));
            }
        };
        let attempt = self.session.turn.as_ref().map_or(1, |turn| turn.attempt);
        let span = subject.span(&self.session, attempt);
        if let Some(trace) = &message.trace {
            trace.adopt(&span);
        }
        if self.resumed {
            info!(parent: &span, epoch = self.session.epoch, "taking over: another attempt began this turn and did not end it");
        }
        let exceeded = attempt > self.shared.max_attempts && !subject.is_obsolete(&self.session);
        let change = match exceeded {
            true => Box::pin(self.exhausted(message, subject, attempt)).instrument(span.clone()).await?,
            false => self.run(message, subject, attempt).instrument(span.clone()).await?,
        };
        Ok(Handled { through, change, span })
    }

    /// The id of a job's turn, under which its journal, its idempotency keys and its replies go. It is the job's, unless an
    /// earlier job had that, which the session has forgotten, though the store has not.
    async fn turn_id(&mut self, message: &Message, job: &Job) -> Result<TurnId, Stop> {
        let (session, id, at) = (&self.session, job.job_id.clone(), message.at);
        if !session.forgets_jobs() && !session.has_handled(&id) {
            return Ok(TurnId { id, at });
        }
        let earlier = match self.earlier.take().filter(|(seq, _)| *seq == message.seq) {
            Some((_, earlier)) => earlier,
            None => self.shared.store().turn(&session.session_id, &id).await?.as_ref().map(TurnMark::from),
        };
        let is_another = earlier.is_some_and(|earlier| !earlier.is_of(at));
        Ok(TurnId { id: if is_another { ids::again(&id, at) } else { id }, at })
    }

    /// What is to be done for a job, and the last message that is handled with it.
    async fn subject(
        &self,
        message: &Message,
        job: Job,
        turn: TurnId,
    ) -> Result<Result<(Subject, Through), Unfit>, Stop> {
        if intake::is_of_run(&job, &self.session) {
            let through = Through::of(message);
            return Ok(intake::for_run(&job, &self.session).map(|()| (Subject::run(job, turn), through)));
        }
        let begun = opening::begin(self.shared, &self.session, message, (&turn, job)).await?;
        Ok(begun.map(|Begun { agent, jobs, through }| (Subject::Turn { agent, jobs, turn: turn.into() }, through)))
    }

    fn work_on(&self, subject: Subject, guard: Guard) -> Work {
        subject.work(self.session.clone(), self.resumed, guard)
    }

    async fn run(&self, message: &Message, subject: Subject, attempt: u32) -> Result<Option<Box<Change>>, Stop> {
        let services = &self.shared.services;
        let session_id = &self.session.session_id;
        let guard = self.guard.clone().cancelled_by(self.shared.lanes.begin(session_id, message.seq));
        let work = self.work_on(subject.clone(), guard);
        let turn = AssertUnwindSafe(Box::pin(work.run(services))).catch_unwind();
        let ended = tokio::select! {
            ended = turn => ended,
            () = self.lost.cancelled() => return Err(Stop::Lost),
            () = self.shared.abandoning.cancelled() => return Err(Stop::Stopping),
        };
        let reason = match ended {
            Ok(Ok(change)) => return Ok(change),
            Ok(Err(TurnError::Infrastructure(problem))) => return Err(Stop::Infrastructure(problem)),
            Ok(Err(TurnError::Failed(problem))) => return Err(Stop::Failed(problem, back_off(attempt))),
            Ok(Err(TurnError::Overtaken(problem))) => return Err(Stop::Failed(problem, Duration::ZERO)),
            Ok(Err(TurnError::Lost)) => return Err(Stop::Lost),
            Ok(Err(TurnError::NoRoom(problem))) => return Err(Stop::NoRoom(problem)),
            Ok(Err(TurnError::Cancelled)) => {
                let why = self.shared.lanes.why_cancelled(session_id, message.seq);
                why.unwrap_or_else(|| CancelReason::operator(None, None))
            }
            Ok(Err(TurnError::Replay(problem))) => {
                Box::pin(self.bury(message, subject.jobs(), Cause::Replay, problem.clone(), attempt)).await?;
                CancelReason::new("replay", problem)
            }
            Err(panic) => CancelReason::new("panic", panic_text(panic.as_ref())),
        };
        Box::pin(self.give_up(subject, reason)).await
    }

    async fn exhausted(&self, message: &Message, subject: Subject, attempt: u32) -> Result<Option<Box<Change>>, Stop> {
        let tried = attempt - 1;
        let problem = format!("the job was begun {tried} times without coming to an end");
        self.bury(message, subject.jobs(), Cause::Attempts, problem.clone(), tried).await?;
        self.give_up(subject, CancelReason::new("attempts", problem)).await
    }

    async fn give_up(&self, subject: Subject, reason: CancelReason) -> Result<Option<Box<Change>>, Stop> {
        let work = self.work_on(subject, self.guard.clone());
        match work.give_up(&self.shared.services, reason).await {
            Ok(change) => Ok(Some(Box::new(change))),
            Err(error) => Err(Stop::not_given_up(error)),
        }
    }

    async fn bury(
        &self,
        message: &Message,
        jobs: &[Job],
        cause: Cause,
        reason: String,
        attempts: u32,
    ) -> Result<(), Stop> {
        self.check().await?;
        let job_id = jobs.first().map(|job| job.job_id.clone());
        Ok(intake::bury(self.shared, message, Unfit { cause, reason, job_id, attempts }).await?)
    }

    /// Frees the lane for another try. Only the job's own failures count as attempts: while the store is away this waits
    /// for it, and an attempt that somebody else has counted meanwhile is taken back.
    async fn hand_back(&self, stop: &Stop) {
        let blame = match stop {
            // The lease ran out while the store could not be asked to renew it.
            Stop::Lost if self.shared.health.was_away(self.shared.ack_wait * 3) => false,
            Stop::Lost | Stop::Busy(_) => return,
            Stop::Failed(..) | Stop::Refused(_) => true,
            Stop::Infrastructure(_) | Stop::Stopping | Stop::Crowded(_) => false,
            Stop::Unreadable(_) | Stop::NoRoom(_) | Stop::OtherStream => false,
        };
        let mut pause = Duration::from_millis(100);
        while let Err(error) = self.free(blame).await {
            debug!("the lane is not handed back yet: {error}");
            if blame || !matches!(error, StoreError::Unavailable(_)) {
                return;
            }
            tokio::select! {
                () = self.shared.clock().sleep(pause) => pause = (pause * 2).min(Duration::from_secs(2)),
                () = self.shared.abandoning.cancelled() => return,
            }
        }
    }

    async fn free(&self, blame: bool) -> Result<(), StoreError> {
        let (store, session_id) = (self.shared.store(), &self.session.session_id);
        let freed = store.release(session_id, self.session.epoch, blame).await?;
        match &self.session.turn {
            Some(turn) if !freed && !blame => store.forgive(session_id, turn.at).await,
            _ => Ok(()),
        }
    }
}

/// Counts a turn that is committed and published; `took` is how long ago the job came that it answers.
fn count(outcome: Option<Outcome>, took: Option<Duration>) {
    if let Some(outcome) = outcome {
        metrics().turn(outcome);
    }
    if let Some(took) = took {
        observe(&metrics().reply_latency, took);
    }
}

/// True when a timer may be due before the scheduler's next sweep.
fn arms_soon(change: &Change) -> bool {
    match &change.timers {
        TimerChange::Replace(timers) => timers.iter().any(|timer| timer.delay < HORIZON),
        TimerChange::Keep | TimerChange::Remove(_) => false,
    }
}

fn back_off(attempt: u32) -> Duration {
    Duration::from_secs(1 << attempt.min(5)).min(Duration::from_secs(30))
}
