//! Waits for the end of a turn and collects its replies.

use super::{Engine, EngineError};
use futures::StreamExt;
use futures::stream::BoxStream;
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use storage::queue::{Queue, QueueError, StreamEvent};
use storage::store::{Store, StoreError};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep, timeout};
use types::event::{Event, Reply, ReplyKind};
use types::ids;
use types::session::Session;
use types::texts::{Shown, Texts};
use types::turn::TurnRecord;

/// Interval of the reads of the store, since a full stream may have dropped the event that ends the turn.
const READ_INTERVAL: Duration = Duration::from_secs(2);
/// Pause before the repeat of a read that found the queue or the store unreachable.
const RETRY_DELAY: Duration = Duration::from_millis(200);
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
    /// The turns that have handled the job, with the number of their replies. More than one if the session has forgotten
    /// an earlier job of the same id.
    ends: HashMap<String, usize>,
    /// The turns of which an event has arrived since the last read of the store.
    heard: HashSet<String>,
    /// The text that a reader of the turn's replies sees.
    texts: Texts,
}

impl<'a> Awaited<'a> {
    pub(super) fn new(engine: &'a Engine, session_id: &'a str, job_id: &'a str) -> Self {
        let (queue, store) = (engine.queue().as_ref(), engine.store().as_ref());
        let (replies, ends, heard, texts) = (Vec::new(), HashMap::new(), HashSet::new(), Texts::default());
        Self { queue, store, session_id, job_id, replies, ends, heard, texts }
    }

    /// Reads `events` until the event that ends the turn. Calls `heard` with each of the turn's replies.
    pub(super) async fn end(
        mut self,
        events: Events,
        limit: Duration,
        heard: impl FnMut(&Reply, Shown) + Send,
    ) -> Result<Answer, EngineError> {
        let Self { session_id, job_id, .. } = self;
        let overdue = |_| EngineError::Overdue { session_id: session_id.to_owned(), job_id: job_id.to_owned(), limit };
        let turn = timeout(limit, self.follow(events, heard)).await.map_err(overdue)??;
        let replies = self.of_turn(&turn).cloned().collect();
        Ok(Answer { turn, replies })
    }

    async fn follow(
        &mut self,
        mut events: Events,
        mut heard: impl FnMut(&Reply, Shown) + Send,
    ) -> Result<TurnRecord, EngineError> {
        // The turn may have ended long ago, so that its events have expired.
        let mut turn = until_reachable(|| self.published()).await?;
        let mut reads = read_interval();
        loop {
            if let Some(turn) = turn.take_if(|turn| self.has_all(turn)) {
                return Ok(turn);
            }
            let next = tokio::select! {
                next = events.next() => next,
                _ = reads.tick() => {
                    // Stored events arrive immediately, so the other events of a turn that has ended are gone.
                    if let Some(turn) = turn.take_if(|turn| !self.heard.contains(&turn.turn_id)) {
                        return Ok(turn);
                    }
                    self.heard.clear();
                    if turn.is_none() {
                        turn = until_reachable(|| self.published()).await?;
                    }
                    continue;
                }
            };
            let gone = || QueueError::unavailable("the stream of events ended");
            let ended = self.take(&next.ok_or_else(gone)??, &mut heard);
            if let (None, Some(turn_id)) = (&turn, ended) {
                turn = until_reachable(|| self.committed(&turn_id)).await?;
            }
        }
    }

    /// True once the turn has ended and all its replies have arrived.
    fn has_all(&self, turn: &TurnRecord) -> bool {
        self.ends.get(&turn.turn_id).is_some_and(|replies| self.of_turn(turn).count() >= *replies)
    }

    /// Keeps replies and ends. Returns the id of the turn if the event ends a turn that has handled the job.
    fn take(&mut self, event: &StreamEvent, heard: &mut impl FnMut(&Reply, Shown)) -> Option<String> {
        let event = Event::decode(event.event_type, &event.payload).ok()?;
        self.heard.extend(event.turn_id().map(str::to_owned));
        if let Some((turn_id, end)) = event.end_of(self.job_id) {
            self.ends.insert(turn_id.to_owned(), end.replies as usize);
            return Some(turn_id.to_owned());
        }
        let Event::Reply(reply) = event else { return None };
        if reply.turn_id == self.job_id || ids::is_repeated_id(&reply.turn_id, self.job_id) {
            heard(&reply, self.texts.take(&reply));
        }
        let known = self.replies.iter().any(|known| known.reply_id == reply.reply_id);
        if !known && reply.kind != ReplyKind::Chunk {
            self.replies.push(reply);
        }
        None
    }

    fn of_turn<'s>(&'s self, turn: &'s TurnRecord) -> impl Iterator<Item = &'s Reply> {
        self.replies.iter().filter(|reply| reply.turn_id == turn.turn_id)
    }

    /// The job's turn, if it has ended and its events are published.
    async fn published(&self) -> Result<Option<TurnRecord>, EngineError> {
        let Some(session) = self.store.session(self.session_id).await? else { return Ok(None) };
        if !session.has_handled(self.job_id) {
            return Ok(None);
        }
        // The worker removes a handled message from the lane only after it has published the turn's events.
        match self.queue.next_in_lane(self.session_id, 0, 0).await? {
            Some(next) if next.seq <= session.last_seq => Ok(None),
            _ => self.latest(&session).await,
        }
    }

    /// The job's turn after an event that ends it. `None` if that turn has handled an earlier job of the same id.
    async fn committed(&self, turn_id: &str) -> Result<Option<TurnRecord>, EngineError> {
        match self.store.session(self.session_id).await? {
            Some(session) if !session.forgets_jobs() => Ok(self.store.turn(self.session_id, turn_id).await?),
            Some(session) if session.has_handled(self.job_id) => self.latest(&session).await,
            _ => Ok(None),
        }
    }

    /// The latest turn of the job: its own turn, or the turn of the earlier message that it was merged with.
    async fn latest(&self, session: &Session) -> Result<Option<TurnRecord>, EngineError> {
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

/// Ticks when the store is to be read. Events do not delay it: those of other turns may arrive all the time.
pub(super) fn read_interval() -> Interval {
    let mut interval = interval_at(Instant::now() + READ_INTERVAL, READ_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// Repeats a read while the queue or the store is unreachable.
pub(super) async fn until_reachable<T, R>(read: impl Fn() -> R) -> Result<T, EngineError>
where
    R: Future<Output = Result<T, EngineError>>,
{
    loop {
        match read().await {
            Err(EngineError::Store(StoreError::Unavailable(_)) | EngineError::Queue(QueueError::Unavailable(_))) => {
                sleep(RETRY_DELAY).await;
            }
            done => return done,
        }
    }
}
