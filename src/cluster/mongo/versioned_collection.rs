//! Agents and workflows, with their versions.

use super::document::{date, free_form, read, unseal};
use super::drafts::DRAFT_OF;
use super::labels;
use super::{Db, cached};
use base::tasks::Tasks;
use bson::{Document, RawDocumentBuf, doc};
use futures::TryStreamExt;
use moka::future::Cache;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::store::batcher::Batcher;
use storage::store::versioned::{Listed, StoredVersion, Versioned, check_unchanged};
use storage::store::versions::Reason;
use storage::store::{Result, StoreError, VersionLabel};
use types::format;

/// The number of cached versions. Versions never change.
const MAX_CACHED_VERSIONS: u64 = 1_000;
/// How long a version is cached. Versions never change, but they can be deleted.
const VERSION_TTL: Duration = Duration::from_secs(60);
/// How long a cached current version may be used after it was requested. A change waits as long before it returns, so
/// that every turn that starts later sees it, in any process. Without the cache a busy worker would read the current
/// versions for every group of turns, instead of 50 times a second.
pub const CURRENT_TTL: Duration = Duration::from_millis(20);

/// All agents, or all workflows.
pub(super) struct VersionedCollection<T> {
    pub(super) db: Db,
    /// Reads the hashes of current versions.
    hashes: Batcher<String, Option<String>>,
    /// The last results of [`VersionedCollection::current`], and when they were requested.
    answers: moka::sync::Cache<String, (Instant, Option<Arc<T>>)>,
    /// Versions by id and hash.
    versions: Cache<(String, String), Arc<T>>,
}

impl<T: Versioned> VersionedCollection<T> {
    pub(super) fn open(db: &Db, tasks: &Tasks) -> Self {
        let of = db.clone();
        let hashes = Batcher::start(tasks, T::CURRENT, 1, move |items| hashes::<T>(of.clone(), items));
        let versions = Cache::builder().max_capacity(MAX_CACHED_VERSIONS).time_to_live(VERSION_TTL).build();
        let answers = moka::sync::Cache::builder().max_capacity(MAX_CACHED_VERSIONS).time_to_live(CURRENT_TTL).build();
        Self { db: db.clone(), hashes, answers, versions }
    }

    /// Returns the current version, never older than the last [`VersionedCollection::put`] that had returned before
    /// this call.
    pub(super) async fn current(&self, id: &str) -> Result<Option<Arc<T>>> {
        let asked = Instant::now();
        let fresh = |(then, _): &(Instant, _)| asked.duration_since(*then) < CURRENT_TTL;
        if let Some((_, current)) = self.answers.get(id).filter(fresh) {
            return Ok(current);
        }
        let current = match self.hashes.submit(id.to_owned()).await? {
            Some(hash) => self.version(id, &hash).await?,
            None => None,
        };
        self.answers.insert(id.to_owned(), (asked, current.clone()));
        Ok(current)
    }

    /// Drops the copies of a definition that is deleted, and waits until no process uses it as the current one. Other
    /// processes keep copies of versions for [`VERSION_TTL`].
    pub(super) async fn forget(&self, id: &str) {
        self.forget_all();
        self.answers.invalidate(id);
        Self::wait_until_seen().await;
    }

    /// Drops the copies of all versions.
    pub(super) fn forget_all(&self) {
        self.versions.invalidate_all();
    }

    /// Returns the version with this hash.
    pub(super) async fn version(&self, id: &str, hash: &str) -> Result<Option<Arc<T>>> {
        cached(&self.versions, id, hash, || self.stored_version(id, hash)).await
    }

    async fn stored_version(&self, id: &str, hash: &str) -> Result<Option<Arc<T>>> {
        let collection = self.db.database.collection::<RawDocumentBuf>(T::VERSIONS);
        let found = self.db.in_time(collection.find_one(doc! {"_id": version_id(id, hash)})).await?;
        found.map(|raw| revive(&raw)).transpose()
    }

    /// Returns the number of stored versions, without drafts.
    pub(super) async fn version_count(&self, id: &str) -> Result<u64> {
        let versions = self.db.database.collection::<Document>(T::VERSIONS);
        // The character after `/` is `0`, and no id has a `/`.
        let of_id = doc! {"_id": {"$gte": version_id(id, ""), "$lt": format!("{id}0")}, DRAFT_OF: null};
        self.db.in_time(versions.count_documents(of_id)).await
    }

