//! Listings of sessions, with their filters.
//!
//! The index of `updated_at` gives the order, and MongoDB compares each session in it with the filter. Sessions of a
//! user and sessions that wait have indexes of their own, because few of all sessions fit.

use super::Db;
use super::connect::one_more;
use super::document::{date, read};
use super::lane::read_session;
use super::queries::{behind, in_scope, readable};
use bson::{Document, RawDocumentBuf, doc};
use serde::Deserialize;
use storage::store::Result;
use storage::store::records::{SessionPage, SessionPlace, SessionQuery};
use types::timestamp::Timestamp;

/// The fields that only a session has which waits for a user's answer or for a human. Each has a sparse index.
pub(super) const WAITING_FIELDS: [&str; 3] = ["handoff.since", "waiting.asked_at", "task.asked_at"];

impl Db {
    pub(super) async fn sessions(&self, query: SessionQuery) -> Result<SessionPage> {
        let place = query.after.as_ref().map(|(at, id)| behind("updated_at", *at, id)).unwrap_or_default();
        let range = doc! {"$and": [times(&query), place]};
        let floor = self.floor(&query, &range).await?;
        let above = floor.as_ref().map(|(at, id)| not_behind(*at, id)).unwrap_or_default();
        let filter = doc! {"$and": [filter(&query), in_scope(&query.scope), range, above, readable()]};
        let collection = self.database.collection::<RawDocumentBuf>("sessions");
        let find = collection.find(filter).sort(doc! {"updated_at": -1, "_id": -1});
        let shown = doc! {"history": {"$slice": -1}, "outbox": 0};
        let find = find.projection(shown).limit(one_more(query.limit));
        let page = self.page(find, query.limit, query.max_bytes).await?.try_map(|raw| read_session(&raw))?;
        let ends_at = floor.filter(|_| !page.has_more);
        Ok(SessionPage { page, ends_at })
    }

    /// The place of the last session that a page compares with its filter; `None` if it compares all. Reads only the
    /// index.
    async fn floor(&self, query: &SessionQuery, range: &Document) -> Result<Option<SessionPlace>> {
        #[derive(Deserialize)]
        struct Place {
            #[serde(rename = "_id")]
            id: String,
            updated_at: Timestamp,
        }
        let Some(skipped) = query.max_examined.checked_sub(1).filter(|_| compares_each(query)) else { return Ok(None) };
        let Ok(skipped) = u64::try_from(skipped) else { return Ok(None) };
        let collection = self.database.collection::<RawDocumentBuf>("sessions");
        let find = collection.find(range.clone()).sort(doc! {"updated_at": -1, "_id": -1}).skip(skipped);
        let found = self.first(find.projection(doc! {"updated_at": 1}), 1).await?;
        let place =
            |raw: &RawDocumentBuf| read(raw, "the place of a session").map(|Place { id, updated_at }| (updated_at, id));
        found.first().map(place).transpose()
    }
}

/// True if no index leads to the sessions that fit, and the listing may compare many that do not.
fn compares_each(query: &SessionQuery) -> bool {
    let SessionQuery { scope, status, agent_id, channel, user_id, waiting, words, max_examined, .. } = query;
    let filters = status.is_some() || agent_id.is_some() || channel.is_some() || waiting.is_some();
    let is_filtered = filters || !words.is_empty() || !scope.is_everything();
    *max_examined < usize::MAX && is_filtered && user_id.is_none() && *waiting != Some(true)
}

/// The conditions of a query except its times and its scope.
fn filter(query: &SessionQuery) -> Document {
    let mut filter = doc! {"kind": {"$ne": "run"}};
    if let Some(status) = query.status {
        filter.insert("workflow_state.status", status.as_str());
    }
    let texts = [("agent_id", &query.agent_id), ("channel", &query.channel), ("user_id", &query.user_id)];
    for (name, value) in texts {
        if let Some(value) = value {
            filter.insert(name, value);
        }
    }
    let has = |there: bool| WAITING_FIELDS.map(|field| doc! {field: {"$exists": there}});
    match query.waiting {
        Some(true) => filter.insert("$or", has(true).to_vec()),
        Some(false) => filter.insert("$and", has(false).to_vec()),
        None => None,
    };
    // A list of conditions of its own, because `$and` may be in use.
    let words = query.words.iter().map(|word| doc! {"history.text": {"$regex": literal(word), "$options": "i"}});
    let words: Vec<Document> = words.collect();
    match words.is_empty() {
        true => filter,
        false => doc! {"$and": [filter, {"$and": words}]},
    }
}

/// A regular expression that matches only this word.
fn literal(word: &str) -> String {
    let escaped = |c: char| if c.is_ascii_punctuation() { vec!['\\', c] } else { vec![c] };
    word.chars().flat_map(escaped).collect()
}

fn times(query: &SessionQuery) -> Document {
    let mut times = Document::new();
    times.extend(query.since.map(|since| ("$gte".to_owned(), date(since))));
    times.extend(query.until.map(|until| ("$lt".to_owned(), date(until))));
    if times.is_empty() {
        times
    } else {
        doc! {"updated_at": times}
    }
}

/// The filter for the sessions up to a place in the listing.
fn not_behind(at: Timestamp, id: &str) -> Document {
    let later = [doc! {"updated_at": {"$gt": date(at)}}, doc! {"updated_at": date(at), "_id": {"$gte": id}}];
    // The first condition bounds the scan of the index.
    doc! {"updated_at": {"$gte": date(at)}, "$or": later.to_vec()}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_matched_as_it_is() {
        assert_eq!(literal("a.b*(退货)"), r"a\.b\*\(退货\)");
    }
}
