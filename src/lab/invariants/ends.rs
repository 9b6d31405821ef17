//! Checks that each turn of a conversation publishes one end, after its replies, with all its jobs.

use super::evidence::Lane;
use std::collections::BTreeSet;
use types::event::{Event, TurnEnd};
use types::session::Kind;
use types::turn::TurnRecord;

pub(super) fn check(lane: &Lane, outlived: bool) -> Vec<String> {
    // The lane of a run has no conversation: the run's last event is its end.
    if lane.session.as_ref().is_some_and(|session| session.kind == Kind::Run) {
        return Vec::new();
    }
    lane.turns.iter().flat_map(|turn| of_turn(lane, turn, outlived)).collect()
}

fn of_turn(lane: &Lane, turn: &TurnRecord, outlived: bool) -> Vec<String> {
    let id = &turn.turn_id;
    let mut found = Vec::new();
    let ends: Vec<&TurnEnd> = lane.ends().filter(|(turn_id, _)| turn_id == id).map(|(_, end)| end).collect();
    let Some(end) = ends.first() else { return vec![format!("turn {id} has published no end")] };
    // A paused worker may repeat its publication. Readers drop the repeat by its id.
    if ends.len() > 1 && !outlived {
        found.push(format!("turn {id} has published {} ends", ends.len()));
    }
    if (end.outcome, end.attempts) != (turn.outcome, turn.attempts) {
        found.push(format!("turn {id} is recorded as {:?}, but its end is {end:?}", turn.outcome));
    }
    let unnamed = lane.handled.iter().filter(|job| lane.turn_of(job) == Some(id) && !end.jobs.contains(job));
    found.extend(unnamed.map(|job| format!("turn {id} has processed job {job}, which its end does not name")));
    let replies: BTreeSet<_> =
        lane.replies().filter(|reply| reply.turn_id == *id).map(|reply| &reply.reply_id).collect();
    let (published, counted) = (replies.len(), end.replies as usize);
    // A paused worker may publish a reply after another worker has ended the turn.
    if published < counted || (published > counted && !outlived) {
        found.push(format!("turn {id} has published {published} replies, but its end counts {counted}"));
    }
    let rest = lane.events.iter().skip_while(|event| event.end().is_none_or(|(turn_id, _)| turn_id != id));
    let late = rest.filter(|event| matches!(event, Event::Reply(reply) if reply.turn_id == *id)).count();
    if late > 0 && !outlived {
        found.push(format!("turn {id} has published {late} replies after its end"));
    }
    found
}
