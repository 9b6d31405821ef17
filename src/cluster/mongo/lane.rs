//! Updates of sessions, singly and in bulk, and the release and renewal of lanes. [`super::acquire`] and
//! [`super::commits`] build on it.

use super::command::{Bulk, Durability};
use super::document::{date, int, is_transient, raw, read, unseal_fields};
use super::fence::FenceTokens;
use super::{Db, update_ops};
use bson::{Bson, Document, RawDocumentBuf, doc};
use futures::TryStreamExt;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use storage::store::records::LeaseKey;
use storage::store::{Result, StoreError, lane};
use types::session::Session;
use types::timestamp::Timestamp;

/// MongoDB's code for a duplicate key.
const DUPLICATE_KEY: i32 = 11_000;

/// How often an update is tried again after another process has changed the session in between.
pub(super) const MAX_CONFLICTS: usize = 10;

/// The term of the primary that ran a command; `None` when the server does not report it.
pub(super) type Term = Option<i64>;

/// The error of one statement in a bulk command.
pub(super) struct StatementFailure {
    pub(super) code: i32,
    pub(super) problem: String,
}

impl StatementFailure {
    pub(super) fn is_duplicate(&self) -> bool {
        self.code == DUPLICATE_KEY
    }

    /// The error for the statement's caller: `Unavailable` when the statement may succeed later, else `Refused`.
    pub(super) fn error(&self) -> StoreError {
        let error = if is_transient(self.code) { StoreError::Unavailable } else { StoreError::Refused };
        error(self.problem.clone().into())
    }
}

/// Returns the failed statements of a bulk command by index, and the term of the primary.
fn results(answer: &Document) -> Result<(HashMap<usize, StatementFailure>, Term)> {
    if let Ok(concern) = answer.get_document("writeConcernError") {
        return Err(StoreError::unavailable(format!("the write was not acknowledged by a majority: {concern}")));
    }
    let mut failures = HashMap::new();
    for error in answer.get_array("writeErrors").into_iter().flatten().filter_map(Bson::as_document) {
        let index = usize::try_from(error.get_i32("index").unwrap_or(0)).unwrap_or(0);
        let problem = error.get_str("errmsg").unwrap_or_default().to_owned();
        failures.insert(index, StatementFailure { code: error.get_i32("code").unwrap_or(0), problem });
    }
    let term = answer.get_document("opTime").ok().and_then(|at| at.get_i64("t").ok());
    Ok((failures, term))
}

/// The error of an update that was never based on the current session.
pub(super) fn conflict(session_id: &str) -> StoreError {
    StoreError::unavailable(format!("session `{session_id}` changed {MAX_CONFLICTS} times during one update"))
}

impl Db {
    /// Runs an unordered bulk command, durable on return. Returns the failed statements by index.
    pub(super) async fn bulk(&self, kind: Bulk, items: &[RawDocumentBuf]) -> Result<HashMap<usize, StatementFailure>> {
        self.bulk_with(kind, items, Durability::Majority).await.map(|(failures, _)| failures)
    }

    /// Runs an unordered bulk command that is not durable on return. It becomes durable with the next durable command
    /// in the same term of the primary, because the oplog is one sequence. Returns the failed statements and the term.
    pub(super) async fn bulk_before(
        &self,
        kind: Bulk,
        items: &[RawDocumentBuf],
    ) -> Result<(HashMap<usize, StatementFailure>, Term)> {
        self.bulk_with(kind, items, Durability::Primary).await
    }

    pub(super) async fn bulk_with(
        &self,
        kind: Bulk,
        items: &[RawDocumentBuf],
        durable: Durability,
    ) -> Result<(HashMap<usize, StatementFailure>, Term)> {
        results(&self.commands.bulk(kind, items, durable).await?)
    }

    /// Runs one update of a session, durable on return. Returns whether its condition held, and the term.
    pub(super) async fn update_one(&self, statement: RawDocumentBuf) -> Result<(bool, Term)> {
        let answer = self.commands.bulk(Bulk::Update("sessions"), &[statement], Durability::Majority).await?;
        let (failures, term) = results(&answer)?;
        match failures.values().next() {
            Some(failure) => Err(failure.error()),
            None => Ok((answer.get_i32("n").is_ok_and(|matched| matched > 0), term)),
        }
    }

    /// Reads session documents, with all or only the named fields. Returns them by id.
    pub(super) async fn session_documents(
        &self,
        ids: Vec<&str>,
        fields: Option<Document>,
    ) -> Result<HashMap<String, RawDocumentBuf>> {
        let collection = self.database.collection::<RawDocumentBuf>("sessions");
        let mut find = collection.find(doc! {"_id": {"$in": ids}});
        if let Some(fields) = fields {
            find = find.projection(fields);
        }
        let documents: Vec<_> = self.in_time(async { find.await?.try_collect().await }).await?;
        let id = |document: &RawDocumentBuf| document.get_str("_id").map(str::to_owned).unwrap_or_default();
        Ok(documents.into_iter().map(|document| (id(&document), document)).collect())
    }

