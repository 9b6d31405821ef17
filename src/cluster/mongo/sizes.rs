//! How much the database holds, and which sessions hold most of it.

use super::Db;
use bson::{Bson, Document, doc};
use futures::TryStreamExt;
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use storage::queue::Storage;
use storage::store::{Result, SessionSize};

/// The number of sessions, the last changed ones, whose sizes are compared.
const COMPARED_SESSIONS: i64 = 10_000;
/// The number of random steps from which sessions with many steps are guessed.
const SAMPLED_STEPS: i32 = 5_000;
/// The number of sessions, for each one that is asked for, whose steps are added up.
const CANDIDATES: usize = 2;
/// The time that the server may take for one of these searches.
const MAX_TIME: Duration = Duration::from_secs(4);

impl Db {
    /// The bytes of all collections and indexes on disk, and of the disk if the server reports it.
    pub(super) async fn stored_bytes(&self) -> Result<Vec<Storage>> {
        let stats = self.in_time(self.database.run_command(doc! {"dbStats": 1})).await?;
        let bytes = number(&stats, "storageSize") + number(&stats, "indexSize");
        let disk = number(&stats, "fsTotalSize");
        // What other data on the disk takes is not available to this database.
        let others = number(&stats, "fsUsedSize").saturating_sub(bytes);
        let max_bytes = (disk > 0).then(|| disk.saturating_sub(others));
        Ok(vec![Storage { part: "mongodb", bytes, max_bytes }])
    }

    /// Implements [`Store::largest_sessions`](storage::store::Store::largest_sessions).
    pub(super) async fn largest_sessions(&self, limit: usize) -> Result<Vec<SessionSize>> {
        let count = limit.saturating_mul(CANDIDATES).max(1);
        let mut ids: HashSet<String> = self.long_sessions(count).await?.into_iter().collect();
        ids.extend(self.busy_sessions(count).await?);
        let ids: Vec<String> = ids.into_iter().collect();
        let size = doc! {"$bsonSize": "$$ROOT"};
        let sessions = [doc! {"$match": {"_id": {"$in": &ids}}}, doc! {"$project": {"bytes": size.clone()}}];
        let mut sizes: HashMap<String, u64> = HashMap::new();
        for found in self.computed("sessions", sessions).await? {
            sizes.insert(found.get_str("_id").unwrap_or_default().to_owned(), number(&found, "bytes"));
        }
        let mut all = Vec::with_capacity(ids.len());
        for session_id in ids {
            let of = doc! {"_id": {"$gte": format!("{session_id}/"), "$lt": format!("{session_id}0")}};
            let sum = doc! {"_id": null, "bytes": {"$sum": size.clone()}};
            let steps = self.computed("steps", [doc! {"$match": of}, doc! {"$group": sum}]).await?;
            let step_bytes = steps.first().map_or(0, |sum| number(sum, "bytes"));
            let session_bytes = sizes.get(&session_id).copied().unwrap_or(0);
            all.push(SessionSize { session_id, session_bytes, step_bytes });
        }
        Ok(SessionSize::largest(all, limit))
    }

    /// The largest of the sessions that changed last.
    async fn long_sessions(&self, count: usize) -> Result<Vec<String>> {
        let pipeline = [
            doc! {"$sort": {"updated_at": -1}},
            doc! {"$limit": COMPARED_SESSIONS},
            doc! {"$project": {"bytes": {"$bsonSize": "$$ROOT"}}},
            doc! {"$sort": {"bytes": -1}},
            doc! {"$limit": i64::try_from(count).unwrap_or(i64::MAX)},
        ];
        Ok(ids(&self.computed("sessions", pipeline).await?))
    }

    /// The sessions with most bytes in a sample of steps.
    async fn busy_sessions(&self, count: usize) -> Result<Vec<String>> {
        let pipeline = [
            doc! {"$sample": {"size": SAMPLED_STEPS}},
            doc! {"$group": {"_id": "$session_id", "bytes": {"$sum": {"$bsonSize": "$$ROOT"}}}},
            doc! {"$sort": {"bytes": -1}},
            doc! {"$limit": i64::try_from(count).unwrap_or(i64::MAX)},
        ];
        Ok(ids(&self.computed("steps", pipeline).await?))
    }

    async fn computed(&self, collection: &str, pipeline: impl IntoIterator<Item = Document>) -> Result<Vec<Document>> {
        let documents = self.database.collection::<Document>(collection);
        let asked = documents.aggregate(pipeline).max_time(MAX_TIME);
        self.in_time(async { asked.await?.try_collect().await }).await
    }
}

fn ids(found: &[Document]) -> Vec<String> {
    found.iter().filter_map(|found| found.get_str("_id").ok().map(str::to_owned)).collect()
}

/// A whole number, whatever its type in the response.
fn number(document: &Document, field: &str) -> u64 {
    match document.get(field) {
        Some(Bson::Int32(number)) => u64::try_from(*number).unwrap_or(0),
        Some(Bson::Int64(number)) => u64::try_from(*number).unwrap_or(0),
        // Sizes are far below 2^53.
        Some(Bson::Double(number)) => number.max(0.0) as u64,
        _ => 0,
    }
}
