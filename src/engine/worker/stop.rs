//! The reasons for which a worker leaves a lane with unfinished jobs, and the delay until the queue redelivers these
//! jobs.

use super::WorkerState;
use crate::execution::TurnError;
use base::error::SharedError;
use base::metrics::metrics;
use std::time::Duration;
use storage::queue::QueueError;
use storage::store::StoreError;
use tracing::{debug, error, warn};
use types::timestamp::Timestamp;

/// Redelivery delay while queue or store are unreachable.
const UNREACHABLE_DELAY: Duration = Duration::from_secs(1);
/// Time after the end of another worker's lease at which the lane is tried again.
const LEASE_EXPIRY_MARGIN: Duration = Duration::from_millis(20);
/// Redelivery delay of a failed job whose error names no delay.
const FAILURE_DELAY: Duration = Duration::from_secs(5);
/// Redelivery delay of a run that waits for room in the lane of its session.
const NO_ROOM_DELAY: Duration = Duration::from_secs(5);
/// Bounds of the redelivery delay of a job that queue or store refuse; see [`refused_delay`].
const MIN_REFUSED_DELAY: Duration = Duration::from_secs(1);
const MAX_REFUSED_DELAY: Duration = Duration::from_secs(300);
/// Bounds of the redelivery delay of a job that waits for a worker of a newer version; see [`newer_delay`].
const MIN_NEWER_DELAY: Duration = Duration::from_millis(500);
const MAX_NEWER_DELAY: Duration = Duration::from_secs(15);

/// The reason for which a worker leaves a lane with unfinished jobs.
pub(super) enum Stop {
    /// Queue or store are unreachable. Does not count as an attempt of the job.
    Infrastructure(SharedError),
    /// The job failed. It is retried after the delay, and the attempt counts.
    Failed(SharedError, Duration),
    /// Another worker holds the lease, until this time unless it renews it.
    Busy(Timestamp),
    /// This worker held the lease and lost it.
    Lost,
    /// The worker is stopping.
    Stopping,
    /// The job's model occupies all places that it may have. The job is retried after the delay.
    Saturated(Duration),
    /// This version of Turnwheel cannot read the session or a document that it needs. Another worker may be able to.
    Unreadable(SharedError),
    /// A newer version of Turnwheel wrote the job, the session or a document that it needs, and only a worker of that
    /// version can handle it.
    Newer(SharedError),
    /// Queue or store refuse the session or its job, and a retry would be refused too.
    Refused(SharedError),
    /// The lane of another session has no room for the job that this run publishes when it ends.
    NoRoom(SharedError),
    /// The messages of the lane belong to another stream than the one that the session has recorded.
    OtherStream,
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) => Self::Infrastructure(error.into()),
            StoreError::Damaged { .. } => Self::Unreadable(error.into()),
            StoreError::Newer { .. } => Self::Newer(error.into()),
            StoreError::Refused(_) => Self::Refused(error.into()),
        }
    }
}

impl From<QueueError> for Stop {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::Unavailable(_) | QueueError::Full(_) => Self::Infrastructure(error.into()),
            // A retry does not help, and other sessions must not wait for it.
            QueueError::TooLarge { .. } | QueueError::Refused(_) => Self::Refused(error.into()),
        }
    }
}

impl Stop {
    /// The reason for which even the abandoning of a turn failed.
    pub(super) fn from_give_up_error(error: TurnError) -> Self {
        match error {
            TurnError::Infrastructure(problem) => Self::Infrastructure(problem),
            TurnError::Lost => Self::Lost,
            TurnError::NoRoom(problem) => Self::NoRoom(problem),
            TurnError::Newer(problem) => Self::Newer(problem),
            TurnError::Failed(problem) | TurnError::Replay(problem) | TurnError::Overtaken(problem) => {
                Self::Failed(problem, FAILURE_DELAY)
            }
            error @ TurnError::Cancelled => Self::Failed(error.into(), FAILURE_DELAY),
        }
    }
}

