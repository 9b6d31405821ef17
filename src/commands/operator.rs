//! Operators' control commands, and the replies of humans while a session is `transferred`.

use super::enqueue::{Accepted, enqueue, new_id, publish};
use super::messages::require_known;
use crate::error::{CommandError, ErrorKind};
use engine::turn::HUMAN_REPLY;
use serde::{Deserialize, Serialize};
use storage::queue::{CancelHint, Published, Queue};
use storage::store::Store;
use tracing::debug;
use types::handoff::NAMELESS;
use types::ids;
use types::job::{Command, Control, Job, JobBody};
use types::session::{Session, Status};

/// A control command with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorCommand {
    /// The command.
    pub command: Command,
    /// For `cancel_timers`: the name of the timers to cancel; all timers by default.
    pub name: Option<String>,
    /// The reason, for the record.
    pub reason: Option<String>,
    /// The operator's name, for the record.
    pub by: Option<String>,
}

/// Puts a control command on a session's lane. Durable on return. Fails with `unknown_session` when the session does
/// not exist.
pub async fn command(
    queue: &dyn Queue,
    store: &dyn Store,
    session_id: &str,
    order: OperatorCommand,
) -> Result<Accepted, CommandError> {
    let OperatorCommand { command, name, reason, by } = order;
    control(queue, store, session_id, Control { name, reason, by, ..Control::new(command) }).await
}

/// Like [`command`], with all details of the command.
pub async fn control(
    queue: &dyn Queue,
    store: &dyn Store,
    session_id: &str,
    order: Control,
) -> Result<Accepted, CommandError> {
    require_known(queue, store, session_id).await?;
    let cancels = order.command == Command::Cancel || order.take_over;
    let job = Job { session_id: session_id.to_owned(), job_id: new_id(), body: JobBody::Control(order) };
    job.check()?;
    let (accepted, Published { seq, .. }) = enqueue(queue, job).await?;
    // The command waits behind the turn that it cancels, so the lease holder needs a hint.
    let hint = CancelHint { session_id: session_id.to_owned(), seq, deleted: false };
    if cancels && let Err(error) = queue.hint_cancel(hint).await {
        debug!(
            session_id,
            "notifying the lease holder of the cancellation failed, \
         the command's delivery will notify it: {error}"
        );
    }
    Ok(accepted)
}

/// A human's reply that was put on the lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PostedReply {
    /// The id of the reply.
    pub reply_id: String,
    /// The session.
    pub session_id: String,
}

/// Puts a human's reply to the user on the lane. Durable on return. Fails with `not_transferred` unless a human handles
/// the conversation, and with `claimed` if another person has the claim. The lane checks the claim again.
pub async fn post_reply(
    queue: &dyn Queue,
    store: &dyn Store,
    session_id: &str,
    text: String,
    by: Option<String>,
) -> Result<PostedReply, CommandError> {
    ids::check("session_id", session_id)?;
    if text.trim().is_empty() {
        return Err(CommandError::invalid("empty_message", "text is empty", "give the reply to the user as `text`"));
    }
    let session = require_transferred(store, session_id).await?;
    require_no_other_claim(&session, by.as_deref().unwrap_or(NAMELESS))?;
    let body = JobBody::Reply { text, by };
    let Accepted { job_id, session_id } =
        publish(queue, Job { session_id: session_id.to_owned(), job_id: new_id(), body }).await?;
    Ok(PostedReply { reply_id: format!("{session_id}/{job_id}/{HUMAN_REPLY}"), session_id })
}

/// Returns the session. Fails with `not_transferred` unless a human handles the conversation.
pub async fn require_transferred(store: &dyn Store, session_id: &str) -> Result<Session, CommandError> {
    let session = store.session(session_id).await?.ok_or_else(|| CommandError::unknown_session(session_id))?;
    if session.workflow_state.status == Status::Transferred { Ok(session) } else { Err(not_transferred(&session)) }
}

/// The error for a conversation that no human handles.
pub(crate) fn not_transferred(session: &Session) -> CommandError {
    let message = format!("session `{}` is `{}`, not `transferred`", session.session_id, session.workflow_state.status);
    let hint = "a human can reply only while the session is `transferred`; `claim` with `take_over` takes it over";
    CommandError::new(ErrorKind::Conflict, "not_transferred", message, hint)
}

/// Fails with `claimed` if a person other than `name` has the claim.
pub fn require_no_other_claim(session: &Session, name: &str) -> Result<(), CommandError> {
    match session.handoff.as_ref().and_then(|handoff| handoff.claim_of_another(name)) {
        Some(claim) => Err(claimed(&session.session_id, Some(&claim.by))),
        None => Ok(()),
    }
}

/// The error for a conversation of another person.
pub(crate) fn claimed(session_id: &str, by: Option<&str>) -> CommandError {
    let message = match by {
        Some(by) => format!("`{by}` has the claim of session `{session_id}`"),
        None => format!("another person had the claim of session `{session_id}`"),
    };
    let hint = "wait until the claim ends, or ask an operator to pass it on with `force`";
    CommandError::new(ErrorKind::Conflict, "claimed", message, hint)
}
