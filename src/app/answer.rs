//! Waits for the end of a turn and collects its replies.

use super::{Engine, EngineError};
use futures::StreamExt;
use futures::stream::BoxStream;
use std::time::Duration;
use storage::queue::{Queue, QueueError, StreamEvent};
use storage::store::{Store, StoreError};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use types::event::{Event, EventType, Reply, ReplyKind};
use types::ids;
use types::session::{Role, Session, Status};
use types::texts::{Shown, Texts};
use types::turn::TurnRecord;

/// How often the store is read while no status event reports the turn's end.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How many of the latest turns to search for the turn that a message was merged into.
const MAX_TURNS: usize = 200;

/// A turn that has ended, with all its replies to the user.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The turn's record: outcome, statuses and attempts.
    pub turn: TurnRecord,
    /// The replies to the user, in order, without chunks.
    pub replies: Vec<Reply>,
}

impl Answer {
    /// The texts of all replies, in order.
    pub fn texts(&self) -> Vec<&str> {
        self.replies.iter().map(|reply| reply.text.as_str()).collect()
    }

    /// The text of the last reply; empty if there were no replies.
    pub fn text(&self) -> &str {
        self.replies.last().map(|reply| reply.text.as_str()).unwrap_or_default()
    }

    /// The question of a flow that now waits for the session's next message.
    pub fn question(&self) -> Option<&str> {
        let asks = |reply: &&Reply| reply.metadata.get("awaits").is_some_and(|awaits| awaits == "answer");
        self.replies.iter().find(asks).map(|reply| reply.text.as_str())
    }

    /// The text of the first reply of this kind.
    pub fn of_kind(&self, kind: ReplyKind) -> Option<&str> {
        self.replies.iter().find(|reply| reply.kind == kind).map(|reply| reply.text.as_str())
    }
}

/// The event stream of a session.
pub(super) type Events = BoxStream<'static, Result<StreamEvent, QueueError>>;

/// The wait for one turn.
pub(super) struct Awaited<'a> {
    queue: &'a dyn Queue,
    store: &'a dyn Store,
    session_id: &'a str,
    job_id: &'a str,
    /// The session's replies so far, of all turns: the turn of a merged message is known only when it has ended.
    replies: Vec<Reply>,
    /// The text that a reader of the turn's replies sees.
    texts: Texts,
}

impl<'a> Awaited<'a> {
    pub(super) fn new(engine: &'a Engine, session_id: &'a str, job_id: &'a str) -> Self {
        let (queue, store) = (engine.queue().as_ref(), engine.store().as_ref());
        Self { queue, store, session_id, job_id, replies: Vec::new(), texts: Texts::default() }
    }

    /// Reads `events` until the turn has ended and all its replies have arrived. Calls `heard` with each of its
    /// replies.
    pub(super) async fn end(
        mut self,
        mut events: Events,
        limit: Duration,
        mut heard: impl FnMut(&Reply, Shown) + Send,
    ) -> Result<Answer, EngineError> {
        let deadline = Instant::now() + limit;
        let mut look = interval(POLL_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ended: Option<(TurnRecord, usize)> = None;
        loop {
            if let Some((turn, said)) = &ended
                && self.of_turn(turn).count() >= *said
            {
                let replies = self.of_turn(turn).cloned().collect();
                return Ok(Answer { turn: turn.clone(), replies });
            }
            tokio::select! {
                event = events.next() => {
                    let gone = || QueueError::unavailable("the stream of events ended");
                    if self.take(&event.ok_or_else(gone)??, &mut heard) {
                        look.reset_immediately();
                    }
                }
                _ = look.tick(), if ended.is_none() => ended = self.ended().await?,
                () = sleep_until(deadline) => return Err(EngineError::Overdue {
                    session_id: self.session_id.to_owned(),
                    job_id: self.job_id.to_owned(),
                    limit,
                }),
            }
        }
    }

    /// Keeps a reply. Returns true if the event is a status that ends turns.
    fn take(&mut self, event: &StreamEvent, heard: &mut impl FnMut(&Reply, Shown)) -> bool {
        if !matches!(event.event_type, EventType::Reply | EventType::Status) {
            return false;
        }
        match Event::decode(event.event_type, &event.payload) {
            Ok(Event::Reply(reply)) => {
                if reply.turn_id == self.job_id || ids::is_repeated_id(&reply.turn_id, self.job_id) {
                    heard(&reply, self.texts.take(&reply));
                }
                let known = self.replies.iter().any(|known| known.reply_id == reply.reply_id);
                if !known && reply.kind != ReplyKind::Chunk {
                    self.replies.push(reply);
                }
                false
            }
            Ok(Event::Status(status)) => {
                matches!(status.status, Status::Ready | Status::Cancelled | Status::Transferred)
            }
            Ok(Event::Step(_) | Event::Run(_)) | Err(_) => false,
        }
    }

    fn of_turn<'s>(&'s self, turn: &'s TurnRecord) -> impl Iterator<Item = &'s Reply> {
        self.replies.iter().filter(|reply| reply.turn_id == turn.turn_id)
    }

    /// The turn and the number of its replies, after its commit and the publication of its events. An unreachable store
    /// counts as "not ended": the next tick reads it again.
    async fn ended(&self) -> Result<Option<(TurnRecord, usize)>, EngineError> {
        match self.committed().await {
            Err(EngineError::Store(StoreError::Unavailable(_)) | EngineError::Queue(QueueError::Unavailable(_))) => {
                Ok(None)
            }
            other => other,
        }
    }

    async fn committed(&self) -> Result<Option<(TurnRecord, usize)>, EngineError> {
        let Some(session) = self.store.session(self.session_id).await? else { return Ok(None) };
        if !session.has_handled(self.job_id) {
            return Ok(None);
        }
        // The worker removes a handled message from the lane only after it has published the turn's events.
        let next = self.queue.next_in_lane(self.session_id, 0, 0).await?;
        if next.is_some_and(|next| next.seq <= session.last_seq) {
            return Ok(None);
        }
        let Some(turn) = self.turn(&session).await? else { return Ok(None) };
        let said = |entry: &&types::session::Entry| entry.turn_id == turn.turn_id && entry.role != Role::User;
        let said = session.history.iter().filter(said).count();
        Ok(Some((turn, said)))
    }

    /// The message's own turn, or the turn of the earlier message that it was merged with.
    async fn turn(&self, session: &Session) -> Result<Option<TurnRecord>, EngineError> {
        // The session may have forgotten an earlier job of the same id; then the latest turn counts.
        if !session.forgets_jobs()
            && let Some(turn) = self.store.turn(self.session_id, self.job_id).await?
        {
            return Ok(Some(turn));
        }
        let turns = self.store.turns(self.session_id, MAX_TURNS).await?;
        if let Some(turn) = turns.iter().find(|turn| turn.job.job_id == self.job_id) {
            return Ok(Some(turn.clone()));
        }
        let until = session.recent_jobs.iter().position(|job| job == self.job_id).unwrap_or_default();
        let mut earlier = session.recent_jobs[..until].iter().rev();
        Ok(earlier.find_map(|job| turns.iter().find(|turn| turn.job.job_id == *job)).cloned())
    }
}
