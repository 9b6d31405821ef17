//! The queue of the mutants.

use super::Pulled;
use async_trait::async_trait;
use futures::stream::BoxStream;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::{self, *};
use types::event::OutEvent;

/// A queue that records the pulled deliveries.
pub(super) struct WatchedQueue {
    pub(super) inner: Arc<dyn Queue>,
    pub(super) pulled: Pulled,
}

#[async_trait]
impl EventLog for WatchedQueue {
    async fn event_bounds(&self) -> queue::Result<EventBounds> {
        self.inner.event_bounds().await
    }

    async fn all_events(&self, after: u64) -> queue::Result<BoxStream<'static, queue::Result<LoggedEvent>>> {
        self.inner.all_events(after).await
    }
}

impl Purge for WatchedQueue {}

#[async_trait]
impl Queue for WatchedQueue {
    async fn publish(&self, job: Publish) -> queue::Result<Published> {
        self.inner.publish(job).await
    }

    async fn pull(&self, max: usize, wait: Duration) -> queue::Result<Vec<Delivery>> {
        let deliveries = self.inner.pull(max, wait).await?;
        let mut pulled = self.pulled.lock().unwrap();
        for Delivery { message, token, .. } in &deliveries {
            pulled.entry(message.session_id.clone()).or_default().push((message.seq, token.clone()));
        }
        drop(pulled);
        Ok(deliveries)
    }

    async fn next_in_lane(&self, session_id: &str, after: u64, at_least: u64) -> queue::Result<Option<Message>> {
        self.inner.next_in_lane(session_id, after, at_least).await
    }

    async fn ack(&self, token: &DeliveryToken) -> queue::Result<()> {
        self.inner.ack(token).await
    }

    async fn nak(&self, token: &DeliveryToken, delay: Duration) -> queue::Result<()> {
        self.inner.nak(token, delay).await
    }

    async fn progress(&self, tokens: &[DeliveryToken]) -> queue::Result<()> {
        self.inner.progress(tokens).await
    }

    async fn stream(&self) -> queue::Result<StreamState> {
        self.inner.stream().await
    }

    async fn backlog(&self) -> queue::Result<Backlog> {
        self.inner.backlog().await
    }

    fn max_payload(&self) -> usize {
        self.inner.max_payload()
    }

    async fn emit(&self, events: Arc<[OutEvent]>) -> queue::Result<()> {
        self.inner.emit(events).await
    }

    async fn events(
        &self,
        session_id: &str,
        from: From,
    ) -> queue::Result<BoxStream<'static, queue::Result<StreamEvent>>> {
        self.inner.events(session_id, from).await
    }

    async fn has_session(&self, session_id: &str) -> queue::Result<bool> {
        self.inner.has_session(session_id).await
    }

    async fn publish_dead_letter(&self, letter: DeadLetter) -> queue::Result<()> {
        self.inner.publish_dead_letter(letter).await
    }

    async fn dead_letters(&self, after: u64, limit: usize) -> queue::Result<Vec<StoredDeadLetter>> {
        self.inner.dead_letters(after, limit).await
    }

    async fn last_dead_letter_seq(&self) -> queue::Result<u64> {
        self.inner.last_dead_letter_seq().await
    }

    async fn remove_dead_letter(&self, seq: u64) -> queue::Result<bool> {
        self.inner.remove_dead_letter(seq).await
    }

    async fn hint_cancel(&self, hint: CancelHint) -> queue::Result<()> {
        self.inner.hint_cancel(hint).await
    }

    async fn cancel_hints(&self) -> queue::Result<BoxStream<'static, CancelHint>> {
        self.inner.cancel_hints().await
    }

    async fn notify_scheduler(&self) -> queue::Result<()> {
        self.inner.notify_scheduler().await
    }

    async fn timer_hints(&self) -> queue::Result<BoxStream<'static, TimerHint>> {
        self.inner.timer_hints().await
    }

    async fn ping(&self) -> queue::Result<()> {
        self.inner.ping().await
    }
}
