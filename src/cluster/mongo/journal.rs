//! Recording and reading steps and turns.

use super::Db;
use super::command::{Bulk, Durability};
use super::connect::one_more;
use super::document::{self, date, int, raw, read, sealed, stamped, unseal};
use super::lane::{StatementFailure, Term};
use super::queries::behind;
use super::runs::{RUNS, run_document};
use bson::spec::BinarySubtype;
use bson::{Binary, Document, RawDocumentBuf, doc, rawdoc};
use futures::TryStreamExt;
use serde::Serialize;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use storage::store::records::{Acquire, Commit, Record, Recorded, TurnPlace};
use storage::store::{Result, StoreError};
use types::outcome::Outcome;
use types::page::{Bounds, Page};
use types::step::{StepRecord, TokenUsage};
use types::timestamp::Timestamp;
use types::turn::{StatusAt, TurnMark, TurnRecord};

impl Db {
    /// Inserts the steps of all requests, and reads back the steps that were already recorded.
    pub(super) async fn record_all(self, items: Arc<Vec<Record>>) -> Result<Vec<Result<Vec<Recorded>>>> {
        let expires_at = self.expiry();
        let mut statements = Vec::new();
        for item in items.iter() {
            for step in &item.steps {
                statements.push(step_document(&item.session_id, &item.turn_id, item.epoch, step, expires_at)?);
            }
        }
        let (steps, statuses) = futures::join!(self.insert_steps(statements), self.write_statuses(&items));
        statuses?;
        let (mut earlier, mut index) = (steps?, 0..);
        let mut answer = |_: &Arc<StepRecord>| match index.next().and_then(|index| earlier.remove(&index)) {
            Some(earlier) => Recorded::Existing(Arc::new(earlier)),
            None => Recorded::New,
        };
        Ok(items.iter().map(|item| Ok(item.steps.iter().map(&mut answer).collect())).collect())
    }

    /// Inserts the steps that are not recorded yet. Returns the recorded steps for the others, by the index of their
    /// statements. When one command has the same step twice, one of the two is new.
    async fn insert_steps(&self, statements: Vec<RawDocumentBuf>) -> Result<HashMap<usize, StepRecord>> {
        if statements.is_empty() {
            return Ok(HashMap::new());
        }
        let failures = self.bulk(Bulk::Insert("steps"), &statements).await?;
        if let Some(failure) = failures.values().find(|failure| !failure.is_duplicate()) {
            return Err(failure.error());
        }
        if failures.is_empty() {
            return Ok(HashMap::new());
        }
        let ids: Vec<&str> = statements.iter().map(|step| step.get_str("_id").unwrap_or_default()).collect();
        let taken: Vec<&str> = failures.keys().filter_map(|index| ids.get(*index).copied()).collect();
        let collection = self.database.collection::<RawDocumentBuf>("steps");
        let find = collection.find(doc! {"_id": {"$in": taken}}).projection(without_prompt());
        let found: Vec<_> = self.in_time(async { find.await?.try_collect().await }).await?;
        let id = |raw: &RawDocumentBuf| raw.get_str("_id").unwrap_or_default().to_owned();
        let by_id: HashMap<String, StepRecord> =
            found.iter().map(|raw| Ok((id(raw), read_step(raw)?))).collect::<Result<_>>()?;
        let of = |index: &usize| Some((*index, by_id.get(*ids.get(*index)?)?.clone()));
        Ok(failures.keys().filter_map(of).collect())
    }

    async fn write_statuses(&self, items: &[Record]) -> Result<()> {
        let shown = items.iter().filter_map(|item| {
            let filter = doc! {"_id": &item.session_id, "epoch": int(item.epoch)};
            let status = item.status?.as_str();
            let update = doc! {"$set": {"workflow_state.status": status}, "$currentDate": {"updated_at": true}};
            Some(raw(&doc! {"q": filter, "u": update}))
        });
        let statements = shown.collect::<Result<Vec<_>>>()?;
        if !statements.is_empty() {
            self.bulk(Bulk::Update("sessions"), &statements).await?;
        }
        Ok(())
    }

