//! Runs of workflows.

use super::Db;
use super::document::{failed, int, raw, read};
use super::lane::Bulk;
use crate::clock::Timestamp;
use crate::store::runs::{RunQuery, RunRecord};
use crate::store::{Result, StoreError};
use bson::raw::cstr;
use bson::{Document, RawDocumentBuf, doc, rawdoc};
use futures::TryStreamExt;

/// Where runs are.
pub(super) const RUNS: &str = "workflow_runs";

impl Db {
    /// Inserts a run; false when it is there.
    pub(super) async fn put_run(&self, run: &RunRecord) -> Result<bool> {
        let failures = self.bulk(Bulk::Insert(RUNS), &[run_document(run, 0, self.expiry())?]).await?;
        match failures.into_values().next() {
            None => Ok(true),
            Some(failure) if failure.is_duplicate() => Ok(false),
            Some(failure) => Err(StoreError::Refused(failure.problem)),
        }
    }

    /// Writes a run unless a later holder has.
    pub(super) async fn update_run(&self, run: &RunRecord, epoch: u64) -> Result<()> {
        let filter = rawdoc! {"_id": run.run_id.as_str(), "epoch": {"$not": {"$gt": int(epoch)}}};
        let statement = rawdoc! {"q": filter, "u": run_document(run, epoch, self.expiry())?, "upsert": true};
        let failures = self.bulk(Bulk::Update(RUNS), &[statement]).await?;
        match failures.into_values().find(|failure| !failure.is_duplicate()) {
            Some(failure) => Err(StoreError::Refused(failure.problem)),
            None => Ok(()),
        }
    }

    pub(super) async fn run(&self, run_id: &str) -> Result<Option<RunRecord>> {
        let collection = self.database.collection::<RawDocumentBuf>(RUNS);
        let found = collection.find_one(doc! {"_id": run_id}).await.map_err(failed)?;
        found.as_ref().map(read_run).transpose()
    }

    pub(super) async fn runs(&self, query: RunQuery) -> Result<Vec<RunRecord>> {
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
        let collection = self.database.collection::<RawDocumentBuf>(RUNS);
        let find = collection.find(filter).sort(doc! {"created_at": -1, "_id": -1});
        let find = find.limit(i64::try_from(query.limit).unwrap_or(i64::MAX));
        let found: Vec<_> = find.await.map_err(failed)?.try_collect().await.map_err(failed)?;
        found.iter().map(read_run).collect()
    }
}

/// A run as it is stored; one that has ended expires.
pub(super) fn run_document(run: &RunRecord, epoch: u64, expires_at: Timestamp) -> Result<RawDocumentBuf> {
    let mut document = rawdoc! {"_id": run.run_id.as_str()};
    for field in raw(run)?.iter() {
        let (name, value) = field.map_err(|error| StoreError::Refused(error.to_string()))?;
        if name.as_str() != "run_id" {
            document.append(name, value);
        }
    }
    document.append(cstr!("epoch"), int(epoch));
    if run.ended_at.is_some() {
        document.append(cstr!("expires_at"), bson::DateTime::from_millis(expires_at.as_millis()));
    }
    Ok(document)
}

fn read_run(raw: &RawDocumentBuf) -> Result<RunRecord> {
    read(raw, &format!("run `{}`", raw.get_str("_id").unwrap_or("?")))
}
