//! Sending commands to MongoDB. Bulk commands are built as bytes. They run in sessions that are kept and reused,
//! because the driver starts a task for each session that it creates.
//!
//! Every command has the time limit `mongodb.timeout`. The server enforces it (`maxTimeMS`, and `wtimeout` for the wait
//! for a majority). When the server does not respond shortly after the limit, the call fails with `Unavailable`, and
//! its outcome is unknown.

use super::document::{failed, raw_with_capacity};
use base::metrics::metrics;
use bson::{Document, RawDocumentBuf, rawdoc};
use mongodb::{ClientSession, Database};
use serde::Serialize;
use std::future::IntoFuture;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use storage::store::{Result, StoreError};

/// The largest overhead of one item in a bulk command, in bytes.
const ITEM_OVERHEAD: usize = 8;

/// The kind of a bulk command, and its collection.
#[derive(Clone, Copy)]
pub enum Bulk {
    /// Inserts documents into this collection.
    Insert(&'static str),
    /// Runs update statements on this collection.
    Update(&'static str),
}

/// The fields of a bulk command, in the order in which they are sent.
#[derive(Serialize)]
struct BulkCommand<'c> {
    #[serde(skip_serializing_if = "Option::is_none")]
    insert: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    update: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    documents: Option<&'c [RawDocumentBuf]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    updates: Option<&'c [RawDocumentBuf]>,
    ordered: bool,
    #[serde(rename = "writeConcern")]
    concern: &'c RawDocumentBuf,
    #[serde(rename = "maxTimeMS")]
    limit: i64,
}

impl Bulk {
    /// Encodes the unordered command, with enough capacity for its items, so that they are copied only once.
    fn command(self, items: &[RawDocumentBuf], concern: &RawDocumentBuf, limit: i64) -> Result<RawDocumentBuf> {
        let (insert, update) = match self {
            Self::Insert(collection) => (Some(collection), None),
            Self::Update(collection) => (None, Some(collection)),
        };
        let (documents, updates) = (insert.map(|_| items), update.map(|_| items));
        let bytes = items.iter().map(|item| ITEM_OVERHEAD + item.as_bytes().len()).sum();
        raw_with_capacity(bytes, &BulkCommand { insert, update, documents, updates, ordered: false, concern, limit })
    }
}

/// The number of sessions that are kept. More concurrent commands create sessions of their own.
const MAX_POOLED_SESSIONS: usize = 32;
/// How long the process waits for a response after the time limit. The server needs a moment to end the command and to
/// respond.
const RESPONSE_GRACE: Duration = Duration::from_secs(1);

/// The durability that a bulk command waits for.
#[derive(Clone, Copy)]
pub enum Durability {
    /// A majority of the members has the writes in its journal.
    Majority,
    /// The primary has applied the writes.
    Primary,
}

/// Sends commands to one database. Cheap to clone: clones share their sessions.
#[derive(Clone)]
pub struct Commands {
    database: Database,
    kept: Arc<Mutex<Vec<ClientSession>>>,
    limit: Duration,
}

impl Commands {
    /// Commands to `database`, each with the time limit `limit`.
    pub fn new(database: Database, limit: Duration) -> Self {
        Self { database, kept: Arc::default(), limit }
    }

    /// Awaits an operation of the driver, within the time limit.
    pub(crate) async fn in_time<T>(&self, asked: impl IntoFuture<Output = mongodb::error::Result<T>>) -> Result<T> {
        let _in_flight = metrics().store_commands.start();
        match tokio::time::timeout(self.limit + RESPONSE_GRACE, asked.into_future()).await {
            Ok(answer) => answer.map_err(failed),
            Err(_) => {
                let limit = self.limit.as_secs_f64();
                Err(StoreError::unavailable(format!("MongoDB did not respond within mongodb.timeout = {limit} s")))
            }
        }
    }

    /// Runs an unordered bulk command and returns the server's response.
    pub async fn bulk(&self, kind: Bulk, items: &[RawDocumentBuf], durable: Durability) -> Result<Document> {
        let limit = i64::try_from(self.limit.as_millis()).unwrap_or(i64::MAX);
        let concern = match durable {
            Durability::Majority => rawdoc! {"w": "majority", "j": true, "wtimeout": limit},
            Durability::Primary => rawdoc! {"w": 1},
        };
        self.run(kind.command(items, &concern, limit)?).await
    }

    async fn run(&self, command: RawDocumentBuf) -> Result<Document> {
        let kept = self.lock().pop();
        let mut session = match kept {
            Some(session) => session,
            // Causal consistency is not needed: a command that depends on another one is sent after its response.
            None => self.in_time(self.database.client().start_session().causal_consistency(false)).await?,
        };
        let answer = self.in_time(self.database.run_raw_command(command).session(&mut session)).await?;
        // Not after a failure: the server may still be running the command, and a session runs one command at a time.
        self.keep(session);
        Ok(answer)
    }

    fn keep(&self, session: ClientSession) {
        let mut kept = self.lock();
        if kept.len() < MAX_POOLED_SESSIONS {
            kept.push(session);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ClientSession>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
