//! Steps and turns.

use super::Db;
use super::document::{self, date, failed, free, int, read, turn_document, unseal};
use super::lane::{Failure, Term};
use crate::clock::{self, Timestamp};
use crate::journal::StepRecord;
use crate::store::{Commit, Record, Recorded, Result, StoreError, TurnRecord};
use bson::{Document, RawDocumentBuf, doc};
use futures::TryStreamExt;
use std::collections::HashMap;

impl Db {
    /// Inserts the steps of all requests, and reads back those that were there before.
    pub(super) async fn record_all(self, items: Vec<Record>) -> Result<Vec<Result<Vec<Recorded>>>> {
        let expires_at = self.expiry();
        let mut statements = Vec::new();
        for item in &items {
            for step in &item.steps {
                statements.push(step_document((&item.session_id, &item.turn_id), item.epoch, step, expires_at)?);
            }
        }
        let (steps, statuses) = futures::join!(self.insert_steps(statements), self.show_statuses(&items));
        statuses?;
        let (mut earlier, mut index) = (steps?, 0..);
        let mut answer = |_: &StepRecord| match index.next().and_then(|index| earlier.remove(&index)) {
            Some(earlier) => Recorded::Existing(Box::new(earlier)),
            None => Recorded::New,
        };
        Ok(items.iter().map(|item| Ok(item.steps.iter().map(&mut answer).collect())).collect())
    }

    /// Inserts what is not there; answers what was, by the index of its statement: of two in one command one is new.
    async fn insert_steps(&self, statements: Vec<Document>) -> Result<HashMap<usize, StepRecord>> {
        if statements.is_empty() {
            return Ok(HashMap::new());
        }
        let ids: Vec<String> =
            statements.iter().filter_map(|step| step.get_str("_id").ok().map(str::to_owned)).collect();
        let failures = self.bulk(doc! {"insert": "steps", "documents": statements}).await?;
        if let Some(failure) = failures.values().find(|failure| !failure.is_duplicate()) {
            return Err(StoreError::Refused(failure.problem.clone()));
        }
        if failures.is_empty() {
            return Ok(HashMap::new());
        }
        let taken: Vec<&String> = failures.keys().filter_map(|index| ids.get(*index)).collect();
        let collection = self.database.collection::<RawDocumentBuf>("steps");
        let found: Vec<_> =
            collection.find(doc! {"_id": {"$in": taken}}).await.map_err(failed)?.try_collect().await.map_err(failed)?;
        let id = |raw: &RawDocumentBuf| raw.get_str("_id").unwrap_or_default().to_owned();
        let by_id: HashMap<String, StepRecord> =
            found.iter().map(|raw| Ok((id(raw), read_step(raw)?))).collect::<Result<_>>()?;
        let of = |index: &usize| Some((*index, by_id.get(ids.get(*index)?)?.clone()));
        Ok(failures.keys().filter_map(of).collect())
    }

    async fn show_statuses(&self, items: &[Record]) -> Result<()> {
        let shown = items.iter().filter_map(|item| {
            let filter = doc! {"_id": &item.session_id, "epoch": int(item.epoch)};
            let status = item.status?.as_str();
            Some(doc! {"q": filter, "u": {"$set": {"workflow_state.status": status}, "$currentDate": {"updated_at": true}}})
        });
        let statements: Vec<_> = shown.collect();
        if !statements.is_empty() {
            self.bulk(doc! {"update": "sessions", "updates": statements}).await?;
        }
        Ok(())
    }

    pub(super) async fn steps(&self, session_id: &str, turn_id: &str) -> Result<Vec<StepRecord>> {
        // `0` follows `/`: exactly the ids that begin with `<session>/<turn>/`.
        let prefix = format!("{session_id}/{turn_id}");
        let filter = doc! {"_id": {"$gte": format!("{prefix}/"), "$lt": format!("{prefix}0")}};
        let collection = self.database.collection::<RawDocumentBuf>("steps");
        let found: Vec<_> = collection.find(filter).await.map_err(failed)?.try_collect().await.map_err(failed)?;
        found.iter().map(read_step).collect()
    }

