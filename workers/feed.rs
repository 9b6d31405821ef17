//! The events of a session or a run as they come, through losses of the connection. One task owns the stream; a command reads its
//! channel, and may stop reading at any moment without losing anything.

use crate::client::{Events, Followed, GatewayClient};
use crate::failure::is_unknown;
use base::tasks::{OnPanic, Tasks};
use futures::StreamExt;
use futures::stream::BoxStream;
use std::time::Duration;
use storage::queue::{QueueError, StreamEvent};
use tokio::sync::mpsc;
use types::event::Event;

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What a feed tells.
#[derive(Debug)]
pub enum Notice {
    /// Something was published.
    Event(Box<Event>),
    /// The connection is lost, and being made again; the text is why.
    Lost(String),
    /// The connection is there again.
    Back,
    /// It cannot be made again.
    Failed(anyhow::Error),
}

/// Notices in order; closed after [`Notice::Failed`].
pub type Feed = mpsc::Receiver<Notice>;

/// The feed of a cluster's queue, whose client reconnects by itself.
pub fn of_queue(mut events: BoxStream<'static, Result<StreamEvent, QueueError>>, tasks: &Tasks) -> Feed {
    let (sender, feed) = mpsc::channel(64);
    tasks.spawn("feed", OnPanic::Log, async move {
        while let Some(event) = events.next().await {
            let notice = match event {
                Ok(event) => decode(&event),
                Err(error) => Some(Notice::Failed(error.into())),
            };
            if let Some(notice) = notice
                && sender.send(notice).await.is_err()
            {
                return;
            }
        }
    });
    feed
}

/// The feed of a gateway. The first connection is made before this returns, so that a session or run that the gateway does
/// not know is seen at once.
pub async fn of_gateway(
    client: GatewayClient,
    followed: Followed,
    last_id: Option<u64>,
    tasks: &Tasks,
) -> anyhow::Result<Feed> {
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
            match self.again().await {
                Ok(Some(opened)) => events = opened,
                Ok(None) => return,
                Err(error) => {
                    // The reader may have left, which ends it as well.
                    let _ = self.sender.send(Notice::Failed(error)).await;
                    return;
                }
            }
            if self.sender.send(Notice::Back).await.is_err() {
                return;
            }
        }
    }

    /// Passes events on until the stream breaks off; answers why, or `None` when nobody reads any more.
    async fn pass_on(&mut self, events: &mut Events) -> Option<String> {
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = self.sender.closed() => return None,
            };
            match event {
                None => return Some("the gateway has ended the stream".to_owned()),
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

    /// Connects again, after the last event seen; `None` when nobody reads any more.
    async fn again(&self) -> anyhow::Result<Option<Events>> {
        let mut pause = FIRST_PAUSE;
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.sender.closed() => return Ok(None),
            }
            match self.client.events(&self.followed, self.last_id).await {
                Ok(events) => return Ok(Some(events)),
                Err(error) if is_final(&error) => return Err(error),
                Err(_) => pause = (pause * 2).min(LONGEST_PAUSE),
            }
        }
    }
}

/// A refusal that a repeat does not cure. 404 is none: a restarting gateway may not know the session yet.
fn is_final(error: &anyhow::Error) -> bool {
    let status = error.downcast_ref::<crate::failure::Failure>().and_then(|failure| failure.status);
    !is_unknown(error) && status.is_some_and(|status| (400..500).contains(&status) && status != 429)
}

/// An event that cannot be read, such as one of a later version, is passed over.
fn decode(event: &StreamEvent) -> Option<Notice> {
    Event::decode(event.event_type, &event.payload).ok().map(|event| Notice::Event(Box::new(event)))
}
