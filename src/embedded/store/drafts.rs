//! Drafts: versions with a row in `DRAFTS`, which has the sessions of the dialogues that they belong to. Their
//! publication makes them ordinary versions.

use super::fault::FileFault;
use super::tables::{DRAFTS, OWNERS, Tables, decode};
use super::versioned_table::{HasVersionTables, insert_current, revive};
use super::{EmbeddedStore, labels};
use async_trait::async_trait;
use definitions::agent::AgentRecord;
use definitions::workflow::definition::WorkflowRecord;
use redb::{ReadTransaction, ReadableTable};
use serde::Deserialize;
use serde_json::{Value, json};
use storage::store::versioned::Versioned;
use storage::store::versions::Reason;
use storage::store::{
    Definition, DraftVersion, Drafts, NO_DIALOGUE, Over, PublishDefinition, PublishEnd, Result, VersionLabel,
};
use types::authoring::Artifact;

#[async_trait]
impl Drafts for EmbeddedStore {
    async fn put_draft(&self, draft: DraftVersion, session_id: &str) -> Result<()> {
        let session_id = session_id.to_owned();
        let work = move |tables: &mut Tables<'_>| match draft.artifact {
            Artifact::Agent => put::<AgentRecord>(tables, &draft, &session_id),
            Artifact::Workflow => put::<WorkflowRecord>(tables, &draft, &session_id),
        };
        Ok(self.file.write(work).await?)
    }

    async fn version_document(&self, artifact: Artifact, id: &str, hash: &str) -> Result<Option<Value>> {
        let read = |read: &ReadTransaction| match artifact {
            Artifact::Agent => document::<AgentRecord>(&read.open_table(AgentRecord::VERSION_TABLE)?, id, hash),
            Artifact::Workflow => {
                document::<WorkflowRecord>(&read.open_table(WorkflowRecord::VERSION_TABLE)?, id, hash)
            }
        };
        Ok(self.file.read(read)?)
    }

    async fn drop_drafts(&self, session_id: &str) -> Result<u64> {
        let session_id = session_id.to_owned();
        let dropped = self.file.write(move |tables| drop_of(tables, &session_id)).await?;
        self.catalog.forget_all_versions();
        Ok(dropped)
    }

    async fn publish(&self, publish: PublishDefinition) -> Result<PublishEnd> {
        let PublishDefinition { definition, over, owner, label } = publish;
        Ok(match definition {
            Definition::Agent(agent) => self.catalog.agents.publish(&self.file, agent, over, owner, label).await?,
            Definition::Workflow(workflow) => {
                self.catalog.workflows.publish(&self.file, workflow, over, owner, label).await?
            }
        })
    }

    async fn owner(&self, artifact: Artifact, id: &str) -> Result<Option<String>> {
        let kind = match artifact {
            Artifact::Agent => <AgentRecord as Versioned>::CURRENT,
            Artifact::Workflow => <WorkflowRecord as Versioned>::CURRENT,
        };
        let read = |read: &ReadTransaction| {
            Ok(read.open_table(OWNERS)?.get((kind, id))?.map(|owner| owner.value().to_owned()))
        };
        Ok(self.file.read(read)?)
    }
}

/// The document of a version; this program may be unable to decode it.
#[derive(Deserialize)]
struct OfVersion {
    #[serde(alias = "config", alias = "definition")]
    document: Value,
}

fn document<T: HasVersionTables>(
    versions: &impl ReadableTable<(&'static str, &'static str), &'static [u8]>,
    id: &str,
    hash: &str,
) -> std::result::Result<Option<Value>, FileFault> {
    let what = || format!("a version of {}", T::named(id));
    match versions.get((id, hash))? {
        Some(found) => Ok(Some(decode::<OfVersion>(what, found.value())?.document)),
        None => Ok(None),
    }
}

fn put<T: HasVersionTables>(
    tables: &mut Tables<'_>,
    draft: &DraftVersion,
    session_id: &str,
) -> std::result::Result<(), FileFault> {
    let (id, hash, now) = (draft.id.as_str(), draft.hash.as_str(), tables.clock.now());
    let key = (T::VERSIONS, id, hash);
    tables.version_marks.remove(key)?;
    let mut sessions = sessions(tables, key)?;
    match document::<T>(T::tables(tables).1, id, hash)? {
        // A version that is not a draft stays as it is.
        Some(stored) if sessions.is_empty() => {
            draft.check_unchanged(&stored).map_err(FileFault::Refused)?;
            return labels::renew_as::<T>(tables, (id, hash), Reason::Unchanged, &draft.label);
        }
        Some(stored) => draft.check_unchanged(&stored).map_err(FileFault::Refused)?,
        None => {}
    }
    let fields = json!({T::KEY: id, "hash": hash, T::DOCUMENT: draft.document, "updated_at": now});
    let (_, versions) = T::tables(tables);
    let label = labels::stored(versions, (id, hash))?.after(Reason::Draft, &draft.label, now);
    let bytes = labels::encode_with(T::WHAT, fields, &label)?;
    versions.insert((id, hash), bytes.as_slice())?;
    if !sessions.iter().any(|known| known == session_id) {
        sessions.push(session_id.to_owned());
    }
    write_sessions(tables, key, &sessions)
}

