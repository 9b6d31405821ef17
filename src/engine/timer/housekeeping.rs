//! What has to be done now and then: lanes with work and no holder, idle sessions, expired turns.

use base::clock::{Clock, Moment};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use storage::queue::{Publish, Queue};
use storage::store::Store;
use storage::store::records::{AbandonedLane, IdleSession};
use tracing::{debug, info, warn};
use types::job::{Command, Job, JobBody};

/// How long a lane may be without holder before it is woken: the queue's own redelivery comes first.
const GRACE: Duration = Duration::from_secs(10);
/// How long after its wake-up a lane is woken again: the wake-up was lost, or its worker failed.
const AGAIN: Duration = Duration::from_secs(60);
/// The most lanes or sessions of one round.
const BATCH: usize = 1_000;

/// The lanes that were woken lately, by session and epoch.
pub(super) struct Woken {
    clock: Clock,
    at: Mutex<HashMap<(String, u64), Moment>>,
}

impl Woken {
    /// None so far.
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, at: Mutex::default() }
    }

    /// Wakes lanes that have work and no holder, each once in [`AGAIN`].
    pub(super) async fn wake_lanes(&self, queue: &dyn Queue, store: &dyn Store) {
        // Lanes that cannot be worked off stand before all others, and must not hide them.
        let lanes = match store.abandoned_lanes(GRACE, self.wanted()).await {
            Ok(lanes) => lanes,
            Err(error) => return warn!("the watch over abandoned lanes fails: {error}"),
        };
        for AbandonedLane { session_id, epoch } in self.fresh(lanes) {
            info!(session_id, epoch, "waking a lane that has work and no holder");
            let job_id = format!("wake-{}", uuid::Uuid::new_v4().simple());
            publish(queue, &session_id, job_id, JobBody::Wake).await;
        }
    }

    /// How many lanes to ask for: all that were woken lately may be among them.
    fn wanted(&self) -> usize {
        let (mut woken, now) = (self.at.lock().unwrap_or_else(PoisonError::into_inner), self.clock.moment());
        woken.retain(|_, at| at.until(now) < AGAIN);
        BATCH + woken.len()
    }

    /// Those that were not woken lately, and are now.
    fn fresh(&self, mut lanes: Vec<AbandonedLane>) -> Vec<AbandonedLane> {
        let mut woken = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.moment();
        lanes.retain(|lane| woken.insert((lane.session_id.clone(), lane.epoch), now).is_none());
        lanes
    }
}

/// Closes conversations that nobody touched for `idle`, and deletes expired turns.
pub(super) async fn clean(queue: &dyn Queue, store: &dyn Store, idle: Duration) {
    match store.prune().await {
        Ok(0) => {}
        Ok(turns) => debug!(turns, "expired turns deleted"),
        Err(error) => warn!("expired turns are not deleted: {error}"),
    }
    let sessions = match store.idle_sessions(idle, BATCH).await {
        Ok(sessions) => sessions,
        Err(error) => return warn!("the search for idle sessions fails: {error}"),
    };
    for IdleSession { session_id, last_seq } in sessions {
        let (reason, by) = (Some("idle".into()), Some("housekeeping".into()));
        let body = JobBody::Control { command: Command::Close, name: None, reason, by, left_at: Some(last_seq) };
        publish(queue, &session_id, format!("idle-{last_seq}"), body).await;
    }
}

async fn publish(queue: &dyn Queue, session_id: &str, job_id: String, body: JobBody) {
    let job = Job { session_id: session_id.to_owned(), job_id: job_id.clone(), body };
    let msg_id = Some(format!("{session_id}:{job_id}"));
    let publish = Publish { session_id: session_id.to_owned(), msg_id, payload: job.encode() };
    if let Err(error) = queue.publish(publish).await {
        warn!(session_id, "housekeeping cannot publish: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_that_was_woken_lately_makes_room_for_others() {
        let lane = |session: &str, epoch| AbandonedLane { session_id: session.into(), epoch };
        let woken = Woken::new(Clock::system());
        assert_eq!(woken.fresh(vec![lane("a", 1), lane("b", 1)]).len(), 2);
        assert_eq!(woken.wanted(), BATCH + 2, "those two stand before all others");
        let fresh = woken.fresh(vec![lane("a", 1), lane("b", 2), lane("c", 1)]);
        assert_eq!(fresh, [lane("b", 2), lane("c", 1)], "another epoch is another abandonment");
    }
}
