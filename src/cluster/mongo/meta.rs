//! The collection `meta`: the namespace that the database belongs to, secrets that all processes share, and the probe
//! for [`Store::ping`](storage::store::Store::ping).

use super::Db;
use super::document::failed;
use base::config::Settings;
use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc};
use mongodb::options::ReturnDocument;
use mongodb::{Collection, Database};
use std::time::{Duration, Instant};
use storage::store::{Result, StoreError};

const COLLECTION: &str = "meta";
/// The id of the document that names the namespace.
const NAMESPACE: &str = "namespace";
/// The id of the document that the probe writes.
const PROBE: &str = "probe";
/// The ids of the documents with secrets begin so.
const SECRET: &str = "secret/";
/// How long a successful probe counts. Readiness is queried without a token and by many processes, so the probe must be
/// cheap.
const PROBE_TTL: Duration = Duration::from_secs(1);

impl Db {
    /// Claims the database for this namespace. Fails with `Refused` when it belongs to another one: sessions, timers
    /// and the scheduler's election of two namespaces must not mix.
    pub(super) async fn claim(&self, settings: &Settings) -> Result<()> {
        let (collection, namespace) = (collection(&self.database), settings.namespace.as_str());
        let claim = || {
            let claim = doc! {"$setOnInsert": {"namespace": namespace}};
            let update = collection.find_one_and_update(doc! {"_id": NAMESPACE}, claim);
            update.upsert(true).return_document(ReturnDocument::After)
        };
        // When two processes claim concurrently, one insert fails. Its second try finds the document.
        let claimed = match self.in_time(claim()).await {
            Ok(claimed) => claimed,
            Err(_) => self.in_time(claim()).await?,
        };
        match claimed.as_ref().and_then(|claimed| claimed.get_str("namespace").ok()) {
            Some(owner) if owner != namespace => Err(StoreError::refused(foreign(settings, owner))),
            _ => Ok(()),
        }
    }

    /// Returns the secret of this name. The first call stores its `candidate`.
    pub(super) async fn shared_secret(&self, name: &str, candidate: &[u8; 32]) -> Result<[u8; 32]> {
        let (collection, id) = (collection(&self.database), format!("{SECRET}{name}"));
        let make = || {
            let bytes = Binary { subtype: BinarySubtype::Generic, bytes: candidate.to_vec() };
            let update = collection.find_one_and_update(doc! {"_id": &id}, doc! {"$setOnInsert": {"bytes": bytes}});
            update.upsert(true).return_document(ReturnDocument::After)
        };
        // When two processes make it concurrently, one insert fails. Its second try finds the document.
        let made = match self.in_time(make()).await {
            Ok(made) => made,
            Err(_) => self.in_time(make()).await?,
        };
        let bytes = made.as_ref().and_then(|made| made.get_binary_generic("bytes").ok());
        let bytes = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes.as_slice()).ok());
        bytes.ok_or_else(|| StoreError::damaged(format!("the secret `{name}`"), "it does not have 32 bytes"))
    }

    /// Writes one document by majority, since a primary that has lost its majority still responds to everything else.
    /// Only one probe runs at a time.
    pub(super) async fn ping(&self) -> Result<()> {
        let mut probed = self.probed.lock().await;
        if probed.is_some_and(|at| at.elapsed() < PROBE_TTL) {
            return Ok(());
        }
        let collection = collection(&self.database);
        let probe = collection.update_one(doc! {"_id": PROBE}, doc! {"$currentDate": {"at": true}}).upsert(true);
        self.in_time(probe).await?;
        *probed = Some(Instant::now());
        Ok(())
    }
}

fn collection(database: &Database) -> Collection<Document> {
    database.collection(COLLECTION)
}

/// Returns the namespace that a database belongs to; `None` when no process has claimed it.
pub async fn owner(database: &Database) -> Result<Option<String>> {
    let found = collection(database).find_one(doc! {"_id": NAMESPACE}).await.map_err(failed)?;
    Ok(found.and_then(|found| found.get_str("namespace").ok().map(str::to_owned)))
}

/// Returns the error text for a database that belongs to the namespace `owner`.
pub fn foreign(settings: &Settings, owner: &str) -> String {
    let (namespace, database) = (&settings.namespace, &settings.mongodb.database);
    format!(
        "the database `{database}` belongs to namespace `{owner}`, and this process has namespace = `{namespace}`; \
         set mongodb.database to a database of its own, such as `{database}-{namespace}`"
    )
}