    /// Makes a version the current one. Returns false when it already was. Returns only after [`CURRENT_TTL`], when no
    /// process uses an older version any longer.
    pub(super) async fn put(&self, record: &T) -> Result<bool> {
        let changed = self.make_current(record).await?;
        Self::wait_until_seen().await;
        Ok(changed)
    }

    /// Returns when no process uses an older current version any longer.
    pub(super) async fn wait_until_seen() {
        tokio::time::sleep(CURRENT_TTL).await;
    }

    async fn make_current(&self, record: &T) -> Result<bool> {
        let current = self.db.database.collection::<RawDocumentBuf>(T::CURRENT);
        let current = self.db.in_time(current.find_one(doc! {"_id": record.id()})).await?;
        // A definition that this version of the program cannot decode is replaced, also by one of the same hash.
        let known = match current.map(|raw| revive::<T>(&raw)) {
            // It is not for an older version to replace it.
            Some(Err(error @ StoreError::Newer { .. })) => return Err(error),
            known => known.and_then(Result::ok),
        };
        let is_current = known.is_some_and(|known| known.hash() == record.hash());
        let reason = if is_current { Reason::Unchanged } else { Reason::Applied };
        // The version first: a process that reads the hash must find the version's document.
        self.put_version(record, reason, &VersionLabel::of_text(record.source())).await?;
        if is_current {
            return Ok(false);
        }
        let collection = self.db.database.collection::<Document>(T::CURRENT);
        let update = doc! {"$set": fields(&self.db, record)?};
        self.db.in_time(collection.update_one(doc! {"_id": record.id()}, update).upsert(true)).await?;
        Ok(true)
    }

    /// Stores a version for [`VersionedCollection::version`] without making it the current one. A stored version never
    /// changes, so the same document only renews its times and label, and another one is refused. A draft that is put
    /// into use is one no longer.
    pub(super) async fn put_version(&self, record: &T, reason: Reason, label: &VersionLabel) -> Result<()> {
        let id = version_id(record.id(), record.hash());
        let (versions, fields) = (self.db.database.collection::<Document>(T::VERSIONS), fields(&self.db, record)?);
        let now = self.db.clock.latest();
        let put = |update: Document| versions.update_one(doc! {"_id": &id}, update).upsert(true);
        let mut new = fields.clone();
        new.extend(labels::update(labels::StoredLabel::default().after(reason, label, now)).0);
        let first = doc! {"$setOnInsert": new.clone()};
        if self.db.in_time(put(first.clone())).await?.upserted_id.is_some() {
            return Ok(());
        }
        let stored = self.db.database.collection::<RawDocumentBuf>(T::VERSIONS);
        let stored = self.db.in_time(stored.find_one(doc! {"_id": &id})).await?;
        match stored.as_ref().map(revive::<T>) {
            Some(Err(error @ StoreError::Newer { .. })) => return Err(error),
            // It has expired in the meantime.
            None => self.db.in_time(put(first.clone())).await?,
            // A version that this program cannot decode is of no use to anybody, so it is replaced.
            Some(Err(_)) => self.db.in_time(put(doc! {"$set": new, "$unset": {DRAFT_OF: ""}})).await?,
            Some(Ok(known)) => {
                check_unchanged(known.as_ref(), record).map_err(StoreError::refused)?;
                let label = labels::read(stored.as_ref()).after(reason, label, now);
                let renewed = renewed(record, fields, reason, label);
                let renewed = self.db.in_time(versions.update_one(doc! {"_id": &id}, renewed)).await?;
                match renewed.matched_count {
                    // It has expired since it was read.
                    0 => self.db.in_time(put(first)).await?,
                    _ => renewed,
                }
            }
        };
        Ok(())
    }

