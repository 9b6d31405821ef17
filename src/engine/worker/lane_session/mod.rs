//! Processes the messages of a lane whose lease this worker holds: in stream order, one turn at a time, until the lane
//! is released.
//!
//! A turn's outbox is published after its commit and before its message is acknowledged. So a message that is no longer
//! in the stream has its outbox published, and no holder starts the lane's next message before the outbox of the
//! previous one is published.
//!
//! [`attempt`] runs the turn, and [`mod@commit`] ends it.

mod attempt;
mod commit;

use crate::execution::TurnId;
use crate::journal::Guard;
use crate::worker::WorkerState;
use crate::worker::intake::{self, IntakeError};
use crate::worker::lane::remove;
use crate::worker::lanes::LanePosition;
use crate::worker::lease_guard::LeaseGuard;
use crate::worker::outbox::publish;
use crate::worker::rewind::is_repeat;
use crate::worker::stop::Stop;
use crate::worker::turn_pinning::{self, LastMessage, PinnedTurn};
use crate::worker::work::Subject;
use base::clock::Moment;
use base::metrics::{GaugeGuard, metrics};
use futures::future::{BoxFuture, MaybeDone};
use std::pin::Pin;
use std::sync::Arc;
use storage::queue::{self, Message};
use storage::store::records::{Change, Grant, LeaseKey};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, info};
use types::event::OutEvent;
use types::ids;
use types::job::{Job, JobBody};
use types::session::{Kind, Session};
use types::turn::TurnMark;

/// The read of the lane's first message, which starts together with the acquisition.
pub(in crate::worker) type FirstRead<'a> = MaybeDone<BoxFuture<'a, queue::Result<Option<Message>>>>;

/// A lane whose lease this worker holds.
pub(in crate::worker) struct LaneSession<'a> {
    shared: &'a WorkerState,
    session: Session,
    /// An earlier lease holder started the current turn.
    resumed: bool,
    /// Outbox of the lane's last turn, until it is known to be published.
    unpublished: Vec<OutEvent>,
    /// The session document was loaded without its outbox; it must be read before it can be published.
    unread: bool,
    /// Sequence and job of the message that woke the lane. Nearly always this is the next message.
    woken_by: Option<(u64, Job)>,
    /// Sequence of that message, and the turn that the store has under the job's id (`None` if it has no such turn).
    earlier: Option<(u64, Option<TurnMark>)>,
    /// Checks before each step that the lease is still valid.
    guard: Guard,
    /// Cancelled when the lease is lost.
    lost: CancellationToken,
    _counted: Option<GaugeGuard>,
}

/// The work for a job.
struct PinnedSubject {
    subject: Subject,
    /// The last message that it covers.
    through: LastMessage,
}

/// The result of processing a message, before the commit.
struct HandledMessage {
    /// The last message that it covers.
    through: LastMessage,
    /// The change to commit; `None` if the message leads to no turn.
    change: Option<Box<Change>>,
    /// Span of the turn; the commit and the publication belong to it.
    span: Span,
}

impl HandledMessage {
    /// The result of a message that leads to no turn.
    fn without_turn(message: &Message) -> Self {
        Self { through: LastMessage::from_message(message), change: None, span: Span::none() }
    }
}

impl<'a> LaneSession<'a> {
    /// Starts to process the lane of `grant`. Its lease is certain to last until `until`. `seq` and `job` are those of
    /// the message for which the lane was acquired.
    pub(in crate::worker) fn new(
        shared: &'a WorkerState,
        grant: Grant,
        until: Moment,
        seq: u64,
        job: Job,
    ) -> Box<Self> {
        let Grant { mut session, resumed, earlier } = grant;
        let earlier = earlier.map(|earlier| (seq, earlier));
        let lost = shared.lanes.lease_acquired(&session.session_id, session.epoch, until);
        let guard = Guard::new(LeaseGuard {
            lanes: Arc::clone(&shared.lanes),
            store: Arc::clone(shared.store()),
            held: LeaseKey { session_id: session.session_id.clone(), epoch: session.epoch },
            ack_wait: shared.ack_wait,
        });
        let (unpublished, unread) = (std::mem::take(&mut session.outbox), session.outbox_unread);
        let _counted = (!shared.services.rehearses).then(|| GaugeGuard::increment(&metrics().lanes_held));
        let woken_by = Some((seq, job));
        Box::new(Self { shared, session, resumed, unpublished, unread, woken_by, earlier, guard, lost, _counted })
    }

