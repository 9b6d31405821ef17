//! Waits for the end of a turn: until its last status event, or until its session has it committed. The latter is
//! needed where no status changes, for example during a handoff.

use crate::client::GatewayClient;
use crate::failure::Failure;
use crate::feed::{Feed, Notice};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use types::event::Event;
use types::session::Status;

/// How long a read of the session may take. The gateway itself waits up to 1 s for the queue.
const READ_TIMEOUT: Duration = Duration::from_secs(3);
/// How often the session is read.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long events from before the commit may take to arrive.
const LATE_EVENTS_WAIT: Duration = Duration::from_millis(500);

/// The wait for one turn.
pub struct TurnWait<'a> {
    /// The connection to the system.
    pub client: &'a GatewayClient,
    /// The turn's session.
    pub session_id: &'a str,
    /// The turn's id.
    pub turn_id: &'a str,
    /// The longest wait.
    pub limit: Duration,
}

impl TurnWait<'_> {
    /// Calls `show` for every notice until the turn has ended.
    pub async fn until_end(&self, feed: &mut Feed, mut show: impl FnMut(&Notice)) -> anyhow::Result<()> {
        let deadline = Instant::now() + self.limit;
        let mut poll = interval(POLL_INTERVAL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        poll.tick().await;
        loop {
            tokio::select! {
                // Cancel safe: a dropped `recv` loses no notice.
                notice = feed.recv() => match notice {
                    Some(Notice::Failed(error)) => return Err(error),
                    None => anyhow::bail!("the events of session `{}` ended", self.session_id),
                    Some(notice) => {
                        show(&notice);
                        if ends(&notice, self.turn_id) {
                            return Ok(());
                        }
                    }
                },
                _ = poll.tick() => if self.is_committed().await {
                    return drain(feed, show).await;
                },
                () = sleep_until(deadline) => return Err(self.overdue().into()),
            }
        }
    }

    /// False if the session cannot be read: the feed reports lost connections.
    async fn is_committed(&self) -> bool {
        let asked = timeout(READ_TIMEOUT, self.client.session(self.session_id)).await;
        // Also true for a job that was merged into another job's turn.
        matches!(asked, Ok(Ok(Some(found))) if found.session.has_handled(self.turn_id))
    }

    fn overdue(&self) -> Failure {
        let message = format!(
            "timed out after {}s waiting for the reply to message `{}` of session `{}`",
            self.limit.as_secs(),
            self.turn_id,
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

/// Shows the notices that still arrive.
async fn drain(feed: &mut Feed, mut show: impl FnMut(&Notice)) -> anyhow::Result<()> {
    while let Ok(Some(notice)) = timeout(LATE_EVENTS_WAIT, feed.recv()).await {
        match notice {
            Notice::Failed(error) => return Err(error),
            notice => show(&notice),
        }
    }
    Ok(())
}

/// `ready` and `cancelled` end a turn. After `transferred` more may follow before the commit.
fn ends(notice: &Notice, turn_id: &str) -> bool {
    let Notice::Event(event) = notice else { return false };
    match event.as_ref() {
        Event::Status(status) => {
            status.turn_id == turn_id && matches!(status.status, Status::Ready | Status::Cancelled)
        }
        Event::Reply(_) | Event::Step(_) | Event::Run(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::event::StatusEvent;
    use types::timestamp::Timestamp;

    #[test]
    fn only_the_last_status_of_the_turn_in_question_ends_it() {
        let notice = |turn_id: &str, status| {
            Notice::Event(Box::new(Event::Status(StatusEvent {
                session_id: "s1".into(),
                turn_id: turn_id.into(),
                status,
                previous: Status::Processing,
                reason: None,
                at: Timestamp::from_millis(0),
            })))
        };
        assert!(ends(&notice("m-1", Status::Ready), "m-1") && ends(&notice("m-1", Status::Cancelled), "m-1"));
        assert!(!ends(&notice("m-0", Status::Ready), "m-1"));
        assert!(!ends(&notice("m-1", Status::Transferred), "m-1"));
        assert!(!ends(&Notice::Back, "m-1"));
    }
}