/// The sessions of a draft; none for any other version.
pub(super) fn sessions(tables: &Tables<'_>, key: (&str, &str, &str)) -> std::result::Result<Vec<String>, FileFault> {
    let found = tables.drafts.get(key)?;
    Ok(found.map(|sessions| sessions.value().into_iter().map(str::to_owned).collect()).unwrap_or_default())
}

fn write_sessions(
    tables: &mut Tables<'_>,
    key: (&str, &str, &str),
    sessions: &[String],
) -> std::result::Result<(), FileFault> {
    let sessions: Vec<&str> = sessions.iter().map(String::as_str).collect();
    tables.drafts.insert(key, sessions)?;
    Ok(())
}

/// Deletes the drafts that belong to this session only. Returns their number.
pub(super) fn drop_of(tables: &mut Tables<'_>, session_id: &str) -> std::result::Result<u64, FileFault> {
    let mut found = Vec::new();
    for row in tables.drafts.iter()? {
        let (key, sessions) = row?;
        let (kind, id, hash) = key.value();
        let sessions: Vec<String> = sessions.value().into_iter().map(str::to_owned).collect();
        if sessions.iter().any(|known| known == session_id) {
            found.push((kind.to_owned(), id.to_owned(), hash.to_owned(), sessions));
        }
    }
    let mut dropped = 0;
    for (kind, id, hash, mut sessions) in found {
        let key = (kind.as_str(), id.as_str(), hash.as_str());
        sessions.retain(|known| known != session_id);
        if !sessions.is_empty() {
            write_sessions(tables, key, &sessions)?;
            continue;
        }
        tables.drafts.remove(key)?;
        tables.version_marks.remove(key)?;
        match kind == <AgentRecord as Versioned>::VERSIONS {
            true => drop(tables.agent_versions.remove((id.as_str(), hash.as_str()))?),
            false => drop(tables.workflow_versions.remove((id.as_str(), hash.as_str()))?),
        }
        dropped += 1;
    }
    Ok(dropped)
}

/// Makes a version the current one if `over` allows it. Returns the result.
pub(super) fn publish<T: HasVersionTables>(
    tables: &mut Tables<'_>,
    record: &T,
    over: &Over,
    owner: Option<&str>,
    label: &VersionLabel,
) -> std::result::Result<PublishEnd, FileFault> {
    #[derive(Deserialize)]
    struct OfCurrent {
        hash: String,
    }
    let (known, is_readable) = match T::tables(tables).0.get(record.id())? {
        Some(found) => match decode::<OfCurrent>(|| T::named(record.id()), found.value()) {
            Ok(current) => (Some(current.hash), revive::<T>(record.id(), found.value()).is_ok()),
            Err(fault @ FileFault::Newer { .. }) => return Err(fault),
            Err(_) => (Some(String::new()), false),
        },
        None => (None, true),
    };
    if !over.allows(known.as_deref()) {
        return Ok(PublishEnd::Moved(known));
    }
    // A definition that cannot be decoded is replaced, even by one with the same hash.
    if is_readable && known.as_deref() == Some(record.hash()) {
        labels::renew(tables, record, Reason::Unchanged, label)?;
        return Ok(PublishEnd::Unchanged);
    }
    insert_current(tables, record, label)?;
    if let Some(owner) = owner {
        tables.owners.insert((T::CURRENT, record.id()), owner)?;
    }
    Ok(PublishEnd::Published)
}

/// True for a draft that no dialogue has made. It is deleted with its agent or workflow.
pub(super) fn is_of_nobody(sessions: &[String]) -> bool {
    sessions.iter().all(|session| session == NO_DIALOGUE)
}

/// True for a version that is a draft.
pub(super) fn is_draft(read: &ReadTransaction, key: (&str, &str, &str)) -> std::result::Result<bool, FileFault> {
    Ok(read.open_table(DRAFTS)?.get(key)?.is_some())
}
