//! Waits for the event that ends a turn.

use crate::client::GatewayClient;
use crate::failure::Failure;
use crate::feed::{Feed, Notice};
use std::time::Duration;
use tokio::time::timeout;

/// How long a read of the session may take. The gateway itself waits up to 1 s for the queue.
const READ_TIMEOUT: Duration = Duration::from_secs(3);
/// After this time without an event the session is read: a full stream may have dropped the event that ends the turn.
const SILENCE_LIMIT: Duration = Duration::from_secs(2);

/// The wait for one turn.
pub struct TurnWait<'a> {
    /// The connection to the system.
    pub client: &'a GatewayClient,
    /// The turn's session.
    pub session_id: &'a str,
    /// The id of a job that the turn handles.
    pub job_id: &'a str,
    /// The longest wait.
    pub limit: Duration,
}

impl TurnWait<'_> {
    /// Calls `show` for every notice until the turn has ended.
    pub async fn until_end(&self, feed: &mut Feed, show: impl FnMut(&Notice)) -> anyhow::Result<()> {
        let ended = timeout(self.limit, self.follow(feed, show)).await;
        ended.unwrap_or_else(|_| Err(self.overdue().into()))
    }

    async fn follow(&self, feed: &mut Feed, mut show: impl FnMut(&Notice)) -> anyhow::Result<()> {
        // The turn may have ended long ago, so that its events have expired.
        let mut committed = self.is_committed().await;
        loop {
            let Ok(notice) = timeout(SILENCE_LIMIT, feed.recv()).await else {
                // Stored events arrive immediately, so the other events of a turn that has ended are gone.
                if committed {
                    return Ok(());
                }
                committed = self.is_committed().await;
                continue;
            };
            match notice {
                Some(Notice::Failed(error)) => return Err(error),
                None => anyhow::bail!("the events of session `{}` ended", self.session_id),
                Some(notice) => {
                    show(&notice);
                    match notice {
                        Notice::Event(event) if event.end_of(self.job_id).is_some() => return Ok(()),
                        // A feed that had received no event yet may have missed some.
                        Notice::Back => committed = self.is_committed().await,
                        _ => {}
                    }
                }
            }
        }
    }

    /// False if the session cannot be read: the feed reports lost connections.
    async fn is_committed(&self) -> bool {
        let asked = timeout(READ_TIMEOUT, self.client.session(self.session_id)).await;
        // Also true for a job that was merged into another job's turn.
        matches!(asked, Ok(Ok(Some(found))) if found.session.has_handled(self.job_id))
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
