//! The insert of a session and its updates. Only changed fields are sent.
//!
//! The two updates of nearly every turn are the acquisition of a released lane ([`reacquire`]) and the commit that
//! releases it ([`commit`]). They and the renewal are guarded by the [`fence`](super::fence). All other updates, whose
//! names end in `unchanged`, have a filter with the fields of the lane, and apply only while these are as given.

use super::document::{append, empty_document, int, put, raw, sealed_fields, stamp, stamped};
use super::fence::{FenceChange, FenceTokens, require_token, statement, with_token};
use bson::raw::{CStr, cstr};
use bson::{DateTime, RawArrayBuf, RawBson, RawDocumentBuf, rawdoc};
use serde::Serialize;
use std::borrow::Cow;
use storage::store::records::{Change, Commit, TimerChange};
use storage::store::{Result, StoreError};
use types::session::{Entry, RECENT_JOBS, Session, Status};
use types::timer::{NewTimer, Timer};
use types::timestamp::Timestamp;

/// The document of a session that does not exist yet, with the lease of its first holder.
pub(super) fn new_session(session: &Session) -> Result<RawDocumentBuf> {
    let mut document = rawdoc! {"_id": session.session_id.as_str()};
    for field in raw(session)?.iter() {
        let (name, value) = field.map_err(StoreError::refused)?;
        if !matches!(name.as_str(), "session_id" | "lease") {
            document.append(name, value);
        }
    }
    append(&mut document, cstr!("lease"), &session.lease)?;
    document.append(cstr!("fence"), with_token(&FenceTokens::from_session(session).held())?);
    Ok(stamped(document))
}

/// Acquires the lane of a released session. `session` is its state after the acquisition. The update applies only if no
/// other process has held the lane since it was released.
pub(super) fn reacquire(session: &Session) -> Result<RawDocumentBuf> {
    let tokens = FenceTokens::from_session(session);
    let passage =
        FenceChange { spent: tokens.previous().left(), issued: tokens.held(), removed: tokens.previous().held() };
    let (mut set, mut unset) = (acquired(session)?, empty_document());
    if session.workflow_state.status == Status::Processing {
        set.append(cstr!("workflow_state.status"), Status::Processing.as_str());
    }
    let inc = passage.put(&mut set, &mut unset)?;
    Ok(statement(&session.session_id, rawdoc! {"$inc": inc, "$set": set, "$unset": unset}))
}

/// Acquires a lane whose session was read as `document`, which decodes to `before`. `session` is its state after the
/// acquisition.
pub(super) fn acquire_unchanged(
    document: &RawDocumentBuf,
    before: &Session,
    session: &Session,
) -> Result<RawDocumentBuf> {
    let mut set = acquired(session)?;
    if session.workflow_state.status != before.workflow_state.status {
        set.append(cstr!("workflow_state.status"), session.workflow_state.status.as_str());
    }
    set.append(cstr!("last_seq"), int(session.last_seq));
    if let Some(stream) = session.stream {
        set.append(cstr!("stream"), date(stream));
    }
    set.append(cstr!("fence"), with_token(&FenceTokens::from_session(session).held())?);
    let update = rawdoc! {"$set": set, "$unset": {"waiting_since": ""}};
    Ok(rawdoc! {"q": unchanged(document)?, "u": update})
}

/// The fields of every acquisition. `session` is its state after it.
fn acquired(session: &Session) -> Result<RawDocumentBuf> {
    let mut set = empty_document();
    set.append(cstr!("epoch"), int(session.epoch));
    set.append(cstr!("pending_seq"), int(session.pending_seq));
    append(&mut set, cstr!("lease"), &session.lease)?;
    append(&mut set, cstr!("turn"), &session.turn)?;
    Ok(set)
}

/// Tells the lease holder of another job. Without the fence, the holder's plain commit fails, so that it does not
/// release a lane with a job.
pub(super) fn request_unchanged(document: &RawDocumentBuf, session: &Session) -> Result<RawDocumentBuf> {
    let update = rawdoc! {"$set": {"pending_seq": int(session.pending_seq)}, "$unset": {"fence": ""}};
    Ok(rawdoc! {"q": unchanged(document)?, "u": update})
}

