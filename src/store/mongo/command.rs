//! Commands as bytes: making bulk commands, and sending any. Each runs in one of the server's own sessions, which is kept for
//! the next one: the driver starts a task for every one that it makes.

use super::document::{failed, raw_with_room};
use crate::store::Result;
use bson::{Document, RawDocumentBuf};
use mongodb::{ClientSession, Database};
use serde::Serialize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of an item's place in a bulk command, at most.
const ITEM: usize = 8;

/// A bulk command, and its collection.
#[derive(Clone, Copy)]
pub(crate) enum Bulk {
    Insert(&'static str),
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
}

impl Bulk {
    /// The unordered command. Its items are copied once: it is made with room for them.
    pub(crate) fn command(self, items: &[RawDocumentBuf], concern: &RawDocumentBuf) -> Result<RawDocumentBuf> {
        let (insert, update) = match self {
            Self::Insert(collection) => (Some(collection), None),
            Self::Update(collection) => (None, Some(collection)),
        };
        let (documents, updates) = (insert.map(|_| items), update.map(|_| items));
        let bytes = items.iter().map(|item| ITEM + item.as_bytes().len()).sum();
        raw_with_room(bytes, &BulkCommand { insert, update, documents, updates, ordered: false, concern })
    }
}

/// The most sessions that are kept; more commands at once make their own.
const MAX_KEPT: usize = 32;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Commands {
    database: Database,
    kept: Arc<Mutex<Vec<ClientSession>>>,
}

impl Commands {
    pub(crate) fn new(database: Database) -> Self {
        Self { database, kept: Arc::default() }
    }

    /// Runs a command; it says itself how durable its effect is to be on return.
    pub(crate) async fn run(&self, command: RawDocumentBuf) -> Result<Document> {
        let kept = self.lock().pop();
        let mut session = match kept {
            Some(session) => session,
            // No two commands of a process depend on each other's order beyond what their answers say.
            None => self.database.client().start_session().causal_consistency(false).await.map_err(failed)?,
        };
        let answer = self.database.run_raw_command(command).session(&mut session).await.map_err(failed)?;
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
