//! Observes replies with one reader for all sessions: on a cluster an ordered consumer of the event stream, on the
//! embedded file a tap on its queue.

use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_trait::async_trait;
use base::config::Settings;
use base::tasks::{OnPanic, Tasks};
use cluster::nats;
use futures::StreamExt;
use futures::stream::BoxStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use storage::queue::{
    Backlog, CancelHint, DeadLetter, Delivery, DeliveryToken, EventBounds, EventLog, From, LoggedEvent, Message,
    Publish, Published, Purge, Queue, Result, StoredDeadLetter, StreamEvent, StreamState, TimerHint,
};
use tokio::sync::mpsc;
use tracing::debug;
use types::event::{EventType, OutEvent};

/// An event of a turn, as seen by the reader.
#[derive(Clone, Debug)]
pub(super) struct SeenEvent {
    pub(super) turn_id: String,
    pub(super) mark: TurnEvent,
    pub(super) at: Instant,
}

/// Kind of the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnEvent {
    /// The first status event: the turn has begun and asks the model next.
    Begun,
    /// The turn's reply.
    Answered,
}

impl SeenEvent {
    /// Parses an event's id, `<session>/<turn>/<key>`. Returns `None` for greetings and later statuses.
    fn from_id(id: &str) -> Option<Self> {
        let (_, rest) = id.split_once('/')?;
        let (turn_id, key) = rest.split_once('/')?;
        let mark = match key {
            "status/0" => TurnEvent::Begun,
            "timer" => TurnEvent::Answered,
            key if key.ends_with("/respond") => TurnEvent::Answered,
            _ => return None,
        };
        Some(Self { turn_id: turn_id.to_owned(), mark, at: Instant::now() })
    }
}

/// Subscribes to the event stream of a cluster. With `begun`, it also reports turns that begin.
pub(super) async fn subscribe(
    settings: &Settings,
    begun: bool,
    tasks: &Tasks,
) -> anyhow::Result<mpsc::UnboundedReceiver<SeenEvent>> {
    let client = nats::connect(settings).await?;
    let context = async_nats::jetstream::new(client.clone());
    let stream = context.get_stream(format!("{}_OUT", settings.namespace.to_uppercase())).await?;
    // One filter only: with two filters, nats-server delivers about a hundred messages per second from a long stream.
    let kind = if begun { "*" } else { EventType::Reply.as_str() };
    let config = pull::OrderedConfig {
        filter_subject: format!("{}.out.*.*.{kind}", settings.namespace),
        deliver_policy: DeliverPolicy::New,
        headers_only: true,
        ..pull::OrderedConfig::default()
    };
    let mut messages = stream.create_consumer(config).await?.messages().await?;
    let (sender, receiver) = mpsc::unbounded_channel();
    let stop = tasks.stop_token();
    tasks.spawn("replies", OnPanic::Shutdown, async move {
        while let Some(Some(message)) = stop.run_until_cancelled(messages.next()).await {
            let message = match message {
                Ok(message) => message,
                // The ordered consumer resumes at its position by itself.
                Err(error) => {
                    debug!("replies: {error}");
                    continue;
                }
            };
            let id = message.headers.as_ref().and_then(|headers| headers.get("Nats-Msg-Id"));
            if let Some(seen) = id.and_then(|id| SeenEvent::from_id(id.as_str()))
                && sender.send(seen).is_err()
            {
                return;
            }
        }
    });
    Ok(receiver)
}

/// A queue that reports each stored event to one watcher. All other calls go to the wrapped queue.
pub(super) struct Tapped {
    queue: Arc<dyn Queue>,
    seen: Mutex<Option<mpsc::UnboundedSender<SeenEvent>>>,
}

impl Tapped {
    pub(super) fn new(queue: Arc<dyn Queue>) -> Self {
        Self { queue, seen: Mutex::new(None) }
    }

    /// Returns a new watcher, which replaces the previous one.
    pub(super) fn watch(&self) -> mpsc::UnboundedReceiver<SeenEvent> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        receiver
    }

    fn notify(&self, ids: impl Iterator<Item = String>) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = &*seen else { return };
        for seen in ids.filter_map(|id| SeenEvent::from_id(&id)) {
            // Sending fails only if the watcher was dropped.
            let _ = sender.send(seen);
        }
    }
}

