//! Agents and workflows with their versions, with a cache in memory, since there are few and every turn needs one.

use super::catalog::lock;
use super::expiry::unmark;
use super::fault::FileFault;
use super::labels;
use super::tables::{
    AGENT_VERSIONS, AGENTS, Bytes, Definition, PLAN_STATES, Tables, Text, WORKFLOW_VERSIONS, WORKFLOWS, decode, encode,
};
use super::{EmbeddedFile, drafts};
use definitions::agent::AgentRecord;
use definitions::workflow::definition::WorkflowRecord;
use redb::{ReadableTable, Table};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use storage::store::versioned::{Listed, Versioned, check_unchanged};
use storage::store::versions::Reason;
use storage::store::{Over, PublishEnd, StoreError, VersionLabel};

/// The tables of one kind of definition.
pub(super) trait HasVersionTables: Versioned + Clone {
    /// The current versions, by id.
    const TABLE: Definition<Text, Bytes>;
    /// All versions, by (id, hash).
    const VERSION_TABLE: Definition<(Text, Text), Bytes>;

    /// Returns both tables, open for writing.
    fn tables<'a, 't>(tables: &'a mut Tables<'t>) -> (&'a mut Current<'t>, &'a mut Versions<'t>);
}

type Current<'t> = Table<'t, Text, Bytes>;
type Versions<'t> = Table<'t, (Text, Text), Bytes>;

impl HasVersionTables for AgentRecord {
    const TABLE: Definition<Text, Bytes> = AGENTS;
    const VERSION_TABLE: Definition<(Text, Text), Bytes> = AGENT_VERSIONS;

    fn tables<'a, 't>(tables: &'a mut Tables<'t>) -> (&'a mut Current<'t>, &'a mut Versions<'t>) {
        (&mut tables.agents, &mut tables.agent_versions)
    }
}

impl HasVersionTables for WorkflowRecord {
    const TABLE: Definition<Text, Bytes> = WORKFLOWS;
    const VERSION_TABLE: Definition<(Text, Text), Bytes> = WORKFLOW_VERSIONS;

    fn tables<'a, 't>(tables: &'a mut Tables<'t>) -> (&'a mut Current<'t>, &'a mut Versions<'t>) {
        (&mut tables.workflows, &mut tables.workflow_versions)
    }
}

/// The number of cached versions. Each dialogue that makes a workflow leaves several.
const MAX_CACHED_VERSIONS: usize = 1_000;

/// The cache of all agents, or of all workflows: all current ones, and versions that were read.
#[derive(Debug)]
pub(super) struct VersionedTable<T> {
    /// Current versions that are not in the file.
    shared: Arc<BTreeMap<String, Arc<T>>>,
    current: Mutex<HashMap<String, Arc<T>>>,
    versions: Mutex<HashMap<(String, String), Arc<T>>>,
}

impl<T> VersionedTable<T> {
    /// The tables of a file, and current versions that are not in it.
    pub(super) fn over(shared: Arc<BTreeMap<String, Arc<T>>>) -> Self {
        Self { shared, current: Mutex::default(), versions: Mutex::default() }
    }
}

impl<T: HasVersionTables> VersionedTable<T> {
    /// Returns the current version.
    pub(super) fn current(&self, file: &EmbeddedFile, id: &str) -> Result<Option<Arc<T>>, FileFault> {
        if let Some(known) = lock(&self.current).get(id) {
            return Ok(Some(Arc::clone(known)));
        }
        let found = file.read(|read| match read.open_table(T::TABLE)?.get(id)? {
            Some(bytes) => revive::<T>(id, bytes.value()).map(Some),
            None => Ok(None),
        })?;
        // A version that was stored after the read wins. The plans of sessions are many, so they are not cached.
        let found = found.map(|found| match found.owner_session() {
            Some(_) => Arc::new(found),
            None => Arc::clone(lock(&self.current).entry(id.to_owned()).or_insert(Arc::new(found))),
        });
        Ok(found.or_else(|| self.shared.get(id).cloned()))
    }