    /// Processes the lane's messages in order until the lane is released. Returns the position up to which it is
    /// processed. On error the lease is released before this returns, unless it is lost.
    pub(in crate::worker) async fn process(mut self: Box<Self>, first: FirstRead<'_>) -> Result<LanePosition, Stop> {
        let mut first = Some(first);
        loop {
            match self.process_next(&mut first).await {
                Ok(true) => {}
                Ok(false) => return Ok(self.position()),
                Err(stop) => {
                    self.release_lease(&stop).await;
                    return Err(stop);
                }
            }
        }
    }

    /// Processes the next message. Returns false when the lane is released.
    async fn process_next(&mut self, first: &mut Option<FirstRead<'_>>) -> Result<bool, Stop> {
        let session_id = self.session.session_id.clone();
        let highest = self.shared.lanes.highest_waiting(&session_id);
        let Some(message) = self.next(highest, first).await? else {
            // The delivered messages are no longer in the stream: they were removed.
            self.leave_empty().await?;
            remove(self.shared, self.shared.lanes.take_range(&session_id, self.session.last_seq + 1..=highest)).await;
            return Ok(false);
        };
        if self.session.stream.is_some_and(|stream| stream != message.stream) {
            return Err(Stop::OtherStream);
        }
        // A worker that was paused must not start a turn that another worker has started or finished meanwhile.
        self.check_lease().await?;
        let HandledMessage { through, change, span } = self.handle(&message).await?;
        self.commit_and_publish(&message, through, change).instrument(span).await
    }

    /// Releases a lane without messages. If this worker has just created the session for a message that was deleted
    /// meanwhile, it deletes the session again.
    async fn leave_empty(&self) -> Result<(), Stop> {
        let (store, session) = (self.shared.store(), &self.session);
        let unused = session.last_seq == 0 && session.recent_jobs.is_empty() && session.history.is_empty();
        if !(unused && !self.resumed && store.erase_lane(&session.session_id, session.epoch).await?) {
            store.release(&session.session_id, session.epoch, false).await?;
        }
        Ok(())
    }

    fn position(&self) -> LanePosition {
        let Session { stream, last_seq, last_at, .. } = self.session;
        LanePosition { stream, seq: last_seq, at: last_at }
    }

    async fn check_lease(&self) -> Result<(), Stop> {
        if self.guard.holds().await? { Ok(()) } else { Err(Stop::Lost) }
    }

    /// Returns the lane's next message. If the last processed message is still in the stream, its worker did not
    /// acknowledge it and may not have published its outbox: then this publishes the outbox first.
    async fn next(&mut self, highest: u64, first: &mut Option<FirstRead<'_>>) -> Result<Option<Message>, Stop> {
        let first = self.read(first.take()).await;
        let (session_id, last_seq) = (&self.session.session_id, self.session.last_seq);
        if let Some(first) = first.filter(|first| first.seq > last_seq) {
            // The lane begins after the last processed message, so that message was acknowledged and its outbox
            // published.
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
            unpublished = Box::pin(self.stored_session()).await?.outbox;
        }
        publish(self.shared, &handled, unpublished.into()).await?;
        Ok(next(last_seq).await?)
    }

