//! The scheduler's regular work apart from timers: waking lanes with work and no lease holder, closing idle
//! conversations, deleting expired turns.

use base::clock::{Clock, Moment};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use storage::queue::{Publish, Queue};
use storage::store::Store;
use storage::store::records::{AbandonedLane, IdleSession};
use tracing::{debug, info, warn};
use types::job::{Command, Control, Job, JobBody};

/// How long a lane may be without a lease holder before it is woken. The queue's own redelivery comes before that.
const ABANDONED_AFTER: Duration = Duration::from_secs(10);
/// Time after a wake-up before the lane is woken again, because the wake-up was lost or its worker failed.
const WAKE_UP_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of lanes or sessions per round.
const MAX_PER_ROUND: usize = 1_000;

/// The lanes that were woken in the last [`WAKE_UP_INTERVAL`], by session id and epoch.
pub(super) struct RecentWakeUps {
    clock: Clock,
    at: Mutex<HashMap<(String, u64), Moment>>,
}

impl RecentWakeUps {
    /// Creates an empty list.
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, at: Mutex::default() }
    }

    /// Publishes a wake-up for each lane that has work and no lease holder, at most once in [`WAKE_UP_INTERVAL`] for
    /// each lane.
    pub(super) async fn wake_lanes(&self, queue: &dyn Queue, store: &dyn Store) {
        // The store returns the longest abandoned lanes first. Lanes that fail again and again must not crowd out the
        // others.
        let lanes = match store.abandoned_lanes(ABANDONED_AFTER, self.read_limit()).await {
            Ok(lanes) => lanes,
            Err(error) => return warn!("reading the lanes without a lease holder failed: {error}"),
        };
        for AbandonedLane { session_id, epoch } in self.not_woken_lately(lanes) {
            info!(session_id, epoch, "waking a lane that has work and no lease holder");
            let job_id = format!("wake-{}", uuid::Uuid::new_v4().simple());
            publish(queue, &session_id, job_id, JobBody::Wake).await;
        }
    }

    /// The number of lanes to read: a full batch, plus the lanes that were woken lately.
    fn read_limit(&self) -> usize {
        let (mut woken, now) = (self.at.lock().unwrap_or_else(PoisonError::into_inner), self.clock.moment());
        woken.retain(|_, at| at.until(now) < WAKE_UP_INTERVAL);
        MAX_PER_ROUND + woken.len()
    }

    /// Removes the lanes that were woken lately, and notes the others as woken now.
    fn not_woken_lately(&self, mut lanes: Vec<AbandonedLane>) -> Vec<AbandonedLane> {
        let mut woken = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.moment();
        lanes.retain(|lane| woken.insert((lane.session_id.clone(), lane.epoch), now).is_none());
        lanes
    }
}

/// Closes conversations without activity for `idle`, and deletes expired turns.
pub(super) async fn clean(queue: &dyn Queue, store: &dyn Store, idle: Duration) {
    match store.prune().await {
        Ok(0) => {}
        Ok(turns) => debug!(turns, "expired turns deleted"),
        Err(error) => warn!("deleting expired turns failed: {error}"),
    }
    let sessions = match store.idle_sessions(idle, MAX_PER_ROUND).await {
        Ok(sessions) => sessions,
        Err(error) => return warn!("reading idle sessions failed: {error}"),
    };
    for IdleSession { session_id, last_seq } in sessions {
        close_idle(queue, &session_id, last_seq).await;
    }
}

/// Closes a session, unless its lane processes a message after `last_seq` before.
pub(super) async fn close_idle(queue: &dyn Queue, session_id: &str, last_seq: u64) {
    let (reason, by) = (Some("idle".into()), Some("housekeeping".into()));
    let body = JobBody::Control(Control { reason, by, left_at: Some(last_seq), ..Control::new(Command::Close) });
    publish(queue, session_id, format!("idle-{last_seq}"), body).await;
}

async fn publish(queue: &dyn Queue, session_id: &str, job_id: String, body: JobBody) {
    let job = Job { session_id: session_id.to_owned(), job_id: job_id.clone(), body };
    let msg_id = Some(format!("{session_id}:{job_id}"));
    let publish = Publish { session_id: session_id.to_owned(), msg_id, payload: job.encode() };
    if let Err(error) = queue.publish(publish).await {
        warn!(session_id, "housekeeping could not publish a job: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_that_was_woken_lately_makes_room_for_others() {
        let lane = |session: &str, epoch| AbandonedLane { session_id: session.into(), epoch };
        let woken = RecentWakeUps::new(Clock::system());
        assert_eq!(woken.not_woken_lately(vec![lane("a", 1), lane("b", 1)]).len(), 2);
        assert_eq!(woken.read_limit(), MAX_PER_ROUND + 2, "the two woken lanes come before all others");
        let fresh = woken.not_woken_lately(vec![lane("a", 1), lane("b", 2), lane("c", 1)]);
        assert_eq!(fresh, [lane("b", 2), lane("c", 1)], "another epoch counts as a new lane");
    }
}
