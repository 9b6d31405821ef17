//! The daily token counters of agents. A commit adds to them after it has succeeded.

use super::Db;
use super::command::Bulk;
use super::document::int;
use bson::{Document, RawDocumentBuf, doc, rawdoc};
use futures::TryStreamExt;
use mongodb::options::ReadConcern;
use std::collections::{BTreeMap, HashMap};
use storage::store::records::{Commit, Committed, DAYS_KEPT};
use storage::store::{Result, StoreError};
use tracing::warn;
use types::turn::DayUse;

/// The collection of the counters.
pub(super) const DAYS: &str = "agent_days";

fn key(agent_id: &str, day: &str) -> String {
    format!("{agent_id}/{day}")
}

impl Db {
    /// Adds the tokens of the committed turns, with one statement for each agent and day. The additions become durable
    /// with the next commit. A failure is only logged, because the turns are already committed.
    pub(super) async fn add_to_days(&self, items: &[Commit], outcomes: &[Result<Committed>]) {
        let mut sums: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        let committed = |outcome: &Result<Committed>| matches!(outcome, Ok(Committed::Released | Committed::Held));
        let done = items.iter().zip(outcomes).filter(|(_, outcome)| committed(outcome));
        for used in done.filter_map(|(item, _)| item.change.as_deref()).flat_map(|change| &change.days) {
            let sum = sums.entry((&used.agent_id, &used.day)).or_default();
            *sum = sum.saturating_add(used.tokens);
        }
        if let Err(problem) = self.add_sums(&sums).await {
            warn!("the daily token counters of agents are too low, adding to them failed: {problem}");
        }
    }

    /// Adds tokens that belong to no turn.
    pub(super) async fn use_tokens(&self, used: &DayUse) -> Result<()> {
        self.add_sums(&BTreeMap::from([((used.agent_id.as_str(), used.day.as_str()), used.tokens)])).await
    }

    async fn add_sums(&self, sums: &BTreeMap<(&str, &str), u64>) -> Result<()> {
        if sums.is_empty() {
            return Ok(());
        }
        let expires_at = bson::DateTime::from_millis(self.clock.latest().plus(DAYS_KEPT).as_millis());
        let statements: Vec<RawDocumentBuf> = sums
            .iter()
            .map(|((agent_id, day), tokens)| {
                let first = rawdoc! {"agent_id": *agent_id, "day": *day, "expires_at": expires_at};
                let update = rawdoc! {"$inc": {"tokens": int(*tokens)}, "$setOnInsert": first};
                rawdoc! {"q": {"_id": key(agent_id, day)}, "u": update, "upsert": true}
            })
            .collect();
        let (failures, _) = self.bulk_before(Bulk::Update(DAYS), &statements).await?;
        match failures.into_values().next() {
            Some(failure) => Err(StoreError::refused(failure.problem)),
            None => Ok(()),
        }
    }

    pub(super) async fn tokens_of_day(&self, day: &str, agent_ids: Vec<String>) -> Result<HashMap<String, u64>> {
        let ids: Vec<String> = agent_ids.iter().map(|agent_id| key(agent_id, day)).collect();
        let collection = self.database.collection::<Document>(DAYS);
        // Reads additions that are not durable yet.
        let find = collection.find(doc! {"_id": {"$in": ids}}).read_concern(ReadConcern::local());
        let found: Vec<Document> = self.in_time(async { find.await?.try_collect().await }).await?;
        let used = |found: &Document| {
            let tokens = u64::try_from(found.get_i64("tokens").ok()?).ok()?;
            Some((found.get_str("agent_id").ok()?.to_owned(), tokens))
        };
        Ok(found.iter().filter_map(used).collect())
    }
}
