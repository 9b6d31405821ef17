//! Replies: published once, in order, as the script expects, and as in the history.

use super::case::{Case, Of, Turn};
use super::{Found, Promise};
use crate::chaos::agents::NUDGE;
use crate::chaos::conversations::{self, GREETING, ScriptMessage, Verb};
use std::collections::HashMap;
use types::event::{Reply, ReplyKind};
use types::outcome::Outcome;
use types::session::Role;

pub(super) fn check(case: &Case<'_>, found: &mut Found<'_>) {
    let replies = distinct(case, found);
    in_order(case, &replies, found);
    as_expected(case, &replies, found);
    as_recorded(case, &replies, found);
    state(case, found);
}

/// The replies as a channel shows them: repeats under a known id are dropped.
fn distinct<'a>(case: &Case<'a>, found: &mut Found<'_>) -> Vec<&'a Reply> {
    let mut known: HashMap<&str, &Reply> = HashMap::new();
    let mut distinct = Vec::new();
    for reply in &case.replies {
        match known.insert(&reply.reply_id, reply) {
            None => distinct.push(*reply),
            Some(first) => {
                found.counts().replies_repeated += 1;
                if (&first.text, first.kind) != (&reply.text, reply.kind) {
                    let (id, first, then) = (&reply.reply_id, &first.text, &reply.text);
                    found.broken(Promise::Replies, format!("reply {id} was published as {first:?}, then as {then:?}"));
                }
            }
        }
    }
    found.counts().replies += u64::try_from(distinct.len()).unwrap_or(0);
    distinct
}

fn in_order(case: &Case<'_>, replies: &[&Reply], found: &mut Found<'_>) {
    let mut last = 0;
    for reply in replies {
        match case.turn(&reply.turn_id) {
            Some((place, _)) if place < last => {
                found.broken(
                    Promise::Order,
                    format!("reply {} was published after one of a later turn", reply.reply_id),
                );
            }
            Some((place, _)) => last = place,
            None => {
                let (id, turn_id) = (&reply.reply_id, &reply.turn_id);
                found.broken(
                    Promise::Replies,
                    format!("reply {id} belongs to turn {turn_id}, which is not in the lane"),
                );
            }
        }
    }
}

fn as_expected(case: &Case<'_>, replies: &[&Reply], found: &mut Found<'_>) {
    let mut greeted = false;
    for turn in &case.turns {
        let said: Vec<(ReplyKind, &str)> = replies
            .iter()
            .filter(|reply| reply.turn_id == turn.turn_id)
            .map(|reply| (reply.kind, said_by_all(reply)))
            .collect();
        let mut wanted = Vec::new();
        if turn.is_users() && !greeted {
            wanted.push((ReplyKind::Greeting, GREETING.to_owned()));
        }
        greeted |= said.contains(&(ReplyKind::Greeting, GREETING));
        if turn.is_given_up() {
            // The progress of the turn is unknown, but the user must have got a reply.
            let told = said
                .iter()
                .any(|(kind, _)| matches!(kind, ReplyKind::Apology | ReplyKind::Response | ReplyKind::Final));
            if turn.is_users() && !told {
                found.broken(Promise::Replies, format!("turn {} was dead-lettered without a reply", turn.turn_id));
            }
            continue;
        }
        wanted.extend(expected(case, turn));
        if !said.iter().map(|(kind, text)| (*kind, (*text).to_owned())).eq(wanted.iter().cloned()) {
            found.broken(Promise::Replies, format!("turn {} published {said:?}, expected {wanted:?}", turn.turn_id));
        }
    }
}

/// A reply's text without the number of the model call that wrote it. The history must have the number, too: see
/// [`as_recorded`].
fn said_by_all(reply: &Reply) -> &str {
    match reply.kind {
        ReplyKind::Response | ReplyKind::Final => conversations::plain(&reply.text),
        _ => &reply.text,
    }
}

