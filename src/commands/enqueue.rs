//! Putting a job on its session's lane.

use crate::error::CommandError;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use storage::queue::{Publish, Published, Queue};
use tracing::Span;
use types::job::{Job, JobBody};
use uuid::Uuid;

/// A job that the queue has stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Accepted {
    /// The id of the job, which is also the id of its turn.
    pub job_id: String,
    /// The session whose lane has the job.
    pub session_id: String,
}

/// Puts a job on its lane. Durable on return.
pub async fn publish(queue: &dyn Queue, job: Job) -> Result<Accepted, CommandError> {
    enqueue(queue, job).await.map(|(accepted, _)| accepted)
}

/// Puts a job on its lane. Also returns its position in the stream. Durable on return.
pub async fn enqueue(queue: &dyn Queue, job: Job) -> Result<(Accepted, Published), CommandError> {
    // Recorded on the span of the HTTP request, when there is one.
    Span::current().record("session_id", &job.session_id).record("job_id", &job.job_id);
    let published = enqueue_payload(queue, &job, job.encode()).await?;
    Ok((Accepted { job_id: job.job_id, session_id: job.session_id }, published))
}

/// Puts an encoded job on its lane. Durable on return. A user's message does not use the lane's places that are
/// reserved for commands and timers.
pub(crate) async fn enqueue_payload(queue: &dyn Queue, job: &Job, payload: Bytes) -> Result<Published, CommandError> {
    let msg_id = Some(format!("{}:{}", job.session_id, job.job_id));
    let publish = Publish { session_id: job.session_id.clone(), msg_id, payload };
    Ok(match job.body {
        JobBody::UserMessage(_) => queue.publish_message(publish).await?,
        _ => queue.publish(publish).await?,
    })
}

/// Creates a random id for a job or a run.
pub fn new_id() -> String {
    Uuid::new_v4().to_string()
}