    pub(super) async fn steps(&self, session_id: &str, turn_id: &str) -> Result<Vec<StepRecord>> {
        Ok(self.steps_page(session_id, turn_id, Bounds::first(usize::MAX)).await?.items)
    }

    pub(super) async fn steps_page(
        &self,
        session_id: &str,
        turn_id: &str,
        bounds: Bounds<String>,
    ) -> Result<Page<StepRecord>> {
        // The character after `/` is `0`, so this range has exactly the ids that begin with `<session>/<turn>/`.
        let prefix = format!("{session_id}/{turn_id}");
        // No key is empty, so no id equals the prefix alone.
        let after = format!("{prefix}/{}", bounds.after.unwrap_or_default());
        let filter = doc! {"_id": {"$gt": after, "$lt": format!("{prefix}0")}};
        let collection = self.database.collection::<RawDocumentBuf>("steps");
        // All ids have the same prefix, so this is the order of the keys.
        let find = collection.find(filter).sort(doc! {"_id": 1}).limit(one_more(bounds.limit));
        let find = find.projection(without_prompt());
        self.page(find, bounds.limit, bounds.max_bytes).await?.try_map(|raw| read_step(&raw))
    }

    pub(super) async fn prompt(&self, session_id: &str, turn_id: &str, key: &str) -> Result<Option<Vec<u8>>> {
        let collection = self.database.collection::<RawDocumentBuf>("steps");
        let id = format!("{session_id}/{turn_id}/{key}");
        let find = collection.find_one(doc! {"_id": id}).projection(doc! {PROMPT: 1});
        let found = self.in_time(find).await?;
        let bytes = |raw: RawDocumentBuf| Some(raw.get_binary(PROMPT).ok()?.bytes.to_vec());
        Ok(found.and_then(bytes))
    }

    /// Writes the records of the turns and their runs, and the steps that are not recorded yet. With
    /// [`Durability::Primary`] they become durable with a later command: see [`Db::bulk_before`]. Returns the term of
    /// the primary, or `None` when there was nothing to write.
    pub(super) async fn write_turns(&self, items: &[&Commit], durable: Durability) -> Result<Term> {
        let expires_at = self.expiry();
        let (mut turns, mut steps, mut runs) = (Vec::new(), Vec::new(), Vec::new());
        for (item, change) in items.iter().filter_map(|item| Some((item, item.change.as_deref()?))) {
            turns.push(turn_document(&change.turn, item.epoch, expires_at)?);
            if let Some(run) = &change.run {
                runs.push(run_document(run, item.epoch, expires_at)?);
            }
            let TurnRecord { session_id, turn_id, .. } = &change.turn;
            for step in &change.steps {
                steps.push(step_document(session_id, turn_id, item.epoch, step, expires_at)?);
            }
        }
        if turns.is_empty() {
            return Ok(None);
        }
        let (turns, steps, runs) = futures::join!(
            self.put("turns", &turns, durable),
            self.put("steps", &steps, durable),
            self.put(RUNS, &runs, durable)
        );
        let (mut terms, mut failures) = (Vec::new(), Vec::new());
        for (failed, term) in turns?.into_iter().chain(steps?).chain(runs?) {
            failures.extend(failed.into_values());
            terms.push(term);
        }
        match failures.into_iter().find(|failure| !failure.is_duplicate()) {
            Some(failure) => Err(failure.error()),
            None => Ok(Some(common_term(&terms))),
        }
    }

    /// Inserts documents that carry an epoch, and overwrites those of earlier attempts.
    async fn put(
        &self,
        collection: &'static str,
        documents: &[RawDocumentBuf],
        durable: Durability,
    ) -> Result<Vec<(HashMap<usize, StatementFailure>, Term)>> {
        if documents.is_empty() {
            return Ok(Vec::new());
        }
        let inserted = self.bulk_with(Bulk::Insert(collection), documents, durable).await?;
        let taken = |(index, _): &(usize, _)| inserted.0.get(index).is_some_and(StatementFailure::is_duplicate);
        let over = |(_, document): (usize, &RawDocumentBuf)| {
            let (id, epoch) = (document.get_str("_id").unwrap_or_default(), document.get_i64("epoch").unwrap_or(0));
            // A worker that has lost its lease must not overwrite the record of a later lease holder.
            let filter = rawdoc! {"_id": id, "epoch": {"$not": {"$gt": epoch}}};
            rawdoc! {"q": filter, "u": document.clone(), "upsert": true}
        };
        let again: Vec<_> = documents.iter().enumerate().filter(taken).map(over).collect();
        let updated = match again.is_empty() {
            true => None,
            false => Some(self.bulk_with(Bulk::Update(collection), &again, durable).await?),
        };
        Ok([Some(inserted), updated].into_iter().flatten().collect())
    }

