//! Versions as people see them: the label of each, and their listing.

use super::MongoStore;
use super::document::{date, unseal};
use super::drafts::DRAFT_OF;
use super::versioned_collection::version_id;
use async_trait::async_trait;
use bson::{Document, RawDocumentBuf, doc};
use definitions::agent::AgentRecord;
use definitions::workflow::definition::WorkflowRecord;
use futures::TryStreamExt;
use storage::store::versioned::Versioned;
pub(super) use storage::store::versions::StoredLabel;
use storage::store::{Result, StoreError, VersionDetails, VersionEntry, Versions};
use types::authoring::Artifact;
use types::timestamp::Timestamp;

/// The label of a stored version.
pub(super) fn read(stored: Option<&RawDocumentBuf>) -> StoredLabel {
    stored.and_then(|stored| Document::try_from(stored).ok()).map(|stored| of(&stored)).unwrap_or_default()
}

/// As [`read`], for a document that is decoded already.
pub(super) fn of(stored: &Document) -> StoredLabel {
    let text = |field: &str| stored.get_str(field).ok().map(str::to_owned);
    StoredLabel { at: time(stored, "at"), by: text("by"), note: text("note"), source: text("source") }
}

fn time(stored: &Document, field: &str) -> Option<Timestamp> {
    stored.get_datetime(field).ok().map(|at| Timestamp::from_millis(at.timestamp_millis()))
}

/// The fields to set and the fields to remove, so that a version has this label.
pub(super) fn update(label: StoredLabel) -> (Document, Document) {
    let (mut set, mut unset) = (Document::new(), Document::new());
    match label.at {
        Some(at) => set.insert("at", date(at)),
        None => unset.insert("at", ""),
    };
    for (field, text) in [("by", label.by), ("note", label.note), ("source", label.source)] {
        match text {
            Some(text) => set.insert(field, text),
            None => unset.insert(field, ""),
        };
    }
    (set, unset)
}

fn entry(stored: &Document) -> Option<VersionEntry> {
    let StoredLabel { at, by, note, .. } = of(stored);
    let at = at.or_else(|| time(stored, "updated_at")).unwrap_or_default();
    let hash = stored.get_str("hash").ok()?.to_owned();
    Some(VersionEntry { hash, at, by, note, is_draft: stored.contains_key(DRAFT_OF) })
}

#[async_trait]
impl Versions for MongoStore {
    async fn versions(&self, artifact: Artifact, id: &str) -> Result<Vec<VersionEntry>> {
        let (collection, _, _) = names(artifact);
        let versions = self.db.database.collection::<Document>(collection);
        // The character after `/` is `0`, and no id has a `/`.
        let of_id = doc! {"_id": {"$gte": version_id(id, ""), "$lt": format!("{id}0")}};
        let shown = doc! {"hash": 1, "updated_at": 1, "at": 1, "by": 1, "note": 1, DRAFT_OF: 1};
        let find = versions.find(of_id).projection(shown);
        let found: Vec<Document> = self.db.in_time(async { find.await?.try_collect().await }).await?;
        Ok(found.iter().filter_map(entry).collect())
    }

    async fn version_details(&self, artifact: Artifact, id: &str, hash: &str) -> Result<Option<VersionDetails>> {
        let (collection, file, named) = names(artifact);
        let versions = self.db.database.collection::<Document>(collection);
        let found = self.db.in_time(versions.find_one(doc! {"_id": version_id(id, hash)})).await?;
        let Some(mut found) = found else { return Ok(None) };
        let what = || format!("a version of {}", named(id));
        let missing = |field: &str| StoreError::damaged(what(), format!("it has no `{field}`"));
        let document = found.remove(file).ok_or_else(|| missing(file))?;
        let document =
            serde_json::to_value(&document).map(unseal).map_err(|error| StoreError::damaged(what(), error))?;
        let source = of(&found).source;
        Ok(Some(VersionDetails { entry: entry(&found).ok_or_else(|| missing("hash"))?, document, source }))
    }

    async fn open_sessions_without(&self, agent_id: &str, hash: &str) -> Result<u64> {
        let sessions = self.db.database.collection::<Document>("sessions");
        let open = doc! {"agent_id": agent_id, "kind": "chat", "closed_at": null, "workflow_state.hash": {"$ne": hash}};
        self.db.in_time(sessions.count_documents(open)).await
    }
}

/// The collection of a kind's versions, the field with the whole file, and the name in errors.
fn names(artifact: Artifact) -> (&'static str, &'static str, fn(&str) -> String) {
    fn of<T: Versioned>() -> (&'static str, &'static str, fn(&str) -> String) {
        (T::VERSIONS, T::DOCUMENT, T::named)
    }
    match artifact {
        Artifact::Agent => of::<AgentRecord>(),
        Artifact::Workflow => of::<WorkflowRecord>(),
    }
}
