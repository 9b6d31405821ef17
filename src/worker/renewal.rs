//! Keeps every lease and every unacknowledged delivery of the worker alive: two calls each time, however many there are.

use super::Shared;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Renews three times in each ack wait, until `stop`.
pub(super) async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(shared.ack_wait / 3);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => renew(&shared).await,
            () = stop.cancelled() => return,
        }
    }
}

async fn renew(shared: &Shared) {
    let (held, tokens) = shared.lanes.all();
    if !held.is_empty() {
        let until = Instant::now() + shared.ack_wait;
        match shared.store().renew(&held, shared.ack_wait).await {
            Ok(lost) => {
                held.iter().filter(|held| !lost.contains(held)).for_each(|held| shared.lanes.renewed(held, until));
                for held in lost.into_iter().filter(|held| shared.lanes.lost(held)) {
                    warn!(session_id = held.session_id, epoch = held.epoch, "the lease is lost");
                }
            }
            Err(error) => shared.health.failed(&error.to_string()),
        }
    }
    if !tokens.is_empty()
        && let Err(error) = shared.queue().progress(&tokens).await
    {
        shared.health.failed(&error.to_string());
    }
}
