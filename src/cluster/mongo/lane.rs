//! Commits, releases and renewals of lanes. Each is one atomic update of one document; a group of them is one command.

use super::command::{Bulk, Durability};
use super::commit::{AfterCommit, statement};
use super::document::{date, int, is_transient, millis, raw, read, unseal_fields};
use super::fence::FenceTokens;
use super::journal::may_be_lost;
use super::{Db, update_ops};
use base::clock::moment;
use bson::{Bson, Document, RawDocumentBuf, doc};
use futures::TryStreamExt;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use storage::store::records::{Commit, Committed, LeaseKey};
use storage::store::session_cache::after_release;
use storage::store::{Result, StoreError};
use types::session::Session;
use types::timestamp::Timestamp;

/// MongoDB's code for a duplicate key.
const DUPLICATE_KEY: i32 = 11_000;

/// A way to write a commit.
#[derive(Clone, Copy)]
enum CommitStrategy {
    /// A plain update, computed from the cached session. It releases the lane.
    Plain,
    /// An update with a pipeline, computed by the server from the document.
    Pipeline(AfterCommit),
}

/// A commit that is being written, with the ways to try.
struct Attempt<'i> {
    at: usize,
    item: &'i Commit,
    granted: Option<Session>,
    /// The current way, and the ways to try after it.
    strategies: &'static [CommitStrategy],
}

impl Attempt<'_> {
    fn statement(&self, now: Timestamp) -> Result<RawDocumentBuf> {
        match (self.strategies[0], &self.granted, &self.item.change) {
            (CommitStrategy::Plain, Some(granted), Some(change)) => update_ops::commit(self.item, change, granted, now),
            (CommitStrategy::Pipeline(leaves), ..) => raw(&statement(self.item, leaves)?),
            (CommitStrategy::Plain, ..) => raw(&statement(self.item, AfterCommit::Released)?),
        }
    }

    /// True when the statement did not apply, and the next way may.
    fn refused(&self, failure: &Failure) -> bool {
        matches!(self.strategies[0], CommitStrategy::Plain) || failure.matched_nothing()
    }

    fn next(&mut self) -> bool {
        self.strategies = &self.strategies[1..];
        !self.strategies.is_empty()
    }
}

/// The term of the primary that ran a command; `None` when the server does not report it.
pub(super) type Term = Option<i64>;

/// The error of one statement in a bulk command.
pub(super) struct Failure {
    pub(super) code: i32,
    pub(super) problem: String,
}

impl Failure {
    pub(super) fn is_duplicate(&self) -> bool {
        self.code == DUPLICATE_KEY
    }

    /// The error for the statement's caller: `Unavailable` when the statement may succeed later, else `Refused`.
    pub(super) fn error(&self) -> StoreError {
        let error = if is_transient(self.code) { StoreError::Unavailable } else { StoreError::Refused };
        error(self.problem.clone())
    }

    /// True when the statement matched nothing. The error code of a pipeline's `$divide` differs between server
    /// versions, its text does not.
    fn matched_nothing(&self) -> bool {
        self.is_duplicate() || self.problem.contains("$divide by zero")
    }
}

impl Db {
    /// Runs an unordered bulk command, durable on return. Returns the failed statements by index.
    pub(super) async fn bulk(&self, kind: Bulk, items: &[RawDocumentBuf]) -> Result<HashMap<usize, Failure>> {
        self.bulk_with(kind, items, Durability::Majority).await.map(|(failures, _)| failures)
    }

    /// Runs an unordered bulk command that is not durable on return. It becomes durable with the next durable command
    /// in the same term of the primary, because the oplog is one sequence. Returns the failed statements and the term.
    pub(super) async fn bulk_before(
        &self,
        kind: Bulk,
        items: &[RawDocumentBuf],
    ) -> Result<(HashMap<usize, Failure>, Term)> {
        self.bulk_with(kind, items, Durability::Primary).await
    }

