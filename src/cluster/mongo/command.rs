//! Commands as bytes: making bulk commands, and sending any. Each runs in one of the server's own sessions, which is kept for
//! the next one: the driver starts a task for every one that it makes.
//!
//! Every command has a time limit, the setting `mongodb.timeout`. The server ends it then (`maxTimeMS`, and `wtimeout` for the
//! wait for a majority); a server that does not even say so is waited for a little longer. Its outcome is unknown.

use super::document::{failed, raw_with_room};
use base::metrics::metrics;
use bson::{Document, RawDocumentBuf, rawdoc};
use mongodb::{ClientSession, Database};
use serde::Serialize;
use std::future::IntoFuture;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use storage::store::{Result, StoreError};

/// Bytes of an item's place in a bulk command, at most.
const ITEM: usize = 8;

/// A bulk command, and its collection.
#[derive(Clone, Copy)]
pub enum Bulk {
    /// Inserts into this collection.
    Insert(&'static str),
    /// Updates in this collection.
    Update(&'static str),
}

/// A bulk command's fields, in their order.
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
    /// The unordered command. Its items are copied once: it is made with room for them.
    fn command(self, items: &[RawDocumentBuf], concern: &RawDocumentBuf, limit: i64) -> Result<RawDocumentBuf> {
        let (insert, update) = match self {
            Self::Insert(collection) => (Some(collection), None),
            Self::Update(collection) => (None, Some(collection)),
        };
        let (documents, updates) = (insert.map(|_| items), update.map(|_| items));
        let bytes = items.iter().map(|item| ITEM + item.as_bytes().len()).sum();
        raw_with_room(bytes, &BulkCommand { insert, update, documents, updates, ordered: false, concern, limit })
    }
}

/// The most sessions that are kept; more commands at once make their own.
const MAX_KEPT: usize = 32;
/// How long after its limit a command's answer may come: the server needs a moment to end it and to say so.
const GRACE: Duration = Duration::from_secs(1);

/// When a bulk command returns.
#[derive(Clone, Copy)]
pub enum Durable {
    /// When a majority of the members has it in its journal.
    Majority,
    /// When the primary has it.
    Primary,
}

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Commands {
    database: Database,
    kept: Arc<Mutex<Vec<ClientSession>>>,
    limit: Duration,
}

impl Commands {
    /// Commands that may take so long.
    pub fn new(database: Database, limit: Duration) -> Self {
        Self { database, kept: Arc::default(), limit }
    }

    /// What an operation of the driver comes to, within the time limit.
    pub(crate) async fn in_time<T>(&self, asked: impl IntoFuture<Output = mongodb::error::Result<T>>) -> Result<T> {
        let _in_flight = metrics().store_commands.begin();
        match tokio::time::timeout(self.limit + GRACE, asked.into_future()).await {
            Ok(answer) => answer.map_err(failed),
            Err(_) => {
                let limit = self.limit.as_secs_f64();
                Err(StoreError::Unavailable(format!("MongoDB did not answer within mongodb.timeout = {limit} s")))
            }
        }
    }

    /// Runs an unordered bulk command.
    pub async fn bulk(&self, kind: Bulk, items: &[RawDocumentBuf], durable: Durable) -> Result<Document> {
        let limit = i64::try_from(self.limit.as_millis()).unwrap_or(i64::MAX);
        let concern = match durable {
            Durable::Majority => rawdoc! {"w": "majority", "j": true, "wtimeout": limit},
            Durable::Primary => rawdoc! {"w": 1},
        };
        self.run(kind.command(items, &concern, limit)?).await
    }

    async fn run(&self, command: RawDocumentBuf) -> Result<Document> {
        let kept = self.lock().pop();
        let mut session = match kept {
            Some(session) => session,
            // No two commands of a process depend on each other's order beyond what their answers say.
            None => self.in_time(self.database.client().start_session().causal_consistency(false)).await?,
        };
        let answer = self.in_time(self.database.run_raw_command(command).session(&mut session)).await?;
        // One whose command failed is not: the server may still be at it.
        self.keep(session);
        Ok(answer)
    }

    fn keep(&self, session: ClientSession) {
        let mut kept = self.lock();
        if kept.len() < MAX_KEPT {
            kept.push(session);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ClientSession>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
