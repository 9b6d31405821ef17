//! The rules of a lane, as functions on a session in memory: who holds the lease, and how a commit changes the session.
//!
//! Both stores apply these functions to a session that they have read or have in their cache, and then write the
//! result. The embedded store does so in one transaction. The store on MongoDB writes it by one conditional update, and
//! begins again when the condition does not hold. The history is not handled here, because the embedded store keeps it
//! in a table of its own.

use crate::store::records::{Acquire, Change, Commit, Committed, Rewind, TimerChange};
use std::sync::Arc;
use std::time::Duration;
use types::session::{Lease, OpenTurn, Session, Status, remember_jobs};
use types::timestamp::Timestamp;

/// The outcome of [`acquire`].
#[derive(Debug, PartialEq, Eq)]
pub enum AcquireOutcome {
    /// The caller holds the lane.
    Granted {
        /// True when an earlier lease holder began the turn and did not commit it.
        resumed: bool,
    },
    /// Another worker holds the lane until this time, unless it renews its lease.
    Busy(Timestamp),
    /// The job is already processed: its sequence is not above `last_seq`.
    Handled,
    /// The session's sequences belong to another stream than the request's.
    OtherStream,
}

/// The current time of the store, as far as the caller knows it: it lies between the two bounds.
#[derive(Clone, Copy, Debug)]
pub struct TimeBounds {
    /// A lower bound. It decides whether a lease has expired, so that no lease ends too early.
    pub earliest: Timestamp,
    /// An upper bound. A new lease begins here, so that it is not too short.
    pub latest: Timestamp,
}

impl From<Timestamp> for TimeBounds {
    fn from(now: Timestamp) -> Self {
        Self { earliest: now, latest: now }
    }
}

/// The epoch before the first acquisition of a session. It is a time, so that a session that begins after a deleted one
/// of the same id has only higher epochs: a former holder of the deleted session cannot write to the new one.
pub fn first_epoch(now: Timestamp) -> u64 {
    u64::try_from(now.as_millis()).unwrap_or(0)
}

/// Creates the session for a request whose session does not exist.
pub fn new_session(request: &Acquire, now: Timestamp) -> Session {
    let new = &request.new_session;
    Session {
        epoch: first_epoch(now),
        agent_id: new.agent_id.clone(),
        user_id: new.user_id.clone(),
        channel: new.channel.clone(),
        kind: new.kind,
        stream: Some(request.stream),
        ..Session::new(&request.session_id, now)
    }
}

/// Takes the lease for a request, or raises `pending_seq` when another worker holds it. Has the rules of
/// [`Store::acquire`](crate::store::Store::acquire).
pub fn acquire(session: &mut Session, request: &Acquire, time: impl Into<TimeBounds>) -> AcquireOutcome {
    let TimeBounds { earliest, latest: now } = time.into();
    if let Some(found) = &request.rewind {
        rewind(session, found, request.stream, earliest);
    }
    if session.stream.is_some_and(|stream| stream != request.stream) {
        return AcquireOutcome::OtherStream;
    }
    if request.seq <= session.last_seq {
        return AcquireOutcome::Handled;
    }
    session.pending_seq = session.pending_seq.max(request.seq);
    if let Some(lease) = &session.lease
        && earliest < lease.until
    {
        return AcquireOutcome::Busy(lease.until);
    }
    session.lease =
        Some(Lease { owner: request.owner.clone(), until: now.plus(request.lease), token: request.token.clone() });
    session.epoch += 1;
    session.updated_at = now;
    if let Some(turn) = &mut session.turn {
        turn.attempt = turn.attempt.saturating_add(1);
        return AcquireOutcome::Granted { resumed: true };
    }
    session.turn = Some(open_turn(session, request, now));
    announce(session, request);
    AcquireOutcome::Granted { resumed: false }
}

fn rewind(session: &mut Session, found: &Rewind, stream: Timestamp, now: Timestamp) {
    let held = session.lease.as_ref().is_some_and(|lease| now < lease.until);
    if held || session.stream != found.stream || session.last_seq != found.last_seq {
        return;
    }
    session.stream = Some(stream);
    session.last_seq = found.to;
    session.pending_seq = found.to;
    if let Some(turn) = &mut session.turn {
        // The turn's message is lost with its stream. If the job is published again, it finds the turn's journal and
        // starts with a full number of attempts.
        (turn.seq, turn.attempt) = (0, 0);
        turn.agent_id.clear();
        turn.hash.clear();
    }
}

