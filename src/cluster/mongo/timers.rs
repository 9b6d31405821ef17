//! Due timers, and the election of the scheduler.

use super::Db;
use super::connect::one_more;
use super::document::{date, int, millis, read};
use base::clock::moment;
use bson::{Document, RawDocumentBuf, doc};
use futures::TryStreamExt;
use mongodb::options::ReturnDocument;
use serde::Deserialize;
use std::time::Duration;
use storage::store::Result;
use storage::store::records::{DueTimer, DueTimers, TimerPlace};
use types::format;
use types::page::{Bounds, Page};
use types::timer::Timer;

impl Db {
    pub(super) async fn due_timers(&self, horizon: Duration, limit: usize) -> Result<DueTimers> {
        #[derive(Deserialize)]
        struct Found {
            #[serde(rename = "_id")]
            session_id: String,
            timers: Vec<Timer>,
        }
        let near = date(self.clock.latest().plus(horizon));
        let pipeline = [
            // An older version may not know all fields of a newer one's timers, so they wait for a newer scheduler.
            doc! {"$match": {"timers.due_at": {"$lte": near}, "format": {"$not": {"$gt": i64::from(format::current())}}}},
            doc! {"$sort": {"timers.due_at": 1}},
            // MongoDB refuses a limit of 0.
            doc! {"$limit": int(u64::try_from(limit.max(1)).unwrap_or(u64::MAX))},
            doc! {"$project": {"timers": 1}},
        ];
        let collection = self.database.collection::<RawDocumentBuf>("sessions");
        let found = collection.aggregate(pipeline).with_type::<RawDocumentBuf>();
        let raws: Vec<RawDocumentBuf> = self.in_time(async { found.await?.try_collect().await }).await?;
        let found = raws.iter().map(|raw| read::<Found>(raw, "a session's timers")).collect::<Result<Vec<_>>>()?;
        // Taken after the response, which may be long: a caller that waits relative to `at` is neither late nor early.
        let (now, at) = (self.clock.earliest(), moment());
        let mut timers: Vec<_> = found
            .into_iter()
            .flat_map(|Found { session_id, timers, .. }| {
                timers.into_iter().map(move |timer| DueTimer { session_id: session_id.clone(), timer })
            })
            .filter(|due| due.timer.due_at <= now.plus(horizon))
            .collect();
        for due in &mut timers {
            if let Some(action) = &mut due.timer.action {
                action.params = super::document::unseal_fields(std::mem::take(&mut action.params));
            }
        }
        timers.sort_by_key(|due| due.timer.due_at);
        timers.truncate(limit);
        Ok(DueTimers { now, at, timers })
    }

    pub(super) async fn timers_page(&self, bounds: Bounds<TimerPlace>) -> Result<Page<DueTimer>> {
        #[derive(Deserialize)]
        struct Found {
            #[serde(rename = "_id")]
            session_id: String,
            timers: Timer,
        }
        let (first, behind) = match bounds.after {
            None => (bson::DateTime::MIN.into(), doc! {}),
            Some((due_at, (session_id, timer_id))) => {
                let due_at = date(due_at);
                let later = doc! {"timers.due_at": {"$gt": &due_at}};
                let of_later_session = doc! {"timers.due_at": &due_at, "_id": {"$gt": &session_id}};
                let later_id =
                    doc! {"timers.due_at": &due_at, "_id": &session_id, "timers.timer_id": {"$gt": timer_id}};
                (due_at, doc! {"$or": [later, of_later_session, later_id]})
            }
        };
        let pipeline = [
            doc! {"$match": {"timers.due_at": {"$gte": first}}},
            doc! {"$project": {"timers": 1}},
            doc! {"$unwind": "$timers"},
            doc! {"$match": behind},
            doc! {"$sort": {"timers.due_at": 1, "_id": 1, "timers.timer_id": 1}},
            doc! {"$limit": one_more(bounds.limit)},
        ];
        let collection = self.database.collection::<RawDocumentBuf>("sessions");
        let found = collection.aggregate(pipeline).with_type::<RawDocumentBuf>();
        self.page(found, bounds.limit, bounds.max_bytes).await?.try_map(|raw| {
            let Found { session_id, mut timers } = read(&raw, "a session's timers")?;
            if let Some(action) = &mut timers.action {
                action.params = super::document::unseal_fields(std::mem::take(&mut action.params));
            }
            Ok(DueTimer { session_id, timer: timers })
        })
    }

    pub(super) async fn lead(&self, role: &str, owner: &str, lease: Duration) -> Result<bool> {
        let past = bson::DateTime::from_millis(0);
        let mine = doc! {"$or": [
            {"$eq": [{"$ifNull": ["$owner", owner]}, owner]},
            {"$lte": [{"$ifNull": ["$until", past]}, "$$NOW"]},
        ]};
        let pipeline = vec![
            doc! {"$set": {"_mine": mine}},
            doc! {"$set": {
                "owner": {"$cond": ["$_mine", owner, "$owner"]},
                "until": {"$cond": ["$_mine", {"$add": ["$$NOW", millis(lease)]}, "$until"]},
            }},
            doc! {"$unset": "_mine"},
        ];
        let collection = self.database.collection::<Document>("leaders");
        let update = || {
            let update = collection.find_one_and_update(doc! {"_id": role}, pipeline.clone());
            update.upsert(true).return_document(ReturnDocument::After)
        };
        // When two processes create the role concurrently, one insert fails. Its second try finds the leader.
        let leader = match self.in_time(update()).await {
            Ok(leader) => leader,
            Err(_) => self.in_time(update()).await?,
        };
        Ok(leader.is_some_and(|leader| leader.get_str("owner").is_ok_and(|leads| leads == owner)))
    }

    pub(super) async fn resign(&self, role: &str, owner: &str) -> Result<()> {
        let collection = self.database.collection::<Document>("leaders");
        self.in_time(collection.delete_one(doc! {"_id": role, "owner": owner})).await.map(|_| ())
    }
}
