//! Drafts: versions with the field `draft_of`, which has the sessions of the dialogues that they belong to. Their
//! publication makes them ordinary versions.

use super::document::{date, free_form, unseal};
use super::labels::{self, StoredLabel};
use super::versioned_collection::{VersionedCollection, fields, revive, version_id};
use super::{Db, MongoStore};
use async_trait::async_trait;
use base::error::SharedError;
use bson::{Bson, Document, RawDocumentBuf, doc};
use definitions::agent::AgentRecord;
use definitions::workflow::definition::WorkflowRecord;
use mongodb::options::IndexOptions;
use serde_json::Value;
use storage::store::versioned::Versioned;
use storage::store::versions::Reason;
use storage::store::{Definition, DraftVersion, Drafts, PublishDefinition, PublishEnd, Result, StoreError};
use types::authoring::Artifact;

/// The field of a version that has the sessions of a draft.
pub(super) const DRAFT_OF: &str = "draft_of";
/// How often a write is retried after a concurrent write.
const MAX_TRIES: usize = 20;

const AGENTS: &str = <AgentRecord as Versioned>::VERSIONS;
const WORKFLOWS: &str = <WorkflowRecord as Versioned>::VERSIONS;

/// The indexes by which the drafts of a session are found.
pub(super) fn indexes() -> Vec<(&'static str, Document, Option<IndexOptions>)> {
    let drafts = || {
        let only = doc! {DRAFT_OF: {"$exists": true}};
        Some(IndexOptions::builder().name("idx_drafts".to_owned()).partial_filter_expression(only).build())
    };
    vec![(AGENTS, doc! {DRAFT_OF: 1}, drafts()), (WORKFLOWS, doc! {DRAFT_OF: 1}, drafts())]
}

#[async_trait]
impl Drafts for MongoStore {
    async fn put_draft(&self, draft: DraftVersion, session_id: &str) -> Result<()> {
        match draft.artifact {
            Artifact::Agent => self.db.put_draft::<AgentRecord>(&draft, session_id).await,
            Artifact::Workflow => self.db.put_draft::<WorkflowRecord>(&draft, session_id).await,
        }
    }

    async fn version_document(&self, artifact: Artifact, id: &str, hash: &str) -> Result<Option<Value>> {
        let found = match artifact {
            Artifact::Agent => self.db.version_fields::<AgentRecord>(id, hash).await?,
            Artifact::Workflow => self.db.version_fields::<WorkflowRecord>(id, hash).await?,
        };
        found.map(|found| found.document).transpose()
    }

    async fn drop_drafts(&self, session_id: &str) -> Result<u64> {
        let (agents, workflows) =
            (self.db.drop_drafts(AGENTS, session_id).await?, self.db.drop_drafts(WORKFLOWS, session_id).await?);
        if agents + workflows > 0 {
            self.agents.forget_all();
            self.workflows.forget_all();
        }
        Ok(agents + workflows)
    }

    async fn publish(&self, publish: PublishDefinition) -> Result<PublishEnd> {
        match &publish.definition {
            Definition::Agent(agent) => self.agents.publish(agent, &publish).await,
            Definition::Workflow(workflow) => self.workflows.publish(workflow, &publish).await,
        }
    }

    async fn owner(&self, artifact: Artifact, id: &str) -> Result<Option<String>> {
        let current = match artifact {
            Artifact::Agent => <AgentRecord as Versioned>::CURRENT,
            Artifact::Workflow => <WorkflowRecord as Versioned>::CURRENT,
        };
        let current = self.db.database.collection::<Document>(current);
        let found = self.db.in_time(current.find_one(doc! {"_id": id}).projection(doc! {"owner": 1})).await?;
        Ok(found.and_then(|found| found.get_str("owner").ok().map(str::to_owned)))
    }
}

/// A stored version, whether it can be decoded or not.
struct VersionFields {
    is_draft: bool,
    label: StoredLabel,
    document: Result<Value>,
}

impl Db {
    async fn version_fields<T: Versioned>(&self, id: &str, hash: &str) -> Result<Option<VersionFields>> {
        let versions = self.database.collection::<Document>(T::VERSIONS);
        let found = self.in_time(versions.find_one(doc! {"_id": version_id(id, hash)})).await?;
        let Some(mut found) = found else { return Ok(None) };
        let (is_draft, label) = (found.contains_key(DRAFT_OF), labels::of(&found));
        let damaged = |source: SharedError| StoreError::damaged(format!("a version of {}", T::named(id)), source);
        let document = match found.remove(T::DOCUMENT) {
            Some(document) => serde_json::to_value(&document).map(unseal).map_err(|error| damaged(error.into())),
            None => Err(damaged(format!("it has no `{}`", T::DOCUMENT).into())),
        };
        Ok(Some(VersionFields { is_draft, label, document }))
    }

