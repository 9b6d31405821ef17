//! Deletion of the messages of a session.

use super::{QueueError, Result};
use async_trait::async_trait;

/// Deletion of a session's messages. Durable on return. A deleted job is not delivered again; a process that has it in
/// hand finds that it is no longer in the lane.
///
/// The ids of deleted messages stay known for the time of the deduplication.
///
/// The default methods refuse, for queues that only wrap others.
#[async_trait]
pub trait Purge: Send + Sync {
    /// Deletes all jobs of a lane. Returns their number.
    async fn purge_lane(&self, _session_id: &str) -> Result<u64> {
        Err(cannot())
    }

    /// Deletes all events of a session or run. Returns their number.
    async fn purge_events(&self, _session_id: &str) -> Result<u64> {
        Err(cannot())
    }
}

fn cannot() -> QueueError {
    QueueError::refused("this queue cannot delete")
}