    /// Returns the message that was read together with the acquisition. Ignores it if it is later than the message that
    /// woke the lane: then the read came from a replica that was behind.
    async fn read(&self, first: Option<FirstRead<'_>>) -> Option<Message> {
        let mut first = first?;
        (&mut first).await;
        let (seq, _) = self.woken_by.as_ref()?;
        Pin::new(&mut first).take_output()?.ok().flatten().filter(|first| first.seq <= *seq)
    }

    /// Reads the session document, whose lease this worker holds. Fails if the store returns an older state, which can
    /// happen right after an election: a turn started from that state would be executed twice.
    async fn stored_session(&self) -> Result<Session, Stop> {
        let session = self.shared.store().session(&self.session.session_id).await?;
        match session.filter(|session| session.epoch == self.session.epoch) {
            Some(session) if session.last_seq >= self.session.last_seq => Ok(session),
            Some(_) => Err(Stop::Infrastructure("the store returned a session from before its last commit".into())),
            None => Err(Stop::Lost),
        }
    }

    /// Processes one message up to the change that is to be committed.
    async fn handle(&mut self, message: &Message) -> Result<HandledMessage, Stop> {
        let job = match self.woken_by.take().filter(|(seq, _)| *seq == message.seq) {
            Some((_, job)) => Ok(job),
            None => intake::decode(message),
        };
        let job = match job {
            Ok(job) => job,
            Err(IntakeError::Stop(stop)) => return Err(stop),
            Err(IntakeError::Rejected(rejected)) => {
                Box::pin(intake::dead_letter(self.shared, message, rejected)).await?;
                return Ok(HandledMessage::without_turn(message));
            }
        };
        if is_repeat(&self.session, message, &job) || matches!(job.body, JobBody::Wake) {
            return Ok(HandledMessage::without_turn(message));
        }
        let turn_id = self.turn_id(message, &job).await?;
        let PinnedSubject { subject, through } = match Box::pin(self.pin_subject(message, job, turn_id)).await {
            Ok(pinned) => pinned,
            Err(IntakeError::Stop(stop)) => return Err(stop),
            Err(IntakeError::Rejected(rejected)) => {
                Box::pin(intake::dead_letter(self.shared, message, rejected)).await?;
                return Ok(HandledMessage::without_turn(message));
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
        Ok(HandledMessage { through, change, span })
    }

    /// The id of a job's turn, which names its journal, its idempotency keys and its replies. It is the job id, unless
    /// the store still has a turn of an earlier job with the same id that the session has forgotten.
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
        Ok(TurnId { id: if is_another { ids::repeated_id(&id, at) } else { id }, at })
    }

    /// The work for a job.
    async fn pin_subject(&self, message: &Message, job: Job, turn: TurnId) -> Result<PinnedSubject, IntakeError> {
        if intake::is_of_run(&job, &self.session) {
            intake::check_job_of_run(&job, &self.session)?;
            return Ok(PinnedSubject { subject: Subject::run(job, turn), through: LastMessage::from_message(message) });
        }
        if self.session.kind == Kind::Authoring {
            return Box::pin(self.pin_dialogue(message, job, turn)).await;
        }
        let pinned = turn_pinning::pin_turn(self.shared, &self.session, message, &turn, job).await?;
        let PinnedTurn { agent, jobs, through } = pinned;
        Ok(PinnedSubject { subject: Subject::Turn { agent, jobs, turn: turn.into() }, through })
    }

    /// Returns the work for a job of an authoring dialogue. Its messages are never merged, because each replies to the
    /// previous question.
    async fn pin_dialogue(&self, message: &Message, job: Job, turn: TurnId) -> Result<PinnedSubject, IntakeError> {
        let pin = self.session.turn.as_ref().filter(|turn| turn.seq == message.seq);
        let agent = intake::authoring_agent(self.shared, &job, pin.map(|pin| pin.hash.as_str())).await?;
        let subject = Subject::Turn { agent, jobs: [job].into(), turn: turn.into() };
        Ok(PinnedSubject { subject, through: LastMessage::from_message(message) })
    }
}
