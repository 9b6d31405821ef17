//! Whom a session belongs to, for callers who may see only some sessions.

use crate::error::CommandError;
use storage::queue::Queue;
use storage::store::Store;
use types::job::{DEFAULT_CHANNEL, UserMessage};
use types::session::Kind;

/// The channel and the agent of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionAddress {
    /// The session's channel.
    pub channel: String,
    /// The session's agent.
    pub agent_id: String,
}

/// Returns the address of a conversation; of one that no worker has seen yet, the address in its first message. `None`
/// if there is no such conversation.
pub async fn address_of(
    queue: &dyn Queue,
    store: &dyn Store,
    session_id: &str,
) -> Result<Option<SessionAddress>, CommandError> {
    if let Some(session) = store.session(session_id).await? {
        let address = SessionAddress { channel: session.channel, agent_id: session.agent_id };
        return Ok((session.kind != Kind::Run).then_some(address));
    }
    let Some(first) = queue.next_in_lane(session_id, 0, 0).await? else { return Ok(None) };
    let address = |message: &UserMessage| SessionAddress {
        channel: message.channel.clone().unwrap_or_else(|| DEFAULT_CHANNEL.to_owned()),
        agent_id: message.agent_id.clone().unwrap_or_default(),
    };
    Ok(first.job().ok().and_then(|job| job.user_message().map(address)))
}