fn open_turn(session: &Session, request: &Acquire, now: Timestamp) -> OpenTurn {
    let (seq, agent_id, hash) = match &request.pin {
        Some(pin) => (request.seq, pin.agent_id.clone(), pin.hash.clone()),
        None => Default::default(),
    };
    OpenTurn { seq, agent_id, hash, status: session.workflow_state.status, at: now, attempt: 1 }
}

// A turn with a cached plan starts with this status. Setting it here saves the turn a separate write.
fn announce(session: &mut Session, request: &Acquire) {
    let state = &mut session.workflow_state;
    if let Some(pin) = &request.pin
        && pin.announce
        && pin.hash == state.hash
        && matches!(state.status, Status::Ready | Status::Cancelled)
    {
        state.status = Status::Processing;
    }
}

/// Takes the lane for a deletion, also from a worker that holds it. Returns the rest of the former lease, which the
/// former holder may still use.
pub fn seize(session: &mut Session, owner: &str, lease: Duration, time: impl Into<TimeBounds>) -> Duration {
    let TimeBounds { earliest, latest: now } = time.into();
    let former = session.lease.take().map_or(Duration::ZERO, |former| earliest.until(former.until));
    let (owner, token) = (owner.to_owned(), owner.to_owned());
    session.lease = Some(Lease { owner, until: now.plus(lease), token });
    session.epoch += 1;
    session.updated_at = now;
    former
}

/// Extends the lease of `epoch` to `lease` after `now`. Returns false when the lease is lost.
pub fn renew(session: &mut Session, epoch: u64, lease: Duration, now: Timestamp) -> bool {
    match &mut session.lease {
        Some(held) if session.epoch == epoch => {
            held.until = now.plus(lease);
            true
        }
        _ => false,
    }
}

/// Releases the lease of `epoch`. Without `counts_as_attempt` the attempt does not count. Returns false when the caller
/// did not hold the lease.
pub fn release(session: &mut Session, epoch: u64, counts_as_attempt: bool, now: Timestamp) -> bool {
    if session.epoch != epoch || session.lease.is_none() {
        return false;
    }
    session.lease = None;
    session.updated_at = now;
    if let Some(turn) = &mut session.turn
        && !counts_as_attempt
    {
        turn.attempt = turn.attempt.saturating_sub(1);
    }
    true
}

/// Decrements the attempt count of the open turn that began at `begun`. Returns false when that turn is not open.
pub fn undo_attempt(session: &mut Session, begun: Timestamp) -> bool {
    match &mut session.turn {
        Some(turn) if turn.at == begun => {
            turn.attempt = turn.attempt.saturating_sub(1);
            true
        }
        _ => false,
    }
}

/// Advances the lane after a commit, and renews or releases its lease. The caller has checked the epoch and applied the
/// change.
pub fn finish(session: &mut Session, commit: &Commit, now: Timestamp) -> Committed {
    session.last_seq = session.last_seq.max(commit.last_seq);
    session.stream = Some(commit.stream);
    session.last_at = session.last_at.max(Some(commit.at));
    session.updated_at = now;
    match &mut session.lease {
        Some(held) if session.pending_seq > session.last_seq => {
            held.until = now.plus(commit.lease);
            session.turn = Some(OpenTurn {
                seq: 0,
                agent_id: String::new(),
                hash: String::new(),
                status: session.workflow_state.status,
                at: now,
                attempt: 1,
            });
            Committed::Held
        }
        _ => {
            session.lease = None;
            session.turn = None;
            Committed::Released
        }
    }
}

/// Ends a turn without a change: empties the outbox, and restores the status from before the acquisition.
pub fn finish_unchanged(session: &mut Session) {
    session.outbox.clear();
    session.outbox_unread = false;
    if let Some(turn) = &session.turn {
        session.workflow_state.status = turn.status;
    }
}