#[async_trait]
impl EventLog for Tapped {
    async fn event_bounds(&self) -> Result<EventBounds> {
        self.queue.event_bounds().await
    }

    async fn all_events(&self, after: u64) -> Result<BoxStream<'static, Result<LoggedEvent>>> {
        self.queue.all_events(after).await
    }
}

impl Purge for Tapped {}

#[async_trait]
impl Queue for Tapped {
    async fn emit(&self, events: Arc<[OutEvent]>) -> Result<()> {
        let ids: Vec<_> = events.iter().filter_map(|event| event.msg_id.clone()).collect();
        self.queue.emit(events).await?;
        self.notify(ids.into_iter());
        Ok(())
    }

    async fn stream(&self) -> Result<StreamState> {
        self.queue.stream().await
    }

    async fn backlog(&self) -> Result<Backlog> {
        self.queue.backlog().await
    }

    fn max_payload(&self) -> usize {
        self.queue.max_payload()
    }

    async fn publish(&self, job: Publish) -> Result<Published> {
        self.queue.publish(job).await
    }

    async fn pull(&self, max: usize, wait: Duration) -> Result<Vec<Delivery>> {
        self.queue.pull(max, wait).await
    }

    async fn next_in_lane(&self, session_id: &str, after: u64, at_least: u64) -> Result<Option<Message>> {
        self.queue.next_in_lane(session_id, after, at_least).await
    }

    async fn ack(&self, token: &DeliveryToken) -> Result<()> {
        self.queue.ack(token).await
    }

    async fn nak(&self, token: &DeliveryToken, delay: Duration) -> Result<()> {
        self.queue.nak(token, delay).await
    }

    async fn progress(&self, tokens: &[DeliveryToken]) -> Result<()> {
        self.queue.progress(tokens).await
    }

    async fn events(&self, session_id: &str, from: From) -> Result<BoxStream<'static, Result<StreamEvent>>> {
        self.queue.events(session_id, from).await
    }

    async fn has_session(&self, session_id: &str) -> Result<bool> {
        self.queue.has_session(session_id).await
    }

    async fn publish_dead_letter(&self, letter: DeadLetter) -> Result<()> {
        self.queue.publish_dead_letter(letter).await
    }

    async fn dead_letters(&self, after: u64, limit: usize) -> Result<Vec<StoredDeadLetter>> {
        self.queue.dead_letters(after, limit).await
    }

    async fn last_dead_letter_seq(&self) -> Result<u64> {
        self.queue.last_dead_letter_seq().await
    }

    async fn remove_dead_letter(&self, seq: u64) -> Result<bool> {
        self.queue.remove_dead_letter(seq).await
    }

    async fn hint_cancel(&self, hint: CancelHint) -> Result<()> {
        self.queue.hint_cancel(hint).await
    }

    async fn cancel_hints(&self) -> Result<BoxStream<'static, CancelHint>> {
        self.queue.cancel_hints().await
    }

    async fn notify_scheduler(&self) -> Result<()> {
        self.queue.notify_scheduler().await
    }

    async fn timer_hints(&self) -> Result<BoxStream<'static, TimerHint>> {
        self.queue.timer_hints().await
    }

    async fn ping(&self) -> Result<()> {
        self.queue.ping().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_and_first_statuses_are_seen() {
        let mark = |id: &str| SeenEvent::from_id(id).map(|seen| (seen.turn_id, seen.mark));
        assert_eq!(mark("s1/j7/0/respond"), Some(("j7".into(), TurnEvent::Answered)));
        assert_eq!(mark("s1/t1-2/timer"), Some(("t1-2".into(), TurnEvent::Answered)));
        assert_eq!(mark("s1/j7/status/0"), Some(("j7".into(), TurnEvent::Begun)));
        for other in ["s1/j7/greet", "s1/j7/status/1", "s1/j7/step/0/decide", "s1"] {
            assert_eq!(mark(other), None, "{other}");
        }
    }
}
