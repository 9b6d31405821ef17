//! Actions: each takes effect once, and repeated calls carry the same idempotency key.

use super::case::{Case, Of, Turn};
use super::{Found, Promise};
use crate::chaos::agents::TIMERS;
use crate::chaos::conversations;
use crate::chaos::evidence::ActionCall;
use std::collections::{BTreeMap, BTreeSet};
use types::job::JobBody;
use types::outcome::Outcome;

pub(super) fn check(case: &Case<'_>, found: &mut Found<'_>) {
    let mut due = BTreeMap::new();
    for turn in &case.turns {
        for (target, tag) in conversations::actions(&turn.lines()) {
            due.insert((Some(target.as_str()), tag.to_owned()), turn);
        }
        if follows_up(turn) {
            due.insert((None, turn.turn_id.to_owned()), turn);
        }
    }
    let mut done: BTreeMap<_, Vec<&ActionCall>> = BTreeMap::new();
    for call in &case.calls {
        let action = match &call.asked {
            Some((target, tag)) => (Some(target.as_str()), tag.clone()),
            None => (None, call.turn().1.to_owned()),
        };
        done.entry(action).or_default().push(call);
    }
    for (action, turn) in &due {
        let effects = done.get(action).is_some_and(|calls| calls.iter().any(|call| call.receipt.is_some()));
        if !effects && !turn.is_given_up() {
            found.broken(Promise::Actions, format!("action {action:?} of turn {} had no effect", turn.turn_id));
        }
    }
    for (action, calls) in &done {
        match due.get(action) {
            Some(turn) => under_one_key(turn, action, calls, found),
            None => {
                found.broken(Promise::Actions, format!("action {action:?} was called, but no message asked for it"))
            }
        }
    }
}

/// True for a turn of the timer that calls an action.
fn follows_up(turn: &Turn<'_>) -> bool {
    let Some(JobBody::Timer { name, .. }) = turn.record.map(|record| &record.job.body) else { return false };
    matches!(turn.of, Of::Timer) && *name == TIMERS[1].0 && !turn.is(Outcome::Noop)
}

fn under_one_key(
    turn: &Turn<'_>,
    action: &(Option<&'static str>, String),
    calls: &[&ActionCall],
    found: &mut Found<'_>,
) {
    let keys: BTreeSet<&str> = calls.iter().map(|call| call.key.as_str()).collect();
    let receipts: BTreeSet<&str> = calls.iter().filter_map(|call| call.receipt.as_deref()).collect();
    if keys.len() > 1 || receipts.len() > 1 {
        found.broken(
            Promise::Actions,
            format!("action {action:?} was called under {keys:?} with the receipts {receipts:?}, expected one each"),
        );
    }
    if calls.iter().any(|call| call.turn().1 != turn.turn_id) {
        found.broken(
            Promise::Actions,
            format!("action {action:?} of turn {} was called under keys of another turn: {keys:?}", turn.turn_id),
        );
    }
    found.counts().actions += u64::from(!receipts.is_empty());
    found.counts().calls_repeated += u64::try_from(calls.iter().filter(|call| call.repeated).count()).unwrap_or(0);
}
