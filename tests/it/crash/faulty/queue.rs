//! A queue with faults.

use crate::crash::wire::Wire;
use async_trait::async_trait;
use futures::stream::BoxStream;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::{self, *};
use types::event::OutEvent;

/// A queue behind a wire.
pub struct FaultyQueue {
    pub inner: Arc<dyn Queue>,
    pub wire: Arc<Wire>,
}

/// Whether this is the id of the event that a long step has begun.
fn is_begin_of_step(id: &str) -> bool {
    id.contains("/step/") && id.rsplit('/').nth(1) == Some("begin")
}

#[async_trait]
impl EventLog for FaultyQueue {
    async fn event_bounds(&self) -> queue::Result<EventBounds> {
        self.wire.plainly(self.inner.event_bounds()).await
    }

    async fn all_events(&self, after: u64) -> queue::Result<BoxStream<'static, queue::Result<LoggedEvent>>> {
        self.wire.plainly(self.inner.all_events(after)).await
    }
}

impl Purge for FaultyQueue {}

#[async_trait]
impl Queue for FaultyQueue {
    async fn publish(&self, job: Publish) -> queue::Result<Published> {
        let lane = job.session_id.clone();
        self.wire.counted("publish", &lane, self.inner.publish(job)).await
    }

    async fn pull(&self, max: usize, wait: Duration) -> queue::Result<Vec<Delivery>> {
        self.wire.pull(self.inner.as_ref(), max, wait).await
    }

    async fn next_in_lane(&self, session_id: &str, after: u64, at_least: u64) -> queue::Result<Option<Message>> {
        let call = async {
            let message = self.inner.next_in_lane(session_id, after, at_least).await?;
            Ok(match &self.wire.lag {
                Some(lag) => lag.next(at_least, message),
                None => message,
            })
        };
        self.wire.counted("next_in_lane", session_id, call).await
    }

    async fn ack(&self, token: &DeliveryToken) -> queue::Result<()> {
        let (lane, seq) = self.wire.place(token);
        self.wire.counted_for("ack", &lane, &[seq], self.inner.ack(token)).await
    }

    async fn nak(&self, token: &DeliveryToken, delay: Duration) -> queue::Result<()> {
        self.wire.nak(self.inner.as_ref(), token, delay).await
    }

    async fn progress(&self, tokens: &[DeliveryToken]) -> queue::Result<()> {
        self.wire.plainly(self.inner.progress(tokens)).await
    }

    async fn stream(&self) -> queue::Result<StreamState> {
        self.wire.plainly(self.inner.stream()).await
    }

    async fn backlog(&self) -> queue::Result<Backlog> {
        self.wire.plainly(self.inner.backlog()).await
    }

    fn max_payload(&self) -> usize {
        self.inner.max_payload()
    }

    async fn emit(&self, events: Arc<[OutEvent]>) -> queue::Result<()> {
        let lane = events.first().map(|event| event.session_id.clone()).unwrap_or_default();
        let ids: Vec<_> = events.iter().map(|event| event.msg_id.clone().unwrap_or_default()).collect();
        if ids.iter().all(|id| is_begin_of_step(id)) {
            return self.wire.plainly(self.inner.emit(events)).await;
        }
        self.wire.counted_for("emit", &lane, &ids, self.inner.emit(events)).await
    }

    async fn events(
        &self,
        session_id: &str,
        from: From,
    ) -> queue::Result<BoxStream<'static, queue::Result<StreamEvent>>> {
        self.wire.plainly(self.inner.events(session_id, from)).await
    }

    async fn has_session(&self, session_id: &str) -> queue::Result<bool> {
        self.wire.plainly(self.inner.has_session(session_id)).await
    }

    async fn publish_dead_letter(&self, letter: DeadLetter) -> queue::Result<()> {
        let lane = letter.subject.rsplit('.').next().unwrap_or_default().to_owned();
        self.wire.counted("publish_dead_letter", &lane, self.inner.publish_dead_letter(letter)).await
    }

    async fn dead_letters(&self, after: u64, limit: usize) -> queue::Result<Vec<StoredDeadLetter>> {
        self.wire.plainly(self.inner.dead_letters(after, limit)).await
    }

    async fn last_dead_letter_seq(&self) -> queue::Result<u64> {
        self.wire.plainly(self.inner.last_dead_letter_seq()).await
    }

    async fn remove_dead_letter(&self, seq: u64) -> queue::Result<bool> {
        self.wire.plainly(self.inner.remove_dead_letter(seq)).await
    }

    async fn hint_cancel(&self, hint: CancelHint) -> queue::Result<()> {
        self.wire.plainly(self.inner.hint_cancel(hint)).await
    }

    async fn cancel_hints(&self) -> queue::Result<BoxStream<'static, CancelHint>> {
        self.wire.plainly(self.inner.cancel_hints()).await
    }

    async fn notify_scheduler(&self) -> queue::Result<()> {
        self.wire.counted("notify_scheduler", "", self.inner.notify_scheduler()).await
    }

    async fn timer_hints(&self) -> queue::Result<BoxStream<'static, TimerHint>> {
        self.wire.plainly(self.inner.timer_hints()).await
    }

    async fn ping(&self) -> queue::Result<()> {
        self.wire.plainly(self.inner.ping()).await
    }
}
