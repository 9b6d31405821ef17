//! A message of a lane, and the job in it.

use base::telemetry::TraceContext;
use bytes::Bytes;
use serde::Deserialize;
use types::ids;
use types::job::{Job, JobBody, JobError};
use types::timestamp::Timestamp;

/// A message of a lane as it is in the stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The last token of its subject, which must equal the job's `session_id`.
    pub session_id: String,
    /// Its sequence in the stream.
    pub seq: u64,
    /// When that stream was made, as far as this process knows.
    pub stream: Timestamp,
    /// The bytes, not checked.
    pub payload: Bytes,
    /// The `Nats-Msg-Id` header.
    pub msg_id: Option<String>,
    /// `<stream creation time in ms>-<seq>`: the job's id when nothing else names one.
    pub default_id: String,
    /// When the stream took it.
    pub at: Timestamp,
    /// The trace that it is a part of.
    pub trace: Option<TraceContext>,
}

impl Message {
    /// Reads and checks the job. A missing `job_id` becomes the message's `Nats-Msg-Id` if that is a legal id, else its
    /// default id; for timer jobs it is `<timer_id>-<generation>`.
    pub fn job(&self) -> Result<Job, JobError> {
        ids::check("session_id", &self.session_id)?;
        let mut job: Job = serde_json::from_slice(&self.payload)
            .map_err(|problem| JobError::Malformed(located(&self.payload, &problem)))?;
        if job.session_id != self.session_id {
            return Err(JobError::OtherSession { found: job.session_id, subject: self.session_id.clone() });
        }
        if job.job_id.is_empty() {
            job.job_id = match (&job.body, &self.msg_id) {
                (JobBody::Timer { timer_id, generation, .. }, _) => format!("{timer_id}-{generation}"),
                (_, Some(id)) if ids::is_legal_job(id) => id.clone(),
                _ => self.default_id.clone(),
            };
        }
        job.check()?;
        Ok(job)
    }

    /// The id of a message that may be no job: its `job_id` if that is legal, else its `Nats-Msg-Id` if that is, else its
    /// default id.
    pub fn job_id(&self) -> String {
        #[derive(Deserialize)]
        struct Named {
            job_id: String,
        }
        let named = serde_json::from_slice::<Named>(&self.payload).ok().map(|named| named.job_id);
        let legal = |id: &String| ids::check("job_id", id).is_ok();
        named.filter(legal).or_else(|| self.msg_id.clone().filter(legal)).unwrap_or_else(|| self.default_id.clone())
    }
}

/// Where a payload is wrong that cannot be read. Keeping track of that costs as much as reading, so it is read again for it.
fn located(payload: &[u8], problem: &serde_json::Error) -> String {
    let read = serde_path_to_error::deserialize::<_, Job>(&mut serde_json::Deserializer::from_slice(payload));
    match read.map_err(|error| (error.path().to_string(), error.into_inner())) {
        Err((path, problem)) if path != "." => format!("{path}: {problem}"),
        _ => problem.to_string(),
    }
}
