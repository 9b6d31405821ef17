//! Status events: legal transitions without gaps, which end in the session's status.

use super::case::Case;
use super::{Found, Promise};
use std::collections::HashSet;
use types::session::Status;

pub(super) fn check(case: &Case<'_>, found: &mut Found<'_>) {
    let mut known = HashSet::new();
    let (mut status, mut place) = (Status::Ready, 0);
    for seen in case.statuses.iter().filter(|seen| known.insert(seen.id.as_str())) {
        let event = &seen.event;
        if event.previous != status {
            found.broken(
                Promise::Statuses,
                format!("{}: the previous status is {}, expected {status}", seen.id, event.previous),
            );
        }
        if let Err(illegal) = event.previous.check(event.status) {
            found.broken(Promise::Statuses, format!("{}: {illegal}", seen.id));
        }
        match case.turn(&event.turn_id) {
            Some((at, _)) if at < place => {
                found.broken(
                    Promise::Order,
                    format!("status event {} was published after one of a later turn", seen.id),
                );
            }
            Some((at, _)) => place = at,
            None => found.broken(
                Promise::Statuses,
                format!("status event {} belongs to a turn that is not in the lane", seen.id),
            ),
        }
        status = event.status;
    }
    let shown = case.session.map_or(Status::Ready, |session| session.workflow_state.status);
    if shown != status {
        found.broken(
            Promise::Statuses,
            format!("the session has the status {shown}, but the last event reported {status}"),
        );
    }
    as_recorded(case, found);
}

fn as_recorded(case: &Case<'_>, found: &mut Found<'_>) {
    for turn in &case.turns {
        let Some(record) = turn.record else { continue };
        let mut known = HashSet::new();
        let seen = case.statuses.iter().filter(|seen| seen.event.turn_id == turn.turn_id);
        let seen: Vec<Status> = seen.filter(|seen| known.insert(&seen.id)).map(|seen| seen.event.status).collect();
        let recorded: Vec<Status> = record.statuses.iter().map(|status| status.status).collect();
        // A paused worker may publish a status after its turn was dead-lettered. The record does not have this status.
        if seen != recorded && !(turn.is_given_up() && seen.last() == recorded.last()) {
            found
                .broken(Promise::Statuses, format!("turn {}: published {seen:?}, recorded {recorded:?}", turn.turn_id));
        }
        if seen.last().is_some_and(|last| !matches!(last, Status::Ready | Status::Cancelled)) {
            found.broken(
                Promise::Statuses,
                format!("turn {} did not end in ready or cancelled: {seen:?}", turn.turn_id),
            );
        }
    }
}
