//! Putting messages and commands onto a session's lane, for the HTTP handlers and for commands that reach queue and store
//! directly: the same checks, the same ids.

use super::Reject;
use super::openapi::{DottedId, Id};
use crate::base::clock;
use crate::engine::turn::HUMAN_REPLY;
use crate::storage::queue::{CancelHint, Publish, Published, Queue};
use crate::storage::store::Store;
use crate::types::ids;
use crate::types::job::{Attachment, Command, Job, JobBody, UserMessage};
use crate::types::session::Status;
use crate::types::timestamp::Timestamp;
use axum::http::StatusCode;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tracing::{Span, debug};
use uuid::Uuid;

/// A user's message as it is posted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NewMessage {
    /// The session; an unknown one begins with this message.
    #[schema(value_type = Id)]
    pub session_id: String,
    /// The agent; optional once the session exists.
    #[schema(value_type = Option<Id>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The words; may be empty only with attachments.
    #[serde(default)]
    pub text: String,
    /// The same id twice is one turn; a fresh one unless given.
    #[schema(value_type = Option<DottedId>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// The user.
    #[schema(value_type = Option<DottedId>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// The channel.
    #[schema(value_type = Option<Id>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// When the user wrote it; now unless given.
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

impl NewMessage {
    /// What a user says to an agent, under a fresh id.
    pub fn new(session_id: impl Into<String>, agent_id: impl Into<String>, text: impl Into<String>) -> Self {
        Self { session_id: session_id.into(), agent_id: Some(agent_id.into()), text: text.into(), ..Self::default() }
    }
}

/// The fields of [`NewMessage`]; `type` belongs to the job and is harmless.
const FIELDS: [&str; 10] =
    ["session_id", "agent_id", "text", "job_id", "user_id", "channel", "sent_at", "metadata", "attachments", "type"];

/// Logs the fields of a posted message that mean nothing here (CONTRACT.md: ignored with a debug log).
pub(super) fn log_unknown_fields(document: &Map<String, Value>) {
    for field in document.keys().filter(|field| !FIELDS.contains(&field.as_str())) {
        debug!(field, "an unknown field of a message is ignored");
    }
}

/// A job that the queue holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Accepted {
    /// Names the turn.
    pub job_id: String,
    /// The session.
    pub session_id: String,
}

/// Checks a message and puts it onto its session's lane. Durable on return.
pub async fn submit(queue: &dyn Queue, store: &dyn Store, message: NewMessage) -> Result<Accepted, Reject> {
    if let Some(job_id) = &message.job_id {
        ids::check("job_id", job_id)?;
    }
    let body = UserMessage {
        agent_id: message.agent_id,
        text: message.text,
        user_id: message.user_id,
        channel: message.channel,
        sent_at: Some(message.sent_at.unwrap_or_else(clock::now)),
        metadata: message.metadata,
        attachments: message.attachments,
    };
    let agent_id = body.agent_id.clone();
    let job = Job {
        session_id: message.session_id,
        job_id: message.job_id.unwrap_or_else(fresh_id),
        body: JobBody::UserMessage(body),
    };
    job.check()?;
    match agent_id {
        Some(agent_id) => takes_chats(store, &agent_id).await?,
        None if !is_known(queue, store, &job.session_id).await? => {
            let message = format!("agent_id is missing, and session `{}` is unknown", job.session_id);
            return Err(Reject::invalid("missing_agent", message, "give `agent_id` with a session's first message"));
        }
        None => {}
    }
    publish(queue, job).await
}

/// What an operator orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Which command.
    pub command: Command,
    /// The name of the timers to be cancelled; all unless given.
    pub name: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// By whom.
    pub by: Option<String>,
}

/// Puts an operator's command onto a session's lane. Durable on return.
pub async fn command(queue: &dyn Queue, store: &dyn Store, session_id: &str, order: Order) -> Result<Accepted, Reject> {
    require_known(queue, store, session_id).await?;
    let Order { command, name, reason, by } = order;
    let job = Job {
        session_id: session_id.to_owned(),
        job_id: fresh_id(),
        body: JobBody::Control { command, name, reason, by, left_at: None },
    };
    let (accepted, Published { seq, .. }) = place(queue, job).await?;
    // The command waits behind the turn that it is to end.
    let hint = CancelHint { session_id: session_id.to_owned(), seq };
    if command == Command::Cancel
        && let Err(error) = queue.hint_cancel(hint).await
    {
        debug!(session_id, "no hint of the cancellation, its delivery gives one: {error}");
    }
    Ok(accepted)
}

