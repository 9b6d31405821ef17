//! Records of workflow runs. Concurrent writes share one command.

use super::Db;
use super::command::Bulk;
use super::connect::one_more;
use super::document::{free_form, int, raw, read, stamped, unseal_fields};
use super::queries::{behind, readable};
use bson::raw::cstr;
use bson::{Document, RawBson, RawDocumentBuf, doc, rawdoc};
use serde_json::Value;
use std::sync::Arc;
use storage::store::batcher::EstimatedSize;
use storage::store::{Result, StoreError};
use types::page::Page;
use types::run::{RunQuery, RunRecord};
use types::timestamp::Timestamp;

/// The collection of the runs.
pub(super) const RUNS: &str = "workflow_runs";

/// A write of a run's record.
#[derive(Clone)]
pub(super) enum RunWrite {
    /// Inserts the record, unless the run has one.
    New(RunRecord),
    /// Overwrites the record, unless a later epoch than this one wrote it.
    State(RunRecord, u64),
}

impl EstimatedSize for RunWrite {
    fn bytes(&self) -> usize {
        let (Self::New(run) | Self::State(run, _)) = self;
        run.bytes()
    }
}

impl RunWrite {
    fn statement(&self, expires_at: Timestamp) -> Result<RawDocumentBuf> {
        let (run, epoch, others) = match self {
            // An existing record has an epoch of 0 or more, so it does not match, and the upsert fails as a duplicate.
            Self::New(run) => (run, 0, rawdoc! {"$lt": 0}),
            Self::State(run, epoch) => (run, *epoch, rawdoc! {"$not": {"$gt": int(*epoch)}}),
        };
        let filter = rawdoc! {"_id": run.run_id.as_str(), "epoch": others};
        Ok(rawdoc! {"q": filter, "u": run_document(run, epoch, expires_at)?, "upsert": true})
    }
}

impl Db {
    /// Writes records of runs. Returns false for an insert whose run exists, and for an update whose record has a later
    /// epoch.
    pub(super) async fn write_runs(self, items: Arc<Vec<RunWrite>>) -> Result<Vec<Result<bool>>> {
        let statements: Vec<_> = items.iter().map(|item| item.statement(self.expiry())).collect::<Result<_>>()?;
        let failures = self.bulk(Bulk::Update(RUNS), &statements).await?;
        let outcome = |at: usize| match failures.get(&at) {
            None => Ok(true),
            Some(failure) if failure.is_duplicate() => Ok(false),
            Some(failure) => Err(failure.error()),
        };
        Ok((0..items.len()).map(outcome).collect())
    }

    pub(super) async fn run(&self, run_id: &str) -> Result<Option<RunRecord>> {
        let collection = self.database.collection::<RawDocumentBuf>(RUNS);
        let found = self.in_time(collection.find_one(doc! {"_id": run_id})).await?;
        found.as_ref().map(read_run).transpose()
    }

    pub(super) async fn runs(&self, query: RunQuery) -> Result<Page<RunRecord>> {
        let mut filter = Document::new();
        if let Some(workflow_id) = query.workflow_id {
            filter.insert("workflow_id", workflow_id);
        }
        if let Some(status) = query.status {
            filter.insert("status", status.as_str());
        }
        if let Some(origin_session) = query.origin_session {
            filter.insert("origin_session", origin_session);
        }
        if let Some(lane) = query.lane {
            filter.insert("lane", lane);
        }
        if let Some(turn_id) = query.turn_id {
            filter.insert("turn_id", turn_id);
        }
        let time = if query.by_end { "ended_at" } else { "created_at" };
        if query.by_end {
            filter.insert("ended_at", doc! {"$ne": null});
        }
        let behind = query.after.map(|(at, id)| behind(time, at, &id)).unwrap_or_default();
        let collection = self.database.collection::<RawDocumentBuf>(RUNS);
        let find = collection.find(doc! {"$and": [filter, behind, readable()]}).sort(doc! {time: -1, "_id": -1});
        let page = self.page(find.limit(one_more(query.limit)), query.limit, query.max_bytes).await?;
        page.try_map(|raw| read_run(&raw))
    }
}

/// Encodes the record of a run. An ended run gets an expiry date.
pub(super) fn run_document(run: &RunRecord, epoch: u64, expires_at: Timestamp) -> Result<RawDocumentBuf> {
    let mut document = rawdoc! {"_id": run.run_id.as_str()};
    // The inputs may have keys that BSON does not accept.
    let rest = run.params.is_some().then(|| RunRecord { params: None, ..run.clone() });
    for field in raw(rest.as_ref().unwrap_or(run))?.iter() {
        let (name, value) = field.map_err(StoreError::refused)?;
        if name.as_str() != "run_id" {
            document.append(name, value);
        }
    }
    if let Some(params) = &run.params {
        let params = free_form(&Value::Object(params.clone()))?;
        document.append(cstr!("params"), RawBson::try_from(params).map_err(StoreError::refused)?);
    }
    document.append(cstr!("epoch"), int(epoch));
    if run.ended_at.is_some() {
        document.append(cstr!("expires_at"), bson::DateTime::from_millis(expires_at.as_millis()));
    }
    Ok(stamped(document))
}

fn read_run(raw: &RawDocumentBuf) -> Result<RunRecord> {
    let mut run: RunRecord = read(raw, &format!("run `{}`", raw.get_str("_id").unwrap_or("?")))?;
    run.params = run.params.map(unseal_fields);
    Ok(run)
}
