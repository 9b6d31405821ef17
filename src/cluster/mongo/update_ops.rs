//! Updates of a session whose content is known, with plain operators: the insert, and the two updates of nearly every
//! later turn. These two are the acquisition of a released lane, and the commit that releases it. Only changed fields
//! are sent. [`super::fence`] makes each update apply at most once.

use super::document::{append, empty_document, int, put, raw, sealed_fields};
use super::fence::{FenceChange, FenceTokens, require_token, statement};
use bson::raw::cstr;
use bson::{DateTime, RawArrayBuf, RawBson, RawDocumentBuf, rawdoc};
use serde::Serialize;
use std::borrow::Cow;
use storage::store::records::{Change, Commit, TimerChange};
use storage::store::{Result, StoreError};
use types::session::{Entry, RECENT_JOBS, Session, Status};
use types::timer::Timer;
use types::timestamp::Timestamp;

/// The document of a session that does not exist yet, with the lease of its first holder.
pub(super) fn new_session(session: &Session) -> Result<RawDocumentBuf> {
    let mut document = rawdoc! {"_id": session.session_id.as_str()};
    for field in raw(session)?.iter() {
        let (name, value) = field.map_err(|error| StoreError::Refused(error.to_string()))?;
        if !matches!(name.as_str(), "session_id" | "lease") {
            document.append(name, value);
        }
    }
    document.append(cstr!("lease"), lease(session)?);
    let (mut fence, mut token) = (RawDocumentBuf::new(), RawArrayBuf::new());
    token.push(0_i64);
    put(&mut fence, &FenceTokens::from_session(session).held(), token)?;
    document.append(cstr!("fence"), fence);
    Ok(document)
}

fn lease(session: &Session) -> Result<RawDocumentBuf> {
    let mut lease = raw(&session.lease)?;
    lease.append(cstr!("resumed"), false);
    Ok(lease)
}

/// Acquires the lane of a released session. `session` is its state after the acquisition. The update applies only if no
/// other process has held the lane since it was released.
pub(super) fn reacquire(session: &Session) -> Result<RawDocumentBuf> {
    let tokens = FenceTokens::from_session(session);
    let passage =
        FenceChange { spent: tokens.previous().left(), issued: tokens.held(), removed: tokens.previous().held() };
    let (mut set, mut unset) = (empty_document(), RawDocumentBuf::new());
    set.append(cstr!("epoch"), int(session.epoch));
    set.append(cstr!("pending_seq"), int(session.pending_seq));
    set.append(cstr!("lease"), lease(session)?);
    append(&mut set, cstr!("turn"), &session.turn)?;
    if session.workflow_state.status == Status::Processing {
        set.append(cstr!("workflow_state.status"), Status::Processing.as_str());
    }
    let inc = passage.put(&mut set, &mut unset)?;
    Ok(statement(&session.session_id, rawdoc! {"$inc": inc, "$set": set, "$unset": unset}))
}

/// Extends a lease. The update applies only while no other worker has asked for the lane.
pub(super) fn renewal(session_id: &str, tokens: FenceTokens, until: Timestamp) -> Result<RawDocumentBuf> {
    let set = rawdoc! {"lease.until": date(until)};
    Ok(statement(session_id, rawdoc! {"$mul": require_token(&tokens.held())?, "$set": set}))
}

/// True when, as far as this process knows, the commit can release the lane.
pub(super) fn can_release(commit: &Commit, granted: &Session) -> bool {
    granted.pending_seq <= commit.last_seq
}

/// Commits `change` to the session as it was `granted`, and releases the lane. The update applies only if the lane is
/// still held under that epoch, and no other worker has asked for it.
pub(super) fn commit(commit: &Commit, change: &Change, granted: &Session, now: Timestamp) -> Result<RawDocumentBuf> {
    let tokens = FenceTokens::from_session(granted);
    let passage = FenceChange { spent: tokens.held(), issued: tokens.left(), removed: tokens.previous().left() };
    let mut set = settings(change, granted, now)?;
    let push = appended(change, granted, &mut set)?;
    set.append(cstr!("last_seq"), int(granted.last_seq.max(commit.last_seq)));
    set.append(cstr!("last_at"), date(granted.last_at.map_or(commit.at, |last_at| last_at.max(commit.at))));
    if granted.stream != Some(commit.stream) {
        set.append(cstr!("stream"), date(commit.stream));
    }
    set.append(cstr!("updated_at"), date(now));
    let mut unset = rawdoc! {"lease": "", "turn": ""};
    match &change.handoff {
        Some(handoff) => append(&mut set, cstr!("handoff"), handoff)?,
        None if granted.handoff.is_some() => unset.append(cstr!("handoff"), ""),
        None => {}
    }
    match &change.waiting {
        Some(waiting) => append(&mut set, cstr!("waiting"), waiting)?,
        None if granted.waiting.is_some() => unset.append(cstr!("waiting"), ""),
        None => {}
    }
    if !change.outbox.is_empty() {
        set.append(cstr!("outbox"), array(change.outbox.iter())?);
    } else if granted.outbox_unread || !granted.outbox.is_empty() {
        unset.append(cstr!("outbox"), "");
    }
    let inc = passage.put(&mut set, &mut unset)?;
    let mut update = empty_document();
    update.append(cstr!("$inc"), inc);
    update.append(cstr!("$set"), set);
    update.append(cstr!("$unset"), unset);
    if !push.is_empty() {
        update.append(cstr!("$push"), push);
    }
    if let TimerChange::Remove(timer_ids) = &change.timers {
        let removed: RawArrayBuf = timer_ids.iter().map(String::as_str).collect();
        update.append(cstr!("$pull"), rawdoc! {"timers": {"timer_id": {"$in": removed}}});
    }
    Ok(statement(&commit.session_id, update))
}

