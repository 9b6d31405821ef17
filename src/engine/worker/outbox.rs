//! Publishes the outbox of a committed turn.

use super::WorkerState;
use super::intake::{self, RejectedJob};
use super::stop::Stop;
use std::sync::Arc;
use storage::queue::{Message, QueueError};
use types::cause::Cause;
use types::event::OutEvent;

/// Publishes the outbox of the turn that processed `message`. The events keep their ids when it is published again.
/// Events that exceed the queue's size limit are skipped and listed in one dead letter that carries the turn's message.
pub(super) async fn publish(shared: &WorkerState, message: &Message, outbox: Arc<[OutEvent]>) -> Result<(), Stop> {
    if outbox.is_empty() {
        return Ok(());
    }
    match shared.queue().emit(Arc::clone(&outbox)).await {
        Err(QueueError::TooLarge { .. }) => Box::pin(publish_what_fits(shared, message, &outbox)).await,
        published => Ok(published?),
    }
}

/// Publishes the events one by one. The commit has checked their sizes, so the queue's limit was lowered since then.
async fn publish_what_fits(shared: &WorkerState, message: &Message, outbox: &[OutEvent]) -> Result<(), Stop> {
    let mut refused = Vec::new();
    for event in outbox {
        match shared.queue().emit([event.clone()].into()).await {
            Ok(()) => {}
            Err(error @ QueueError::TooLarge { .. }) => {
                refused.push(format!("{} ({error})", event.msg_id.as_deref().unwrap_or(event.event_type.as_str())));
            }
            Err(error) => return Err(error.into()),
        }
    }
    if refused.is_empty() {
        return Ok(());
    }
    let reason = format!(
        "the turn is committed, but these of its events could not be published: {}; raise max_payload of nats-server, \
         then replay this dead letter, which runs the turn again",
        refused.join(", ")
    );
    let job_id = message.job().map_or_else(|_| message.job_id(), |job| job.job_id);
    let rejected = RejectedJob { cause: Cause::Attempts, reason, job_id: Some(job_id), attempts: 1 };
    Ok(intake::dead_letter(shared, message, rejected).await?)
}