    /// Returns the version with this hash.
    pub(super) fn version(&self, file: &EmbeddedFile, id: &str, hash: &str) -> Result<Option<Arc<T>>, FileFault> {
        let key = (id.to_owned(), hash.to_owned());
        if let Some(known) = lock(&self.versions).get(&key) {
            return Ok(Some(Arc::clone(known)));
        }
        let found = file.read(|read| match read.open_table(T::VERSION_TABLE)?.get((id, hash))? {
            Some(bytes) => revive::<T>(id, bytes.value()).map(Some),
            None => Ok(None),
        })?;
        let found = found.map(|found| match found.owner_session() {
            Some(_) => Arc::new(found),
            None => self.keep_version(key, Arc::new(found)),
        });
        Ok(found.or_else(|| self.shared.get(id).filter(|shared| shared.hash() == hash).cloned()))
    }

    /// Adds a version to the cache, and returns the one that it has.
    fn keep_version(&self, key: (String, String), version: Arc<T>) -> Arc<T> {
        let mut versions = lock(&self.versions);
        if versions.len() >= MAX_CACHED_VERSIONS {
            // They are read again when they are needed.
            versions.clear();
        }
        Arc::clone(versions.entry(key).or_insert(version))
    }

    /// Returns the number of stored versions, without drafts.
    pub(super) fn version_count(&self, file: &EmbeddedFile, id: &str) -> Result<u64, FileFault> {
        file.read(|read| {
            let mut count = 0;
            for row in read.open_table(T::VERSION_TABLE)?.range((id, "")..)? {
                let (key, _) = row?;
                if key.value().0 != id {
                    break;
                }
                if !drafts::is_draft(read, (T::VERSIONS, id, key.value().1))? {
                    count += 1;
                }
            }
            Ok(count)
        })
    }

    /// Returns all current versions without an owner, ordered by id.
    pub(super) fn all(&self, file: &EmbeddedFile) -> Result<Listed<T>, StoreError> {
        let ids = file.read(|read| {
            let (rows, owned) = (read.open_table(T::TABLE)?, read.open_table(PLAN_STATES)?);
            let mut ids: BTreeSet<String> = self.shared.keys().cloned().collect();
            for row in rows.iter()? {
                let (id, _) = row?;
                match owned.get(id.value())? {
                    None => drop(ids.insert(id.value().to_owned())),
                    Some(_) => drop(ids.remove(id.value())),
                }
            }
            Ok(ids)
        })?;
        let mut listed = Listed::default();
        for id in &ids {
            if let Some(read) = self.current(file, id).map_err(StoreError::from).transpose() {
                listed.add(id, read)?;
            }
        }
        Ok(listed)
    }

    /// Drops the copies of a definition that is deleted.
    pub(super) fn forget(&self, id: &str) {
        lock(&self.current).remove(id);
        lock(&self.versions).retain(|(known, _), _| known != id);
    }

    /// Drops the copies of versions that have expired.
    pub(super) fn forget_versions(&self, expired: &[(String, String)]) {
        let mut versions = lock(&self.versions);
        expired.iter().for_each(|version| drop(versions.remove(version)));
    }

    /// Drops the copies of all versions.
    pub(super) fn forget_all_versions(&self) {
        lock(&self.versions).clear();
    }

