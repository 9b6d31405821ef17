//! The limits for users' messages in a lane and in the stream of jobs.
//!
//! They lie below the stream's own limits: by [`LANE_RESERVE`] messages for each lane, and by a sixteenth of the
//! stream's bytes. So an operator's command, a due timer or a wake-up is stored where a user's message is refused.
//!
//! Asking the server before each message would be too slow. The process counts its own messages and bytes instead, and
//! asks again after so many that it could have filled a part of the reserve.

use super::NatsQueue;
use base::config::Settings;
use moka::sync::Cache;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use storage::queue::{LANE_RESERVE, Publish, Published, QueueError, Result, lane_is_full};
use tokio::sync::Mutex;

/// The number of messages of one session that are published without asking. Eight processes may do so before the
/// reserve is used up.
const UNCHECKED_MESSAGES: u64 = LANE_RESERVE / 8;
/// The divisor of the stream's reserve that yields the bytes of all sessions that are published without asking.
const UNCHECKED_SHARE: u64 = 8;
/// The number of sessions with a count, and how long a count is kept after the session's last message. A dropped count
/// restarts without asking, so a user who writes rarely into a full lane could fill its reserve.
const MAX_TRACKED_LANES: u64 = 10_000;
const LANE_IDLE_EXPIRY: Duration = Duration::from_secs(3_600);

/// The bytes of a stream that users' messages may not fill.
const fn reserved(max_bytes: u64) -> u64 {
    max_bytes / 16
}

/// The counts of published messages and bytes since the last check. Cheap to clone.
#[derive(Clone)]
pub(super) struct MessageLimits {
    max_depth: u64,
    /// The bytes after which the stream is checked again; 0 when it has no limit.
    step: Arc<AtomicU64>,
    /// The number of messages of each session that may be published before the next check of its lane.
    lanes: Cache<String, Arc<Mutex<u64>>>,
    /// The bytes published since the last check of the stream.
    published: Arc<AtomicU64>,
}

impl MessageLimits {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            max_depth: settings.lane.max_depth,
            step: Arc::default(),
            lanes: Cache::builder().max_capacity(MAX_TRACKED_LANES).time_to_idle(LANE_IDLE_EXPIRY).build(),
            published: Arc::default(),
        }
    }

    /// Sets the byte limit of the job stream.
    pub(super) fn set_limit(&self, max_bytes: Option<u64>) {
        let step = max_bytes.map_or(0, |limit| (reserved(limit) / UNCHECKED_SHARE).max(1));
        self.step.store(step, Ordering::Relaxed);
    }

    fn lane(&self, session_id: &str) -> Arc<Mutex<u64>> {
        let fresh = || Arc::new(Mutex::new(self.max_depth.min(UNCHECKED_MESSAGES)));
        self.lanes.get(session_id).unwrap_or_else(|| self.lanes.get_with(session_id.to_owned(), fresh))
    }

    /// Counts `bytes`. Returns true when the stream has to be checked again.
    fn is_stale(&self, bytes: usize) -> bool {
        let step = self.step.load(Ordering::Relaxed);
        step > 0 && self.published.fetch_add(bytes as u64, Ordering::Relaxed) >= step
    }
}

impl NatsQueue {
    /// Publishes a user's message, unless it would take a place or bytes of the reserve.
    pub(super) async fn publish_user_message(&self, job: Publish) -> Result<Published> {
        let lane = self.message_limits.lane(&job.session_id);
        {
            // Locked during the check, so that concurrent messages of one session share it.
            let mut left = lane.lock().await;
            let stale = self.message_limits.is_stale(job.payload.len());
            if *left == 0 || stale {
                *left = self.check_limits(&job.session_id).await?;
            }
            *left -= 1;
        }
        self.publish_job(job).await
    }

    /// Checks lane and stream on the server. Returns how many messages of the session may be published before the next
    /// check, at least one. Fails with `Full` when the lane or the stream is full.
    async fn check_limits(&self, session_id: &str) -> Result<u64> {
        let stream = self.context.get_stream_no_info(&self.names.jobs).await.map_err(QueueError::unavailable)?;
        let mut info = stream.info_with_subjects(self.names.job(session_id)).await.map_err(QueueError::unavailable)?;
        let depth = match futures::TryStreamExt::try_next(&mut info).await.map_err(QueueError::unavailable)? {
            Some((_, depth)) => depth as u64,
            None => 0,
        };
        let bytes = info.info.state.bytes;
        let limit = super::streams::limit(info.info.config.max_bytes).map(|limit| limit - reserved(limit));
        if let Some(limit) = limit.filter(|limit| bytes >= *limit) {
            return Err(QueueError::full(format!(
                "the stream `{}` holds {bytes} bytes, and accepts users' messages \
                 up to {limit} bytes (15/16 of `streams.jobs_max_mib`); start workers, \
                 or raise that setting",
                self.names.jobs
            )));
        }
        self.message_limits.published.store(0, Ordering::Relaxed);
        match self.message_limits.max_depth.saturating_sub(depth) {
            0 => Err(lane_is_full(session_id, depth, self.message_limits.max_depth)),
            left => Ok(left.min(UNCHECKED_MESSAGES)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(max_depth: u64) -> MessageLimits {
        let mut settings = Settings::default();
        settings.lane.max_depth = max_depth;
        MessageLimits::new(&settings)
    }

    #[tokio::test]
    async fn a_lane_starts_with_the_messages_that_need_no_question() {
        assert_eq!(*room(1).lane("s1").lock().await, 1);
        assert_eq!(*room(1_000).lane("s1").lock().await, UNCHECKED_MESSAGES);
    }

    #[test]
    fn the_stream_is_looked_at_after_a_part_of_its_reserve() {
        let room = room(1);
        room.set_limit(Some(1 << 20));
        assert!(!room.is_stale(8_000) && !room.is_stale(8_000) && room.is_stale(1), "8 KiB are published");
        room.set_limit(None);
        assert!(!room.is_stale(usize::MAX >> 1) && !room.is_stale(1), "without a limit there is no check");
    }
}
