//! Jobs: the messages on `tw.jobs.<session>`. docs/contract/nats.md describes their fields.

use crate::action::Action;
use crate::format::{self, NewerFormat};
use crate::timestamp::Timestamp;
use crate::{depth, ids};
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use thiserror::Error;

/// One unit of work in a lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Job {
    /// The session whose lane the job is in.
    pub session_id: String,
    /// Names the turn. If the publisher leaves it out, the queue derives it from the stream and the message's sequence.
    #[serde(default)]
    pub job_id: String,
    /// The type of job and its fields.
    #[serde(flatten)]
    pub body: JobBody,
}

/// The types of job. `type` selects one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum JobBody {
    /// A message of a user.
    UserMessage(UserMessage),
    /// A follow-up timer is due.
    Timer {
        /// Id of the timer.
        timer_id: String,
        /// The generation in which the timer was armed.
        generation: u64,
        /// The timer's name in the agent file.
        #[serde(default)]
        name: String,
        /// When the timer was due.
        due_at: Timestamp,
        /// The action to execute.
        #[serde(default)]
        action: Option<Action>,
        /// The text to send.
        #[serde(default)]
        message: Option<String>,
    },
    /// A run that the session waits for has ended.
    Resume {
        /// Id of the run.
        run_id: String,
        /// How the run ended.
        #[serde(default)]
        outcome: Value,
    },
    /// A control command of a person who looks after the conversation.
    Control(Control),
    /// Starts a run of a workflow in a lane of its own.
    Run {
        /// The workflow to run.
        workflow_id: String,
        /// The input of the workflow.
        #[serde(default)]
        query: String,
        /// The session that asked for the run.
        #[serde(default)]
        origin_session: Option<String>,
        /// The user that the run is for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user_id: Option<String>,
        /// The channel under which the run's events are published.
        #[serde(default)]
        channel: Option<String>,
        /// The run to repeat, from `from_stage` on. To resume a failed or cancelled run: the run's own id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from_run: Option<String>,
        /// The stage from which to repeat `from_run`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from_stage: Option<String>,
    },
    /// A text of a human to the user, while the conversation is handed off.
    Reply {
        /// The text.
        text: String,
        /// Who wrote it.
        #[serde(default)]
        by: Option<String>,
    },
    /// An answer to a question of a run in a lane of its own.
    Answer {
        /// The key of the answer in the run's journal.
        question: String,
        /// The text.
        text: String,
        /// Who answered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// Has no effect of its own, but makes a worker look at the lane. The scheduler publishes it for a lane with work
    /// and no lease holder.
    Wake,
}

/// A control command with its details.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Control {
    /// The command.
    pub command: Command,
    /// For `cancel_timers`: the name of the timers to cancel. Without it, all follow-up timers are cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Why the command was given.
    #[serde(default)]
    pub reason: Option<String>,
    /// Who gave the command.
    #[serde(default)]
    pub by: Option<String>,
    /// The command counts only if the session's `last_seq` still has this value and no message waits. Housekeeping
    /// sets it when it closes an idle session, because a message may arrive before the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_at: Option<u64>,
    /// For `transfer`: who gets the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// For `note` and `transfer`: a note for colleagues. For `release`: a note for the agent's model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// For `claim`: take the conversation over if the agent has it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub take_over: bool,
    /// For `unclaim` and `transfer`: also if another person has the claim.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

impl Control {
    /// A command without details.
    pub const fn new(command: Command) -> Self {
        Self {
            command,
            name: None,
            reason: None,
            by: None,
            left_at: None,
            to: None,
            note: None,
            take_over: false,
            force: false,
        }
    }
}

/// A user's message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UserMessage {
    /// The agent to talk to. Optional once the session exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The hash of the version of the agent that answers, which may be a draft. Without it, the applied version
    /// answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// The user's text. It may be empty if there are attachments.
    #[serde(default)]
    pub text: String,
    /// The channel's id of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// The channel's name; `default` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// When the user sent the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Timestamp>,
    /// Data of the channel, stored with the message and not interpreted.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Images and files of the message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
}

/// An image or file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Attachment {
    /// The kind of attachment, such as `image` or `file`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The address of the content.
    pub url: String,
    /// Further fields of the channel, stored and not interpreted.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl UserMessage {
    /// The text and a line for each attachment, as a model or a human reads them.
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
    /// A line that stands for the attachment in a text: `[image] https://…`.
    pub fn name(&self) -> String {
        format!("[{}] {}", self.kind, self.url)
    }
}