/// Applies the changes of a turn to the session. History, steps, outbox and the turn's record are stored elsewhere.
pub fn apply(session: &mut Session, change: &Change, now: Timestamp) {
    session.agent_id.clone_from(&change.agent_id);
    session.user_id.clone_from(&change.user_id);
    session.channel.clone_from(&change.channel);
    session.workflow_state.clone_from(&change.workflow_state);
    session.status_reason.clone_from(&change.status_reason);
    if let Some(profile) = &change.profile {
        session.profile.clone_from(profile);
    }
    remember_jobs(Arc::make_mut(&mut session.recent_jobs), &change.jobs);
    session.timer_generation = change.timer_generation;
    match &change.timers {
        TimerChange::Keep => {}
        TimerChange::Remove(ids) => session.timers.retain(|timer| !ids.contains(&timer.timer_id)),
        TimerChange::Exchange { removed, added } => {
            session.timers.retain(|timer| !removed.contains(&timer.timer_id));
            session.timers.extend(added.iter().cloned().map(|timer| timer.arm(now, change.timer_generation)));
        }
        TimerChange::Replace(timers) => {
            session.timers = timers.iter().cloned().map(|timer| timer.arm(now, change.timer_generation)).collect();
        }
    }
    session.closed_at = change.closed_at;
    session.handoff.clone_from(&change.handoff);
    session.tokens = change.tokens;
    session.waiting.clone_from(&change.waiting);
    session.task.clone_from(&change.task);
    session.current_workflow.clone_from(&change.current_workflow);
}

/// True while the lane has unprocessed jobs or a lease.
pub fn is_open(session: &Session) -> bool {
    session.lease.is_some() || session.turn.is_some() || session.pending_seq > session.last_seq
}

/// The end of the current lease, or else the time since which the lane has no lease holder.
pub fn free_since(session: &Session) -> Timestamp {
    session.lease.as_ref().map_or(session.updated_at, |lease| lease.until)
}

