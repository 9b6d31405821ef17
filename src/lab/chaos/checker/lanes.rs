//! Lanes: when all is quiet, nothing is held, nothing waits.

use super::case::Case;
use super::{Found, Promise};

pub(super) fn check(case: &Case<'_>, found: &mut Found<'_>) {
    let Some(session) = case.session else { return };
    if session.pending_seq > session.last_seq {
        let (pending, last) = (session.pending_seq, session.last_seq);
        found.broken(Promise::Lanes, format!("job {pending} waits, the lane has passed only {last}"));
    }
    if let Some(lease) = &session.lease {
        found.broken(Promise::Lanes, format!("{} holds the lane until {}", lease.owner, lease.until));
    }
    if session.turn.is_some() {
        found.broken(Promise::Lanes, "a turn was begun and not ended".to_owned());
    }
    for timer in &session.timers {
        found.broken(Promise::Timers, format!("timer {} is pending, due {}", timer.name, timer.due_at));
    }
}
