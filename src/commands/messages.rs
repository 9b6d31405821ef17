//! Posting users' messages.

use super::access::address_of;
use super::authoring::create::AGENT;
use super::enqueue::{Accepted, new_id, publish};
use crate::error::CommandError;
use base::clock;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use storage::queue::Queue;
use storage::store::Store;
use tracing::debug;
use types::ids::{self, DottedId, Id};
use types::job::{Attachment, Job, JobBody, UserMessage};
use types::timestamp::Timestamp;

/// A user's message to be posted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NewMessage {
    /// The session. An unknown session starts with this message.
    #[schemars(with = "Id")]
    pub session_id: String,
    /// The agent. Required with the first message of a session, optional afterwards.
    #[schemars(with = "Option<Id>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The hash of the version of the agent that answers this message, which may be a draft. Without it, the applied
    /// version answers.
    #[schemars(with = "Option<Id>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// The user's text. It may be empty only with attachments.
    #[serde(default)]
    pub text: String,
    /// The id for deduplication: two messages with the same id become one turn. A random id by default.
    #[schemars(with = "Option<DottedId>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// The id that the channel gives the user.
    #[schemars(with = "Option<DottedId>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// The name of the channel.
    #[schemars(with = "Option<Id>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// When the user wrote the message; the current time by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Timestamp>,
    /// Free-form data of the channel.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Pictures and files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
}

impl NewMessage {
    /// A message to an agent, under a random id.
    pub fn new(session_id: impl Into<String>, agent_id: impl Into<String>, text: impl Into<String>) -> Self {
        Self { session_id: session_id.into(), agent_id: Some(agent_id.into()), text: text.into(), ..Self::default() }
    }
}

/// The fields of [`NewMessage`], and `type`, which a job has in addition.
const FIELDS: [&str; 11] = [
    "session_id",
    "agent_id",
    "agent_version",
    "text",
    "job_id",
    "user_id",
    "channel",
    "sent_at",
    "metadata",
    "attachments",
    "type",
];

/// Logs the fields of a posted message that are unknown. Unknown fields are ignored.
pub fn log_unknown_fields(document: &Map<String, Value>) {
    for field in document.keys().filter(|field| !FIELDS.contains(&field.as_str())) {
        debug!(field, "ignoring an unknown field of a message");
    }
}

/// Validates a message and puts it on its session's lane. Durable on return.
pub async fn submit(queue: &dyn Queue, store: &dyn Store, message: NewMessage) -> Result<Accepted, CommandError> {
    if let Some(job_id) = &message.job_id {
        ids::check("job_id", job_id)?;
    }
    let body = UserMessage {
        agent_id: message.agent_id,
        agent_version: message.agent_version,
        text: message.text,
        user_id: message.user_id,
        channel: message.channel,
        sent_at: Some(message.sent_at.unwrap_or_else(clock::now)),
        metadata: message.metadata,
        attachments: message.attachments,
    };
    let (agent_id, version) = (body.agent_id.clone(), body.agent_version.clone());
    let job = Job {
        session_id: message.session_id,
        job_id: message.job_id.unwrap_or_else(new_id),
        body: JobBody::UserMessage(body),
    };
    job.check()?;
    if let Some(hash) = &version {
        has_version(queue, store, &job.session_id, agent_id.as_deref(), hash).await?;
        return publish(queue, job).await;
    }
    match agent_id {
        // The agent of dialogues may be compiled in.
        Some(agent_id) if agent_id == AGENT && is_known(queue, store, &job.session_id).await? => {}
        Some(agent_id) => takes_chats(store, &agent_id).await?,
        None if !is_known(queue, store, &job.session_id).await? => return Err(missing_agent(&job.session_id)),
        None => {}
    }
    publish(queue, job).await
}

fn missing_agent(session_id: &str) -> CommandError {
    let message = format!("agent_id is missing, and session `{session_id}` is unknown");
    CommandError::invalid("missing_agent", message, "give `agent_id` with a session's first message")
}

/// Fails with `unknown_version` unless the agent of a message, or else of its session, has this version.
async fn has_version(
    queue: &dyn Queue,
    store: &dyn Store,
    session_id: &str,
    agent_id: Option<&str>,
    hash: &str,
) -> Result<(), CommandError> {
    let agent_id = match agent_id {
        Some(agent_id) => agent_id.to_owned(),
        None => {
            let known = address_of(queue, store, session_id).await?;
            known.ok_or_else(|| missing_agent(session_id))?.agent_id
        }
    };
    let version = store.agent_version(&agent_id, hash).await?;
    let version = version.ok_or_else(|| CommandError::unknown_version("agent", &agent_id, hash))?;
    if version.config.is_task_agent() { Err(task_agent(&agent_id)) } else { Ok(()) }
}

/// Fails with `unknown_session` when the session does not exist, and with `invalid_id` when the id is illegal.
pub async fn require_known(queue: &dyn Queue, store: &dyn Store, session_id: &str) -> Result<(), CommandError> {
    ids::check("session_id", session_id)?;
    if is_known(queue, store, session_id).await? { Ok(()) } else { Err(CommandError::unknown_session(session_id)) }
}

/// True from the first message of a session on, even before a worker has processed it.
async fn is_known(queue: &dyn Queue, store: &dyn Store, session_id: &str) -> Result<bool, CommandError> {
    Ok(store.session(session_id).await?.is_some() || queue.has_session(session_id).await?)
}

/// Fails when the agent does not exist, or when it is a task agent.
pub(crate) async fn takes_chats(store: &dyn Store, agent_id: &str) -> Result<(), CommandError> {
    let agent = store.agent(agent_id).await?.ok_or_else(|| CommandError::unknown_agent(agent_id))?;
    if agent.config.is_task_agent() { Err(task_agent(agent_id)) } else { Ok(()) }
}

fn task_agent(agent_id: &str) -> CommandError {
    let message = format!("agent `{agent_id}` is a task agent (it has a `system_prompt`): it takes no chat sessions");
    CommandError::invalid("task_agent", message, "name an agent that has an `sop`")
}