    /// Returns all current versions without an owner, ordered by id. Of cached versions it reads only hash and time: with a
    /// thousand workflows, all documents are megabytes, and every step of an authoring dialogue asks for them.
    pub(super) async fn all(&self) -> Result<Listed<T>> {
        let collection = self.db.database.collection::<Document>(T::CURRENT);
        let fields = doc! {"hash": 1, "updated_at": 1};
        let find = collection.find(doc! {"owner_session": null}).projection(fields).sort(doc! {"_id": 1});
        let found: Vec<Document> = self.db.in_time(async { find.await?.try_collect().await }).await?;
        let mut all = BTreeMap::new();
        let mut unknown = Vec::new();
        for document in found {
            let text = |field: &str| document.get_str(field).unwrap_or_default().to_owned();
            let key = (text("_id"), text("hash"));
            // A version that is in use again is of a later time than its copy.
            let same = |version: &Arc<T>| document.get("updated_at") == Some(&date(version.updated_at()));
            match self.versions.get(&key).await.filter(same) {
                Some(version) => drop(all.insert(key.0, Ok(version))),
                None => unknown.push(key.0),
            }
        }
        if !unknown.is_empty() {
            self.read_current(&unknown, &mut all).await?;
        }
        let mut listed = Listed::default();
        for (id, version) in all {
            listed.add(&id, version)?;
        }
        Ok(listed)
    }

    /// Reads the current versions of these ids, as far as they exist, and caches them.
    async fn read_current(&self, ids: &[String], all: &mut BTreeMap<String, Result<Arc<T>>>) -> Result<()> {
        let collection = self.db.database.collection::<RawDocumentBuf>(T::CURRENT);
        let find = collection.find(doc! {"_id": {"$in": ids}});
        let found: Vec<_> = self.db.in_time(async { find.await?.try_collect().await }).await?;
        for raw in &found {
            let version = revive::<T>(raw);
            if let Ok(version) = &version {
                let key = (version.id().to_owned(), version.hash().to_owned());
                self.versions.insert(key, Arc::clone(version)).await;
            }
            all.insert(raw.get_str("_id").unwrap_or("?").to_owned(), version);
        }
        Ok(())
    }
}

/// The update of a version that is stored again.
fn renewed<T: Versioned>(record: &T, fields: Document, reason: Reason, label: labels::StoredLabel) -> Document {
    let times = fields.into_iter().filter(|(name, _)| matches!(name.as_str(), "updated_at" | "expires_at"));
    let (mut set, mut unset) = labels::update(label);
    set.extend(times);
    if record.owner_session().is_none() {
        unset.insert("unused_since", "");
    }
    if matches!(reason, Reason::Applied | Reason::Unchanged) {
        unset.insert(DRAFT_OF, "");
    }
    let mut update = doc! {"$set": set};
    if !unset.is_empty() {
        update.insert("$unset", unset);
    }
    update
}

pub(super) fn version_id(id: &str, hash: &str) -> String {
    format!("{id}/{hash}")
}

/// Returns the stored fields. A definition with an owner expires.
pub(super) fn fields<T: Versioned>(db: &Db, record: &T) -> Result<Document> {
    let (file, updated_at) = (free_form(record.document())?, date(record.updated_at()));
    let mut fields = doc! {T::KEY: record.id(), "hash": record.hash(), T::DOCUMENT: file, "updated_at": updated_at};
    if let Some(owner_session) = record.owner_session() {
        fields.extend(doc! {"owner_session": owner_session, "expires_at": date(db.plan_expiry())});
    }
    if let Some(format) = format::stamp() {
        fields.insert(format::FIELD, i64::from(format));
    }
    Ok(fields)
}

async fn hashes<T: Versioned>(db: Db, items: Arc<Vec<String>>) -> Result<Vec<Result<Option<String>>>> {
    let mut ids: Vec<&str> = items.iter().map(String::as_str).collect();
    ids.sort_unstable();
    ids.dedup();
    let collection = db.database.collection::<Document>(T::CURRENT);
    let find = collection.find(doc! {"_id": {"$in": ids}}).projection(doc! {"hash": 1});
    let found: Vec<_> = db.in_time(async { find.await?.try_collect().await }).await?;
    let text = |document: &Document, field: &str| document.get_str(field).unwrap_or_default().to_owned();
    let by_id: HashMap<_, _> = found.iter().map(|found| (text(found, "_id"), text(found, "hash"))).collect();
    Ok(items.iter().map(|id| Ok(by_id.get(id).cloned())).collect())
}

pub(super) fn revive<T: Versioned>(raw: &RawDocumentBuf) -> Result<Arc<T>> {
    let what = T::named(raw.get_str("_id").unwrap_or("?"));
    let mut kept: StoredVersion = read(raw, &what)?;
    kept.document = unseal(kept.document);
    T::from_version(kept).map(Arc::new).map_err(|problem| StoreError::damaged(what, problem))
}