/// Releases a lane without a commit. `session` is its state after the release.
pub(super) fn release_unchanged(document: &RawDocumentBuf, session: &Session) -> Result<RawDocumentBuf> {
    let mut set = rawdoc! {"waiting_since": date(session.updated_at)};
    if session.turn.is_some() {
        append(&mut set, cstr!("turn"), &session.turn)?;
    }
    let update = rawdoc! {"$set": set, "$unset": {"lease": "", "fence": ""}};
    Ok(rawdoc! {"q": unchanged(document)?, "u": update})
}

/// The fields that decide about a lane. An update may change a session that was read only while they are the same.
const LANE_FIELDS: [&CStr; 7] = [
    cstr!("created_at"),
    cstr!("epoch"),
    cstr!("pending_seq"),
    cstr!("last_seq"),
    cstr!("stream"),
    cstr!("lease"),
    cstr!("turn"),
];

/// A filter that matches a session only while its lane is as it was read.
fn unchanged(document: &RawDocumentBuf) -> Result<RawDocumentBuf> {
    let read = |name: &CStr| document.get(name.as_str()).map_err(StoreError::refused);
    let mut filter = RawDocumentBuf::new();
    for name in [cstr!("_id")].into_iter().chain(LANE_FIELDS) {
        match read(name)? {
            Some(value) => filter.append(name, value),
            None => filter.append(name, rawdoc! {"$exists": false}),
        }
    }
    Ok(filter)
}

/// Extends a lease. The update applies only while no other worker has asked for the lane.
pub(super) fn renewal(session_id: &str, tokens: FenceTokens, until: Timestamp) -> Result<RawDocumentBuf> {
    let set = rawdoc! {"lease.until": date(until)};
    Ok(statement(session_id, rawdoc! {"$mul": require_token(&tokens.held())?, "$set": set}))
}

/// Commits `change` to the session as it was `granted`, and releases the lane. The update applies only if the lane is
/// still held under that epoch, and no other worker has asked for it.
pub(super) fn commit(commit: &Commit, change: &Change, granted: &Session, now: Timestamp) -> Result<RawDocumentBuf> {
    let tokens = FenceTokens::from_session(granted);
    let passage = FenceChange { spent: tokens.held(), issued: tokens.left(), removed: tokens.previous().left() };
    let mut update = Update::from_change(commit, change, granted, now)?;
    update.unset.append(cstr!("lease"), "");
    update.unset.append(cstr!("turn"), "");
    let inc = passage.put(&mut update.set, &mut update.unset)?;
    Ok(statement(&commit.session_id, update.into_document(Some(inc))))
}

/// Commits to the session as it was `granted`. `after` is its state after the commit, which decides whether the lane is
/// released.
pub(super) fn commit_unchanged(commit: &Commit, granted: &Session, after: &Session) -> Result<RawDocumentBuf> {
    let mut update = match &commit.change {
        Some(change) => Update::from_change(commit, change, granted, after.updated_at)?,
        None => Update::without_change(commit, granted, after),
    };
    let tokens = FenceTokens::from_session(granted);
    let token = match &after.lease {
        Some(lease) => {
            update.set.append(cstr!("lease.until"), date(lease.until));
            append(&mut update.set, cstr!("turn"), &after.turn)?;
            tokens.held()
        }
        None => {
            update.unset.append(cstr!("lease"), "");
            update.unset.append(cstr!("turn"), "");
            tokens.left()
        }
    };
    update.set.append(cstr!("fence"), with_token(&token)?);
    let filter = rawdoc! {
        "_id": commit.session_id.as_str(),
        "created_at": date(granted.created_at),
        "epoch": int(granted.epoch),
        "pending_seq": int(granted.pending_seq),
        "last_seq": int(granted.last_seq),
        "lease": {"$exists": true},
    };
    Ok(rawdoc! {"q": filter, "u": update.into_document(None)})
}

/// The operators of an update.
struct Update {
    set: RawDocumentBuf,
    unset: RawDocumentBuf,
    push: RawDocumentBuf,
    pull: RawDocumentBuf,
}