    /// Writes the turns' records and the steps that are not recorded yet; see [`Db::bulk_before`]. Answers the term of the
    /// primary, `None` when there was nothing to write.
    pub(super) async fn write_turns(&self, items: &[Commit]) -> Result<Term> {
        let expires_at = self.expiry();
        let (mut turns, mut steps) = (Vec::new(), Vec::new());
        for (item, change) in items.iter().filter_map(|item| Some((item, item.change.as_deref()?))) {
            turns.push((item.epoch, &change.turn));
            steps.extend(change.steps.iter().map(|step| (item.epoch, (&change.turn, step))));
        }
        if turns.is_empty() {
            return Ok(None);
        }
        let turn = |epoch: u64, turn: &&TurnRecord| {
            let mut document = turn_document(turn, expires_at)?;
            document.insert("epoch", int(epoch));
            Ok(document)
        };
        let step = |epoch: u64, (turn, step): &(&TurnRecord, &StepRecord)| {
            step_document((&turn.session_id, &turn.turn_id), epoch, step, expires_at)
        };
        let (turns, steps) = futures::join!(self.put("turns", &turns, turn), self.put("steps", &steps, step));
        let (mut terms, mut failures) = (Vec::new(), Vec::new());
        for (failed, term) in turns?.into_iter().chain(steps?) {
            failures.extend(failed.into_values());
            terms.push(term);
        }
        match failures.into_iter().find(|failure| !failure.is_duplicate()) {
            Some(failure) => Err(StoreError::Refused(failure.problem)),
            // A term that nobody has: it differs from any that the commit may see.
            None if terms.iter().any(|term| term.is_none() || *term != terms[0]) => Ok(Some(-1)),
            None => Ok(terms[0]),
        }
    }

    /// Inserts items under the epochs given, or writes them over what earlier attempts have left.
    async fn put<T>(
        &self,
        collection: &str,
        items: &[(u64, T)],
        document: impl Fn(u64, &T) -> Result<Document>,
    ) -> Result<Vec<(HashMap<usize, Failure>, Term)>> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let documents = items.iter().map(|(epoch, item)| document(*epoch, item)).collect::<Result<Vec<_>>>()?;
        let inserted = self.bulk_before(doc! {"insert": collection, "documents": documents}).await?;
        let again = |(index, (epoch, item)): (usize, &(u64, T))| {
            if !inserted.0.get(&index).is_some_and(Failure::is_duplicate) {
                return None;
            }
            // A holder that has lost its lease does not write over what the one after it has written.
            let of = |document: Document| {
                let newer = doc! {"$gt": int(*epoch)};
                let filter = doc! {"_id": document.get("_id").cloned(), "epoch": {"$not": newer}};
                doc! {"q": filter, "u": document, "upsert": true}
            };
            Some(document(*epoch, item).map(of))
        };
        let again = items.iter().enumerate().filter_map(again).collect::<Result<Vec<_>>>()?;
        let updated = match again.is_empty() {
            true => None,
            false => Some(self.bulk_before(doc! {"update": collection, "updates": again}).await?),
        };
        Ok([Some(inserted), updated].into_iter().flatten().collect())
    }

    pub(super) async fn turns(&self, session_id: &str, limit: usize) -> Result<Vec<TurnRecord>> {
        let collection = self.database.collection::<RawDocumentBuf>("turns");
        // By id, which costs no index of its own: a session has few turns that are still kept.
        let filter = doc! {"_id": {"$gte": format!("{session_id}/"), "$lt": format!("{session_id}0")}};
        let find = collection.find(filter).sort(doc! {"started_at": -1});
        let find = find.limit(i64::try_from(limit).unwrap_or(i64::MAX));
        let found: Vec<_> = find.await.map_err(failed)?.try_collect().await.map_err(failed)?;
        found.iter().map(document::read_turn).collect()
    }

    pub(super) async fn turn(&self, session_id: &str, turn_id: &str) -> Result<Option<TurnRecord>> {
        let collection = self.database.collection::<RawDocumentBuf>("turns");
        let found = collection.find_one(doc! {"_id": format!("{session_id}/{turn_id}")}).await.map_err(failed)?;
        found.as_ref().map(document::read_turn).transpose()
    }

    fn expiry(&self) -> Timestamp {
        clock::now().plus(self.retention)
    }
}

fn step_document(
    (session_id, turn_id): (&str, &str),
    epoch: u64,
    step: &StepRecord,
    expires_at: Timestamp,
) -> Result<Document> {
    let output = free(step.output.clone())?;
    let mut document = document::to_document(&StepRecord { output: serde_json::Value::Null, ..step.clone() })?;
    document.insert("_id", format!("{session_id}/{turn_id}/{}", step.key));
    document.insert("session_id", session_id);
    document.insert("turn_id", turn_id);
    document.insert("output", output);
    document.insert("epoch", int(epoch));
    document.insert("expires_at", date(expires_at));
    Ok(document)
}

fn read_step(raw: &RawDocumentBuf) -> Result<StepRecord> {
    let mut step: StepRecord = read(raw, &format!("step `{}`", raw.get_str("_id").unwrap_or("?")))?;
    step.output = unseal(step.output);
    Ok(step)
}
