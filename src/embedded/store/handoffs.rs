//! The listing of handoffs.

use super::fault::FileFault;
use super::queries::session_name;
use super::sessions::{IDLE_FLAG, NOT_HANDED_OFF_FLAG};
use super::tables::{HISTORY, SESSIONS, decode};
use super::{history, lanes};
use redb::{ReadTransaction, ReadableTable};
use std::sync::Arc;
use storage::store::records::{HandoffCounts, HandoffPage, HandoffQuery, HandoffState, handoff_place};
use types::page::PageBuilder;
use types::session::Session;

/// Implements [`Store::handoffs`](storage::store::Store::handoffs). Decodes only the sessions that are handed off, and
/// sessions that an earlier version wrote.
pub(super) fn list(read: &ReadTransaction, query: &HandoffQuery) -> Result<HandoffPage, FileFault> {
    let (mut lanes, mut counts, mut listed) = (lanes::all(read)?, HandoffCounts::default(), Vec::new());
    for row in read.open_table(SESSIONS)?.iter()? {
        let (id, value) = row?;
        let (_, flags, first, bytes) = value.value();
        if flags & (IDLE_FLAG | NOT_HANDED_OFF_FLAG) != 0 {
            continue;
        }
        let mut session: Session = decode(|| session_name(id.value()), bytes)?;
        let Some(place) = handoff_place(&session).filter(|_| covers(query, &session)) else { continue };
        let claim = session.handoff.as_ref().and_then(|handoff| handoff.claim.as_ref());
        let is_waiting = claim.is_none();
        let is_mine = claim.is_some_and(|claim| query.by.as_ref() == Some(&claim.by));
        counts.all += 1;
        counts.waiting += u64::from(is_waiting);
        counts.mine += u64::from(is_mine);
        let is_listed = match query.state {
            HandoffState::Waiting => is_waiting,
            HandoffState::Mine => is_mine,
            HandoffState::All => true,
        };
        if is_listed && query.bounds.after.as_ref().is_none_or(|after| place > *after) {
            if let Some(lane) = lanes.remove(id.value()) {
                lane.apply_to(&mut session);
            }
            listed.push((place, bytes.len(), first, session));
        }
    }
    listed.sort_by(|one, other| one.0.cmp(&other.0));
    let said = read.open_table(HISTORY)?;
    let mut page = PageBuilder::new(query.bounds.limit, query.bounds.max_bytes);
    for (_, bytes, first, mut session) in listed {
        session.history = Arc::new(history::last(&said, &session.session_id, first)?.into_iter().collect());
        if !page.push(session, bytes) {
            break;
        }
    }
    Ok(HandoffPage { page: page.finish(), counts })
}

fn covers(query: &HandoffQuery, session: &Session) -> bool {
    query.scope.covers(&session.session_id, &session.channel, &session.agent_id)
        && query.agent_id.as_ref().is_none_or(|agent_id| session.agent_id == *agent_id)
        && query.channel.as_ref().is_none_or(|channel| session.channel == *channel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::EmbeddedFile;
    use crate::store::tables::{Tables, encode};
    use types::timestamp::Timestamp;

    #[tokio::test]
    async fn a_row_of_an_earlier_version_is_listed_and_an_idle_one_is_not_decoded() {
        let file = EmbeddedFile::in_memory().unwrap();
        let at = Timestamp::from_millis(7);
        let mut document = serde_json::to_value(Session::new("s1", at)).unwrap();
        document["handoff"] = serde_json::json!({"turn_id": "m-1", "since": at, "summary": "退款"});
        let write = move |tables: &mut Tables<'_>| {
            tables.sessions.insert("s1", (7, 0, 1, encode("it", &document)?.as_slice()))?;
            tables.sessions.insert("s2", (7, IDLE_FLAG, 1, &b"not decoded"[..]))?;
            tables.sessions.insert("s3", (7, NOT_HANDED_OFF_FLAG, 1, &b"not decoded"[..]))?;
            Ok(())
        };
        file.write(write).await.unwrap();
        let found = file.read(|read| list(read, &HandoffQuery::all(None, 10))).unwrap();
        assert_eq!(found.counts, HandoffCounts { waiting: 1, mine: 0, all: 1 });
        let handoff = found.page.items[0].handoff.as_ref().unwrap();
        assert_eq!((handoff.summary.as_str(), handoff.since, handoff.unread), ("退款", at, 0));
    }
}