/// A control command of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Cancels the current turn and everything before the command in the lane, the timers, a handoff and a waiting
    /// flow.
    Cancel,
    /// Ends the handoff. The agent answers again.
    Release,
    /// Closes the conversation until the user writes again.
    Close,
    /// Cancels the pending follow-up timers with the given name, or all of them.
    CancelTimers,
    /// Gives the claim of a handoff to a person. With `take_over`, first cancels like `cancel`, without an apology, and
    /// hands the conversation to the person.
    Claim,
    /// Ends the claim of a handoff. The conversation waits for another person.
    Unclaim,
    /// Gives the claim of a handoff to another person.
    Transfer,
    /// Adds a note for colleagues to a handoff.
    Note,
}

/// Why a message is not a valid job.
#[derive(Debug, Error)]
pub enum JobError {
    /// The payload is not the JSON of a job.
    #[error("the payload is not a job: {problem}")]
    Malformed {
        /// The decoding error, with the path of the field.
        problem: String,
        /// The decoding error.
        source: serde_json::Error,
    },
    /// A newer version of Turnwheel published the job, and only such a version can process it.
    #[error("the job needs a newer version: {0}")]
    Newer(#[from] NewerFormat),
    /// An identifier has an illegal form.
    #[error(transparent)]
    Id(#[from] ids::IdError),
    /// The payload and the subject name different sessions.
    #[error("session_id `{found}` differs from the subject's last token `{subject}`")]
    OtherSession {
        /// The session in the payload.
        found: String,
        /// The session in the subject.
        subject: String,
    },
    /// The message has neither text nor attachments.
    #[error("text is empty and there are no attachments")]
    Empty,
    /// A value is nested more deeply than the store accepts.
    #[error("{0} is nested more than {limit} levels deep; send it flatter, or as a text", limit = depth::MAX_DEPTH)]
    TooDeep(&'static str),
}

impl Job {
    /// Checks identifiers, text and nesting. Publishers should call it before they publish.
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
            JobBody::Reply { text, .. } | JobBody::Answer { text, .. } if text.trim().is_empty() => {
                Err(JobError::Empty)
            }
            JobBody::Control(_) | JobBody::Reply { .. } | JobBody::Answer { .. } | JobBody::Wake => Ok(()),
        }
    }

    /// The fields of the payload that this type of job does not have.
    pub fn unknown_fields(&self, payload: &[u8]) -> Vec<String> {
        let fields: BTreeMap<String, IgnoredAny> = serde_json::from_slice(payload).unwrap_or_default();
        let known = |field: &String| COMMON.contains(&field.as_str()) || self.body.fields().contains(&field.as_str());
        fields.into_keys().filter(|field| !known(field)).collect()
    }

    /// The user's message, or `None` for other types of job.
    pub fn user_message(&self) -> Option<&UserMessage> {
        match &self.body {
            JobBody::UserMessage(message) => Some(message),
            _ => None,
        }
    }

    /// The job as JSON, with the stamp of its format if it needs one.
    pub fn encode(&self) -> bytes::Bytes {
        // Serialising plain data with text keys into memory cannot fail.
        format::stamp_json(serde_json::to_vec(self).unwrap_or_default()).into()
    }
}

/// The channel of a session whose messages name none.
pub const DEFAULT_CHANNEL: &str = "default";

/// The fields of every job.
const COMMON: [&str; 4] = ["type", "session_id", "job_id", format::FIELD];

impl JobBody {
    /// The fields of this type of job in addition to the common ones.
    const fn fields(&self) -> &'static [&'static str] {
        match self {
            Self::UserMessage(_) => {
                &["agent_id", "agent_version", "text", "user_id", "channel", "sent_at", "metadata", "attachments"]
            }
            Self::Timer { .. } => &["timer_id", "generation", "name", "due_at", "action", "message"],
            Self::Resume { .. } => &["run_id", "outcome"],
            Self::Control(_) => &["command", "name", "reason", "by", "left_at", "to", "note", "take_over", "force"],
            Self::Run { .. } => {
                &["workflow_id", "query", "origin_session", "user_id", "channel", "from_run", "from_stage"]
            }
            Self::Reply { .. } => &["text", "by"],
            Self::Answer { .. } => &["question", "text", "by"],
            Self::Wake => &[],
        }
    }
}

impl UserMessage {
    fn check(&self) -> Result<(), JobError> {
        let ids = [
            ("agent_id", &self.agent_id),
            ("agent_version", &self.agent_version),
            ("user_id", &self.user_id),
            ("channel", &self.channel),
        ];
        for (field, id) in ids {
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
