//! The audit trail, in a collection whose documents expire.

use super::Db;
use super::document::date;
use base::error::SharedError;
use bson::{Document, doc};
use storage::store::{Result, StoreError};
use types::audit::{AuditEntry, AuditQuery};
use types::timestamp::Timestamp;

/// The collection of the audit trail.
pub(super) const AUDIT: &str = "audit";

impl Db {
    pub(super) async fn put_audit(&self, entry: &AuditEntry) -> Result<()> {
        let refused = |error: bson::error::Error| {
            StoreError::Refused(SharedError::explained(format!("cannot encode the audit entry: {error}"), error))
        };
        let mut document = bson::serialize_to_document(entry).map_err(refused)?;
        document.remove("id");
        document.insert("at", date(entry.at));
        document.insert("expires_at", date(entry.at.plus(self.audit_retention)));
        let collection = self.database.collection::<Document>(AUDIT);
        let replace = collection.replace_one(doc! {"_id": &entry.id}, document).upsert(true);
        self.in_time(replace).await.map(|_| ())
    }

    pub(super) async fn audit(&self, query: AuditQuery) -> Result<Vec<AuditEntry>> {
        let collection = self.database.collection::<Document>(AUDIT);
        let Some(after) = query.after else {
            let mut last = self.first(collection.find(doc! {}).sort(doc! {"_id": -1}), query.limit).await?;
            last.reverse();
            return last.into_iter().map(read).collect();
        };
        let later = collection.find(doc! {"_id": {"$gt": after}}).sort(doc! {"_id": 1});
        self.first(later, query.limit).await?.into_iter().map(read).collect()
    }
}

fn read(mut document: Document) -> Result<AuditEntry> {
    let id = document.get_str("_id").unwrap_or_default().to_owned();
    document.insert("id", &id);
    if let Ok(at) = document.get_datetime("at") {
        document.insert("at", Timestamp::from_millis(at.timestamp_millis()).to_string());
    }
    bson::deserialize_from_document(document)
        .map_err(|error| StoreError::damaged(format!("the audit entry `{id}`"), error))
}