/// The reply that a turn must publish in addition to the greeting.
fn expected(case: &Case<'_>, turn: &Turn<'_>) -> Option<(ReplyKind, String)> {
    match turn.of {
        Of::User(_) => {
            let lines = turn.lines();
            let receipts: Vec<String> = conversations::actions(&lines)
                .into_iter()
                .map(|(target, tag)| receipt(case, target, tag).unwrap_or_default())
                .collect();
            let by_graph = lines.iter().any(|line| line.verb == Verb::Errands);
            let kind = if by_graph { ReplyKind::Final } else { ReplyKind::Response };
            conversations::answer(&lines, &receipts).map(|text| (kind, text))
        }
        // Only the first of the two timers sends a message.
        Of::Timer if turn.is(Outcome::Answered) => Some((ReplyKind::Timer, NUDGE.to_owned())),
        Of::Timer | Of::Nobody => None,
    }
}

/// The receipt that the API returned for an action.
fn receipt(case: &Case<'_>, target: conversations::Target, tag: &str) -> Option<String> {
    let is_of = |asked: &(conversations::Target, String)| asked.0 == target && asked.1 == tag;
    case.calls.iter().filter(|call| call.asked.as_ref().is_some_and(is_of)).find_map(|call| call.receipt.clone())
}

fn as_recorded(case: &Case<'_>, replies: &[&Reply], found: &mut Found<'_>) {
    let Some(session) = case.session else { return };
    let heard: Vec<(&str, &str)> =
        case.turns.iter().flat_map(|turn| turn.sent().iter().map(|sent| (turn.turn_id, sent.text.as_str()))).collect();
    let recorded = |role: Role| {
        let entries = session.history.iter().filter(move |entry| entry.role == role);
        entries.map(|entry| (entry.turn_id.as_str(), entry.text.as_str())).collect::<Vec<_>>()
    };
    if recorded(Role::User) != heard {
        let entries = recorded(Role::User);
        found.broken(
            Promise::History,
            format!("the history has the user messages {entries:?}, but {heard:?} were sent"),
        );
    }
    // A paused worker may publish a reply after its turn was dead-lettered. The history does not have this reply.
    let given_up = |turn_id: &str| case.turn(turn_id).is_some_and(|(_, turn)| turn.is_given_up());
    let said: Vec<(&str, &str)> = replies
        .iter()
        .filter(|reply| !given_up(&reply.turn_id))
        .map(|reply| (reply.turn_id.as_str(), reply.text.as_str()))
        .collect();
    let entries: Vec<_> = recorded(Role::Assistant).into_iter().filter(|(turn_id, _)| !given_up(turn_id)).collect();
    if entries != said {
        found.broken(Promise::History, format!("the history has the replies {entries:?}, but {said:?} were published"));
    }
}

/// Checks the effects of the silent actions on the session: profile and closing.
fn state(case: &Case<'_>, found: &mut Found<'_>) {
    let Some(session) = case.session else { return };
    let lines: Vec<ScriptMessage> =
        case.turns.iter().filter(|turn| !turn.is_given_up()).flat_map(Turn::lines).collect();
    let noted = lines.iter().rev().find(|line| line.verb == Verb::Note).map(|line| line.tag.as_str());
    let profile = session.profile.get("note").and_then(|note| note.as_str());
    if noted != profile {
        found.broken(Promise::Actions, format!("the profile has the note {profile:?}, expected {noted:?}"));
    }
    let last = case.turns.iter().rev().find(|turn| turn.is_users());
    let closes = last.is_some_and(|turn| turn.lines().iter().any(|line| line.verb == Verb::Bye));
    if session.closed_at.is_some() != closes && last.is_some_and(|turn| !turn.is_given_up()) {
        found.broken(
            Promise::Actions,
            format!("conversation closed: {}, expected {closes}", session.closed_at.is_some()),
        );
    }
}
