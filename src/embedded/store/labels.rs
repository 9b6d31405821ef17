//! Versions as people see them: the label of each, and their listing.

use super::expiry::OfSession;
use super::fault::FileFault;
use super::tables::{Bytes, SESSIONS, Tables, Text, decode, encode};
use super::versioned_table::HasVersionTables;
use super::{EmbeddedStore, drafts};
use async_trait::async_trait;
use definitions::agent::AgentRecord;
use definitions::workflow::definition::WorkflowRecord;
use redb::{ReadTransaction, ReadableTable};
use serde::Deserialize;
use serde_json::{Value, json};
use storage::store::versions::{Reason, StoredLabel};
use storage::store::{Result, VersionDetails, VersionEntry, VersionLabel, Versions};
use types::authoring::Artifact;
use types::format;
use types::session::Kind;
use types::timestamp::Timestamp;

/// The fields of a label.
const LABEL: [&str; 4] = ["at", "by", "note", "source"];

/// The fields of a stored version without its document.
#[derive(Deserialize)]
struct Header {
    updated_at: Timestamp,
    #[serde(flatten)]
    label: StoredLabel,
}

/// The document of a version.
#[derive(Deserialize)]
struct Body {
    #[serde(alias = "config", alias = "definition")]
    document: Value,
}

/// The label of a stored version; an empty one if the version does not exist or cannot be decoded.
pub(super) fn stored(
    versions: &impl ReadableTable<(Text, Text), Bytes>,
    key: (&str, &str),
) -> std::result::Result<StoredLabel, FileFault> {
    let found = versions.get(key)?;
    let header = found.and_then(|found| decode::<Header>(String::new, found.value()).ok());
    Ok(header.map(|header| header.label).unwrap_or_default())
}

/// Encodes the fields of a version with its label.
pub(super) fn encode_with(
    what: &str,
    mut fields: Value,
    label: &StoredLabel,
) -> std::result::Result<Vec<u8>, FileFault> {
    if let (Value::Object(fields), Value::Object(label)) = (&mut fields, json!(label)) {
        for name in LABEL {
            fields.remove(name);
        }
        fields.extend(label);
    }
    encode(what, &fields)
}

/// Writes the label of a stored version again, if that changes it. Does nothing if the version does not exist.
pub(super) fn renew<T: HasVersionTables>(
    tables: &mut Tables<'_>,
    record: &T,
    reason: Reason,
    label: &VersionLabel,
) -> std::result::Result<(), FileFault> {
    renew_as::<T>(tables, (record.id(), record.hash()), reason, label)
}

/// As [`renew`], for a version of which only the key is known.
pub(super) fn renew_as<T: HasVersionTables>(
    tables: &mut Tables<'_>,
    key: (&str, &str),
    reason: Reason,
    label: &VersionLabel,
) -> std::result::Result<(), FileFault> {
    let now = tables.clock.now();
    let (_, versions) = T::tables(tables);
    let known = stored(versions, key)?;
    let renewed = known.clone().after(reason, label, now);
    if renewed == known {
        return Ok(());
    }
    let fields: Option<Value> = match versions.get(key)? {
        Some(found) => Some(decode(|| T::named(key.0), found.value())?),
        None => None,
    };
    if let Some(mut fields) = fields {
        if let Value::Object(fields) = &mut fields {
            // It is written again with the document.
            fields.remove(format::FIELD);
        }
        let bytes = encode_with(T::WHAT, fields, &renewed)?;
        versions.insert(key, bytes.as_slice())?;
    }
    Ok(())
}

#[async_trait]
impl Versions for EmbeddedStore {
    async fn versions(&self, artifact: Artifact, id: &str) -> Result<Vec<VersionEntry>> {
        let read = |read: &ReadTransaction| match artifact {
            Artifact::Agent => all::<AgentRecord>(read, id),
            Artifact::Workflow => all::<WorkflowRecord>(read, id),
        };
        Ok(self.file.read(read)?)
    }

    async fn version_details(&self, artifact: Artifact, id: &str, hash: &str) -> Result<Option<VersionDetails>> {
        let read = |read: &ReadTransaction| match artifact {
            Artifact::Agent => details::<AgentRecord>(read, id, hash),
            Artifact::Workflow => details::<WorkflowRecord>(read, id, hash),
        };
        Ok(self.file.read(read)?)
    }

    async fn open_sessions_without(&self, agent_id: &str, hash: &str) -> Result<u64> {
        Ok(self.file.read(|read| open_sessions(read, agent_id, hash))?)
    }
}

fn all<T: HasVersionTables>(read: &ReadTransaction, id: &str) -> std::result::Result<Vec<VersionEntry>, FileFault> {
    let mut entries = Vec::new();
    for row in read.open_table(T::VERSION_TABLE)?.range((id, "")..)? {
        let (key, version) = row?;
        let (of, hash) = key.value();
        if of != id {
            break;
        }
        // A version that this program cannot decode is not listed.
        if let Ok(header) = serde_json::from_slice::<Header>(version.value()) {
            entries.push(entry::<T>(read, (id, hash), header)?);
        }
    }
    Ok(entries)
}

fn entry<T: HasVersionTables>(
    read: &ReadTransaction,
    (id, hash): (&str, &str),
    header: Header,
) -> std::result::Result<VersionEntry, FileFault> {
    let is_draft = drafts::is_draft(read, (T::VERSIONS, id, hash))?;
    let StoredLabel { at, by, note, .. } = header.label;
    Ok(VersionEntry { hash: hash.to_owned(), at: at.unwrap_or(header.updated_at), by, note, is_draft })
}

fn details<T: HasVersionTables>(
    read: &ReadTransaction,
    id: &str,
    hash: &str,
) -> std::result::Result<Option<VersionDetails>, FileFault> {
    let what = || format!("a version of {}", T::named(id));
    let versions = read.open_table(T::VERSION_TABLE)?;
    let Some(found) = versions.get((id, hash))? else { return Ok(None) };
    let mut header: Header = decode(what, found.value())?;
    let source = header.label.source.take();
    let Body { document } = decode(what, found.value())?;
    Ok(Some(VersionDetails { entry: entry::<T>(read, (id, hash), header)?, document, source }))
}

fn open_sessions(read: &ReadTransaction, agent_id: &str, hash: &str) -> std::result::Result<u64, FileFault> {
    let mut count = 0;
    for row in read.open_table(SESSIONS)?.iter()? {
        let (_, session) = row?;
        let Ok(session) = decode::<OfSession>(String::new, session.value().3) else { continue };
        let is_open = session.kind == Kind::Chat && session.closed_at.is_none() && session.agent_id == agent_id;
        count += u64::from(is_open && session.workflow_state.hash != hash);
    }
    Ok(count)
}
