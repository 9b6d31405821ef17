//! A message of a lane, and how its job is decoded.

use base::telemetry::TraceContext;
use bytes::Bytes;
use serde::Deserialize;
use types::format;
use types::ids;
use types::job::{Job, JobBody, JobError};
use types::timestamp::Timestamp;

/// A message of a lane, as the stream of jobs holds it. Its payload is not validated.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The last token of the message's subject. The job's `session_id` must equal it.
    pub session_id: String,
    /// The message's sequence in the stream.
    pub seq: u64,
    /// The creation time of the stream that `seq` counts in, as this process knows it.
    pub stream: Timestamp,
    /// The job as JSON, as the publisher sent it.
    pub payload: Bytes,
    /// The header `Nats-Msg-Id`.
    pub msg_id: Option<String>,
    /// The job's id when neither the payload nor `msg_id` has a legal one: `<stream creation time in ms>-<seq>`.
    pub default_id: String,
    /// When the stream stored the message.
    pub at: Timestamp,
    /// The trace that the publisher's headers name.
    pub trace: Option<TraceContext>,
}

impl Message {
    /// Decodes and validates the job.
    ///
    /// A job without a `job_id` gets one: a timer's job gets `<timer_id>-<generation>`, any other job gets `msg_id` if
    /// that is a legal id, else `default_id`.
    ///
    /// Fails with [`JobError::Newer`] when the job is stamped with a format that this version does not read, whatever its
    /// other fields are. Fails when the payload is no valid job, or when the job names another session than the subject.
    pub fn job(&self) -> Result<Job, JobError> {
        ids::check("session_id", &self.session_id)?;
        format::check_json(&self.payload)?;
        let mut job: Job = serde_json::from_slice(&self.payload)
            .map_err(|source| JobError::Malformed { problem: describe_error(&self.payload, &source), source })?;
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

    /// Returns an id for a message whose job may be invalid: the payload's `job_id` if it is legal, else `msg_id` if it
    /// is legal, else `default_id`.
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

/// Describes a decoding error with the path of the field. Decodes the payload a second time, because tracking the path
/// costs as much as decoding, and nearly every payload is valid.
fn describe_error(payload: &[u8], problem: &serde_json::Error) -> String {
    let read = serde_path_to_error::deserialize::<_, Job>(&mut serde_json::Deserializer::from_slice(payload));
    match read.map_err(|error| (error.path().to_string(), error.into_inner())) {
        Err((path, problem)) if path != "." => format!("{path}: {problem}"),
        _ => problem.to_string(),
    }
}
