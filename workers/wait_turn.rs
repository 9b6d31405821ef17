//! Waits for the event that ends a turn.

use crate::client::GatewayClient;
use crate::failure::Failure;
use crate::feed::{Feed, Notice};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};
use types::event::{Event, ReplyKind};
use types::ids;

/// How long a read of the session may take. The gateway itself waits up to 1 s for the queue.
const READ_TIMEOUT: Duration = Duration::from_secs(3);
/// Interval of the reads of the session, since a full stream may have dropped the event that ends the turn. After that
/// event, missing replies may take this long.
const READ_INTERVAL: Duration = Duration::from_secs(2);
/// So many reads in a row must find the turn's commit before the wait ends without the event that ends the turn. A
/// worker that dies after the commit leaves the turn's events to the next one, which takes over after
/// `worker.ack_wait`.
const COMMITTED_READS: u32 = 5;

/// The wait for one turn.
pub struct TurnWait<'a> {
    /// The connection to the system.
    pub client: &'a GatewayClient,
    /// The turn's session.
    pub session_id: &'a str,
    /// The id of a job that the turn handles.
    pub job_id: &'a str,
    /// True if an earlier job had the id and the session has forgotten it. Then the turn has an id of its own.
    pub reused: bool,
    /// The longest wait.
    pub limit: Duration,
}

/// The events that the wait has received.
#[derive(Default)]
struct Seen {
    /// The ids of the replies so far, by turn.
    replies: HashMap<String, HashSet<String>>,
    /// The turn's id and number of replies.
    end: Option<(String, usize)>,
    /// The connection is lost.
    lost: bool,
    /// Reads in a row that have found the turn's commit, without an event of the turn between them.
    committed: u32,
}

impl TurnWait<'_> {
    /// Calls `show` for every notice until the turn has ended and its replies have arrived. Returns the turn's id, or
    /// `None` if the event that ends the turn is lost.
    pub async fn until_end(&self, feed: &mut Feed, show: impl FnMut(&Notice)) -> anyhow::Result<Option<String>> {
        let ended = timeout(self.limit, self.follow(feed, show)).await;
        ended.unwrap_or_else(|_| Err(self.overdue().into()))
    }

    /// True if a turn with this id is known to be that of the job before it has ended. A turn of merged messages has
    /// the id of the first one.
    pub fn is_turn(&self, turn_id: &str) -> bool {
        (!self.reused && turn_id == self.job_id) || ids::is_repeated_id(turn_id, self.job_id)
    }

    async fn follow(&self, feed: &mut Feed, mut show: impl FnMut(&Notice)) -> anyhow::Result<Option<String>> {
        let mut seen = Seen::default();
        let mut reads = interval_at(Instant::now() + READ_INTERVAL, READ_INTERVAL);
        reads.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                notice = feed.recv() => match notice {
                    Some(Notice::Failed(error)) => return Err(error),
                    None => anyhow::bail!("the events of session `{}` ended", self.session_id),
                    Some(notice) => {
                        show(&notice);
                        self.take(&mut seen, &notice, &mut reads);
                        if let Some(turn_id) = seen.complete() {
                            return Ok(Some(turn_id));
                        }
                    }
                },
                _ = reads.tick() => {
                    if let Some((turn_id, _)) = seen.end {
                        return Ok(Some(turn_id));
                    }
                    // While the connection is lost, events may be missing that come when it is back.
                    if !seen.lost && self.is_committed().await {
                        seen.committed += 1;
                    }
                    if seen.committed == COMMITTED_READS {
                        self.warn_of_lost_end();
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn take(&self, seen: &mut Seen, notice: &Notice, reads: &mut Interval) {
        let event = match notice {
            Notice::Event(event) => event.as_ref(),
            Notice::Lost(_) | Notice::Back | Notice::Failed(_) => {
                seen.lost = notice.is_lost();
                seen.committed = 0;
                return;
            }
        };
        if let Event::Reply(reply) = event
            && reply.kind != ReplyKind::Chunk
        {
            seen.replies.entry(reply.turn_id.clone()).or_default().insert(reply.reply_id.clone());
        }
        if event.turn_id().is_some_and(|turn_id| self.is_turn(turn_id)) {
            seen.committed = 0;
        }
        if let Some((turn_id, end)) = event.end_of(self.job_id)
            && !(self.reused && turn_id == self.job_id)
        {
            seen.end = Some((turn_id.to_owned(), end.replies as usize));
            reads.reset();
        }
    }

    /// False if the session cannot be read: the feed reports lost connections.
    async fn is_committed(&self) -> bool {
        let asked = timeout(READ_TIMEOUT, self.client.session(self.session_id)).await;
        // Also true for a job that was merged into another job's turn.
        matches!(asked, Ok(Ok(Some(found))) if found.session.has_handled(self.job_id))
    }

    fn warn_of_lost_end(&self) {
        eprintln!(
            "warning: message `{}` is handled, but the event that ends its turn is not in the stream any more; replies \
             may be missing; `turnwheel sessions show {}` shows them",
            self.job_id, self.session_id
        );
    }

    fn overdue(&self) -> Failure {
        let message = format!(
            "timed out after {}s waiting for the reply to message `{}` of session `{}`",
            self.limit.as_secs(),
            self.job_id,
            self.session_id
        );
        let hint = format!(
            "the message stays queued; check that a worker runs; `turnwheel sessions show {}` shows the session, \
             --timeout waits longer",
            self.session_id
        );
        Failure::new(message, hint)
    }
}

impl Seen {
    /// The turn's id, if it has ended and all its replies have arrived.
    fn complete(&self) -> Option<String> {
        let (turn_id, replies) = self.end.as_ref()?;
        let arrived = self.replies.get(turn_id).map_or(0, HashSet::len);
        (arrived >= *replies).then(|| turn_id.clone())
    }
}
