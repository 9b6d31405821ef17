//! The lane's updates as pipelines: acquire, commit, release, renew. Each is one atomic update of one document; a group of
//! them is one command.

use super::Db;
use super::commit::{Leaves, statement};
use super::document::{date, failed, int, literal, millis, read, unseal_fields};
use crate::clock::Timestamp;
use crate::session::Session;
use crate::store::{Acquire, Acquired, Commit, Committed, Grant, Held, Result, StoreError};
use bson::{Bson, Document, RawDocumentBuf, doc};
use futures::TryStreamExt;
use std::collections::HashMap;
use std::time::Duration;

/// MongoDB's code for a duplicate key.
const DUPLICATE_KEY: i32 = 11_000;

/// What a bulk command says of one statement that failed.
pub(super) struct Failure {
    pub(super) code: i32,
    pub(super) problem: String,
}

impl Failure {
    pub(super) fn is_duplicate(&self) -> bool {
        self.code == DUPLICATE_KEY
    }

    /// See the first stage of a commit. The code differs between server versions, the words do not.
    fn is_of_unknown(&self) -> bool {
        self.problem.contains("$divide by zero")
    }
}

impl Db {
    /// Runs an unordered bulk command; answers the statements that failed, by index.
    pub(super) async fn bulk(&self, mut command: Document) -> Result<HashMap<usize, Failure>> {
        command.insert("ordered", false);
        command.insert("writeConcern", doc! {"w": "majority", "j": true});
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
        Ok(failures)
    }

