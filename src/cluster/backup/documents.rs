//! The collections of MongoDB: their documents as BSON.

use super::capture::Capture;
use super::{COLLECTIONS, Tell};
use base::error::SharedError;
use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use futures::TryStreamExt;
use mongodb::Database;
use std::io::Write;
use storage::backup::writer::Chunks;
use storage::backup::{Archive, ArchiveWriter, BackupError, Result};

/// After this number of documents the captured jobs are written.
const DRAIN_AFTER: u64 = 100;
/// The document in `meta` that only shows that writing works.
const PROBE: &str = "probe";
const META: &str = "meta";
/// A restored session gets an epoch that is higher by this number: turns, steps and runs of the backup may have been
/// written under later epochs than the session's.
pub(super) const EPOCH_STEP: i64 = 1_000_000;

/// Writes all documents of a collection.
pub(super) async fn save_collection<W: Write>(
    database: &Database,
    name: &str,
    archive: &mut ArchiveWriter<W>,
    mut capture: Option<&mut Capture<'_>>,
) -> Result<u64> {
    let failed = |error: mongodb::error::Error| BackupError::backend(format!("`{name}` cannot be read"), error);
    let mut documents = database.collection::<RawDocumentBuf>(name).find(doc! {}).await.map_err(failed)?;
    let mut chunks = Chunks::new(format!("{COLLECTIONS}/{name}"));
    while let Some(document) = documents.try_next().await.map_err(failed)? {
        if name == META && document.get_str("_id").is_ok_and(|id| id == PROBE) {
            continue;
        }
        chunks.push(archive, document.as_bytes())?;
        if let Some(capture) = &mut capture
            && chunks.count().is_multiple_of(DRAIN_AFTER)
        {
            capture.drain(archive)?;
        }
    }
    chunks.finish(archive)
}

/// Stores all documents of the backup.
pub(super) async fn load_collections(database: &Database, archive: &Archive, tell: Tell<'_>) -> Result<()> {
    let names: Vec<String> = archive
        .manifest()
        .counts
        .keys()
        .filter_map(|name| name.strip_prefix(COLLECTIONS)?.strip_prefix('/'))
        .map(str::to_owned)
        .collect();
    for name in names {
        let collection = database.collection::<RawDocumentBuf>(&name);
        let failed = |error: mongodb::error::Error| BackupError::backend(format!("`{name}` cannot be written"), error);
        let mut count = 0;
        for entry in archive.folder(&format!("{COLLECTIONS}/{name}")) {
            let bytes = archive.bytes(&entry.name)?;
            let documents = split(&bytes).map(|document| prepared(&name, document?));
            let documents = documents.collect::<Result<Vec<_>>>()?;
            count += documents.len();
            if name == META {
                // A process that has started here has documents with these ids.
                for document in documents {
                    let id = document.get("_id").ok().flatten().and_then(|id| Bson::try_from(id).ok());
                    collection.replace_one(doc! {"_id": id}, document).upsert(true).await.map_err(failed)?;
                }
            } else {
                collection.insert_many(documents).await.map_err(failed)?;
            }
        }
        tell(format!("{name}: {count} documents"));
    }
    Ok(())
}

/// The documents of an entry.
pub(super) fn split(bytes: &[u8]) -> impl Iterator<Item = Result<&RawDocument>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let length = rest.first_chunk::<4>().map(|length| i32::from_le_bytes(*length));
        let document = length
            .and_then(|length| rest.split_at_checked(usize::try_from(length).ok()?))
            .filter(|(document, _)| !document.is_empty());
        let Some((document, left)) = document else {
            rest = &[];
            return Some(Err(undecodable("it is cut off")));
        };
        rest = left;
        Some(RawDocument::from_bytes(document).map_err(undecodable))
    })
}

fn undecodable(error: impl Into<SharedError>) -> BackupError {
    BackupError::backend("a document of the backup cannot be decoded", error)
}

/// A document as it is restored. A session gets a higher epoch, and loses the fence, which belongs to the former one.
fn prepared(collection: &str, document: &RawDocument) -> Result<RawDocumentBuf> {
    if collection != "sessions" {
        return Ok(document.to_owned());
    }
    let mut session = Document::try_from(document).map_err(undecodable)?;
    session.remove("fence");
    let epoch = session.get_i64("epoch").unwrap_or(0);
    session.insert("epoch", epoch.saturating_add(EPOCH_STEP));
    RawDocumentBuf::try_from(&session).map_err(undecodable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_stand_one_after_the_other() {
        let encoded = |document: Document| bson::serialize_to_vec(&document).unwrap();
        let bytes = [encoded(doc! {"a": 1}), encoded(doc! {"b": "二"})].concat();
        let read: Vec<_> = split(&bytes).map(|document| Document::try_from(document.unwrap()).unwrap()).collect();
        assert_eq!(read, [doc! {"a": 1}, doc! {"b": "二"}]);
        assert!(split(&bytes[..bytes.len() - 1]).last().unwrap().is_err());
        assert!(split(&[0; 9]).next().unwrap().is_err());
    }

    #[test]
    fn a_session_is_restored_under_a_higher_epoch() {
        let session = RawDocumentBuf::try_from(&doc! {"_id": "s", "epoch": 7_i64, "fence": {"left-7-0": [0]}}).unwrap();
        let restored = Document::try_from(prepared("sessions", &session).unwrap().as_ref()).unwrap();
        assert_eq!(restored, doc! {"_id": "s", "epoch": 1_000_007_i64});
        assert_eq!(prepared("turns", &session).unwrap(), session);
    }
}
