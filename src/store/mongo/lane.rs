//! The lane's updates: commit, release, renew. Each is one atomic update of one document; a group of them is one command.

use super::Db;
use super::commit::{Leaves, statement};
use super::document::{date, failed, int, millis, read, unseal_fields};
use super::known::left;
use crate::clock::Timestamp;
use crate::session::Session;
use crate::store::{Commit, Committed, Held, Result, StoreError};
use bson::{Bson, Document, RawDocumentBuf, doc};
use futures::TryStreamExt;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// MongoDB's code for a duplicate key.
const DUPLICATE_KEY: i32 = 11_000;
/// Its code for a change of what must not change; see [`super::commit::to_be_refused`].
const IMMUTABLE_FIELD: i32 = 66;

/// The term of the primary that ran a command; `None` when it does not say.
pub(super) type Term = Option<i64>;

/// What a bulk command says of one statement that failed.
pub(super) struct Failure {
    pub(super) code: i32,
    pub(super) problem: String,
}

impl Failure {
    pub(super) fn is_duplicate(&self) -> bool {
        self.code == DUPLICATE_KEY
    }

    /// The statement matched nothing. The code of a pipeline's `$divide` differs between server versions, its words do not.
    fn matched_nothing(&self) -> bool {
        self.is_duplicate() || self.code == IMMUTABLE_FIELD || self.problem.contains("$divide by zero")
    }
}

impl Db {
    /// Runs an unordered bulk command, durable on return; answers the statements that failed, by index.
    pub(super) async fn bulk(&self, command: Document) -> Result<HashMap<usize, Failure>> {
        self.bulk_with(command, doc! {"w": "majority", "j": true}).await.map(|(failures, _)| failures)
    }

    /// Runs an unordered bulk command that becomes durable with whatever durable command follows it in the same term of the
    /// primary, since the log of operations is one sequence. Answers the term beside the failures.
    pub(super) async fn bulk_before(&self, command: Document) -> Result<(HashMap<usize, Failure>, Term)> {
        self.bulk_with(command, doc! {"w": 1}).await
    }

    async fn bulk_with(&self, mut command: Document, concern: Document) -> Result<(HashMap<usize, Failure>, Term)> {
        command.insert("ordered", false);
        command.insert("writeConcern", concern);
        let answer = self.database.run_command(command).await.map_err(failed)?;
        if let Ok(concern) = answer.get_document("writeConcernError") {
            return Err(StoreError::Unavailable(format!("not acknowledged by a majority: {concern}")));
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

    /// Session documents by id, with all or only the named fields.
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
        let documents: Vec<_> = find.await.map_err(failed)?.try_collect().await.map_err(failed)?;
        let id = |document: &RawDocumentBuf| document.get_str("_id").map(str::to_owned).unwrap_or_default();
        Ok(documents.into_iter().map(|document| (id(&document), document)).collect())
    }

    pub(super) async fn commit_all(self, items: Vec<Commit>) -> Result<Vec<Result<Committed>>> {
        // Known anew once it is clear what became of them.
        let granted: Vec<Option<Session>> =
            items.iter().map(|item| self.known.take_granted(&item.session_id, item.epoch)).collect();
        // The journal first: what is committed is also on record.
        let written = self.write_turns(&items).await?;
        // Most lanes have nothing else to do, so that is tried first; the rest is a second command.
        let (mut outcomes, committed) = self.commit_as(&items, Leaves::Released).await?;
        if written.is_some() && written != committed {
            // Another primary by now: the records may have been lost with the one before.
            self.write_turns(&items).await?;
        }
        let mut open = Vec::new();
        for (index, (item, granted)) in items.iter().zip(granted).enumerate() {
            match (&outcomes[index], granted, &item.change) {
                (Ok(Committed::Released), Some(session), Some(change)) => {
                    self.known.put(left(session, item, change, self.clock.now()));
                }
                (Ok(Committed::Fenced), ..) => open.push(index),
                _ => {}
            }
        }
        if !open.is_empty() {
            let rest: Vec<Commit> = open.iter().map(|index| items[*index].clone()).collect();
            for (index, outcome) in open.into_iter().zip(self.commit_as(&rest, Leaves::Held).await?.0) {
                outcomes[index] = outcome;
            }
        }
        Ok(outcomes)
    }

    async fn commit_as(&self, items: &[Commit], leaves: Leaves) -> Result<(Vec<Result<Committed>>, Term)> {
        let statements = items.iter().map(|item| statement(item, leaves)).collect::<Result<Vec<_>>>()?;
        let durable = doc! {"w": "majority", "j": true};
        let command = doc! {"update": "sessions", "updates": statements};
        let (failures, term) = self.bulk_with(command, durable).await?;
        let committed = if leaves == Leaves::Released { Committed::Released } else { Committed::Held };
        let outcome = |index: usize| match failures.get(&index) {
            Some(failure) if failure.matched_nothing() => Ok(Committed::Fenced),
            Some(failure) => Err(StoreError::Refused(failure.problem.clone())),
            None => Ok(committed),
        };
        Ok(((0..items.len()).map(outcome).collect(), term))
    }

    pub(super) async fn release(&self, session_id: &str, epoch: u64, blame: bool) -> Result<bool> {
        let attempts = if blame { 0 } else { 1 };
        let attempt = doc! {"$max": [0, {"$subtract": ["$turn.attempt", attempts]}]};
        let turn = doc! {"$cond": [{"$eq": [{"$type": "$turn"}, "object"]}, {"$mergeObjects": ["$turn", {"attempt": attempt}]}, "$$REMOVE"]};
        let pipeline = vec![doc! {"$set": {"lease": "$$REMOVE", "turn": turn, "waiting_since": "$$NOW"}}];
        let filter = doc! {"_id": session_id, "epoch": int(epoch), "lease": {"$exists": true}};
        let sessions = self.database.collection::<Document>("sessions");
        let updated = sessions.update_one(filter, pipeline).await.map_err(failed)?;
        Ok(updated.matched_count > 0)
    }

    pub(super) async fn forgive(&self, session_id: &str, begun: Timestamp) -> Result<()> {
        let filter = doc! {"_id": session_id, "turn.at": date(begun), "turn.attempt": {"$gt": 0}};
        let sessions = self.database.collection::<Document>("sessions");
        sessions.update_one(filter, doc! {"$inc": {"turn.attempt": -1}}).await.map_err(failed).map(|_| ())
    }

    pub(super) async fn renew(&self, held: &[Held], lease: Duration) -> Result<Vec<Held>> {
        if held.is_empty() {
            return Ok(Vec::new());
        }
        let statements: Vec<_> = held
            .iter()
            .map(|held| {
                let filter = doc! {"_id": &held.session_id, "epoch": int(held.epoch), "lease": {"$exists": true}};
                let until = doc! {"$add": ["$$NOW", millis(lease)]};
                doc! {"q": filter, "u": [{"$set": {"lease.until": until}}]}
            })
            .collect();
        self.bulk(doc! {"update": "sessions", "updates": statements}).await?;
        let ids = held.iter().map(|held| held.session_id.as_str()).collect();
        let documents = self.session_documents(ids, Some(doc! {"epoch": 1, "lease": 1})).await?;
        let lost = |held: &&Held| !documents.get(&held.session_id).is_some_and(|document| holds(document, held.epoch));
        Ok(held.iter().filter(lost).cloned().collect())
    }
}

fn holds(document: &RawDocumentBuf, epoch: u64) -> bool {
    document.get_i64("epoch").is_ok_and(|found| found == int(epoch)) && document.get_document("lease").is_ok()
}

/// A session as stored.
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
