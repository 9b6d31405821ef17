//! Sessions: messages, turns, timers, events and operators' commands.

use super::{Access, direct};
use crate::client::Followed;
use crate::feed::{self, Feed};
use base::tasks::Tasks;
use commands::enqueue::Accepted;
use commands::messages::NewMessage;
use commands::operator::Order;
use commands::sessions::{SessionSummary, TurnDetails, has_jobs, turns_of};
use commands::timers::PendingTimer;
use storage::queue::From;
use storage::store::records::SessionQuery;
use types::session::Session;

impl Access {
    pub async fn send(&self, message: NewMessage) -> anyhow::Result<Accepted> {
        match self {
            Self::Direct { queue, store, .. } => {
                direct(commands::messages::submit(queue.as_ref(), store.as_ref(), message).await)
            }
            Self::Gateway(client) => client.send(&message).await,
        }
    }

    pub async fn list_sessions(&self, query: SessionQuery) -> anyhow::Result<Vec<SessionSummary>> {
        match self {
            Self::Direct { store, .. } => {
                Ok(store.sessions(query).await?.into_iter().map(SessionSummary::from).collect())
            }
            Self::Gateway(client) => client.sessions(&query).await,
        }
    }

    /// Reads a session, without its outbox; through a gateway also without its lease.
    pub async fn get_session(&self, session_id: &str) -> anyhow::Result<Option<Session>> {
        match self {
            Self::Direct { store, .. } => {
                let session = store.session(session_id).await?;
                Ok(session.map(|session| Session { outbox: Vec::new(), ..session }))
            }
            Self::Gateway(client) => client.session(session_id).await,
        }
    }

    /// True if the session's lane has a job that waits or is in progress. Also true if a gateway does not know.
    pub async fn has_jobs(&self, session: &Session) -> anyhow::Result<bool> {
        match self {
            Self::Direct { queue, .. } => Ok(has_jobs(queue.as_ref(), session).await?),
            Self::Gateway(client) => Ok(client.has_jobs(&session.session_id).await?.unwrap_or(true)),
        }
    }

    /// The last turns of a session, with their steps, oldest first.
    pub async fn list_turns(&self, session_id: &str, limit: usize) -> anyhow::Result<Vec<TurnDetails>> {
        match self {
            Self::Direct { store, .. } => direct(turns_of(store.as_ref(), session_id, limit).await),
            Self::Gateway(client) => client.turns(session_id, limit).await,
        }
    }

    pub async fn control(&self, session_id: &str, order: Order) -> anyhow::Result<Accepted> {
        match self {
            Self::Direct { queue, store, .. } => {
                direct(commands::operator::command(queue.as_ref(), store.as_ref(), session_id, order).await)
            }
            Self::Gateway(client) => client.control(session_id, &order).await,
        }
    }

    pub async fn list_timers(&self, session_id: Option<&str>, limit: usize) -> anyhow::Result<Vec<PendingTimer>> {
        match self {
            Self::Direct { store, .. } => direct(commands::timers::pending(store.as_ref(), session_id, limit).await),
            Self::Gateway(client) => client.timers(session_id, limit).await,
        }
    }

    /// Follows a session's events after `last_id`, or from now on. A gateway responds 404 to an unknown session.
    pub async fn follow(&self, session_id: &str, last_id: Option<u64>, tasks: &Tasks) -> anyhow::Result<Feed> {
        match self {
            Self::Direct { queue, .. } => {
                let events = queue.events(session_id, last_id.map_or(From::Now, From::After)).await?;
                Ok(feed::of_queue(events, tasks))
            }
            Self::Gateway(client) => {
                let followed = Followed::Session(session_id.to_owned());
                feed::of_gateway(client.clone(), followed, last_id, tasks).await
            }
        }
    }
}
