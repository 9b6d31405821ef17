//! The commit as an update with a pipeline. For sessions that are not in the cache, and for commits that keep the lane;
//! [`super::update_ops`] has the common case.

use super::document::{date, int, literal, millis, sealed_fields, to_document};
use super::update_ops::entries;
use bson::{Bson, Document, RawBson, doc};
use storage::store::records::{Change, Commit, TimerChange};
use storage::store::{Result, StoreError};
use types::session::{Entry, RECENT_JOBS};
use types::timer::NewTimer;

/// Whether a commit releases the lane or keeps it. Each case has a statement of its own; the one that matches shows
/// which case it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterCommit {
    /// The commit releases the lane: no later job is known.
    Released,
    /// The commit keeps the lane for the next job.
    Held,
}

/// The update statement of one commit. It is an upsert, so that it fails when it matches nothing: the epoch is stale,
/// the lease was released, the session was deleted, or the other case of [`AfterCommit`] applies.
pub(super) fn statement(item: &Commit, after: AfterCommit) -> Result<Document> {
    let pending = match after {
        AfterCommit::Released => doc! {"$lte": int(item.last_seq)},
        AfterCommit::Held => doc! {"$gt": int(item.last_seq)},
    };
    let filter = doc! {
        "_id": &item.session_id,
        "epoch": int(item.epoch),
        "lease": {"$exists": true},
        "pending_seq": pending,
    };
    Ok(doc! {"q": filter, "u": pipeline(item, after)?, "upsert": true})
}

fn pipeline(item: &Commit, after: AfterCommit) -> Result<Vec<Document>> {
    let mut changes = match &item.change {
        Some(change) => changes(change)?,
        // The turn changed nothing: restore the status from before the acquisition.
        None => {
            let status = doc! {"$ifNull": ["$turn.status", "$workflow_state.status"]};
            doc! {"workflow_state.status": status, "outbox": "$$REMOVE"}
        }
    };
    changes.insert("last_seq", doc! {"$max": ["$last_seq", int(item.last_seq)]});
    changes.insert("stream", date(item.stream));
    changes.insert("last_at", doc! {"$max": ["$last_at", date(item.at)]});
    changes.insert("waiting_since", "$$REMOVE");
    changes.insert("updated_at", "$$NOW");
    changes.insert("fence", "$$REMOVE");
    let until = doc! {"$add": ["$$NOW", millis(item.lease)]};
    let next = doc! {"seq": 0_i64, "agent_id": "", "hash": "", "status": "$workflow_state.status", "at": "$$NOW", "attempt": 1};
    let lane = match after {
        AfterCommit::Released => doc! {"$unset": ["_known", "lease", "turn"]},
        AfterCommit::Held => doc! {"$set": {"lease.until": until, "turn": next, "_known": "$$REMOVE"}},
    };
    // The division by zero makes the upsert fail, instead of creating a session that was deleted.
    let known = doc! {"$divide": [1, {"$cond": [{"$gt": ["$created_at", Bson::Null]}, 1, 0]}]};
    Ok(vec![doc! {"$set": {"_known": known}}, doc! {"$set": changes}, lane])
}

fn changes(change: &Change) -> Result<Document> {
    let mut set = doc! {
        "agent_id": literal(change.agent_id.clone()),
        "user_id": literal(change.user_id.clone()),
        "channel": literal(change.channel.clone()),
        "workflow_state": literal(to_document(&change.workflow_state)?),
        "status_reason": literal(change.status_reason.clone()),
        "timer_generation": int(change.timer_generation),
        "closed_at": change.closed_at.map_or(Bson::Null, date),
        "tokens": int(change.tokens),
        "recent_jobs": {"$slice": [{"$concatArrays": ["$recent_jobs", literal(change.jobs.clone())]}, -i64::try_from(RECENT_JOBS).unwrap_or(100)]},
        "handoff": match &change.handoff {
            Some(handoff) => literal(to_document(handoff)?),
            None => "$$REMOVE".into(),
        },
        "waiting": match &change.waiting {
            Some(waiting) => literal(to_document(waiting)?),
            None => "$$REMOVE".into(),
        },
        "outbox": outbox(change)?.map_or_else(|| "$$REMOVE".into(), literal),
    };
    if !change.history.is_empty() || change.history_drop > 0 {
        set.insert("history", history(&change.history, change.history_drop)?);
    }
    if let Some(profile) = &change.profile {
        set.insert("profile", literal(to_document(sealed_fields(profile).as_ref())?));
    }
    match &change.timers {
        TimerChange::Keep => {}
        TimerChange::Remove(timer_ids) => {
            let others = doc! {"$not": [{"$in": ["$$timer.timer_id", literal(timer_ids.clone())]}]};
            set.insert("timers", doc! {"$filter": {"input": "$timers", "as": "timer", "cond": others}});
        }
        TimerChange::Replace(timers) => {
            let armed = timers.iter().map(|timer| armed(timer, change.timer_generation)).collect::<Result<Vec<_>>>()?;
            set.insert("timers", armed);
        }
    }
    Ok(set)
}

fn outbox(change: &Change) -> Result<Option<Vec<Document>>> {
    let events = change.outbox.iter().map(to_document).collect::<Result<Vec<_>>>()?;
    Ok(Some(events).filter(|events| !events.is_empty()))
}

fn history(added: &[Entry], drop: usize) -> Result<Bson> {
    let entries = Bson::try_from(RawBson::Array(entries(added)?));
    let entries = entries.map_err(|error| StoreError::Refused(error.to_string()))?;
    let all = doc! {"$concatArrays": ["$history", literal(entries)]};
    let drop = i64::try_from(drop).unwrap_or(0);
    Ok(if drop == 0 { all.into() } else { doc! {"$slice": [all, drop, 1_000_000]}.into() })
}

/// A timer whose due time counts from the server's time of the commit.
fn armed(timer: &NewTimer, generation: u64) -> Result<Bson> {
    let action = match timer.action.clone() {
        Some(mut action) => {
            action.params = sealed_fields(&action.params).into_owned();
            literal(to_document(&action)?)
        }
        None => Bson::Null,
    };
    let mut armed = doc! {
        "timer_id": literal(timer.timer_id.clone()),
        "name": literal(timer.name.clone()),
        "due_at": {"$add": ["$$NOW", millis(timer.delay)]},
        "generation": int(generation),
        "action": action,
        "message": literal(timer.message.clone()),
    };
    if let Some(traceparent) = &timer.traceparent {
        armed.insert("traceparent", literal(traceparent.clone()));
    }
    Ok(armed.into())
}
