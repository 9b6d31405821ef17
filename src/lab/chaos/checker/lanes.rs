//! Lanes: at the end of a run no lane has a lease, waiting jobs or armed timers.

use super::case::Case;
use super::{Found, Promise};

pub(super) fn check(case: &Case<'_>, found: &mut Found<'_>) {
    let Some(session) = case.session else { return };
    if session.pending_seq > session.last_seq {
        let (pending, last) = (session.pending_seq, session.last_seq);
        found.broken(Promise::Lanes, format!("job {pending} is waiting, but the lane is processed only up to {last}"));
    }
    if let Some(lease) = &session.lease {
        found.broken(Promise::Lanes, format!("{} still holds the lease, until {}", lease.owner, lease.until));
    }
    if session.turn.is_some() {
        found.broken(Promise::Lanes, "a turn has begun and not ended".to_owned());
    }
    for timer in &session.timers {
        found.broken(Promise::Timers, format!("timer {} is still armed, due {}", timer.name, timer.due_at));
    }
}
