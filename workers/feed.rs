//! The events of a session or run, across lost connections. One task owns the stream; a command reads the task's
//! channel, and can stop reading at any time without losing events.

use crate::client::{Events, Followed, GatewayClient};
use crate::failure::is_unknown;
use base::tasks::{OnPanic, Tasks};
use futures::StreamExt;
use std::time::Duration;
use storage::queue::StreamEvent;
use tokio::sync::mpsc;
use types::event::Event;

const MIN_RECONNECT_DELAY: Duration = Duration::from_millis(250);
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(10);

/// A notice from a feed.
#[derive(Debug)]
pub enum Notice {
    /// An event was published.
    Event(Box<Event>),
    /// The connection was lost for this reason, and the feed reconnects.
    Lost(String),
    /// The connection works again.
    Back,
    /// Reconnecting failed for good.
    Failed(anyhow::Error),
}

impl Notice {
    /// True if the connection was lost.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }
}

/// Notices in order; closed after [`Notice::Failed`].
pub type Feed = mpsc::Receiver<Notice>;

impl GatewayClient {
    /// Follows a session's events after `last_id`, or from now on. Fails with 404 if the session is unknown.
    pub async fn follow(&self, session_id: &str, last_id: Option<u64>, tasks: &Tasks) -> anyhow::Result<Feed> {
        open(self.clone(), Followed::Session(session_id.to_owned()), last_id, tasks).await
    }

    /// Follows a run from its first event.
    pub async fn follow_run(&self, run_id: &str, tasks: &Tasks) -> anyhow::Result<Feed> {
        open(self.clone(), Followed::Run(run_id.to_owned()), Some(0), tasks).await
    }
}

/// A feed from a gateway. The first connection is made before this returns, so that the caller gets the error of an
/// unknown session or run.
async fn open(client: GatewayClient, followed: Followed, last_id: Option<u64>, tasks: &Tasks) -> anyhow::Result<Feed> {
    let events = client.events(&followed, last_id).await?;
    let (sender, feed) = mpsc::channel(64);
    let follower = Follower { client, followed, last_id, sender };
    tasks.spawn("feed", OnPanic::Log, follower.run(events));
    Ok(feed)
}

struct Follower {
    client: GatewayClient,
    followed: Followed,
    last_id: Option<u64>,
    sender: mpsc::Sender<Notice>,
}

impl Follower {
    async fn run(mut self, mut events: Events) {
        loop {
            let Some(problem) = self.pass_on(&mut events).await else { return };
            if self.sender.send(Notice::Lost(problem)).await.is_err() {
                return;
            }
            match self.reconnect().await {
                Ok(Some(opened)) => events = opened,
                Ok(None) => return,
                Err(error) => {
                    // If the reader has left, there is no one to notify.
                    let _ = self.sender.send(Notice::Failed(error)).await;
                    return;
                }
            }
            if self.sender.send(Notice::Back).await.is_err() {
                return;
            }
        }
    }

    /// Passes events on until the stream breaks off. Returns the reason, or `None` if the reader has left.
    async fn pass_on(&mut self, events: &mut Events) -> Option<String> {
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = self.sender.closed() => return None,
            };
            match event {
                None => return Some("the gateway ended the stream".to_owned()),
                Some(Err(problem)) => return Some(problem),
                Some(Ok(event)) => {
                    self.last_id = Some(event.seq);
                    if let Some(notice) = decode(&event) {
                        self.sender.send(notice).await.ok()?;
                    }
                }
            }
        }
    }

    /// Reconnects after the last event. `None` if the reader has left.
    async fn reconnect(&self) -> anyhow::Result<Option<Events>> {
        let mut pause = MIN_RECONNECT_DELAY;
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.sender.closed() => return Ok(None),
            }
            match self.client.events(&self.followed, self.last_id).await {
                Ok(events) => return Ok(Some(events)),
                Err(error) if is_final(&error) => return Err(error),
                Err(_) => pause = (pause * 2).min(MAX_RECONNECT_DELAY),
            }
        }
    }
}

/// True for errors that a retry cannot fix. Not for 404: after a restart a gateway may not know the session yet.
fn is_final(error: &anyhow::Error) -> bool {
    let status = error.downcast_ref::<crate::failure::Failure>().and_then(|failure| failure.status);
    !is_unknown(error) && status.is_some_and(|status| (400..500).contains(&status) && status != 429)
}

/// Decodes an event; `None` if it cannot be read, for example one of a later version.
fn decode(event: &StreamEvent) -> Option<Notice> {
    Event::decode(event.event_type, &event.payload).ok().map(|event| Notice::Event(Box::new(event)))
}
