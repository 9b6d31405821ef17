//! Deletion of a session's jobs and events: purges of their subjects.

use super::NatsQueue;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::stream::PurgeErrorKind;
use async_trait::async_trait;
use storage::queue::{Purge, QueueError, Result};

#[async_trait]
impl Purge for NatsQueue {
    async fn purge_lane(&self, session_id: &str) -> Result<u64> {
        self.purge(&self.names.jobs, self.names.job(session_id)).await
    }

    async fn purge_events(&self, session_id: &str) -> Result<u64> {
        self.purge(&self.names.out, self.names.event("*", session_id, "*")).await
    }
}

impl NatsQueue {
    async fn purge(&self, stream: &str, subject: String) -> Result<u64> {
        let stream = self.context.get_stream_no_info(stream).await.map_err(QueueError::unavailable)?;
        match stream.purge().filter(subject).await {
            Ok(purged) => Ok(purged.purged),
            Err(error) => Err(match error.kind() {
                PurgeErrorKind::Request | PurgeErrorKind::TimedOut => QueueError::unavailable(error),
                PurgeErrorKind::JetStream(ref problem) if problem.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                    return Ok(0);
                }
                PurgeErrorKind::JetStream(_) => QueueError::refused(error),
            }),
        }
    }
}