impl Update {
    /// The change of a turn to the session as it was `granted`, without its lease.
    fn from_change(commit: &Commit, change: &Change, granted: &Session, now: Timestamp) -> Result<Self> {
        let (mut set, mut unset) = (settings(change, granted, now)?, empty_document());
        let push = appended(change, granted, &mut set)?;
        append_progress(&mut set, commit, granted, now);
        match &change.handoff {
            Some(_) if granted.handoff == change.handoff => {}
            Some(handoff) => append(&mut set, cstr!("handoff"), handoff)?,
            None if granted.handoff.is_some() => unset.append(cstr!("handoff"), ""),
            None => {}
        }
        match &change.waiting {
            Some(waiting) => append(&mut set, cstr!("waiting"), waiting)?,
            None if granted.waiting.is_some() => unset.append(cstr!("waiting"), ""),
            None => {}
        }
        match &change.task {
            Some(task) => append(&mut set, cstr!("task"), task)?,
            None if granted.task.is_some() => unset.append(cstr!("task"), ""),
            None => {}
        }
        match &change.current_workflow {
            Some(workflow_id) if granted.current_workflow.as_ref() == Some(workflow_id) => {}
            Some(workflow_id) => set.append(cstr!("current_workflow"), workflow_id.as_str()),
            None if granted.current_workflow.is_some() => unset.append(cstr!("current_workflow"), ""),
            None => {}
        }
        if !change.outbox.is_empty() {
            set.append(cstr!("outbox"), array(change.outbox.iter())?);
        } else if granted.outbox_unread || !granted.outbox.is_empty() {
            unset.append(cstr!("outbox"), "");
        }
        let mut pull = RawDocumentBuf::new();
        if let TimerChange::Remove(timer_ids) = &change.timers {
            let removed: RawArrayBuf = timer_ids.iter().map(String::as_str).collect();
            pull.append(cstr!("timers"), rawdoc! {"timer_id": {"$in": removed}});
        }
        Ok(Self { set, unset, push, pull })
    }

    /// A turn that changed nothing: restores the status from before the acquisition.
    fn without_change(commit: &Commit, granted: &Session, after: &Session) -> Self {
        let mut set = rawdoc! {"workflow_state.status": after.workflow_state.status.as_str()};
        append_progress(&mut set, commit, granted, after.updated_at);
        Self { set, unset: rawdoc! {"outbox": ""}, push: RawDocumentBuf::new(), pull: RawDocumentBuf::new() }
    }

    fn into_document(self, inc: Option<RawDocumentBuf>) -> RawDocumentBuf {
        let mut update = empty_document();
        if let Some(inc) = inc {
            update.append(cstr!("$inc"), inc);
        }
        update.append(cstr!("$set"), self.set);
        let others = [(cstr!("$unset"), self.unset), (cstr!("$push"), self.push), (cstr!("$pull"), self.pull)];
        for (operator, fields) in others {
            if !fields.is_empty() {
                update.append(operator, fields);
            }
        }
        update
    }
}

/// How far the lane is processed.
fn append_progress(set: &mut RawDocumentBuf, commit: &Commit, granted: &Session, now: Timestamp) {
    set.append(cstr!("last_seq"), int(granted.last_seq.max(commit.last_seq)));
    set.append(cstr!("last_at"), date(granted.last_at.map_or(commit.at, |last_at| last_at.max(commit.at))));
    if granted.stream != Some(commit.stream) {
        set.append(cstr!("stream"), date(commit.stream));
    }
    set.append(cstr!("updated_at"), date(now));
    stamp(set);
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
    let armed = |timers: &[NewTimer]| -> Vec<Timer> {
        timers.iter().cloned().map(|timer| timer.arm(now, change.timer_generation)).collect()
    };
    let timers = match &change.timers {
        TimerChange::Replace(timers) if !(timers.is_empty() && granted.timers.is_empty()) => Some(armed(timers)),
        // The whole list, because one update cannot both remove from a list and add to it.
        TimerChange::Exchange { removed, added } => {
            let kept = granted.timers.iter().filter(|timer| !removed.contains(&timer.timer_id));
            Some(kept.cloned().chain(armed(added)).collect())
        }
        TimerChange::Replace(_) | TimerChange::Remove(_) | TimerChange::Keep => None,
    };
    if let Some(timers) = timers {
        set.append(cstr!("timers"), array(timers.into_iter().map(sealed_timer))?);
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
        Cow::Owned(metadata) => raw(&Entry { metadata: metadata.into(), ..entry.clone() }),
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