    pub(super) async fn turns(&self, session_id: &str, bounds: Bounds<TurnPlace>) -> Result<Page<TurnRecord>> {
        let collection = self.database.collection::<RawDocumentBuf>("turns");
        // Sorted without an index: a session keeps few turns, and an index would cost every commit.
        let of_session = doc! {"_id": {"$gte": format!("{session_id}/"), "$lt": format!("{session_id}0")}};
        let behind = bounds.after.map(|(started_at, (committed_at, turn_id))| {
            let start = date(started_at);
            let same_start = doc! {"$and": [
                {"started_at": &start},
                behind("committed_at", committed_at, &format!("{session_id}/{turn_id}")),
            ]};
            doc! {"$or": [{"started_at": {"$lt": start}}, same_start]}
        });
        let find = collection.find(doc! {"$and": [of_session, behind.unwrap_or_default()]});
        let find = find.sort(doc! {"started_at": -1, "committed_at": -1, "_id": -1}).limit(one_more(bounds.limit));
        self.page(find, bounds.limit, bounds.max_bytes).await?.try_map(|raw| document::read_turn(&raw))
    }

    pub(super) async fn turn(&self, session_id: &str, turn_id: &str) -> Result<Option<TurnRecord>> {
        let collection = self.database.collection::<RawDocumentBuf>("turns");
        let found = self.in_time(collection.find_one(doc! {"_id": format!("{session_id}/{turn_id}")})).await?;
        found.as_ref().map(document::read_turn).transpose()
    }

    /// Returns the marks of recorded turns under the ids of these requests' jobs, by the index of the request.
    pub(super) async fn turn_marks(&self, asked: Vec<(usize, &Acquire)>) -> Result<HashMap<usize, Option<TurnMark>>> {
        if asked.is_empty() {
            return Ok(HashMap::new());
        }
        let id = |item: &Acquire| format!("{}/{}", item.session_id, item.job_id);
        let ids: Vec<String> = asked.iter().map(|(_, item)| id(item)).collect();
        let collection = self.database.collection::<RawDocumentBuf>("turns");
        let find = collection.find(doc! {"_id": {"$in": ids}});
        let find = find.projection(doc! {"queued_at": 1, "started_at": 1});
        let found: Vec<RawDocumentBuf> = self.in_time(async { find.await?.try_collect().await }).await?;
        let mark = |raw: &RawDocumentBuf| Ok((raw.get_str("_id").unwrap_or_default().to_owned(), read(raw, "a turn")?));
        let marks: HashMap<String, TurnMark> = found.iter().map(mark).collect::<Result<_>>()?;
        Ok(asked.into_iter().map(|(index, item)| (index, marks.get(&id(item)).copied())).collect())
    }

    pub(super) fn expiry(&self) -> Timestamp {
        // The server deletes expired documents by its own clock.
        self.clock.latest().plus(self.retention)
    }
}

