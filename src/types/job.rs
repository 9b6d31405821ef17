//! Jobs: what is on `tw.jobs.<session>` (CONTRACT.md, "Job").

use crate::action::Action;
use crate::timestamp::Timestamp;
use crate::{depth, ids};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use thiserror::Error;
use utoipa::ToSchema;

/// One unit of work in a lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// The lane.
    pub session_id: String,
    /// Names the turn; see `job_id` of the contract for its default.
    #[serde(default)]
    pub job_id: String,
    /// What is to be done.
    #[serde(flatten)]
    pub body: JobBody,
}

/// What is to be done, by `type`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum JobBody {
    /// A user wrote.
    UserMessage(UserMessage),
    /// A timer is due.
    Timer {
        /// The timer.
        timer_id: String,
        /// Its generation.
        generation: u64,
        /// Its name.
        #[serde(default)]
        name: String,
        /// When it was due.
        due_at: Timestamp,
        /// To be executed.
        #[serde(default)]
        action: Option<Action>,
        /// To be sent.
        #[serde(default)]
        message: Option<String>,
    },
    /// A run that the session waits for has ended.
    Resume {
        /// The run.
        run_id: String,
        /// How it ended.
        #[serde(default)]
        outcome: Value,
    },
    /// An operator's command.
    Control {
        /// Which.
        command: Command,
        /// What it is about: the name of the timers that `cancel_timers` cancels, all unless given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// Why.
        #[serde(default)]
        reason: Option<String>,
        /// By whom.
        #[serde(default)]
        by: Option<String>,
        /// The command counts only if the session's `last_seq` is still this one and no message waits: housekeeping closes sessions
        /// that it has found idle, and a message may arrive before the command.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left_at: Option<u64>,
    },
    /// A workflow run in a lane of its own.
    Run {
        /// The workflow.
        workflow_id: String,
        /// Its input.
        #[serde(default)]
        query: String,
        /// The session that asked for it.
        #[serde(default)]
        origin_session: Option<String>,
        /// The user that it is for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user_id: Option<String>,
        /// The channel of its events.
        #[serde(default)]
        channel: Option<String>,
        /// The run that it repeats, from `from_stage` on; itself when it goes on where it failed or was cancelled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from_run: Option<String>,
        /// See `from_run`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from_stage: Option<String>,
    },
    /// A human's words to the user, while a human has the conversation.
    Reply {
        /// The words.
        text: String,
        /// Whose.
        #[serde(default)]
        by: Option<String>,
    },
    /// Nothing: makes a worker look at the lane. Published by the scheduler for a lane with work and no holder.
    Wake,
}

/// What a user wrote.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UserMessage {
    /// The agent; optional once the session exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The words; may be empty only with attachments.
    #[serde(default)]
    pub text: String,
    /// The user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// The channel, `default` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// When the user wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Timestamp>,
    /// The channel's own.
    #[schema(value_type = Object)]
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Pictures and files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
}

/// A picture or file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Attachment {
    /// `image`, `file`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// Where it is.
    pub url: String,
    /// Whatever else the channel says.
    #[schema(ignore)]
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl UserMessage {
    /// The words with a line for each attachment, as a model or a human reads them.
    pub fn words(&self) -> Cow<'_, str> {
        if self.attachments.is_empty() {
            return Cow::Borrowed(&self.text);
        }
        let names = self.attachments.iter().map(Attachment::name);
        let text = Some(self.text.clone()).filter(|text| !text.is_empty());
        Cow::Owned(text.into_iter().chain(names).collect::<Vec<_>>().join("\n"))
    }
}

impl Attachment {
    /// Names it in a text: `[image] https://…`.
    pub fn name(&self) -> String {
        format!("[{}] {}", self.kind, self.url)
    }
}

/// An operator's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Give up what the session is doing.
    Cancel,
    /// Take the conversation back from the human.
    Release,
    /// Close the conversation.
    Close,
    /// Cancel pending timers.
    CancelTimers,
}