    pub(super) async fn bulk_with(
        &self,
        kind: Bulk,
        items: &[RawDocumentBuf],
        durable: Durability,
    ) -> Result<(HashMap<usize, Failure>, Term)> {
        let answer = self.commands.bulk(kind, items, durable).await?;
        if let Ok(concern) = answer.get_document("writeConcernError") {
            return Err(StoreError::Unavailable(format!("the write was not acknowledged by a majority: {concern}")));
        }
        let mut failures = HashMap::new();
        for error in answer.get_array("writeErrors").into_iter().flatten().filter_map(Bson::as_document) {
            let index = usize::try_from(error.get_i32("index").unwrap_or(0)).unwrap_or(0);
            let problem = error.get_str("errmsg").unwrap_or_default().to_owned();
            failures.insert(index, Failure { code: error.get_i32("code").unwrap_or(0), problem });
        }
        let term = answer.get_document("opTime").ok().and_then(|at| at.get_i64("t").ok());
        Ok((failures, term))
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

    pub(super) async fn commit_all(self, items: Arc<Vec<Commit>>) -> Result<Vec<Result<Committed>>> {
        // Takes the sessions out of the cache. `done` puts them back when the outcome is known.
        let mut open: Vec<Attempt<'_>> = items.iter().enumerate().map(|(at, item)| self.attempt(at, item)).collect();
        let lost = self.lost_before(&items).await?;
        open.retain(|attempt| !lost.contains(&attempt.at));
        // The journal first: a committed turn must have its records.
        let turns: Vec<&Commit> = open.iter().map(|attempt| attempt.item).collect();
        let mut written = self.write_turns(&turns, Durability::Primary).await?;
        let now = self.clock.latest();
        let mut outcomes: Vec<Result<Committed>> = items.iter().map(|_| Ok(Committed::Fenced)).collect();
        while !open.is_empty() {
            let statements = open.iter().map(|attempt| attempt.statement(now)).collect::<Result<Vec<_>>>()?;
            let (failures, term) = self.bulk_with(Bulk::Update("sessions"), &statements, Durability::Majority).await?;
            if may_be_lost(written, term) {
                // No durable command follows, so repeat the records durably.
                self.write_turns(&turns, Durability::Majority).await?;
                written = None;
            }
            let tried = std::mem::take(&mut open);
            for (index, mut attempt) in tried.into_iter().enumerate() {
                match failures.get(&index) {
                    None => outcomes[attempt.at] = Ok(self.done(&mut attempt, now)),
                    Some(failure) if !attempt.refused(failure) => {
                        outcomes[attempt.at] = Err(failure.error());
                    }
                    Some(_) if attempt.next() => open.push(attempt),
                    Some(_) => {}
                }
            }
        }
        self.add_to_days(&items, &outcomes).await;
        Ok(outcomes)
    }

    /// Returns the indexes of commits whose lanes are already lost. A turn's record is written before its commit
    /// applies, so the store first checks every lease that may have expired.
    async fn lost_before(&self, items: &[Commit]) -> Result<Vec<usize>> {
        let now = moment();
        let sure = |item: &Commit| item.change.is_none() || item.sure_until.is_some_and(|until| now < until);
        let unsure: Vec<(usize, &Commit)> = items.iter().enumerate().filter(|(_, item)| !sure(item)).collect();
        if unsure.is_empty() {
            return Ok(Vec::new());
        }
        let ids = unsure.iter().map(|(_, item)| item.session_id.as_str()).collect();
        let documents = self.session_documents(ids, Some(doc! {"epoch": 1, "lease": 1})).await?;
        let holder =
            |item: &Commit| documents.get(&item.session_id).is_some_and(|document| holds(document, item.epoch));
        Ok(unsure.into_iter().filter(|(_, item)| !holder(item)).map(|(at, _)| at).collect())
    }

    /// Prepares a commit and the ways in which it is tried. Most lanes have no further job, so a release is tried
    /// first. When the plain release of a cached session fails, another worker has most likely asked for the lane.
    fn attempt<'i>(&self, at: usize, item: &'i Commit) -> Attempt<'i> {
        let granted = self.cache.take_granted(&item.session_id, item.epoch);
        let strategies: &[CommitStrategy] = match (&granted, &item.change) {
            // Another worker may ask for the lane between two tries. `pending_seq` only rises, so the last way always
            // applies.
            (Some(granted), Some(_)) if update_ops::can_release(item, granted) => &[
                CommitStrategy::Plain,
                CommitStrategy::Pipeline(AfterCommit::Held),
                CommitStrategy::Pipeline(AfterCommit::Released),
                CommitStrategy::Pipeline(AfterCommit::Held),
            ],
            _ => &[CommitStrategy::Pipeline(AfterCommit::Released), CommitStrategy::Pipeline(AfterCommit::Held)],
        };
        Attempt { at, item, granted, strategies }
    }

    fn done(&self, attempt: &mut Attempt<'_>, now: Timestamp) -> Committed {
        match (attempt.strategies[0], attempt.granted.take(), &attempt.item.change) {
            (CommitStrategy::Plain, Some(granted), Some(change)) => {
                self.cache.put(after_release(granted, attempt.item, change, now))
            }
            (CommitStrategy::Pipeline(AfterCommit::Held), ..) => return Committed::Held,
            _ => {}
        }
        Committed::Released
    }

    pub(super) async fn release(&self, session_id: &str, epoch: u64, counts_as_attempt: bool) -> Result<bool> {
        let attempts = if counts_as_attempt { 0 } else { 1 };
        let attempt = doc! {"$max": [0, {"$subtract": ["$turn.attempt", attempts]}]};
        let turn = doc! {"$cond": [{"$eq": [{"$type": "$turn"}, "object"]}, {"$mergeObjects": ["$turn", {"attempt": attempt}]}, "$$REMOVE"]};
        let pipeline =
            vec![doc! {"$set": {"lease": "$$REMOVE", "fence": "$$REMOVE", "turn": turn, "waiting_since": "$$NOW"}}];
        let filter = doc! {"_id": session_id, "epoch": int(epoch), "lease": {"$exists": true}};
        self.cache.take_granted(session_id, epoch);
        let sessions = self.database.collection::<Document>("sessions");
        let updated = self.in_time(sessions.update_one(filter, pipeline)).await?;
        Ok(updated.matched_count > 0)
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
        let statements: Vec<_> = held
            .iter()
            .map(|held| {
                let filter = doc! {"_id": &held.session_id, "epoch": int(held.epoch), "lease": {"$exists": true}};
                let until = doc! {"$add": ["$$NOW", millis(lease)]};
                raw(&doc! {"q": filter, "u": [{"$set": {"lease.until": until}}]})
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

fn holds(document: &RawDocumentBuf, epoch: u64) -> bool {
    document.get_i64("epoch").is_ok_and(|found| found == int(epoch)) && document.get_document("lease").is_ok()
}

/// Decodes a stored session.
pub(super) fn read_session(document: &RawDocumentBuf) -> Result<Session> {
    let what = format!("session `{}`", document.get_str("_id").unwrap_or("?"));
    let mut session: Session = read(document, &what)?;
    session.profile = unseal_fields(session.profile);
    for entry in Arc::make_mut(&mut session.history) {
        entry.metadata = unseal_fields(std::mem::take(&mut entry.metadata));
    }
    for timer in &mut session.timers {
        if let Some(action) = &mut timer.action {
            action.params = unseal_fields(std::mem::take(&mut action.params));
        }
    }
    Ok(session)
}
