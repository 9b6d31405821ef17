//! The room that users' messages have in their lane and in the job stream.
//!
//! The stream's own limits lie above it: its per-subject limit by [`LANE_RESERVE`], its bytes by a sixteenth. So an
//! operator's command, a due timer or a wake-up is stored where a user's message is refused. The server is asked how full
//! it is only after so many messages, or so many bytes, that this process could have filled a part of the reserve.

use super::NatsQueue;
use super::error::unavailable;
use base::config::Settings;
use moka::sync::Cache;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use storage::queue::{LANE_RESERVE, Publish, Published, QueueError, Result, lane_is_full};
use tokio::sync::Mutex;

/// Messages of one session that are published without asking: eight processes may do so before the reserve is used up.
const UNASKED: u64 = LANE_RESERVE / 8;
/// Bytes of all sessions that are published without asking, as a part of the stream's reserve.
const UNASKED_SHARE: u64 = 8;
/// The sessions whose count is kept, and for how long after their last message. A forgotten count begins again without a look, so
/// a user who sends now and then into a full lane could fill its reserve in this way.
const LANES: u64 = 10_000;
const IDLE: Duration = Duration::from_secs(3_600);

/// The bytes of a stream that are kept free of users' messages.
const fn reserved(max_bytes: u64) -> u64 {
    max_bytes / 16
}

/// Counts of published messages and bytes since the last look at the server. Cheap to clone.
#[derive(Clone)]
pub(super) struct Room {
    max_depth: u64,
    /// Bytes after which the stream is looked at; 0 when it has no limit.
    step: Arc<AtomicU64>,
    /// Messages of each session that may be published before the next look at its lane.
    lanes: Cache<String, Arc<Mutex<u64>>>,
    /// Bytes published since the last look at the stream.
    published: Arc<AtomicU64>,
}

impl Room {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            max_depth: settings.lane.max_depth,
            step: Arc::default(),
            lanes: Cache::builder().max_capacity(LANES).time_to_idle(IDLE).build(),
            published: Arc::default(),
        }
    }

    /// Takes over the limit of the job stream as it is.
    pub(super) fn set_limit(&self, max_bytes: Option<u64>) {
        let step = max_bytes.map_or(0, |limit| (reserved(limit) / UNASKED_SHARE).max(1));
        self.step.store(step, Ordering::Relaxed);
    }

    fn lane(&self, session_id: &str) -> Arc<Mutex<u64>> {
        let fresh = || Arc::new(Mutex::new(self.max_depth.min(UNASKED)));
        self.lanes.get(session_id).unwrap_or_else(|| self.lanes.get_with(session_id.to_owned(), fresh))
    }

    /// True when the stream has not been looked at for too many bytes.
    fn is_stale(&self, bytes: usize) -> bool {
        let step = self.step.load(Ordering::Relaxed);
        step > 0 && self.published.fetch_add(bytes as u64, Ordering::Relaxed) >= step
    }
}

impl NatsQueue {
    /// Publishes a user's message, which leaves the reserve to others.
    pub(super) async fn publish_user_message(&self, job: Publish) -> Result<Published> {
        let lane = self.room.lane(&job.session_id);
        {
            // Held while the server is asked, so that messages of one session ask once.
            let mut left = lane.lock().await;
            let stale = self.room.is_stale(job.payload.len());
            if *left == 0 || stale {
                *left = self.look(&job.session_id).await?;
            }
            *left -= 1;
        }
        self.publish_job(job).await
    }

    /// How many messages of the session may be published before the next look: at least one, else an error.
    async fn look(&self, session_id: &str) -> Result<u64> {
        let stream = self.context.get_stream_no_info(&self.names.jobs).await.map_err(unavailable)?;
        let mut info = stream.info_with_subjects(self.names.job(session_id)).await.map_err(unavailable)?;
        let depth = match futures::TryStreamExt::try_next(&mut info).await.map_err(unavailable)? {
            Some((_, depth)) => depth as u64,
            None => 0,
        };
        let bytes = info.info.state.bytes;
        let limit = super::streams::limit(info.info.config.max_bytes).map(|limit| limit - reserved(limit));
        if let Some(limit) = limit.filter(|limit| bytes >= *limit) {
            return Err(QueueError::Full(format!(
                "the stream `{}` holds {bytes} bytes, and takes users' messages up to {limit} (15/16 of `streams.jobs_max_mib`); start workers, or raise it",
                self.names.jobs
            )));
        }
        self.room.published.store(0, Ordering::Relaxed);
        match self.room.max_depth.saturating_sub(depth) {
            0 => Err(lane_is_full(session_id, depth, self.room.max_depth)),
            left => Ok(left.min(UNASKED)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(max_depth: u64) -> Room {
        let mut settings = Settings::default();
        settings.lane.max_depth = max_depth;
        Room::new(&settings)
    }

    #[tokio::test]
    async fn a_lane_starts_with_the_messages_that_need_no_question() {
        assert_eq!(*room(1).lane("s1").lock().await, 1);
        assert_eq!(*room(1_000).lane("s1").lock().await, UNASKED);
    }

    #[test]
    fn the_stream_is_looked_at_after_a_part_of_its_reserve() {
        let room = room(1);
        room.set_limit(Some(1 << 20));
        assert!(!room.is_stale(8_000) && !room.is_stale(8_000) && room.is_stale(1), "8 KiB were published");
        room.set_limit(None);
        assert!(!room.is_stale(usize::MAX >> 1) && !room.is_stale(1), "no limit, no look");
    }
}