/// Why a message is not a job.
#[derive(Debug, Error)]
pub enum JobError {
    /// It is no JSON of a job.
    #[error("the payload is not a job: {0}")]
    Malformed(String),
    /// An identifier is not legal.
    #[error(transparent)]
    Id(#[from] ids::IdError),
    /// The session is not that of the subject.
    #[error("session_id `{found}` differs from the subject's last token `{subject}`")]
    OtherSession {
        /// In the payload.
        found: String,
        /// In the subject.
        subject: String,
    },
    /// There is neither text nor attachment.
    #[error("text is empty and there are no attachments")]
    Empty,
    /// It could not be stored.
    #[error("{0} is nested more than {limit} levels deep; send it flatter, or as a text", limit = depth::MAX_DEPTH)]
    TooDeep(&'static str),
}

impl Job {
    /// Checks ids and text, as a publisher should before it publishes.
    pub fn check(&self) -> Result<(), JobError> {
        ids::check("session_id", &self.session_id)?;
        if !self.job_id.is_empty() {
            ids::check("job_id", &self.job_id)?;
        }
        match &self.body {
            JobBody::UserMessage(message) => message.check(),
            JobBody::Timer { timer_id, action, .. } => {
                ids::check("timer_id", timer_id)?;
                action.iter().try_for_each(|action| shallow("action", action.params.values()))
            }
            JobBody::Resume { run_id, outcome } => {
                ids::check("run_id", run_id)?;
                shallow("outcome", [outcome])
            }
            JobBody::Run { workflow_id, origin_session, user_id, channel, from_run, .. } => {
                ids::check("workflow_id", workflow_id)?;
                let ids = [
                    ("origin_session", origin_session),
                    ("user_id", user_id),
                    ("channel", channel),
                    ("from_run", from_run),
                ];
                for (field, id) in ids {
                    if let Some(id) = id {
                        ids::check(field, id)?;
                    }
                }
                Ok(())
            }
            JobBody::Reply { text, .. } if text.trim().is_empty() => Err(JobError::Empty),
            JobBody::Control { .. } | JobBody::Reply { .. } | JobBody::Wake => Ok(()),
        }
    }

    /// The fields of a payload that mean nothing in this job.
    pub fn unknown_fields(&self, payload: &[u8]) -> Vec<String> {
        let fields: BTreeMap<String, IgnoredAny> = serde_json::from_slice(payload).unwrap_or_default();
        let known = |field: &String| COMMON.contains(&field.as_str()) || self.body.fields().contains(&field.as_str());
        fields.into_keys().filter(|field| !known(field)).collect()
    }

    /// The user's message, if the job is one.
    pub fn user_message(&self) -> Option<&UserMessage> {
        match &self.body {
            JobBody::UserMessage(message) => Some(message),
            _ => None,
        }
    }

    /// The job as JSON.
    pub fn encode(&self) -> bytes::Bytes {
        // Serialising plain data with text keys into memory cannot fail.
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}

/// The fields of every job.
const COMMON: [&str; 3] = ["type", "session_id", "job_id"];

impl JobBody {
    /// The fields of this type of job in addition to the common ones.
    const fn fields(&self) -> &'static [&'static str] {
        match self {
            Self::UserMessage(_) => &["agent_id", "text", "user_id", "channel", "sent_at", "metadata", "attachments"],
            Self::Timer { .. } => &["timer_id", "generation", "name", "due_at", "action", "message"],
            Self::Resume { .. } => &["run_id", "outcome"],
            Self::Control { .. } => &["command", "name", "reason", "by", "left_at"],
            Self::Run { .. } => {
                &["workflow_id", "query", "origin_session", "user_id", "channel", "from_run", "from_stage"]
            }
            Self::Reply { .. } => &["text", "by"],
            Self::Wake => &[],
        }
    }
}

impl UserMessage {
    fn check(&self) -> Result<(), JobError> {
        for (field, id) in [("agent_id", &self.agent_id), ("user_id", &self.user_id), ("channel", &self.channel)] {
            if let Some(id) = id {
                ids::check(field, id)?;
            }
        }
        if self.text.trim().is_empty() && self.attachments.is_empty() {
            return Err(JobError::Empty);
        }
        shallow("metadata", self.metadata.values())?;
        shallow("attachments", self.attachments.iter().flat_map(|attachment| attachment.rest.values()))
    }
}

fn shallow<'v>(field: &'static str, values: impl IntoIterator<Item = &'v Value>) -> Result<(), JobError> {
    if values.into_iter().all(depth::is_legal) { Ok(()) } else { Err(JobError::TooDeep(field)) }
}