    async fn put_draft<T: Versioned>(&self, draft: &DraftVersion, session_id: &str) -> Result<()> {
        let id = version_id(&draft.id, &draft.hash);
        let versions = self.database.collection::<Document>(T::VERSIONS);
        for _ in 0..MAX_TRIES {
            let now = self.clock.latest();
            let update = match self.version_fields::<T>(&draft.id, &draft.hash).await? {
                None => {
                    let document = free_form(&draft.document)?;
                    let mut first = doc! {
                        T::KEY: &draft.id, "hash": &draft.hash, T::DOCUMENT: document, "updated_at": date(now),
                        DRAFT_OF: [session_id],
                    };
                    first.extend(labels::update(StoredLabel::default().after(Reason::Draft, &draft.label, now)).0);
                    let put = versions.update_one(doc! {"_id": &id}, doc! {"$setOnInsert": first}).upsert(true);
                    match self.in_time(put).await?.upserted_id {
                        Some(_) => return Ok(()),
                        None => continue,
                    }
                }
                Some(stored) => {
                    draft.check_unchanged(&stored.document?).map_err(StoreError::refused)?;
                    let reason = if stored.is_draft { Reason::Draft } else { Reason::Unchanged };
                    let (mut set, mut unset) = labels::update(stored.label.after(reason, &draft.label, now));
                    set.insert("updated_at", date(now));
                    unset.insert("unused_since", "");
                    let renewed = doc! {"$set": set, "$unset": unset};
                    match stored.is_draft {
                        true => (doc! {"_id": &id, DRAFT_OF: {"$exists": true}}, with_session(renewed, session_id)),
                        false => (doc! {"_id": &id}, renewed),
                    }
                }
            };
            if self.in_time(versions.update_one(update.0, update.1)).await?.matched_count > 0 {
                return Ok(());
            }
        }
        Err(StoreError::unavailable(format!("version {id}: every attempt conflicted with another write")))
    }

    async fn drop_drafts(&self, collection: &str, session_id: &str) -> Result<u64> {
        let versions = self.database.collection::<Document>(collection);
        let own = doc! {DRAFT_OF: [session_id]};
        let dropped = self.in_time(versions.delete_many(own.clone())).await?.deleted_count;
        let shared = versions.update_many(doc! {DRAFT_OF: session_id}, doc! {"$pull": {DRAFT_OF: session_id}});
        self.in_time(shared).await?;
        Ok(dropped)
    }
}

fn with_session(mut update: Document, session_id: &str) -> Document {
    update.insert("$addToSet", doc! {DRAFT_OF: session_id});
    update
}

impl<T: Versioned> VersionedCollection<T> {
    /// Implements [`Drafts::publish`].
    async fn publish(&self, record: &T, publish: &PublishDefinition) -> Result<PublishEnd> {
        let end = self.make_current_over(record, publish).await?;
        Self::wait_until_seen().await;
        Ok(end)
    }

    async fn make_current_over(&self, record: &T, publish: &PublishDefinition) -> Result<PublishEnd> {
        let raw = self.db.database.collection::<RawDocumentBuf>(T::CURRENT);
        let collection = self.db.database.collection::<Document>(T::CURRENT);
        let PublishDefinition { over, owner, label, .. } = publish;
        for _ in 0..MAX_TRIES {
            let current = self.db.in_time(raw.find_one(doc! {"_id": record.id()})).await?;
            let known = current.as_ref().map(|current| current.get_str("hash").unwrap_or_default().to_owned());
            let is_readable = match current.as_ref().map(revive::<T>) {
                // An older version of the program must not replace a definition that a newer one wrote.
                Some(Err(error @ StoreError::Newer { .. })) => return Err(error),
                found => found.is_none_or(|found| found.is_ok()),
            };
            if !over.allows(known.as_deref()) {
                return Ok(PublishEnd::Moved(known));
            }
            // A definition that cannot be decoded is replaced, even by one with the same hash.
            if is_readable && known.as_deref() == Some(record.hash()) {
                self.put_version(record, Reason::Unchanged, label).await?;
                return Ok(PublishEnd::Unchanged);
            }
            // The version is written first: a process that reads the hash must find the version's document.
            self.put_version(record, Reason::Applied, label).await?;
            let mut set = fields(&self.db, record)?;
            if let Some(owner) = owner {
                set.insert("owner", owner);
            }
            let done = match current {
                Some(current) => {
                    // Missing in a document that a person has edited.
                    let hash = current.get_str("hash").map_or(Bson::Null, Bson::from);
                    let seen = doc! {"_id": record.id(), "hash": hash};
                    self.db.in_time(collection.update_one(seen, doc! {"$set": set})).await?.matched_count > 0
                }
                None => {
                    let put = collection.update_one(doc! {"_id": record.id()}, doc! {"$setOnInsert": set}).upsert(true);
                    self.db.in_time(put).await?.upserted_id.is_some()
                }
            };
            if done {
                return Ok(PublishEnd::Published);
            }
        }
        Err(StoreError::unavailable(format!("{}: every attempt conflicted with another write", T::named(record.id()))))
    }
}
