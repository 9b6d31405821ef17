//! Observes the ends of turns with one reader for all sessions: on a cluster an ordered consumer of the event stream, on
//! the embedded file a tap on its queue.

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
    Backlog, CancelHint, DeadLetter, Delivery, DeliveryToken, From, Message, Publish, Published, Queue, Result,
    StoredDeadLetter, StreamEvent, StreamState, TimerHint,
};
use tokio::sync::mpsc;
use tracing::debug;
use types::event::{EventType, OutEvent, TurnEvent};
use types::turn::Outcome;

/// An event of a turn, as seen by the reader.
#[derive(Clone, Debug)]
pub(super) struct SeenEvent {
    pub(super) turn_id: String,
    pub(super) phase: TurnPhase,
    pub(super) at: Instant,
}

/// The phase of the turn that the event reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnPhase {
    /// The first status event: the turn has begun and asks the model next.
    Begun,
    /// The turn has ended with a reply.
    Answered,
}

impl SeenEvent {
    /// Reads an event with the id `<session>/<turn>/<key>`. Returns `None` for events that neither begin a turn nor end
    /// an answered one.
    fn from_event(id: &str, payload: &[u8]) -> Option<Self> {
        let (_, rest) = id.split_once('/')?;
        let (turn_id, key) = rest.split_once('/')?;
        let phase = match key {
            "status/0" => TurnPhase::Begun,
            TurnEvent::KEY if is_answered(payload) => TurnPhase::Answered,
            _ => return None,
        };
        Some(Self { turn_id: turn_id.to_owned(), phase, at: Instant::now() })
    }
}

fn is_answered(payload: &[u8]) -> bool {
    serde_json::from_slice::<TurnEvent>(payload).is_ok_and(|end| end.outcome == Outcome::Answered)
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
    let kind = if begun { "*" } else { EventType::Turn.as_str() };
    let config = pull::OrderedConfig {
        filter_subject: format!("{}.out.*.*.{kind}", settings.namespace),
        deliver_policy: DeliverPolicy::New,
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
            if let Some(seen) = id.and_then(|id| SeenEvent::from_event(id.as_str(), &message.payload))
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

    fn notify(&self, events: &[OutEvent]) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = &*seen else { return };
        for seen in events.iter().filter_map(|event| SeenEvent::from_event(event.msg_id.as_deref()?, &event.payload)) {
            // Sending fails only if the watcher was dropped.
            let _ = sender.send(seen);
        }
    }
}

#[async_trait]
impl Queue for Tapped {
    async fn emit(&self, events: Arc<[OutEvent]>) -> Result<()> {
        self.queue.emit(Arc::clone(&events)).await?;
        self.notify(&events);
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
    fn first_statuses_and_ends_of_answered_turns_are_seen() {
        let seen = |id: &str, payload: &str| {
            SeenEvent::from_event(id, payload.as_bytes()).map(|seen| (seen.turn_id, seen.phase))
        };
        let end = |outcome| {
            format!(
                r#"{{"session_id":"s1","turn_id":"j7","jobs":["j7"],"outcome":"{outcome}","reason":null,"replies":1,"attempts":1,"at":"2026-01-01T00:00:00.000Z"}}"#
            )
        };
        assert_eq!(seen("s1/j7/ended", &end("answered")), Some(("j7".into(), TurnPhase::Answered)));
        assert_eq!(seen("s1/j7/ended", &end("cancelled")), None, "an apology is no answer");
        assert_eq!(seen("s1/j7/status/0", "{}"), Some(("j7".into(), TurnPhase::Begun)));
        for other in ["s1/j7/greet", "s1/j7/0/respond", "s1/j7/status/1", "s1/j7/step/0/decide", "s1"] {
            assert_eq!(seen(other, "{}"), None, "{other}");
        }
    }
}