    /// Implements [`Drafts::publish`](storage::store::Drafts::publish).
    pub(super) async fn publish(
        self: &Arc<Self>,
        file: &EmbeddedFile,
        record: T,
        over: Over,
        owner: Option<String>,
        label: VersionLabel,
    ) -> Result<PublishEnd, FileFault> {
        let (table, record) = (Arc::clone(self), Arc::new(record));
        let now_current = Arc::clone(&record);
        let work = move |tables: &mut Tables<'_>| {
            unmark(tables, record.as_ref())?;
            drafts::publish(tables, record.as_ref(), &over, owner.as_deref(), &label)
        };
        let then = move |end: &PublishEnd| {
            if *end == PublishEnd::Published {
                lock(&table.current).insert(now_current.id().to_owned(), now_current);
            }
        };
        file.write_then(work, then).await
    }

    /// Makes a version the current one. Returns false when it already was. Durable on return.
    pub(super) async fn put(self: &Arc<Self>, file: &EmbeddedFile, record: T) -> Result<bool, FileFault> {
        let (table, record) = (Arc::clone(self), Arc::new(record));
        let now_current = Arc::clone(&record);
        let work = move |tables: &mut Tables<'_>| {
            unmark(tables, record.as_ref())?;
            put(tables, record.as_ref())
        };
        // Called in the order of the commits, so the last stored version wins.
        let then = move |changed: &bool| {
            if *changed {
                lock(&table.current).insert(now_current.id().to_owned(), now_current);
            }
        };
        file.write_then(work, then).await
    }

    /// Stores a version without making it the current one. Durable on return.
    pub(super) async fn put_version(&self, file: &EmbeddedFile, record: &T) -> Result<(), FileFault> {
        let record = record.clone();
        let work = move |tables: &mut Tables<'_>| {
            unmark(tables, &record)?;
            insert_version(tables, &record, Reason::Kept, &VersionLabel::of_text(record.source()))
        };
        file.write(work).await
    }
}

fn put<T: HasVersionTables>(tables: &mut Tables<'_>, record: &T) -> Result<bool, FileFault> {
    let label = VersionLabel::of_text(record.source());
    let (current, _) = T::tables(tables);
    // A definition that cannot be decoded is replaced, even by one with the same hash.
    let known = readable(current.get(record.id())?.map(|found| revive::<T>(record.id(), found.value())))?;
    if let Some(known) = known.filter(|known| known.hash() == record.hash()) {
        check_unchanged(&known, record).map_err(FileFault::Refused)?;
        labels::renew(tables, record, Reason::Unchanged, &label)?;
        return Ok(false);
    }
    insert_current(tables, record, &label)?;
    Ok(true)
}

/// Stores a version, and makes it the current one. A draft becomes an ordinary version.
pub(super) fn insert_current<T: HasVersionTables>(
    tables: &mut Tables<'_>,
    record: &T,
    label: &VersionLabel,
) -> Result<(), FileFault> {
    tables.drafts.remove((T::VERSIONS, record.id(), record.hash()))?;
    insert_version(tables, record, Reason::Applied, label)?;
    let bytes = encode(T::WHAT, &record.fields())?;
    T::tables(tables).0.insert(record.id(), bytes.as_slice())?;
    Ok(())
}

/// Treats a definition that cannot be decoded as missing, unless a newer version wrote it, which this one must not
/// replace.
fn readable<T>(found: Option<Result<T, FileFault>>) -> Result<Option<T>, FileFault> {
    match found {
        Some(Err(fault @ FileFault::Newer { .. })) => Err(fault),
        found => Ok(found.and_then(Result::ok)),
    }
}

/// Stores a version. A stored version never changes, so the same document only renews its time and label, and another
/// one is refused. A version that cannot be decoded is replaced.
pub(super) fn insert_version<T: HasVersionTables>(
    tables: &mut Tables<'_>,
    record: &T,
    reason: Reason,
    label: &VersionLabel,
) -> Result<(), FileFault> {
    let (key, now) = ((record.id(), record.hash()), tables.clock.now());
    let (_, versions) = T::tables(tables);
    let stored = readable(versions.get(key)?.map(|found| revive::<T>(record.id(), found.value())))?;
    if let Some(stored) = stored {
        check_unchanged(&stored, record).map_err(FileFault::Refused)?;
    }
    let label = labels::stored(versions, key)?.after(reason, label, now);
    let bytes = labels::encode_with(T::WHAT, record.fields(), &label)?;
    versions.insert(key, bytes.as_slice())?;
    Ok(())
}

/// Decodes a definition.
pub(super) fn revive<T: HasVersionTables>(id: &str, bytes: &[u8]) -> Result<T, FileFault> {
    T::from_version(decode(|| T::named(id), bytes)?).map_err(|source| FileFault::Damaged { what: T::named(id), source })
}
