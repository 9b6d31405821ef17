//! Cancellations of the turn in flight.
//!
//! The `cancel` command, and the `claim` with which a human takes the conversation over, wait in the lane behind the
//! turn that they are to cancel. So the publisher, or a worker that is woken for the command while another worker holds
//! the lease, sends a hint to all workers. The worker that drives the lane then reads the command from the stream. A
//! hint alone cancels nothing.

use super::{WorkerState, intake};
use crate::execution::CancelReason;
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::{CancelHint, Message};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use types::job::{Command, Control, Job, JobBody};

/// Pause before the worker subscribes to the hints again.
const RESUBSCRIBE_DELAY: Duration = Duration::from_secs(1);

/// Maximum size of a cancel command. Larger messages are not parsed before their turn.
const MAX_COMMAND_BYTES: usize = 16 * 1024;

/// Listens for cancel hints until `stop`.
pub(super) async fn listen(shared: Arc<WorkerState>, stop: CancellationToken) {
    let forever = async {
        loop {
            match shared.queue().cancel_hints().await {
                Ok(mut hints) => {
                    while let Some(hint) = hints.next().await {
                        handle_hint(&shared, &hint).await;
                    }
                }
                Err(error) => debug!("could not subscribe to cancel hints: {error}"),
            }
            shared.clock().sleep(RESUBSCRIBE_DELAY).await;
        }
    };
    stop.run_until_cancelled(forever).await;
}

/// Cancels the current turn if this worker drives the lane and the stream has the command. Leaves the lane of a session
/// that is being deleted.
async fn handle_hint(shared: &WorkerState, hint: &CancelHint) {
    let CancelHint { session_id, seq, deleted } = hint;
    if *deleted {
        shared.lanes.abandon(session_id);
        shared.store().forget(session_id);
        return;
    }
    if *seq == 0 || !shared.lanes.drives(session_id) {
        return;
    }
    match shared.queue().next_in_lane(session_id, seq - 1, *seq).await {
        Ok(Some(message)) if message.seq == *seq => cancel_if_commanded(shared, &message),
        Ok(_) => {}
        Err(error) => debug!(session_id, seq, "could not read the cancel command: {error}"),
    }
}

/// Cancels the current turn if `message`, which waits behind it, is a cancel command.
pub(super) fn cancel_if_commanded(shared: &WorkerState, message: &Message) {
    let may_cancel = || contains(&message.payload, b"cancel") || contains(&message.payload, b"take_over");
    if message.payload.len() > MAX_COMMAND_BYTES || !may_cancel() {
        return;
    }
    let Ok(job) = intake::decode(message) else { return };
    if let Some(reason) = cancellation(&job) {
        info!(session_id = message.session_id, seq = message.seq, %reason, "command received; cancelling the turn");
        shared.lanes.cancel(&message.session_id, message.seq, reason);
    }
}

/// Sends a cancel hint to all workers if `job`, whose lane another worker holds, cancels the turns before it.
pub(super) async fn notify_workers(shared: &WorkerState, job: &Job, seq: u64) {
    if cancellation(job).is_none() {
        return;
    }
    let hint = CancelHint { session_id: job.session_id.clone(), seq, deleted: false };
    if let Err(error) = shared.queue().hint_cancel(hint).await {
        debug!("could not notify the lease holder of the cancellation; a redelivery will retry: {error}");
    }
}

fn cancellation(job: &Job) -> Option<CancelReason> {
    match &job.body {
        JobBody::Control(Control { command: Command::Cancel, reason, by, .. }) => {
            Some(CancelReason::operator(reason.as_deref(), by.as_deref()))
        }
        JobBody::Control(Control { command: Command::Claim, take_over: true, reason, by, .. }) => {
            Some(CancelReason::takeover(reason.as_deref(), by.as_deref()))
        }
        _ => None,
    }
}

fn contains(payload: &[u8], word: &[u8]) -> bool {
    payload.windows(word.len()).any(|window| window == word)
}
