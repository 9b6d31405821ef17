//! The announcements of running processes, in a collection whose documents expire.

use super::Db;
use base::error::SharedError;
use bson::{Document, doc};
use futures::TryStreamExt;
use storage::store::{ANNOUNCEMENT_EXPIRY, Process, Result, StoreError};

/// The collection of the announcements.
pub(super) const PROCESSES: &str = "processes";

impl Db {
    pub(super) async fn announce(&self, process: &Process) -> Result<()> {
        let refused = |error: bson::error::Error| {
            StoreError::Refused(SharedError::explained(format!("cannot encode the process: {error}"), error))
        };
        let fields = bson::serialize_to_document(process).map_err(refused)?;
        let expires_at = bson::DateTime::from_millis(self.clock.latest().plus(ANNOUNCEMENT_EXPIRY).as_millis());
        let collection = self.database.collection::<Document>(PROCESSES);
        let document = doc! {"process": fields, "expires_at": expires_at};
        let replace = collection.replace_one(doc! {"_id": &process.process_id}, document).upsert(true);
        self.in_time(replace).await.map(|_| ())
    }

    pub(super) async fn depart(&self, process_id: &str) -> Result<()> {
        let collection = self.database.collection::<Document>(PROCESSES);
        self.in_time(collection.delete_one(doc! {"_id": process_id})).await.map(|_| ())
    }

    /// Returns the announcements that have not expired. Skips documents that cannot be decoded: a later version wrote
    /// them.
    pub(super) async fn processes(&self) -> Result<Vec<Process>> {
        let now = bson::DateTime::from_millis(self.clock.earliest().as_millis());
        let collection = self.database.collection::<Document>(PROCESSES);
        let find = collection.find(doc! {"expires_at": {"$gt": now}});
        let found: Vec<Document> = self.in_time(async { find.await?.try_collect().await }).await?;
        let read = |found: &Document| bson::deserialize_from_document(found.get_document("process").ok()?.clone()).ok();
        let mut processes: Vec<Process> = found.iter().filter_map(read).collect();
        Process::sort(&mut processes);
        Ok(processes)
    }
}
