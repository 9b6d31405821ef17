//! Listings of sessions, with their filters.

use super::fault::FileFault;
use super::queries::session_name;
use super::tables::{HISTORY, SESSIONS, decode};
use super::{history, lanes};
use redb::{ReadTransaction, ReadableTable};
use std::sync::Arc;
use storage::store::records::{SessionPage, SessionPlace, SessionQuery};
use types::page::PageBuilder;
use types::session::{Kind, Session};
use types::timestamp::Timestamp;

/// Lists sessions, the last changed first. Reads the time of every session. Decodes only the sessions that it
/// compares with the filter, at most `max_examined`.
pub(super) fn sessions(read: &ReadTransaction, query: &SessionQuery) -> Result<SessionPage, FileFault> {
    let (table, said, mut lanes) = (read.open_table(SESSIONS)?, read.open_table(HISTORY)?, lanes::all(read)?);
    let mut order: Vec<SessionPlace> = Vec::new();
    for row in table.iter()? {
        let (id, value) = row?;
        let updated_at = match lanes.get(id.value()) {
            Some(lane) => lane.updated_at,
            None => Timestamp::from_millis(value.value().0),
        };
        if query.covers_time(updated_at) {
            order.push((updated_at, id.value().to_owned()));
        }
    }
    order.retain(|place| query.after.as_ref().is_none_or(|after| place < after));
    order.sort_unstable_by(|one, other| other.cmp(one));
    let mut page = PageBuilder::new(query.limit, query.max_bytes);
    for (_, id) in order.iter().take(query.max_examined) {
        let Some(row) = table.get(id.as_str())? else { continue };
        let (_, _, first, bytes) = row.value();
        let mut session: Session = decode(|| session_name(id), bytes)?;
        if let Some(lane) = lanes.remove(id) {
            lane.apply_to(&mut session);
        }
        if session.kind == Kind::Run || !query.covers(&session) {
            continue;
        }
        let last = if query.words.is_empty() {
            history::last(&said, id, first)?
        } else {
            let mut entries = history::entries(&said, id, first)?;
            if !query.words.occur_in(&entries) {
                continue;
            }
            entries.pop()
        };
        let size = bytes.len() + last.as_ref().map_or(0, |last| last.text.len());
        session.history = Arc::new(last.into_iter().collect());
        if !page.push(session, size) {
            break;
        }
    }
    let page = page.finish();
    let last = query.max_examined.checked_sub(1).and_then(|last| order.get(last));
    let ends_at = last.filter(|_| !page.has_more && order.len() > query.max_examined).cloned();
    Ok(SessionPage { page, ends_at })
}
