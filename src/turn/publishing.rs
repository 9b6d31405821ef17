//! Publishing on the way: what a turn has collected goes out while it works, in the order in which it was collected.
//!
//! A step does not wait for the events before it. What is not known to be in the stream when the turn ends belongs to the
//! outbox of its commit, which goes on beside it: [`Publishing::arrived`] tells how much of it need not be published again.

use super::TurnError;
use super::state::Turn;
use crate::queue::OutEvent;
use crate::store::{Change, Record};
use futures::FutureExt;
use futures::future::{BoxFuture, Either, select};
use std::future::Future;
use std::sync::Arc;

/// So many events may be on their way while the turn goes on: all of them would be in its commit's outbox.
const RUN_AHEAD: usize = 4;

/// Events on their way to the stream.
pub struct Publishing {
    events: Vec<OutEvent>,
    done: BoxFuture<'static, Result<(), TurnError>>,
}

/// How a turn has ended: what its commit writes, and the first events of that outbox, if they are on their way by now.
pub struct Finished {
    /// To be committed.
    pub change: Box<Change>,
    /// To be waited for beside the commit.
    pub publishing: Option<Publishing>,
}

impl From<Change> for Finished {
    fn from(change: Change) -> Self {
        Self { change: Box::new(change), publishing: None }
    }
}

impl Publishing {
    /// Waits for them. Answers how many are in the stream for certain.
    pub async fn arrived(self) -> usize {
        if self.done.await.is_ok() { self.events.len() } else { 0 }
    }
}

impl Turn<'_> {
    /// Makes what has been collected visible: first the document's status, then the events.
    pub(super) async fn settle(&mut self) -> Result<(), TurnError> {
        self.announce().await?;
        self.flush().await
    }

    /// Publishes what has been collected.
    pub(super) async fn flush(&mut self) -> Result<(), TurnError> {
        match self.publishing() {
            Some(publishing) => publishing.done.await,
            None => Ok(()),
        }
    }

    /// Runs something slow, such as a step, while what has been collected is published. What a status announces never
    /// starts before the status is durable (E-05); its event may come a moment later.
    pub(super) async fn beside<T>(&mut self, slow: impl Future<Output = T> + Unpin) -> Result<T, TurnError> {
        self.announce().await?;
        if self.under_way.as_ref().is_some_and(|earlier| earlier.events.len() >= RUN_AHEAD) {
            self.flush().await?;
        }
        let Some(Publishing { events, done }) = self.publishing() else { return Ok(slow.await) };
        match select(done, slow).await {
            Either::Left((published, slow)) => {
                drop(events);
                let answer = slow.await;
                published.map(|()| answer)
            }
            Either::Right((answer, done)) => {
                self.under_way = Some(Publishing { events, done });
                Ok(answer)
            }
        }
    }

    /// Makes the status durable.
    async fn announce(&mut self) -> Result<(), TurnError> {
        let status = self.status();
        if self.shown != status {
            let request = Record {
                session_id: self.session.session_id.clone(),
                epoch: self.session.epoch,
                turn_id: self.turn_id().to_owned(),
                steps: self.journal.take_notes(),
                status: Some(status),
            };
            self.services.store.record(request).await?;
            self.shown = status;
        }
        Ok(())
    }

    /// What has been collected, after what is on its way.
    fn publishing(&mut self) -> Option<Publishing> {
        let earlier = self.under_way.take();
        if self.outbox.is_empty() {
            return earlier;
        }
        let (collected, guard) = (std::mem::take(&mut self.outbox), self.guard.clone());
        let (mut events, before) =
            earlier.map_or_else(Default::default, |earlier| (earlier.events, Some(earlier.done)));
        events.extend_from_slice(&collected);
        let queue = Arc::clone(&self.services.queue);
        let done = async move {
            if let Some(before) = before {
                before.await?;
            }
            if guard.holds().await? { Ok(queue.emit(collected).await?) } else { Err(TurnError::Lost) }
        };
        Some(Publishing { events, done: done.boxed() })
    }

    /// What is on its way still, as the beginning of the outbox.
    pub(super) fn hand_over(&mut self) -> Result<Option<Publishing>, TurnError> {
        let Some(mut publishing) = self.under_way.take() else { return Ok(None) };
        if let Some(published) = (&mut publishing.done).now_or_never() {
            return published.map(|()| None);
        }
        self.outbox.splice(0..0, publishing.events.iter().cloned());
        Ok(Some(publishing))
    }
}
