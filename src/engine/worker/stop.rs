//! Why a worker leaves a lane with work undone, and when the lane's jobs are delivered again.

use super::Shared;
use crate::execution::TurnError;
use base::metrics::metrics;
use std::time::Duration;
use storage::queue::QueueError;
use storage::store::StoreError;
use tracing::{debug, error, warn};
use types::timestamp::Timestamp;

/// Redelivery delay while queue or store are unreachable.
const AWAY: Duration = Duration::from_secs(1);
/// How long after a lease's end its lane is asked for again.
const AFTER_LEASE: Duration = Duration::from_millis(20);
/// Redelivery delay of a job that failed without a delay of its own.
const FAILED: Duration = Duration::from_secs(5);
/// Redelivery delay of a run whose session has a full lane.
const NO_ROOM: Duration = Duration::from_secs(5);
/// Redelivery delays of a job that queue or store refuse: see [`refused_for`].
const FIRST_REFUSED: Duration = Duration::from_secs(1);
const LAST_REFUSED: Duration = Duration::from_secs(300);

/// Why a lane is left with work undone.
pub(super) enum Stop {
    /// Queue or store are away. Not the job's fault.
    Infrastructure(String),
    /// The job failed; it is tried again after the delay, and counted.
    Failed(String, Duration),
    /// Somebody else holds the lane, until then unless renewed.
    Busy(Timestamp),
    /// The lane was ours, and is somebody else's by now.
    Lost,
    /// The worker is stopping.
    Stopping,
    /// Enough turns wait for this job's model already; it is tried again after the delay.
    Crowded(Duration),
    /// This version of Turnwheel cannot read the session, or what it needs: another worker may.
    Unreadable(String),
    /// Queue or store refuse the session or its job, and will refuse them again.
    Refused(String),
    /// The lane of another session has no room for a job that this one publishes at its end.
    NoRoom(String),
    /// The lane's messages are those of another stream than the session's.
    OtherStream,
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) => Self::Infrastructure(error.to_string()),
            StoreError::Damaged { .. } => Self::Unreadable(error.to_string()),
            StoreError::Refused(_) => Self::Refused(error.to_string()),
        }
    }
}

impl From<QueueError> for Stop {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::Unavailable(_) | QueueError::Full(_) => Self::Infrastructure(error.to_string()),
            // Waiting does not help, and other sessions are not to wait for it.
            QueueError::TooLarge { .. } | QueueError::Refused(_) => Self::Refused(error.to_string()),
        }
    }
}

impl Stop {
    /// Why a turn could not even be given up.
    pub(super) fn not_given_up(error: TurnError) -> Self {
        match error {
            TurnError::Infrastructure(problem) => Self::Infrastructure(problem),
            TurnError::Lost => Self::Lost,
            TurnError::NoRoom(problem) => Self::NoRoom(problem),
            TurnError::Failed(problem) | TurnError::Replay(problem) | TurnError::Overtaken(problem) => {
                Self::Failed(problem, FAILED)
            }
            error @ TurnError::Cancelled => Self::Failed(error.to_string(), FAILED),
        }
    }
}

/// Gives back what waits, for whoever is next.
pub(super) async fn leave(shared: &Shared, session_id: &str, stop: Stop) {
    let delay = match stop {
        Stop::Infrastructure(problem) => {
            shared.health.failed(&problem);
            AWAY
        }
        Stop::Failed(problem, delay) => {
            error!(delay_ms = delay.as_millis(), "the lane is left: {problem}");
            delay
        }
        Stop::Busy(until) => patience(shared.clock().now(), until, shared.ack_wait),
        // Whoever has it sees what waits before it lets go.
        Stop::Lost => {
            metrics().lease_losses.inc();
            shared.ack_wait / 2
        }
        Stop::Stopping => Duration::ZERO,
        Stop::Crowded(delay) => {
            metrics().crowded.inc();
            delay
        }
        Stop::Unreadable(problem) => {
            metrics().unreadable.inc();
            let delay = shared.ack_wait * 2;
            error!(
                delay_ms = delay.as_millis(),
                "{problem}; a newer version may have written it: its jobs wait for a worker that reads it, or for its repair"
            );
            delay
        }
        Stop::Refused(problem) => {
            metrics().refused.inc();
            let delay = refused_for(shared.lanes.oldest(session_id), shared.clock().now());
            error!(
                session_id,
                delay_ms = delay.as_millis(),
                "{problem}; the session's jobs wait until this is repaired, and are tried less often as they grow older"
            );
            delay
        }
        Stop::NoRoom(problem) => {
            warn!(session_id, delay_ms = NO_ROOM.as_millis(), "the run ends later: {problem}");
            NO_ROOM
        }
        Stop::OtherStream => AFTER_LEASE,
    };
    for token in shared.lanes.end(session_id) {
        if let Err(error) = shared.queue().nak(&token, delay).await {
            debug!("not given back, it comes again after the ack wait: {error}");
        }
    }
}

/// When to ask again for a lane that is held. Its holder sees what waits before it lets go; should it have died, its lease
/// ends by itself, and nobody is to wait much longer than that. The clocks of worker and store may differ.
fn patience(now: Timestamp, until: Timestamp, ack_wait: Duration) -> Duration {
    (now.until(until) + AFTER_LEASE).clamp(ack_wait / 40, ack_wait / 2)
}

/// The redelivery delay of a job that is refused: its age, so that each delay is twice the one before.
fn refused_for(published_at: Option<Timestamp>, now: Timestamp) -> Duration {
    published_at.map_or(FIRST_REFUSED, |at| at.until(now)).clamp(FIRST_REFUSED, LAST_REFUSED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_asked_for_again_when_its_lease_ends_but_neither_at_once_nor_late() {
        let wait = |left: i64| {
            let (now, until) = (Timestamp::from_millis(100_000), Timestamp::from_millis(100_000 + left));
            patience(now, until, Duration::from_secs(6)).as_millis()
        };
        assert_eq!(wait(1_000), 1_020, "a holder that died is followed at once");
        assert_eq!(wait(5_900), 3_000, "one that has just renewed is asked in the middle of its lease");
        assert_eq!(wait(-500), 150, "a clock that is ahead does not make it ask without end");
    }

    #[test]
    fn a_job_that_is_refused_is_tried_less_and_less_often() {
        let (mut now, mut delays) = (10_000, Vec::new());
        for _ in 0..12 {
            let delay = refused_for(Some(Timestamp::from_millis(10_000)), Timestamp::from_millis(now));
            delays.push(delay.as_secs());
            now += i64::try_from(delay.as_millis()).unwrap();
        }
        assert_eq!(delays, [1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        let ahead = refused_for(Some(Timestamp::from_millis(99)), Timestamp::from_millis(0));
        assert_eq!(ahead, FIRST_REFUSED, "the stream's clock may be ahead");
    }
}
