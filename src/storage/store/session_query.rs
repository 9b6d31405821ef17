//! The filter of a listing of sessions, and a page of it.

use types::access::Scope;
use types::page::Page;
use types::session::{Session, Status, Words};
use types::timestamp::Timestamp;

/// The place of a session in the listing: when it last changed, and its id.
pub type SessionPlace = (Timestamp, String);

/// A filter for listing sessions. The lanes of runs are never listed.
#[derive(Clone, Debug)]
pub struct SessionQuery {
    /// Only sessions that this scope covers.
    pub scope: Scope,
    /// Lists only sessions with this status.
    pub status: Option<Status>,
    /// Lists only sessions of this agent.
    pub agent_id: Option<String>,
    /// Lists only sessions of this channel.
    pub channel: Option<String>,
    /// Lists only sessions of this user.
    pub user_id: Option<String>,
    /// True lists only sessions that wait for an answer or a human, false only the others: see [`waits_for_people`].
    pub waiting: Option<bool>,
    /// Lists only sessions that changed at this time or later.
    pub since: Option<Timestamp>,
    /// Lists only sessions that last changed before this time.
    pub until: Option<Timestamp>,
    /// Lists only sessions whose histories have these words.
    pub words: Words,
    /// The largest number of sessions to return.
    pub limit: usize,
    /// Lists only sessions behind this place.
    pub after: Option<SessionPlace>,
    /// The listing ends before the session with which it would have more bytes, but not before the first one.
    pub max_bytes: usize,
    /// The listing ends when it has compared this many sessions with the filter, although fewer than `limit` fit.
    pub max_examined: usize,
}

impl Default for SessionQuery {
    fn default() -> Self {
        Self {
            scope: Scope::default(),
            status: None,
            agent_id: None,
            channel: None,
            user_id: None,
            waiting: None,
            since: None,
            until: None,
            words: Words::default(),
            limit: 50,
            after: None,
            max_bytes: usize::MAX,
            max_examined: usize::MAX,
        }
    }
}

impl SessionQuery {
    /// True if a session that last changed at this time fits `since` and `until`.
    pub fn covers_time(&self, updated_at: Timestamp) -> bool {
        self.since.is_none_or(|since| since <= updated_at) && self.until.is_none_or(|until| updated_at < until)
    }

    /// True if a conversation fits all conditions except the times and the words.
    pub fn covers(&self, session: &Session) -> bool {
        let Session { session_id, channel, agent_id, user_id, .. } = session;
        self.status.is_none_or(|status| session.workflow_state.status == status)
            && self.agent_id.as_ref().is_none_or(|wanted| agent_id == wanted)
            && self.channel.as_ref().is_none_or(|wanted| channel == wanted)
            && self.user_id.as_ref().is_none_or(|wanted| user_id == wanted)
            && self.waiting.is_none_or(|wanted| waits_for_people(session) == wanted)
            && self.scope.covers(session_id, channel, agent_id)
    }
}

/// True if a conversation waits for a user's answer, to a flow or to a coordinator, or if a human has it.
pub fn waits_for_people(session: &Session) -> bool {
    session.handoff.is_some() || session.waiting.is_some() || session.task.is_some()
}

/// A page of a listing of sessions.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionPage {
    /// The sessions, and whether others fit behind the last one.
    pub page: Page<Session>,
    /// The place of the last compared session, if the listing has ended there because of `max_examined`.
    pub ends_at: Option<SessionPlace>,
}
