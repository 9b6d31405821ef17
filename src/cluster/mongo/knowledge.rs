//! Knowledge sources of agents, one document for each source.

use super::Db;
use super::document::{int, raw, read};
use bson::{Document, RawDocumentBuf, doc};
use definitions::knowledge::source::{Origin, Passage, Source, SourceEntry};
use futures::TryStreamExt;
use mongodb::Collection;
use serde::{Deserialize, Serialize};
use storage::store::Result;
use types::timestamp::Timestamp;

const COLLECTION: &str = "knowledge";

/// A source as it is stored. The numbers have the widths of BSON.
#[derive(Serialize, Deserialize)]
struct StoredSource {
    agent_id: String,
    source: String,
    origin: Origin,
    hash: String,
    passage_count: u32,
    bytes: i64,
    updated_at: Timestamp,
    /// Missing when a listing reads the document.
    #[serde(default)]
    passages: Vec<Passage>,
}

impl From<Source> for StoredSource {
    fn from(Source { entry, passages }: Source) -> Self {
        let SourceEntry { agent_id, source, origin, hash, passage_count, bytes, updated_at } = entry;
        Self { agent_id, source, origin, hash, passage_count, bytes: int(bytes), updated_at, passages }
    }
}

impl From<StoredSource> for Source {
    fn from(stored: StoredSource) -> Self {
        let StoredSource { agent_id, source, origin, hash, passage_count, bytes, updated_at, passages } = stored;
        let bytes = bytes.unsigned_abs();
        Self { entry: SourceEntry { agent_id, source, origin, hash, passage_count, bytes, updated_at }, passages }
    }
}

/// The fields of a [`StoredSource`] without its passages. An index has exactly these fields, so the server reads no
/// documents for [`Db::knowledge_entries`].
pub(super) fn listed() -> Document {
    doc! {"agent_id": 1, "source": 1, "origin": 1, "hash": 1, "passage_count": 1, "bytes": 1, "updated_at": 1}
}

impl Db {
    fn sources(&self) -> Collection<RawDocumentBuf> {
        self.database.collection(COLLECTION)
    }

    pub(super) async fn put_knowledge(&self, source: Source) -> Result<bool> {
        let SourceEntry { agent_id, source: name, hash, origin, .. } = &source.entry;
        let key = doc! {"_id": id(agent_id, name)};
        let same = doc! {"_id": id(agent_id, name), "hash": hash, "origin": origin.as_str()};
        let known = self.in_time(self.sources().find_one(same).projection(doc! {"hash": 1})).await?;
        if known.is_some() {
            return Ok(false);
        }
        let stored = raw(&StoredSource::from(source))?;
        self.in_time(self.sources().replace_one(key, stored).upsert(true)).await?;
        Ok(true)
    }

    pub(super) async fn remove_knowledge(&self, agent_id: &str, source: &str) -> Result<bool> {
        let removed = self.in_time(self.sources().delete_one(doc! {"_id": id(agent_id, source)})).await?;
        Ok(removed.deleted_count > 0)
    }

    pub(super) async fn knowledge_entries(&self, agent_id: Option<&str>) -> Result<Vec<SourceEntry>> {
        let mut shown = listed();
        shown.insert("_id", 0);
        // An empty filter would make the server read the documents instead of the index.
        let filter = agent_id.map_or_else(|| doc! {"agent_id": {"$gte": ""}}, |agent_id| doc! {"agent_id": agent_id});
        let sources = self.sources();
        let find = sources.find(filter).projection(shown).sort(doc! {"agent_id": 1, "source": 1});
        let found: Vec<_> = self.in_time(async { find.await?.try_collect().await }).await?;
        found.iter().map(|raw| Ok(Source::from(read::<StoredSource>(raw, "a source")?).entry)).collect()
    }

    pub(super) async fn knowledge(&self, agent_id: &str) -> Result<Vec<Source>> {
        let sources = self.sources();
        let find = sources.find(doc! {"agent_id": agent_id}).sort(doc! {"source": 1});
        let found: Vec<_> = self.in_time(async { find.await?.try_collect().await }).await?;
        let source = |raw: &RawDocumentBuf| {
            let what = format!("source `{}`", raw.get_str("_id").unwrap_or("?"));
            Ok(read::<StoredSource>(raw, &what)?.into())
        };
        found.iter().map(source).collect()
    }
}

/// The document's id. It is unique because agent ids have no `/`.
fn id(agent_id: &str, source: &str) -> String {
    format!("{agent_id}/{source}")
}
