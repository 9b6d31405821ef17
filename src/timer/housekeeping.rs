//! What has to be done now and then: lanes with work and no holder, idle sessions, expired turns.

use crate::clock;
use crate::queue::{Command, Job, JobBody, Publish, Queue};
use crate::store::Store;
use std::time::Duration;
use tracing::{debug, info, warn};

/// How long a lane may be without holder before it is woken: the queue's own redelivery comes first.
const GRACE: Duration = Duration::from_secs(10);
/// The most lanes or sessions of one round.
const BATCH: usize = 1_000;

/// Wakes lanes that have work and no holder.
pub(super) async fn wake_lanes(queue: &dyn Queue, store: &dyn Store) {
    let lanes = match store.abandoned_lanes(GRACE, BATCH).await {
        Ok(lanes) => lanes,
        Err(error) => return warn!("the watch over abandoned lanes fails: {error}"),
    };
    for lane in lanes {
        // The epoch tells one abandonment from the next, the minute a wake-up that was lost from its repeat.
        let minute = clock::now().as_millis() / 60_000;
        let job_id = format!("wake-{}-{minute}", lane.epoch);
        info!(session_id = lane.session_id, epoch = lane.epoch, "waking a lane that has work and no holder");
        publish(queue, &lane.session_id, job_id, JobBody::Wake).await;
    }
}

/// Closes conversations that nobody touched for `idle_after`, and deletes expired turns.
pub(super) async fn clean(queue: &dyn Queue, store: &dyn Store, idle_after: Duration) {
    match store.prune().await {
        Ok(0) => {}
        Ok(turns) => debug!(turns, "expired turns deleted"),
        Err(error) => warn!("expired turns are not deleted: {error}"),
    }
    let sessions = match store.idle_sessions(clock::now().minus(idle_after), BATCH).await {
        Ok(sessions) => sessions,
        Err(error) => return warn!("the search for idle sessions fails: {error}"),
    };
    for session_id in sessions {
        let job_id = format!("idle-{}", clock::now().as_millis() / 3_600_000);
        let (reason, by) = (Some("idle".into()), Some("housekeeping".into()));
        let body = JobBody::Control { command: Command::Close, name: None, reason, by };
        publish(queue, &session_id, job_id, body).await;
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