    /// Session documents by id, with all or only the named fields.
    async fn session_documents(
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

    pub(super) async fn acquire_all(self, items: Vec<Acquire>) -> Result<Vec<Result<Acquired>>> {
        let statements: Vec<_> = items
            .iter()
            .map(|item| doc! {"q": {"_id": &item.session_id}, "u": acquire_pipeline(item), "upsert": true})
            .collect();
        let failures = self.bulk(doc! {"update": "sessions", "updates": statements}).await?;
        let documents =
            self.session_documents(items.iter().map(|item| item.session_id.as_str()).collect(), None).await?;
        let outcome = |(index, item): (usize, &Acquire)| {
            // Two processes that create one session at once: the loser tries again.
            if let Some(failure) = failures.get(&index) {
                return Err(StoreError::Unavailable(failure.problem.clone()));
            }
            match documents.get(&item.session_id) {
                Some(document) => acquired(item, document),
                None => Err(StoreError::Unavailable("the session was deleted meanwhile".into())),
            }
        };
        Ok(items.iter().enumerate().map(outcome).collect())
    }

    pub(super) async fn commit_all(self, items: Vec<Commit>) -> Result<Vec<Result<Committed>>> {
        // The journal first: what is committed is also on record.
        self.write_turns(&items).await?;
        // Most lanes have nothing else to do, so that is tried first; the rest is a second command.
        let mut outcomes: Vec<Result<Committed>> = self.commit_as(&items, Leaves::Released).await?;
        let open: Vec<usize> =
            (0..items.len()).filter(|index| matches!(outcomes[*index], Ok(Committed::Fenced))).collect();
        if !open.is_empty() {
            let rest: Vec<Commit> = open.iter().map(|index| items[*index].clone()).collect();
            for (index, outcome) in open.into_iter().zip(self.commit_as(&rest, Leaves::Held).await?) {
                outcomes[index] = outcome;
            }
        }
        Ok(outcomes)
    }

    async fn commit_as(&self, items: &[Commit], leaves: Leaves) -> Result<Vec<Result<Committed>>> {
        let statements = items.iter().map(|item| statement(item, leaves)).collect::<Result<Vec<_>>>()?;
        let failures = self.bulk(doc! {"update": "sessions", "updates": statements}).await?;
        let committed = if leaves == Leaves::Released { Committed::Released } else { Committed::Held };
        let outcome = |index: usize| match failures.get(&index) {
            Some(failure) if failure.is_duplicate() || failure.is_of_unknown() => Ok(Committed::Fenced),
            Some(failure) => Err(StoreError::Refused(failure.problem.clone())),
            None => Ok(committed),
        };
        Ok((0..items.len()).map(outcome).collect())
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

fn acquired(item: &Acquire, document: &RawDocumentBuf) -> Result<Acquired> {
    let lease = document.get_document("lease").ok();
    if lease.and_then(|lease| lease.get_str("token").ok()) == Some(item.token.as_str()) {
        let resumed = lease.and_then(|lease| lease.get_bool("resumed").ok()).unwrap_or(true);
        let session = read_session(document)?;
        return Ok(Acquired::Granted(Box::new(Grant { session, resumed })));
    }
    if document.get_i64("last_seq").is_ok_and(|last_seq| last_seq >= int(item.seq)) {
        return Ok(Acquired::Handled);
    }
    let until = lease.and_then(|lease| lease.get_datetime("until").ok()).map_or(0, bson::DateTime::timestamp_millis);
    Ok(Acquired::Busy(Timestamp::from_millis(until)))
}

/// A session as stored.
pub(super) fn read_session(document: &RawDocumentBuf) -> Result<Session> {
    let what = format!("session `{}`", document.get_str("_id").unwrap_or("?"));
    let mut session: Session = read(document, &what)?;
    session.profile = unseal_fields(session.profile);
    for entry in &mut session.history {
        entry.metadata = unseal_fields(std::mem::take(&mut entry.metadata));
    }
    for timer in &mut session.timers {
        if let Some(action) = &mut timer.action {
            action.params = unseal_fields(std::mem::take(&mut action.params));
        }
    }
    Ok(session)
}

/// See [`crate::store::Store::acquire`]. The first stage says what is the case, the second acts on it.
fn acquire_pipeline(item: &Acquire) -> Vec<Document> {
    let seq = int(item.seq);
    let nothing = bson::DateTime::from_millis(0);
    let facts = doc! {
        "_new": {"$lt": [{"$ifNull": ["$last_seq", 0_i64]}, seq]},
        "_free": {"$lte": [{"$ifNull": ["$lease.until", nothing]}, "$$NOW"]},
        "_resumed": {"$eq": [{"$type": "$turn"}, "object"]},
    };
    let granted = doc! {"_granted": {"$and": ["$_new", "$_free"]}};
    let if_granted =
        |then: Bson, otherwise: &str| doc! {"$cond": ["$_granted", then, {"$ifNull": [otherwise, "$$REMOVE"]}]};
    let pin = item.pin.as_ref();
    let fresh = doc! {
        "seq": if pin.is_some() { seq } else { 0 },
        "agent_id": literal(pin.map(|pin| pin.agent_id.clone()).unwrap_or_default()),
        "hash": literal(pin.map(|pin| pin.hash.clone()).unwrap_or_default()),
        "status": {"$ifNull": ["$workflow_state.status", "ready"]},
        "at": "$$NOW",
        "attempt": 1,
    };
    let again = doc! {"$mergeObjects": ["$turn", {"attempt": {"$add": [{"$ifNull": ["$turn.attempt", 0]}, 1]}}]};
    let lease = doc! {
        "owner": literal(item.owner.clone()),
        "until": {"$add": ["$$NOW", millis(item.lease)]},
        "token": literal(item.token.clone()),
        "resumed": "$_resumed",
    };
    let mut changes = defaults(item);
    changes.extend(doc! {
        "pending_seq": {"$cond": ["$_new", {"$max": ["$pending_seq", seq]}, {"$ifNull": ["$pending_seq", 0_i64]}]},
        "epoch": {"$add": [{"$ifNull": ["$epoch", 0_i64]}, {"$cond": ["$_granted", 1_i64, 0_i64]}]},
        "turn": if_granted(doc! {"$cond": ["$_resumed", again, fresh]}.into(), "$turn"),
        "lease": if_granted(lease.into(), "$lease"),
        "waiting_since": if_granted("$$REMOVE".into(), "$waiting_since"),
        "updated_at": if_granted("$$NOW".into(), "$updated_at"),
    });
    let mut pipeline = vec![doc! {"$set": facts}, doc! {"$set": granted}, doc! {"$set": changes}];
    if let Some(pin) = pin.filter(|pin| pin.announce) {
        let announced = doc! {"$and": [
            "$_granted",
            {"$not": ["$_resumed"]},
            {"$eq": ["$workflow_state.hash", literal(pin.hash.clone())]},
            {"$in": ["$workflow_state.status", ["ready", "cancelled"]]},
        ]};
        let status = doc! {"$cond": [announced, "processing", "$workflow_state.status"]};
        pipeline.push(doc! {"$set": {"workflow_state.status": status}});
    }
    pipeline.push(doc! {"$unset": ["_new", "_free", "_resumed", "_granted"]});
    pipeline
}

/// What an unknown session starts with.
fn defaults(item: &Acquire) -> Document {
    let new = &item.new_session;
    let or = |field: &str, value: Bson| doc! {"$ifNull": [field, value]};
    let kind = bson::serialize_to_bson(&new.kind).unwrap_or(Bson::Null);
    doc! {
        "agent_id": or("$agent_id", literal(new.agent_id.clone())),
        "user_id": or("$user_id", literal(new.user_id.clone())),
        "channel": or("$channel", literal(new.channel.clone())),
        "kind": or("$kind", literal(kind)),
        "workflow_state": or("$workflow_state", literal(doc! {"hash": "", "need_greeting": true, "status": "ready"})),
        "status_reason": or("$status_reason", Bson::Null),
        "profile": or("$profile", literal(doc! {})),
        "history": or("$history", Bson::Array(vec![])),
        "timers": or("$timers", Bson::Array(vec![])),
        "timer_generation": or("$timer_generation", Bson::Int64(0)),
        "last_seq": or("$last_seq", Bson::Int64(0)),
        "recent_jobs": or("$recent_jobs", Bson::Array(vec![])),
        "closed_at": or("$closed_at", Bson::Null),
        "created_at": or("$created_at", "$$NOW".into()),
    }
}
