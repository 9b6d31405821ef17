//! The event of a step that is under way for a while. Watchers see it before the step's own event, which may come
//! minutes later.

use super::Turn;
use crate::execution::TurnError;
use crate::journal::{Guard, Journal};
use base::clock::Clock;
use futures::FutureExt;
use futures::future::FusedFuture;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::Queue;
use tracing::debug;
use types::event::{EventType, OutEvent, StepEvent, StepPhase};

/// How long a step is under way before its event is published. Most steps are shorter and have only their own event.
const LONG: Duration = Duration::from_millis(300);

/// A step that is about to run, as its events name it.
#[derive(Clone, Copy)]
pub(in crate::turn) struct StepName<'s> {
    pub(in crate::turn) kind: &'static str,
    pub(in crate::turn) target: &'s str,
    pub(in crate::turn) key: &'s str,
}

/// The publication of one step's begin.
pub(super) struct Announcement {
    clock: Clock,
    queue: Arc<dyn Queue>,
    guard: Guard,
    journal: Journal,
    channel: String,
    /// The time of the begin is that of the announcement for a step that the journal does not run itself.
    is_journalled: bool,
    event: StepEvent,
}

impl Turn<'_> {
    /// The announcement of a step that the journal runs.
    pub(super) fn announcement(&self, step: StepName<'_>) -> Announcement {
        let StepName { kind, target, key } = step;
        Announcement {
            clock: self.services.clock.clone(),
            queue: Arc::clone(&self.services.queue),
            guard: self.guard.clone(),
            journal: self.journal.clone(),
            channel: self.session.channel.clone(),
            is_journalled: true,
            event: StepEvent {
                session_id: self.session.session_id.clone(),
                turn_id: self.turn_id().to_owned(),
                key: key.to_owned(),
                kind: kind.to_owned(),
                target: target.to_owned(),
                ok: true,
                ms: 0,
                phase: Some(StepPhase::Begin),
                attempt: Some(self.attempt),
                at: None,
            },
        }
    }

    /// Runs a flow, and publishes its begin if it is under way for [`LONG`]. `work` must not be a flow whose end is
    /// recorded.
    pub(in crate::turn) fn flow_announcement(&self, target: &str, key: &str) -> impl Future<Output = ()> + use<> {
        let announcement =
            Announcement { is_journalled: false, ..self.announcement(StepName { kind: "flow", target, key }) };
        let is_new = !self.journal.is_recorded(key);
        async move {
            if is_new {
                announcement.publish().await;
            }
        }
    }
}

impl Announcement {
    /// Waits until the step has been under way for [`LONG`], and publishes its begin. The caller drops the future when
    /// the step has ended. A failure is logged only: the step's own event follows.
    pub(super) async fn publish(mut self) {
        let (mut begun, mut at) = (self.clock.moment(), self.clock.now());
        loop {
            self.clock.sleep_until(begun + LONG).await;
            if !self.is_journalled {
                break;
            }
            match self.journal.under_way_since(&self.event.key) {
                Some((since, since_at)) if since.until(self.clock.moment()) >= LONG => {
                    (begun, at) = (since, since_at);
                    break;
                }
                Some((since, _)) => begun = since,
                // A replayed step, one that waits for an earlier record, or one whose record is being written.
                None => begun = self.clock.moment(),
            }
        }
        self.event.ms = u64::try_from(begun.until(self.clock.moment()).as_millis()).unwrap_or(u64::MAX);
        self.event.at = Some(at);
        if !matches!(self.guard.holds().await, Ok(true)) {
            return;
        }
        let attempt = self.event.attempt.unwrap_or_default();
        let event = OutEvent {
            channel: self.channel,
            session_id: self.event.session_id.clone(),
            event_type: EventType::Step,
            msg_id: Some(self.journal.idempotency_key(&format!("step/{}/begin/{attempt}", self.event.key))),
            // Plain data with text keys always serialises.
            payload: serde_json::to_vec(&self.event).unwrap_or_default().into(),
        };
        if let Err(error) = self.queue.emit([event].into()).await {
            debug!(session_id = %self.event.session_id, key = %self.event.key, "the begin of a step is not published: {error}");
        }
    }
}

/// Runs `work` and `first` concurrently, and `after` once `first` has succeeded. Returns when `work` and `first` have
/// ended, and drops `after`: nothing waits for it.
pub(in crate::turn) async fn run_beside<T>(
    first: impl Future<Output = Result<(), TurnError>>,
    work: impl Future<Output = T>,
    after: impl Future<Output = ()>,
) -> Result<T, TurnError> {
    let mut first = pin!(first);
    let mut work = pin!(work);
    let mut after = pin!(after.fuse());
    let mut published = None;
    let done = loop {
        tokio::select! {
            biased;
            result = &mut first, if published.is_none() => published = Some(result),
            done = &mut work => break done,
            () = &mut after, if matches!(published, Some(Ok(()))) && !after.is_terminated() => {}
        }
    };
    match published {
        Some(published) => published?,
        None => first.await?,
    }
    Ok(done)
}
