//! Cancellations that reach a turn in hand. The command itself waits in the lane, behind the turn that it is to end; so
//! whoever publishes it, or is woken for it while the lane is held elsewhere, tells all workers, and the one that has the
//! lane reads it from the stream. What a hint alone says ends no turn.

use super::{Shared, intake};
use crate::execution::CancelReason;
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::{CancelHint, Message};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use types::job::{Command, Job, JobBody};

/// How long until the hints are listened to again.
const AGAIN: Duration = Duration::from_secs(1);

/// No command is longer: larger messages are not looked into before their turn comes.
const MAX_BYTES: usize = 16 * 1024;

/// Listens to hints until `stop`.
pub(super) async fn listen(shared: Arc<Shared>, stop: CancellationToken) {
    let forever = async {
        loop {
            match shared.queue().cancel_hints().await {
                Ok(mut hints) => {
                    while let Some(hint) = hints.next().await {
                        heed(&shared, &hint).await;
                    }
                }
                Err(error) => debug!("no hints of cancellations from the queue: {error}"),
            }
            shared.clock().sleep(AGAIN).await;
        }
    };
    stop.run_until_cancelled(forever).await;
}

/// Ends the turn in hand, if this worker has the lane and the command is there.
async fn heed(shared: &Shared, hint: &CancelHint) {
    let CancelHint { session_id, seq } = hint;
    if *seq == 0 || !shared.lanes.drives(session_id) {
        return;
    }
    match shared.queue().next_in_lane(session_id, seq - 1, *seq).await {
        Ok(Some(message)) if message.seq == *seq => obey(shared, &message),
        Ok(_) => {}
        Err(error) => debug!(session_id, seq, "the cancellation cannot be read yet: {error}"),
    }
}

/// Ends the turn in hand if `message`, which waits behind it, is a cancellation.
pub(super) fn obey(shared: &Shared, message: &Message) {
    if message.payload.len() > MAX_BYTES || !has(&message.payload, b"cancel") {
        return;
    }
    let Ok(job) = intake::decode(message) else { return };
    if let Some(reason) = cancellation(&job) {
        info!(session_id = message.session_id, seq = message.seq, %reason, "a cancellation reaches the lane");
        shared.lanes.cancel(&message.session_id, message.seq, reason);
    }
}

/// Tells all workers of a cancellation whose lane is held elsewhere.
pub(super) async fn pass_on(shared: &Shared, job: &Job, seq: u64) {
    if cancellation(job).is_none() {
        return;
    }
    let hint = CancelHint { session_id: job.session_id.clone(), seq };
    if let Err(error) = shared.queue().hint_cancel(hint).await {
        debug!("the lane's holder gets no hint of a cancellation, its next delivery gives another: {error}");
    }
}

fn cancellation(job: &Job) -> Option<CancelReason> {
    match &job.body {
        JobBody::Control { command: Command::Cancel, reason, by, .. } => {
            Some(CancelReason::operator(reason.as_deref(), by.as_deref()))
        }
        _ => None,
    }
}

fn has(payload: &[u8], word: &[u8]) -> bool {
    payload.windows(word.len()).any(|window| window == word)
}