    /// Reads one session document.
    pub(super) async fn session_document(&self, session_id: &str) -> Result<Option<RawDocumentBuf>> {
        Ok(self.session_documents(vec![session_id], None).await?.remove(session_id))
    }

    pub(super) async fn release(&self, session_id: &str, epoch: u64, counts_as_attempt: bool) -> Result<bool> {
        self.cache.take_granted(session_id, epoch);
        for _ in 0..MAX_CONFLICTS {
            let Some(document) = self.session_document(session_id).await? else { return Ok(false) };
            let mut session = read_session(&document)?;
            if !lane::release(&mut session, epoch, counts_as_attempt, self.clock.latest()) {
                return Ok(false);
            }
            if self.update_one(update_ops::release_unchanged(&document, &session)?).await?.0 {
                return Ok(true);
            }
        }
        Err(conflict(session_id))
    }

    pub(super) async fn undo_attempt(&self, session_id: &str, begun: Timestamp) -> Result<()> {
        let filter = doc! {"_id": session_id, "turn.at": date(begun), "turn.attempt": {"$gt": 0}};
        let sessions = self.database.collection::<Document>("sessions");
        self.in_time(sessions.update_one(filter, doc! {"$inc": {"turn.attempt": -1}})).await.map(|_| ())
    }

    /// Extends leases by plain updates. Returns the leases that are lost.
    pub(super) async fn renew(&self, held: &[LeaseKey], lease: Duration) -> Result<Vec<LeaseKey>> {
        let until = self.clock.latest().plus(lease);
        let renewal = |held: &LeaseKey| {
            let created_at = self.cache.created_at(&held.session_id, held.epoch)?;
            Some(update_ops::renewal(&held.session_id, FenceTokens::new(held.epoch, created_at), until))
        };
        let (mut known, mut statements, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for one in held {
            match renewal(one) {
                Some(statement) => {
                    statements.push(statement?);
                    known.push(one);
                }
                None => others.push(one.clone()),
            }
        }
        if !statements.is_empty() {
            let failures = self.bulk(Bulk::Update("sessions"), &statements).await?;
            others.extend(failures.keys().filter_map(|index| known.get(*index)).map(|held| (*held).clone()));
        }
        self.renew_unknown(&others, lease).await
    }

    /// Extends the leases that a plain update could not extend: other workers have asked for these lanes, or the leases
    /// are lost.
    async fn renew_unknown(&self, held: &[LeaseKey], lease: Duration) -> Result<Vec<LeaseKey>> {
        if held.is_empty() {
            return Ok(Vec::new());
        }
        let until = self.clock.latest().plus(lease);
        let statements: Vec<_> = held
            .iter()
            .map(|held| {
                let filter = doc! {"_id": &held.session_id, "epoch": int(held.epoch), "lease": {"$exists": true}};
                raw(&doc! {"q": filter, "u": {"$set": {"lease.until": date(until)}}})
            })
            .collect::<Result<_>>()?;
        self.bulk(Bulk::Update("sessions"), &statements).await?;
        let ids = held.iter().map(|held| held.session_id.as_str()).collect();
        let documents = self.session_documents(ids, Some(doc! {"epoch": 1, "lease": 1})).await?;
        let lost =
            |held: &&LeaseKey| !documents.get(&held.session_id).is_some_and(|document| holds(document, held.epoch));
        let lost: Vec<LeaseKey> = held.iter().filter(lost).cloned().collect();
        for held in &lost {
            self.cache.take_granted(&held.session_id, held.epoch);
        }
        Ok(lost)
    }
}

pub(super) fn holds(document: &RawDocumentBuf, epoch: u64) -> bool {
    document.get_i64("epoch").is_ok_and(|found| found == int(epoch)) && document.get_document("lease").is_ok()
}

/// Decodes a stored session.
pub(super) fn read_session(document: &RawDocumentBuf) -> Result<Session> {
    let what = format!("session `{}`", document.get_str("_id").unwrap_or("?"));
    let mut session: Session = read(document, &what)?;
    session.profile = unseal_fields(session.profile);
    for entry in Arc::make_mut(&mut session.history) {
        entry.metadata = unseal_fields(std::mem::take(&mut entry.metadata).into_fields()).into();
    }
    for timer in &mut session.timers {
        if let Some(action) = &mut timer.action {
            action.params = unseal_fields(std::mem::take(&mut action.params));
        }
    }
    Ok(session)
}
