//! Knowledge sources of agents. The passages have a table of their own, since listings read only the short entries.

use super::fault::FileFault;
use super::tables::{KNOWLEDGE, PASSAGES, Tables, decode, encode};
use definitions::knowledge::source::{Source, SourceEntry};
use redb::{ReadTransaction, ReadableTable};

/// Implements [`Store::put_knowledge`](storage::store::Store::put_knowledge).
pub(super) fn put(tables: &mut Tables<'_>, source: &Source) -> Result<bool, FileFault> {
    let key = (source.entry.agent_id.as_str(), source.entry.source.as_str());
    // A stored source that cannot be decoded is replaced.
    let known = tables.knowledge.get(key)?.and_then(|found| decode::<SourceEntry>(String::new, found.value()).ok());
    if known.is_some_and(|known| known.hash == source.entry.hash && known.origin == source.entry.origin) {
        return Ok(false);
    }
    let (entry, passages) = (encode("the source", &source.entry)?, encode("the passages", &source.passages)?);
    tables.knowledge.insert(key, entry.as_slice())?;
    tables.passages.insert(key, passages.as_slice())?;
    Ok(true)
}

/// Implements [`Store::remove_knowledge`](storage::store::Store::remove_knowledge).
pub(super) fn remove(tables: &mut Tables<'_>, agent_id: &str, source: &str) -> Result<bool, FileFault> {
    tables.passages.remove((agent_id, source))?;
    Ok(tables.knowledge.remove((agent_id, source))?.is_some())
}

/// Implements [`Store::knowledge_entries`](storage::store::Store::knowledge_entries).
pub(super) fn entries(read: &ReadTransaction, agent_id: Option<&str>) -> Result<Vec<SourceEntry>, FileFault> {
    let table = read.open_table(KNOWLEDGE)?;
    let mut entries = Vec::new();
    for row in table.range((agent_id.unwrap_or_default(), "")..)? {
        let (key, entry) = row?;
        let (of, source) = key.value();
        if agent_id.is_some_and(|agent_id| agent_id != of) {
            break;
        }
        entries.push(decode(|| format!("source `{source}` of agent `{of}`"), entry.value())?);
    }
    Ok(entries)
}

/// Implements [`Store::knowledge`](storage::store::Store::knowledge).
pub(super) fn read_sources(read: &ReadTransaction, agent_id: &str) -> Result<Vec<Source>, FileFault> {
    let passages = read.open_table(PASSAGES)?;
    let with_passages = |entry: SourceEntry| {
        let what = || format!("the passages of source `{}` of agent `{agent_id}`", entry.source);
        let found = passages.get((agent_id, entry.source.as_str()))?;
        let passages = found.map(|found| decode(what, found.value())).transpose()?.unwrap_or_default();
        Ok(Source { entry, passages })
    };
    entries(read, Some(agent_id))?.into_iter().map(with_passages).collect()
}