/// Encodes a turn. Its job is free-form JSON.
fn turn_document(turn: &TurnRecord, epoch: u64, expires_at: Timestamp) -> Result<RawDocumentBuf> {
    #[derive(Serialize)]
    struct TurnDocument<'t> {
        _id: String,
        session_id: &'t str,
        turn_id: &'t str,
        job: &'t Value,
        statuses: &'t [StatusAt],
        outcome: Outcome,
        reason: Option<&'t str>,
        attempts: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        queued_at: Option<Timestamp>,
        started_at: Timestamp,
        committed_at: Timestamp,
        hash: &'t str,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        actions: &'t [String],
        tokens: u64,
        epoch: u64,
        expires_at: Timestamp,
    }
    let job = serde_json::to_value(&turn.job).map_err(StoreError::refused)?;
    let document = raw(&TurnDocument {
        _id: format!("{}/{}", turn.session_id, turn.turn_id),
        session_id: &turn.session_id,
        turn_id: &turn.turn_id,
        job: &sealed(&job),
        statuses: &turn.statuses,
        outcome: turn.outcome,
        reason: turn.reason.as_deref(),
        attempts: turn.attempts,
        queued_at: turn.queued_at,
        started_at: turn.started_at,
        committed_at: turn.committed_at,
        hash: &turn.hash,
        actions: &turn.actions,
        tokens: turn.tokens,
        epoch,
        expires_at,
    })?;
    Ok(stamped(document))
}

/// Encodes a step. Its output is free-form JSON.
fn step_document(
    session_id: &str,
    turn_id: &str,
    epoch: u64,
    step: &StepRecord,
    expires_at: Timestamp,
) -> Result<RawDocumentBuf> {
    #[derive(Serialize)]
    struct StepDocument<'s> {
        _id: String,
        session_id: &'s str,
        turn_id: &'s str,
        key: &'s str,
        kind: &'s str,
        target: &'s str,
        input_hash: &'s str,
        output: &'s Value,
        ok: bool,
        ms: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<&'s str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        tokens: Option<TokenUsage>,
        #[serde(skip_serializing_if = "Option::is_none")]
        attempts: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        charged: Option<&'s str>,
        at: Timestamp,
        #[serde(skip_serializing_if = "Option::is_none")]
        prompt: Option<Binary>,
        epoch: u64,
        expires_at: Timestamp,
    }
    let binary = |bytes: &Arc<[u8]>| Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() };
    let document = raw(&StepDocument {
        _id: [session_id, "/", turn_id, "/", &step.key].concat(),
        session_id,
        turn_id,
        key: &step.key,
        kind: &step.kind,
        target: &step.target,
        input_hash: &step.input_hash,
        output: &sealed(&step.output),
        ok: step.ok,
        ms: step.ms,
        model: step.model.as_deref(),
        tokens: step.tokens,
        attempts: step.attempts,
        charged: step.charged.as_deref(),
        at: step.at,
        prompt: step.prompt.as_ref().map(binary),
        epoch,
        expires_at,
    })?;
    Ok(stamped(document))
}

/// The field of a step with its kept prompt.
const PROMPT: &str = "prompt";

/// The fields of a step that every reader needs: a prompt is much larger than the rest.
fn without_prompt() -> Document {
    doc! {PROMPT: 0}
}

fn read_step(raw: &RawDocumentBuf) -> Result<StepRecord> {
    let mut step: StepRecord = read(raw, &format!("step `{}`", raw.get_str("_id").unwrap_or("?")))?;
    step.output = unseal(step.output);
    Ok(step)
}

/// The term of the primary that ran all of these commands. When the terms differ or one is unknown, the result is -1:
/// it equals no term of a commit, so that the commands are repeated.
fn common_term(terms: &[Term]) -> i64 {
    match terms {
        [Some(first), rest @ ..] if rest.iter().all(|term| *term == Some(*first)) => *first,
        _ => -1,
    }
}

/// True when records that were written in the term `written` are not made durable by a command in `term`: a new primary
/// may have rolled them back.
pub(super) fn may_be_lost(written: Term, term: Term) -> bool {
    written.is_some() && written != term
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_written_again_unless_one_primary_has_taken_them_and_the_commit() {
        let lost = |terms: &[Term], commit| may_be_lost(Some(common_term(terms)), commit);
        assert!(!lost(&[Some(3), Some(3)], Some(3)));
        assert!(lost(&[Some(3), Some(3)], Some(4)), "an election before the commit");
        assert!(lost(&[Some(3), Some(4)], Some(4)), "an election between the records");
        assert!(lost(&[None], None), "a server that reports no term");
        assert!(!may_be_lost(None, Some(4)), "nothing was written, or durably");
    }
}
