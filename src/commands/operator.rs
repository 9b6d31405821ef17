//! Operators' control commands, and the replies of humans while a session is `transferred`.

use super::enqueue::{Accepted, enqueue, new_id, publish};
use super::messages::require_known;
use crate::error::{CommandError, ErrorKind};
use engine::turn::HUMAN_REPLY;
use serde::{Deserialize, Serialize};
use storage::queue::{CancelHint, Published, Queue};
use storage::store::Store;
use tracing::debug;
use types::ids;
use types::job::{Command, Job, JobBody};
use types::session::Status;

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
    require_known(queue, store, session_id).await?;
    let OperatorCommand { command, name, reason, by } = order;
    let job = Job {
        session_id: session_id.to_owned(),
        job_id: new_id(),
        body: JobBody::Control { command, name, reason, by, left_at: None },
    };
    let (accepted, Published { seq, .. }) = enqueue(queue, job).await?;
    // The command waits behind the turn that it cancels, so the lease holder needs a hint.
    let hint = CancelHint { session_id: session_id.to_owned(), seq, deleted: false };
    if command == Command::Cancel
        && let Err(error) = queue.hint_cancel(hint).await
    {
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
/// the conversation.
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
    require_transferred(store, session_id).await?;
    let body = JobBody::Reply { text, by };
    let Accepted { job_id, session_id } =
        publish(queue, Job { session_id: session_id.to_owned(), job_id: new_id(), body }).await?;
    Ok(PostedReply { reply_id: format!("{session_id}/{job_id}/{HUMAN_REPLY}"), session_id })
}

/// Fails with `not_transferred` unless a human handles the conversation.
pub async fn require_transferred(store: &dyn Store, session_id: &str) -> Result<(), CommandError> {
    let session = store.session(session_id).await?.ok_or_else(|| CommandError::unknown_session(session_id))?;
    let status = session.workflow_state.status;
    if status != Status::Transferred {
        let message = format!("session `{session_id}` is `{status}`, not `transferred`");
        let hint = "a human can reply only while the session is `transferred`";
        return Err(CommandError::new(ErrorKind::Conflict, "not_transferred", message, hint));
    }
    Ok(())
}