/// The fields that get a new value.
fn settings(change: &Change, granted: &Session, now: Timestamp) -> Result<RawDocumentBuf> {
    let mut set = empty_document();
    let texts = [
        ("agent_id", &change.agent_id, &granted.agent_id),
        ("user_id", &change.user_id, &granted.user_id),
        ("channel", &change.channel, &granted.channel),
    ];
    for (name, new, _) in texts.into_iter().filter(|(_, new, old)| new != old) {
        put(&mut set, name, new.as_str())?;
    }
    // Always sent, because the status in the document may have changed during the turn.
    append(&mut set, cstr!("workflow_state"), &change.workflow_state)?;
    if change.status_reason != granted.status_reason {
        let reason = change.status_reason.clone().map_or(RawBson::Null, RawBson::String);
        set.append(cstr!("status_reason"), reason);
    }
    if change.timer_generation != granted.timer_generation {
        set.append(cstr!("timer_generation"), int(change.timer_generation));
    }
    if change.closed_at != granted.closed_at {
        set.append(cstr!("closed_at"), change.closed_at.map_or(RawBson::Null, |at| date(at).into()));
    }
    if change.tokens != granted.tokens {
        set.append(cstr!("tokens"), int(change.tokens));
    }
    if let Some(profile) = &change.profile {
        append(&mut set, cstr!("profile"), &sealed_fields(profile))?;
    }
    if let TimerChange::Replace(timers) = &change.timers
        && !(timers.is_empty() && granted.timers.is_empty())
    {
        let armed = timers.iter().cloned().map(|timer| timer.arm(now, change.timer_generation));
        set.append(cstr!("timers"), array(armed.map(sealed_timer))?);
    }
    Ok(set)
}

/// Adds the history entries to `set`, or returns them for `$push` together with the job ids. When no old entry is
/// dropped, the new ones are set at their positions, which costs the server a third less than a push.
fn appended(change: &Change, granted: &Session, set: &mut RawDocumentBuf) -> Result<RawDocumentBuf> {
    let mut push = empty_document();
    if !change.jobs.is_empty() {
        let kept = i64::try_from(RECENT_JOBS).unwrap_or(100);
        let jobs: RawArrayBuf = change.jobs.iter().map(String::as_str).collect();
        push.append(cstr!("recent_jobs"), rawdoc! {"$each": jobs, "$slice": -kept});
    }
    let (before, dropped) = (granted.history.len(), change.history_drop);
    // An empty history may be a missing field, and setting a position would then create an object instead of an array.
    if dropped == 0 && before > 0 {
        for (place, entry) in (before..).zip(&change.history) {
            put(set, &format!("history.{place}"), stored_entry(entry)?)?;
        }
    } else if dropped > 0 || !change.history.is_empty() {
        let mut history = rawdoc! {"$each": entries(&change.history)?};
        if dropped > 0 {
            let kept = (before + change.history.len()).saturating_sub(dropped);
            history.append(cstr!("$slice"), -i64::try_from(kept).unwrap_or(0));
        }
        push.append(cstr!("history"), history);
    }
    Ok(push)
}

/// Encodes history entries.
pub(super) fn entries(added: &[Entry]) -> Result<RawArrayBuf> {
    let mut entries = RawArrayBuf::new();
    for entry in added {
        entries.push(stored_entry(entry)?);
    }
    Ok(entries)
}

fn stored_entry(entry: &Entry) -> Result<RawDocumentBuf> {
    match sealed_fields(&entry.metadata) {
        Cow::Borrowed(_) => raw(entry),
        Cow::Owned(metadata) => raw(&Entry { metadata, ..entry.clone() }),
    }
}

fn sealed_timer(mut timer: Timer) -> Timer {
    if let Some(action) = &mut timer.action {
        action.params = sealed_fields(&action.params).into_owned();
    }
    timer
}

fn array<T: Serialize>(items: impl Iterator<Item = T>) -> Result<RawArrayBuf> {
    let mut array = RawArrayBuf::new();
    for item in items {
        array.push(raw(&item)?);
    }
    Ok(array)
}

fn date(at: Timestamp) -> DateTime {
    DateTime::from_millis(at.as_millis())
}