/// True when the lane has unprocessed jobs and has had no valid lease since `before`.
pub fn is_abandoned(session: &Session, before: Timestamp) -> bool {
    let work = session.turn.is_some() || session.pending_seq > session.last_seq;
    work && free_since(session) <= before
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::records::{NewSession, Pin};

    const LEASE: Duration = Duration::from_secs(6);

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn request(seq: u64, owner: &str) -> Acquire {
        Acquire {
            session_id: "s".into(),
            seq,
            stream: at(-1_000),
            rewind: None,
            job_id: format!("m-{seq}"),
            owner: owner.into(),
            token: format!("{owner}-{seq}"),
            lease: LEASE,
            new_session: NewSession::default(),
            pin: Some(Pin { agent_id: "a".into(), hash: "h".into(), announce: true }),
        }
    }

    fn done(last_seq: u64, taken_at: i64) -> Commit {
        let (stream, at) = (at(-1_000), at(taken_at));
        Commit { session_id: "s".into(), epoch: 1, last_seq, stream, at, lease: LEASE, sure_until: None, change: None }
    }

    #[test]
    fn sequences_of_another_stream_say_nothing_until_they_are_set_back() {
        let mut session = new_session(&request(7, "w1"), at(0));
        acquire(&mut session, &request(7, "w1"), at(0));
        finish(&mut session, &done(7, 5), at(1));
        assert_eq!((session.stream, session.last_at), (Some(at(-1_000)), Some(at(5))));
        let other = |seq, rewind| Acquire { stream: at(500), rewind, ..request(seq, "w2") };
        for seq in [3, 9] {
            assert_eq!(acquire(&mut session, &other(seq, None), at(2)), AcquireOutcome::OtherStream);
        }
        assert_eq!((session.last_seq, session.pending_seq, session.epoch), (7, 7, 1), "nothing has changed");
        let stale = Rewind { stream: session.stream, last_seq: 6, to: 0 };
        assert_eq!(acquire(&mut session, &other(3, Some(stale)), at(2)), AcquireOutcome::OtherStream);
        let found = Rewind { last_seq: 7, ..stale };
        assert_eq!(acquire(&mut session, &other(3, Some(found)), at(2)), AcquireOutcome::Granted { resumed: false });
        assert_eq!((session.stream, session.last_seq, session.pending_seq), (Some(at(500)), 0, 3));
        assert_eq!(acquire(&mut session, &request(8, "w1"), at(3)), AcquireOutcome::OtherStream);
    }

    #[test]
    fn a_lane_that_is_held_is_not_set_back_and_an_open_turn_loses_its_attempts() {
        let mut session = new_session(&request(7, "w1"), at(0));
        acquire(&mut session, &request(7, "w1"), at(0));
        let found = Rewind { stream: session.stream, last_seq: 0, to: 2 };
        let other = Acquire { stream: at(500), rewind: Some(found), ..request(3, "w2") };
        assert_eq!(acquire(&mut session, &other, at(5_999)), AcquireOutcome::OtherStream);
        assert_eq!(acquire(&mut session, &other, at(6_000)), AcquireOutcome::Granted { resumed: true });
        let turn = session.turn.clone().unwrap();
        assert_eq!((turn.seq, turn.attempt, turn.hash.as_str()), (0, 1, ""));
        assert_eq!((session.last_seq, session.pending_seq, session.epoch), (2, 3, 2));
    }

    #[test]
    fn a_session_that_knows_no_stream_takes_the_one_that_it_is_handled_in() {
        let mut session = new_session(&request(1, "w1"), at(0));
        session.stream = None;
        assert_eq!(acquire(&mut session, &request(1, "w1"), at(0)), AcquireOutcome::Granted { resumed: false });
        finish(&mut session, &done(1, 5), at(1));
        assert_eq!(session.stream, Some(at(-1_000)));
        session.last_at = Some(at(9));
        acquire(&mut session, &request(2, "w1"), at(1));
        finish(&mut session, &done(2, 8), at(2));
        assert_eq!(session.last_at, Some(at(9)), "the stream's clock may go back, `last_at` must not");
    }

    #[test]
    fn a_lease_ends_at_its_time_and_not_before() {
        let mut session = new_session(&request(1, "w1"), at(0));
        assert_eq!(acquire(&mut session, &request(1, "w1"), at(0)), AcquireOutcome::Granted { resumed: false });
        assert_eq!(acquire(&mut session, &request(2, "w2"), at(5_999)), AcquireOutcome::Busy(at(6_000)));
        assert_eq!(session.pending_seq, 2);
        assert_eq!(acquire(&mut session, &request(2, "w2"), at(6_000)), AcquireOutcome::Granted { resumed: true });
        assert_eq!((session.epoch, session.turn.as_ref().map(|turn| turn.attempt)), (2, Some(2)));
        assert_eq!(session.turn.as_ref().map(|turn| turn.seq), Some(1), "the marker is that of the first turn");
    }

    #[test]
    fn the_marker_keeps_the_status_from_before_the_announcement() {
        let mut session = new_session(&request(1, "w1"), at(0));
        session.workflow_state.hash = "h".into();
        session.workflow_state.status = Status::Cancelled;
        acquire(&mut session, &request(1, "w1"), at(0));
        assert_eq!(session.workflow_state.status, Status::Processing);
        assert_eq!(session.turn.map(|turn| turn.status), Some(Status::Cancelled));
    }

    #[test]
    fn a_commit_holds_the_lane_while_a_later_job_is_known() {
        let mut session = new_session(&request(1, "w1"), at(0));
        acquire(&mut session, &request(1, "w1"), at(0));
        acquire(&mut session, &request(3, "w2"), at(1));
        assert_eq!(finish(&mut session, &done(1, 0), at(2)), Committed::Held);
        assert_eq!(session.turn.as_ref().map(|turn| (turn.seq, turn.attempt)), Some((0, 1)));
        assert!(is_open(&session) && !is_abandoned(&session, at(2)) && is_abandoned(&session, at(6_003)));
        assert_eq!(finish(&mut session, &done(3, 0), at(3)), Committed::Released);
        assert!(!is_open(&session));
        assert_eq!(acquire(&mut session, &request(3, "w2"), at(4)), AcquireOutcome::Handled);
    }

    #[test]
    fn a_lane_that_was_released_with_work_is_abandoned_from_then_on() {
        let mut session = new_session(&request(1, "w1"), at(0));
        acquire(&mut session, &request(1, "w1"), at(0));
        release(&mut session, 1, true, at(2_000));
        assert!(!is_abandoned(&session, at(1_999)) && is_abandoned(&session, at(2_000)));
    }

    #[test]
    fn only_the_holder_renews_and_releases() {
        let mut session = new_session(&request(1, "w1"), at(0));
        acquire(&mut session, &request(1, "w1"), at(0));
        assert!(!renew(&mut session, 7, LEASE, at(1)) && !release(&mut session, 7, true, at(1)));
        assert!(renew(&mut session, 1, LEASE, at(1)));
        assert!(release(&mut session, 1, false, at(2)));
        assert_eq!(session.turn.as_ref().map(|turn| turn.attempt), Some(0), "released without blame");
        assert!(!renew(&mut session, 1, LEASE, at(3)), "a released lease is lost");
    }
}