/// A human's words, published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Spoken {
    /// Names the reply.
    pub reply_id: String,
    /// The session.
    pub session_id: String,
}

/// Puts a human's words to the user onto the lane, while a human has the conversation. Durable on return.
pub async fn speak(
    queue: &dyn Queue,
    store: &dyn Store,
    session_id: &str,
    text: String,
    by: Option<String>,
) -> Result<Spoken, Reject> {
    ids::check("session_id", session_id)?;
    if text.trim().is_empty() {
        return Err(Reject::invalid("empty_message", "text is empty", "give what the user is to read as `text`"));
    }
    let session = store.session(session_id).await?.ok_or_else(|| Reject::unknown_session(session_id))?;
    let status = session.workflow_state.status;
    if status != Status::Transferred {
        let message = format!("session `{session_id}` is `{status}`, not `transferred`");
        let hint = "a human's reply is taken only while a human has the conversation";
        return Err(Reject::new(StatusCode::CONFLICT, "not_transferred", message, hint));
    }
    let body = JobBody::Reply { text, by };
    let Accepted { job_id, session_id } =
        publish(queue, Job { session_id: session_id.to_owned(), job_id: fresh_id(), body }).await?;
    Ok(Spoken { reply_id: format!("{session_id}/{job_id}/{HUMAN_REPLY}"), session_id })
}

/// Refuses a session that is unknown, or no id.
pub(super) async fn require_known(queue: &dyn Queue, store: &dyn Store, session_id: &str) -> Result<(), Reject> {
    ids::check("session_id", session_id)?;
    if is_known(queue, store, session_id).await? { Ok(()) } else { Err(Reject::unknown_session(session_id)) }
}

/// A session is known from its first message on, even while no worker has taken it.
async fn is_known(queue: &dyn Queue, store: &dyn Store, session_id: &str) -> Result<bool, Reject> {
    Ok(store.session(session_id).await?.is_some() || queue.knows(session_id).await?)
}

pub(super) async fn takes_chats(store: &dyn Store, agent_id: &str) -> Result<(), Reject> {
    let agent = store.agent(agent_id).await?.ok_or_else(|| Reject::unknown_agent(agent_id))?;
    if agent.config.is_task_agent() {
        let message =
            format!("agent `{agent_id}` is a task agent (it has a `system_prompt`): it takes no chat sessions");
        return Err(Reject::invalid("task_agent", message, "name an agent that has an `sop`"));
    }
    Ok(())
}

async fn publish(queue: &dyn Queue, job: Job) -> Result<Accepted, Reject> {
    place(queue, job).await.map(|(accepted, _)| accepted)
}

/// Puts a job onto its lane, and answers its place in the stream, too.
pub(super) async fn place(queue: &dyn Queue, job: Job) -> Result<(Accepted, Published), Reject> {
    // Where a request's span is the current one.
    Span::current().record("session_id", &job.session_id).record("job_id", &job.job_id);
    let published = place_payload(queue, &job, job.encode()).await?;
    Ok((Accepted { job_id: job.job_id, session_id: job.session_id }, published))
}

/// The same with a payload of the job. A user's message leaves the lane's places for commands and timers free.
pub(super) async fn place_payload(queue: &dyn Queue, job: &Job, payload: Bytes) -> Result<Published, Reject> {
    let msg_id = Some(format!("{}:{}", job.session_id, job.job_id));
    let publish = Publish { session_id: job.session_id.clone(), msg_id, payload };
    Ok(match job.body {
        JobBody::UserMessage(_) => queue.publish_message(publish).await?,
        _ => queue.publish(publish).await?,
    })
}

pub(super) fn fresh_id() -> String {
    Uuid::new_v4().to_string()
}