/// Ends the lane and releases its waiting deliveries, to be redelivered after the delay that `stop` calls for.
pub(super) async fn leave_lane(shared: &WorkerState, session_id: &str, stop: Stop) {
    let delay = match stop {
        Stop::Infrastructure(problem) => {
            shared.health.report_failure(&problem.to_string());
            UNREACHABLE_DELAY
        }
        Stop::Failed(problem, delay) => {
            error!(
                delay_ms = delay.as_millis(),
                "turn failed; its jobs will be redelivered after the delay: {problem}"
            );
            delay
        }
        Stop::Busy(until) => busy_delay(shared.clock().now(), until, shared.ack_wait),
        // The lease holder sees the waiting messages before it releases the lane.
        Stop::Lost => {
            metrics().lease_losses.inc();
            shared.ack_wait / 2
        }
        Stop::Stopping => Duration::ZERO,
        Stop::Saturated(delay) => {
            metrics().crowded.inc();
            delay
        }
        Stop::Unreadable(problem) => {
            metrics().unreadable.inc();
            let delay = shared.ack_wait * 2;
            error!(
                delay_ms = delay.as_millis(),
                "{problem}; a newer version of Turnwheel may have written it; the session's jobs wait for a worker that can \
                 read it, or for its repair"
            );
            delay
        }
        Stop::Newer(problem) => {
            metrics().left_to_newer(shared.clock().now().as_millis() / 1_000);
            let delay = newer_delay(shared.lanes.oldest_waiting(session_id), shared.clock().now());
            warn!(session_id, delay_ms = delay.as_millis(), "left to a worker of a newer version: {problem}");
            delay
        }
        Stop::Refused(problem) => {
            metrics().refused.inc();
            let delay = refused_delay(shared.lanes.oldest_waiting(session_id), shared.clock().now());
            error!(
                session_id,
                delay_ms = delay.as_millis(),
                "{problem}; the session's jobs wait until this is repaired, and are retried less often as they grow older"
            );
            delay
        }
        Stop::NoRoom(problem) => {
            warn!(
                session_id,
                delay_ms = NO_ROOM_DELAY.as_millis(),
                "cannot end the run yet, retrying after the delay: {problem}"
            );
            NO_ROOM_DELAY
        }
        Stop::OtherStream => LEASE_EXPIRY_MARGIN,
    };
    for token in shared.lanes.remove(session_id) {
        if let Err(error) = shared.queue().nak(&token, delay).await {
            debug!("nak failed; the message will be redelivered after the ack wait: {error}");
        }
    }
}

/// The delay before a lane that another worker holds is tried again. A live lease holder sees the waiting messages
/// before it releases the lane. The lease of a dead one expires, and its lane should not wait much longer than that.
/// The bounds allow for a difference between the clocks of worker and store.
fn busy_delay(now: Timestamp, until: Timestamp, ack_wait: Duration) -> Duration {
    (now.until(until) + LEASE_EXPIRY_MARGIN).clamp(ack_wait / 40, ack_wait / 2)
}

/// The redelivery delay of a refused job: its age, which doubles the delay each time.
fn refused_delay(published_at: Option<Timestamp>, now: Timestamp) -> Duration {
    published_at.map_or(MIN_REFUSED_DELAY, |at| at.until(now)).clamp(MIN_REFUSED_DELAY, MAX_REFUSED_DELAY)
}

/// The redelivery delay of a job for newer workers. It grows with the job's age, and slowly: during an upgrade, the
/// next delivery may reach such a worker.
fn newer_delay(published_at: Option<Timestamp>, now: Timestamp) -> Duration {
    published_at.map_or(MIN_NEWER_DELAY, |at| at.until(now) / 4).clamp(MIN_NEWER_DELAY, MAX_NEWER_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_asked_for_again_when_its_lease_ends_but_neither_at_once_nor_late() {
        let wait = |left: i64| {
            let (now, until) = (Timestamp::from_millis(100_000), Timestamp::from_millis(100_000 + left));
            busy_delay(now, until, Duration::from_secs(6)).as_millis()
        };
        assert_eq!(wait(1_000), 1_020, "retried right after the lease of a dead holder expires");
        assert_eq!(wait(5_900), 3_000, "retried in the middle of a lease that was just renewed");
        assert_eq!(wait(-500), 150, "a clock that is ahead does not cause a busy loop");
    }

    #[test]
    fn a_job_that_is_refused_is_tried_less_and_less_often() {
        let (mut now, mut delays) = (10_000, Vec::new());
        for _ in 0..12 {
            let delay = refused_delay(Some(Timestamp::from_millis(10_000)), Timestamp::from_millis(now));
            delays.push(delay.as_secs());
            now += i64::try_from(delay.as_millis()).unwrap();
        }
        assert_eq!(delays, [1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        let ahead = refused_delay(Some(Timestamp::from_millis(99)), Timestamp::from_millis(0));
        assert_eq!(ahead, MIN_REFUSED_DELAY, "the stream's clock may be ahead");
    }
}
