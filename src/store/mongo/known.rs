//! Sessions as this process knows them: those whose lanes it holds, as they were granted, and those that it has left, as it
//! left them. One is of use only while its epoch is still the document's, which the statements made from it check: what
//! is known wrong matches nothing.

use super::connect::ask_admin;
use crate::clock::Timestamp;
use crate::session::Session;
use crate::store::{Change, Commit};
use crate::store::{Result, StoreError, lane};
use bson::doc;
use moka::sync::Cache;
use mongodb::Client;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most bytes of all sessions known.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
/// How long a session is known that nobody uses.
const IDLE: Duration = Duration::from_secs(600);

/// See the module. Cheap to clone.
#[derive(Clone)]
pub(super) struct Known {
    sessions: Cache<String, Arc<Session>>,
}

impl Known {
    pub(super) fn new() -> Self {
        let sessions = Cache::builder().max_capacity(MAX_BYTES).weigher(weigh).time_to_idle(IDLE).build();
        Self { sessions }
    }

    /// Takes out a session that this process left last; it stays unknown until it is put back.
    pub(super) fn take_left(&self, session_id: &str) -> Option<Session> {
        let session = self.sessions.remove(session_id)?;
        session.lease.is_none().then(|| Arc::unwrap_or_clone(session))
    }

    /// Takes out a session as it was granted under `epoch`.
    pub(super) fn take_granted(&self, session_id: &str, epoch: u64) -> Option<Session> {
        let session = self.sessions.remove(session_id)?;
        (session.epoch == epoch && session.lease.is_some()).then(|| Arc::unwrap_or_clone(session))
    }

    pub(super) fn put(&self, session: Session) {
        self.sessions.insert(session.session_id.clone(), Arc::new(session));
    }
}

fn weigh(_: &String, session: &Arc<Session>) -> u32 {
    let history: usize = session.history.iter().map(|entry| 256 + entry.text.len() + 64 * entry.metadata.len()).sum();
    let jobs: usize = session.recent_jobs.iter().map(|job| 24 + job.len()).sum();
    let outbox: usize = session.outbox.iter().map(|event| 256 + event.payload.len()).sum();
    u32::try_from(1_024 + history + jobs + outbox + 64 * session.profile.len()).unwrap_or(u32::MAX)
}

/// What a session is after a commit that released its lane.
pub(super) fn left(mut session: Session, commit: &Commit, change: &Change, now: Timestamp) -> Session {
    lane::apply(&mut session, change, now);
    let history = Arc::make_mut(&mut session.history);
    history.extend(change.history.iter().cloned());
    history.drain(..change.history_drop.min(history.len()));
    session.pending_seq = session.pending_seq.min(commit.last_seq);
    lane::finish(&mut session, commit.last_seq, commit.lease, now);
    session
}

/// The server's clock, asked for now and then, and in between by how much time has passed here since. It lags by the way
/// of the answer.
#[derive(Clone)]
pub(super) struct ServerClock {
    asked: Arc<Mutex<(Timestamp, Instant)>>,
}

impl ServerClock {
    pub(super) async fn ask(client: &Client) -> Result<Self> {
        Ok(Self { asked: Arc::new(Mutex::new(time(client).await?)) })
    }

    pub(super) async fn ask_again(&self, client: &Client) -> Result<()> {
        let asked = time(client).await?;
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = asked;
        Ok(())
    }

    pub(super) fn now(&self) -> Timestamp {
        let (at, since) = *self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        at.plus(since.elapsed())
    }
}

async fn time(client: &Client) -> Result<(Timestamp, Instant)> {
    let answer = ask_admin(client, doc! {"hello": 1}).await?;
    let at = answer.get_datetime("localTime").map_err(|error| StoreError::Unavailable(error.to_string()))?;
    Ok((Timestamp::from_millis(at.timestamp_millis()), Instant::now()))
}
