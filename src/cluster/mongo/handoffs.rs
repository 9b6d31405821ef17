//! The listing of handoffs. Its index has only the sessions that are handed off.

use super::Db;
use super::connect::one_more;
use super::lane::read_session;
use super::queries::{behind_in_order, in_scope, readable};
use bson::{DateTime, Document, RawDocumentBuf, doc};
use mongodb::options::IndexOptions;
use storage::store::Result;
use storage::store::records::{HandoffCounts, HandoffPage, HandoffPlace, HandoffQuery, HandoffState};
use types::page::{Bounds, Page};
use types::session::Session;

/// The index of the conversations that wait for an answer. The others, and the counts, use that of `handoff.since`.
pub(super) fn indexes() -> Vec<(&'static str, Document, Option<IndexOptions>)> {
    let options = IndexOptions::builder().partial_filter_expression(handed_off()).build();
    vec![("sessions", doc! {"handoff.waiting_since": 1, "_id": 1}, Some(options))]
}

/// The filter for sessions that are handed off.
fn handed_off() -> Document {
    doc! {"handoff.since": {"$gt": DateTime::from_millis(0)}}
}

impl Db {
    pub(super) async fn handoffs(&self, query: HandoffQuery) -> Result<HandoffPage> {
        let HandoffQuery { scope, agent_id, channel, by, state, bounds } = query;
        let mut wanted = Document::new();
        wanted.extend(agent_id.map(|agent_id| ("agent_id".to_owned(), agent_id.into())));
        wanted.extend(channel.map(|channel| ("channel".to_owned(), channel.into())));
        let base = doc! {"$and": [handed_off(), in_scope(&scope), wanted, readable()]};
        let unclaimed = doc! {"$and": [base.clone(), {"handoff.claim": null}]};
        // Without a name nothing is claimed by the caller.
        let of_caller = by.map(|by| doc! {"$and": [base.clone(), {"handoff.claim.by": by}]});
        let listed = match state {
            HandoffState::Waiting => Some(unclaimed.clone()),
            HandoffState::Mine => of_caller.clone(),
            HandoffState::All => Some(base.clone()),
        };
        let page = async {
            match listed {
                Some(filter) => self.handoffs_in_order(filter, bounds).await,
                None => Ok(Page { items: Vec::new(), has_more: false }),
            }
        };
        let (page, waiting, mine, all) = futures::try_join!(
            page,
            self.count_sessions(Some(unclaimed)),
            self.count_sessions(of_caller),
            self.count_sessions(Some(base)),
        )?;
        Ok(HandoffPage { page, counts: HandoffCounts { waiting, mine, all } })
    }

    /// Lists handoffs that wait for an answer first, then the others. The server would put a missing time first.
    async fn handoffs_in_order(&self, filter: Document, bounds: Bounds<HandoffPlace>) -> Result<Page<Session>> {
        let Bounds { after, limit, max_bytes } = bounds;
        let (class, place) = after.map_or((0, None), |(class, place)| (class, Some(place)));
        let mut found = Page { items: Vec::new(), has_more: false };
        if class == 0 {
            let behind = place.as_ref().map(|(at, id)| behind_in_order("handoff.waiting_since", *at, id));
            let waiting = doc! {"handoff.waiting_since": {"$gt": DateTime::from_millis(0)}};
            let filter = doc! {"$and": [filter.clone(), waiting, behind.unwrap_or_default()]};
            found = self.sorted_handoffs(filter, "handoff.waiting_since", limit, max_bytes).await?;
        }
        if found.has_more {
            return Ok(found);
        }
        let behind = place.filter(|_| class > 0).map(|(at, id)| behind_in_order("handoff.since", at, &id));
        let filter = doc! {"$and": [filter, {"handoff.waiting_since": null}, behind.unwrap_or_default()]};
        // With a limit of 0 the second query says only whether there are more.
        let left = limit - found.items.len();
        let others = self.sorted_handoffs(filter, "handoff.since", left, max_bytes).await?;
        found.items.extend(others.items);
        Ok(Page { has_more: others.has_more, ..found })
    }

    async fn sorted_handoffs(
        &self,
        filter: Document,
        field: &str,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Page<Session>> {
        let collection = self.database.collection::<RawDocumentBuf>("sessions");
        let find = collection.find(filter).sort(doc! {field: 1, "_id": 1}).limit(one_more(limit));
        let find = find.projection(doc! {"history": {"$slice": -1}, "outbox": 0, "recent_jobs": 0, "profile": 0});
        if limit == 0 {
            let more = self.first(find, 1).await?;
            return Ok(Page { items: Vec::new(), has_more: !more.is_empty() });
        }
        self.page(find, limit, max_bytes).await?.try_map(|raw| read_session(&raw))
    }

    async fn count_sessions(&self, filter: Option<Document>) -> Result<u64> {
        let Some(filter) = filter else { return Ok(0) };
        let collection = self.database.collection::<Document>("sessions");
        self.in_time(collection.count_documents(filter)).await
    }
}
