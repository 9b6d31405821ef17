//! Messages of a dialogue's user.

use super::{Author, Dialogue, busy};
use crate::enqueue::{self, new_id};
use crate::error::{CommandError, ErrorKind};
use base::clock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use storage::queue::{Published, Queue};
use storage::store::Store;
use storage::store::authoring::{SaveAuthoring, Saved};
use types::authoring::ConfigRequest;
use types::authoring::state::MAX_MESSAGE;
use types::ids::{self, DottedId, Id};
use types::job::{Job, JobBody, UserMessage};

/// A message of the user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChatMessage {
    /// The dialogue.
    #[schemars(with = "Id")]
    pub session_id: String,
    /// The text; at most 65,536 bytes.
    pub user_message: String,
    /// Names the turn: a repeat with the same id gets the events of the same turn. A random id by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<DottedId>")]
    pub message_id: Option<String>,
    /// Settings to change from this turn on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<ConfigRequest>,
}

/// A checked message.
#[derive(Clone, Debug)]
pub struct CheckedMessage {
    /// The dialogue as it is before the turn.
    pub dialogue: Dialogue,
    /// The id of the turn.
    pub turn_id: String,
    text: String,
}

/// Checks a message, and saves its settings unless it repeats the message of a turn that has begun. Durable on return
/// if there are settings.
pub async fn check(store: &dyn Store, author: &Author, message: ChatMessage) -> Result<CheckedMessage, CommandError> {
    let ChatMessage { session_id, user_message: text, message_id, config } = message;
    let dialogue = super::load(store, author, &session_id).await?;
    if text.trim().is_empty() {
        return Err(CommandError::invalid("empty_message", "user_message is empty", "give the text as `user_message`"));
    }
    if text.len() > MAX_MESSAGE {
        let message = format!("user_message has {} bytes; the limit is {MAX_MESSAGE}", text.len());
        let hint = "send the text in several messages";
        return Err(CommandError::new(ErrorKind::TooLarge, "message_too_large", message, hint));
    }
    if let Some(message_id) = &message_id {
        ids::check("message_id", message_id)?;
    }
    let mut message = CheckedMessage { dialogue, turn_id: message_id.unwrap_or_else(new_id), text };
    // Later messages may have changed the settings of a repeated one.
    if let Some(config) = config
        && !message.has_begun(store).await?
    {
        configure(store, &mut message.dialogue, config).await?;
    }
    Ok(message)
}

async fn configure(store: &dyn Store, dialogue: &mut Dialogue, config: ConfigRequest) -> Result<(), CommandError> {
    let session_id = dialogue.session.session_id.clone();
    let config = config.apply(&dialogue.state.config).map_err(|error| {
        CommandError::invalid("invalid_config", error.to_string(), "docs/authoring.md has the settings of a dialogue")
    })?;
    if config == dialogue.state.config {
        return Ok(());
    }
    let changed = dialogue.state.clone().reconfigured(config);
    let save = SaveAuthoring { state: changed.clone(), epoch: None };
    match store.save_authoring(save).await? {
        Saved::Saved(version) => {
            dialogue.state = changed;
            dialogue.state.version = version;
            Ok(())
        }
        // A turn is open, or has just changed the state.
        Saved::Fenced | Saved::Conflict => Err(busy(&session_id)),
    }
}

/// Returns whether the last events of a session's turns are published. A message leaves its lane only after the events
/// of its turn are published, and before the lane's next turn.
pub async fn is_told(queue: &dyn Queue, store: &dyn Store, session_id: &str) -> Result<bool, CommandError> {
    let Some(session) = store.session(session_id).await? else { return Ok(true) };
    let next = queue.next_in_lane(session_id, 0, 0).await?;
    Ok(next.is_none_or(|next| next.seq > session.last_seq))
}

impl CheckedMessage {
    /// Puts the message on its lane, with `channel` as its channel if one is given. Durable on return.
    pub async fn send(&self, queue: &dyn Queue) -> Result<Published, CommandError> {
        let session = &self.dialogue.session;
        let body = UserMessage {
            text: self.text.clone(),
            user_id: Some(session.user_id.clone()),
            channel: Some(session.channel.clone()),
            sent_at: Some(clock::now()),
            ..UserMessage::default()
        };
        let job = Job {
            session_id: session.session_id.clone(),
            job_id: self.turn_id.clone(),
            body: JobBody::UserMessage(body),
        };
        job.check()?;
        Ok(enqueue::enqueue(queue, job).await?.1)
    }

    /// Returns true if the turn of this id has begun or ended.
    pub async fn has_begun(&self, store: &dyn Store) -> Result<bool, CommandError> {
        let Dialogue { session, state } = &self.dialogue;
        if state.turn.as_ref().is_some_and(|turn| turn.turn_id == self.turn_id)
            || session.recent_jobs.iter().any(|job| **job == self.turn_id)
        {
            return Ok(true);
        }
        self.has_ended(store).await
    }

    /// Returns true if the turn of this id has ended.
    pub async fn has_ended(&self, store: &dyn Store) -> Result<bool, CommandError> {
        Ok(store.turn(&self.dialogue.session.session_id, &self.turn_id).await?.is_some())
    }
}
