//! Renews all leases and extends all unacknowledged deliveries of the worker, with one call each for all of them, and
//! only if they have used up a third of their time. Most turns end before.
//!
//! Two independent loops serve store and queue, so that an unreachable store does not cost the deliveries, nor an
//! unreachable queue the leases.

use super::WorkerState;
use std::collections::HashSet;
use std::sync::Arc;
use storage::store::records::LeaseKey;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Runs six times in each ack wait, until `stop`.
pub(super) async fn run(shared: Arc<WorkerState>, stop: CancellationToken) {
    let forever = async { tokio::join!(leases(&shared), deliveries(&shared)) };
    tokio::select! {
        _ = forever => {}
        () = stop.cancelled() => {}
    }
}

async fn leases(shared: &WorkerState) {
    loop {
        shared.clock().sleep(shared.ack_wait / 6).await;
        let held = shared.lanes.leases_expiring_before(shared.clock().moment() + shared.ack_wait * 2 / 3);
        if held.is_empty() {
            continue;
        }
        let until = shared.clock().moment() + shared.ack_wait;
        match shared.store().renew(&held, shared.ack_wait).await {
            Ok(lost) => {
                let lost: HashSet<LeaseKey> = lost.into_iter().collect();
                held.iter()
                    .filter(|held| !lost.contains(held))
                    .for_each(|held| shared.lanes.lease_renewed(held, until));
                for held in lost.into_iter().filter(|held| shared.lanes.lease_lost(held)) {
                    warn!(
                        session_id = held.session_id,
                        epoch = held.epoch,
                        "lease lost: another worker has taken the lane"
                    );
                }
            }
            Err(error) => shared.health.report_failure(&error.to_string()),
        }
    }
}

async fn deliveries(shared: &WorkerState) {
    loop {
        shared.clock().sleep(shared.ack_wait / 6).await;
        let now = shared.clock().moment();
        let waiting = shared.lanes.stale_deliveries(now.minus(shared.ack_wait / 3));
        if waiting.is_empty() {
            continue;
        }
        let (places, tokens): (Vec<_>, Vec<_>) =
            waiting.into_iter().map(|(session_id, seq, token)| ((session_id, seq), token)).unzip();
        match shared.queue().progress(&tokens).await {
            Ok(()) => {
                shared.lanes.mark_extended(places.iter().map(|(session_id, seq)| (session_id.as_str(), *seq)), now)
            }
            Err(error) => shared.health.report_failure(&error.to_string()),
        }
    }
}
