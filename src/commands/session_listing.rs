//! Listings of sessions.

use crate::error::CommandError;
use crate::last_message::LastMessage;
use crate::paging::{Listing, fit};
use base::config::{SecretValues, Settings};
use serde::{Deserialize, Serialize};
use storage::store::Store;
use storage::store::records::{SessionPage, SessionQuery};
use types::page::Place;
use types::session::{Kind, Session, Status, Waiting, Words};
use types::timestamp::Timestamp;

/// The largest number of sessions that a page compares with its filters.
pub const MAX_EXAMINED: usize = 10_000;
/// The longest text that is searched for, in characters.
pub const MAX_SEARCH_CHARS: usize = 200;
/// The largest number of words that are searched for.
const MAX_WORDS: usize = 10;

/// A session in a listing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SessionSummary {
    /// The id of the session.
    pub session_id: String,
    /// The agent of the session.
    pub agent_id: String,
    /// The id that the channel gives the user.
    pub user_id: String,
    /// The channel of the session.
    pub channel: String,
    /// Whether the session is a chat or the lane of a run.
    pub kind: Kind,
    /// The status of the current turn.
    pub status: Status,
    /// The reason for the status `cancelled`.
    pub status_reason: Option<String>,
    /// The number of pending timers.
    pub timers: usize,
    /// The flow that waits for the user's input; missing when none waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// The last message of the history; missing in an empty one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_message: Option<LastMessage>,
    /// When the conversation was closed; null while it is open.
    pub closed_at: Option<Timestamp>,
    /// When the session was created.
    pub created_at: Timestamp,
    /// When the session last changed.
    pub updated_at: Timestamp,
}

impl SessionSummary {
    /// The entry of a session with at least the last entry of its history.
    fn new(session: Session, secrets: &SecretValues) -> Self {
        Self {
            last_message: LastMessage::of(&session, secrets),
            session_id: session.session_id,
            agent_id: session.agent_id,
            user_id: session.user_id,
            channel: session.channel,
            kind: session.kind,
            status: session.workflow_state.status,
            status_reason: session.status_reason,
            timers: session.timers.len(),
            waiting: session.waiting.map(|waiting| *waiting),
            closed_at: session.closed_at,
            created_at: session.created_at,
            updated_at: session.updated_at,
        }
    }
}

/// Lists sessions, the last changed first, with secrets masked.
pub async fn list_sessions(
    store: &dyn Store,
    settings: &Settings,
    query: SessionQuery,
) -> Result<Listing<SessionSummary>, CommandError> {
    let secrets = SecretValues::from_settings(settings);
    let SessionPage { page, ends_at } = store.sessions_page(query).await?;
    let page = page.map(|session| SessionSummary::new(session, &secrets));
    let mut listing = fit(page, |session| (session.updated_at, session.session_id.clone()));
    listing.next = listing.next.or_else(|| ends_at.map(|place| place.cursor()));
    Ok(listing)
}

/// Reads the words to search for. Fails with `invalid_query` for more than 200 characters or 10 words.
pub fn search_words(text: &str) -> Result<Words, CommandError> {
    let words = Words::of(text);
    let problem = match (text.chars().count(), words.iter().count()) {
        (chars, _) if chars > MAX_SEARCH_CHARS => format!("q: {chars} characters are more than {MAX_SEARCH_CHARS}"),
        (_, count) if count > MAX_WORDS => format!("q: {count} words are more than {MAX_WORDS}"),
        _ => return Ok(words),
    };
    Err(CommandError::invalid("invalid_query", problem, "search for fewer words"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_bounded() {
        assert!(search_words(&"x".repeat(200)).is_ok_and(|words| words.iter().count() == 1));
        assert!(search_words(&"x".repeat(201)).is_err());
        assert!(search_words("a b c d e f g h i j").is_ok());
        assert!(search_words("a b c d e f g h i j k").is_err());
    }
}
