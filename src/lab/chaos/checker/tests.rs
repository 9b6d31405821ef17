//! For each promise: the checker accepts a faultless run, and finds the violation in a run that breaks the promise.

mod world;

use super::{Counts, Promise, check};
use crate::chaos::agents::Manner;
use crate::chaos::facts::{Call, Facts, Sent};
use crate::chaos::talk::{self, Verb};
use std::sync::Arc;
use types::cause::Cause;
use types::event::Reply;
use types::job::JobBody;
use types::session::{Lease, Status};
use types::timestamp::Timestamp;
use types::turn::{Outcome, TurnRecord};
use world::{World, bad_job, broken, letter, merging, plain, timed};

#[test]
fn a_faultless_run_is_found_faultless_and_counted() {
    for facts in [plain(), timed(), merging()] {
        assert_eq!(check(&facts).violations, []);
    }
    let counts = check(&merging()).counts;
    let wanted = Counts { sessions: 1, turns: 2, merged: 2, replies: 3, actions: 2, ..Counts::default() };
    assert_eq!(counts, wanted);
    let findings = check(&timed());
    assert_eq!((findings.counts.timers_fired, findings.counts.timers_cancelled, findings.lateness.len()), (3, 1, 3));
}

#[test]
fn a_lost_message_is_found() {
    let never_handled = |facts: &mut Facts| {
        let lost = Sent { job_id: "c1-9".into(), text: "say #c1-9".into(), ..facts.sent[0].clone() };
        facts.sent.push(lost);
    };
    assert_eq!(broken(plain(), never_handled), [Promise::NothingLost]);
    let without_record = |facts: &mut Facts| drop(facts.turns.remove(1));
    assert!(broken(plain(), without_record).contains(&Promise::NothingLost));
    let whole_session = |facts: &mut Facts| drop(facts.sessions.pop());
    assert!(broken(plain(), whole_session).contains(&Promise::NothingLost));
    assert_eq!(broken(plain(), |facts| facts.bad.push(bad_job(1))), [Promise::NothingLost]);
}

#[test]
fn a_message_that_was_never_acknowledged_may_be_lost() {
    let refused = |facts: &mut Facts| {
        facts.sent.push(Sent { job_id: "c1-9".into(), accepted: false, ..facts.sent[0].clone() });
    };
    assert_eq!(broken(plain(), refused), []);
}

#[test]
fn a_second_turn_for_a_job_is_found() {
    let handled_again = |facts: &mut Facts| {
        let again = facts.sessions[0].recent_jobs[1].clone();
        Arc::make_mut(&mut facts.sessions[0].recent_jobs).push(again);
    };
    assert!(broken(plain(), handled_again).contains(&Promise::NothingTwice));
    let stranger = |facts: &mut Facts| Arc::make_mut(&mut facts.sessions[0].recent_jobs).push("c1-77".into());
    assert!(broken(plain(), stranger).contains(&Promise::NothingTwice));
    let not_in_lane = |facts: &mut Facts| {
        facts.turns.push(TurnRecord { turn_id: "c1-77".into(), ..facts.turns[0].clone() });
    };
    assert_eq!(broken(plain(), not_in_lane), [Promise::NothingTwice]);
    let written_late = |facts: &mut Facts| facts.turns[0].committed_at = Timestamp::from_millis(1_000_000);
    assert_eq!(broken(plain(), written_late), [Promise::NothingTwice]);
}

#[test]
fn a_wrong_order_is_found() {
    let turns_swapped = |facts: &mut Facts| Arc::make_mut(&mut facts.sessions[0].recent_jobs).swap(1, 3);
    assert!(broken(plain(), turns_swapped).contains(&Promise::Order));
    let replies_swapped = |facts: &mut Facts| facts.replies.swap(1, 2);
    assert!(broken(plain(), replies_swapped).contains(&Promise::Order));
    let status_late = |facts: &mut Facts| {
        let first = facts.statuses.remove(0);
        facts.statuses.push(first);
    };
    assert!(broken(plain(), status_late).contains(&Promise::Order));
}

#[test]
fn a_missing_wrong_or_second_reply_is_found() {
    assert!(broken(plain(), |facts| drop(facts.replies.remove(2))).contains(&Promise::Replies));
    assert!(broken(plain(), |facts| facts.replies[2].text = "nonsense".into()).contains(&Promise::Replies));
    let greeted_again = |facts: &mut Facts| {
        let again = Reply { turn_id: "c1-3".into(), reply_id: "c1/c1-3/greet".into(), ..facts.replies[0].clone() };
        facts.replies.push(again);
    };
    assert!(broken(plain(), greeted_again).contains(&Promise::Replies));
    let cancelled = |facts: &mut Facts| facts.turns[1].outcome = Outcome::Cancelled;
    assert!(broken(plain(), cancelled).contains(&Promise::Replies));
}

#[test]
fn a_reply_under_a_known_id_counts_once_unless_it_says_something_else() {
    let repeated = |facts: &mut Facts| facts.replies.push(facts.replies[1].clone());
    assert_eq!(broken(plain(), repeated), []);
    let differing = |facts: &mut Facts| {
        facts.replies.push(Reply { text: "something else".into(), ..facts.replies[1].clone() });
    };
    assert_eq!(broken(plain(), differing), [Promise::Replies]);
}

#[test]
fn a_history_that_differs_from_what_was_said_is_found() {
    let twice = |facts: &mut Facts| {
        let entry = facts.sessions[0].history[0].clone();
        Arc::make_mut(&mut facts.sessions[0].history).insert(1, entry);
    };
    assert_eq!(broken(plain(), twice), [Promise::History]);
    let missing = |facts: &mut Facts| drop(Arc::make_mut(&mut facts.sessions[0].history).pop());
    assert_eq!(broken(plain(), missing), [Promise::History]);
}

#[test]
fn an_action_left_out_or_done_twice_is_found() {
    let left_out = |facts: &mut Facts| facts.calls[0].receipt = None;
    assert!(broken(plain(), left_out).contains(&Promise::Actions));
    let other_key = |facts: &mut Facts| {
        let again = Call { key: "c1/c1-1/7/act".into(), receipt: Some("order-99".into()), ..facts.calls[0].clone() };
        facts.calls.push(again);
    };
    assert_eq!(broken(plain(), other_key), [Promise::Actions]);
    let other_turn = |facts: &mut Facts| facts.calls[0].key = "c1/c1-3/0/act".into();
    assert_eq!(broken(plain(), other_turn), [Promise::Actions]);
    let unasked = |facts: &mut Facts| {
        let asked = Some((talk::Target::Eta, "c1-0".to_owned()));
        facts.calls.push(Call { key: "c1/c1-0/0/act".into(), asked, ..facts.calls[0].clone() });
    };
    assert_eq!(broken(plain(), unasked), [Promise::Actions]);
    let not_noted = |facts: &mut Facts| facts.sessions[0].profile.clear();
    assert_eq!(broken(plain(), not_noted), [Promise::Actions]);
    let not_closed = |facts: &mut Facts| facts.sessions[0].closed_at = None;
    assert_eq!(broken(World::new("c1", Manner::Plain).turn(&[Verb::Bye]).facts(), not_closed), [Promise::Actions]);
    let no_follow_up = |facts: &mut Facts| facts.calls.clear();
    assert_eq!(broken(timed(), no_follow_up), [Promise::Actions]);
}

#[test]
fn an_action_again_under_its_key_is_counted_and_no_more() {
    let mut facts = plain();
    facts.calls.push(Call { repeated: true, ..facts.calls[0].clone() });
    let findings = check(&facts);
    assert_eq!((findings.violations.len(), findings.counts.calls_repeated), (0, 1));
}

#[test]
fn an_illegal_or_missing_status_is_found() {
    let illegal = |facts: &mut Facts| {
        facts.statuses[1].event.status = Status::Transferred;
        facts.statuses[2].event.previous = Status::Transferred;
        facts.statuses[2].event.status = Status::Typing;
    };
    assert!(broken(plain(), illegal).contains(&Promise::Statuses));
    assert!(broken(plain(), |facts| drop(facts.statuses.remove(1))).contains(&Promise::Statuses));
    let document = |facts: &mut Facts| facts.sessions[0].workflow_state.status = Status::Typing;
    assert_eq!(broken(plain(), document), [Promise::Statuses]);
    let record = |facts: &mut Facts| assert!(facts.turns[0].statuses.pop().is_some());
    assert_eq!(broken(plain(), record), [Promise::Statuses]);
}

fn due(facts: &mut Facts, turn: usize, shift: i64) {
    if let JobBody::Timer { due_at, .. } = &mut facts.turns[turn].job.body {
        *due_at = Timestamp::from_millis(due_at.as_millis() + shift);
    }
}

#[test]
fn an_early_missing_cancelled_or_second_timer_is_found() {
    assert_eq!(
        broken(timed(), |facts| due(facts, 1, 50)),
        [Promise::Timers],
        "the timer took effect before it was due"
    );
    assert_eq!(
        broken(timed(), |facts| due(facts, 1, -4_900)),
        [Promise::Timers],
        "the timer was due before its delay had passed"
    );
    let cancelled = World::new("c2", Manner::Timed)
        .turn(&[Verb::Say])
        .timer(0, Outcome::Answered)
        .timer(1, Outcome::Silent)
        .facts();
    let after_user = |facts: &mut Facts| Arc::make_mut(&mut facts.sessions[0].recent_jobs).swap(0, 1);
    assert!(broken(cancelled.clone(), after_user).contains(&Promise::Timers));
    let not_fired = |facts: &mut Facts| {
        Arc::make_mut(&mut facts.sessions[0].recent_jobs).pop();
        facts.turns.pop();
        facts.calls.pop();
    };
    assert!(broken(cancelled.clone(), not_fired).contains(&Promise::Timers));
    let pending = |facts: &mut Facts| {
        let (due_at, name) = (Timestamp::from_millis(0), "nudge".to_owned());
        let timer_id = "t".to_owned();
        let timer = types::timer::Timer {
            timer_id,
            name,
            due_at,
            generation: 1,
            action: None,
            message: None,
            traceparent: None,
        };
        facts.sessions[0].timers.push(timer);
    };
    assert_eq!(broken(cancelled, pending), [Promise::Timers]);
    let closed = World::new("c2", Manner::Timed).turn(&[Verb::Bye]).facts();
    assert_eq!(check(&closed).violations, [], "closing the conversation cancels its timers");
}

#[test]
fn a_timer_that_found_itself_cancelled_is_no_violation() {
    let facts = World::new("c2", Manner::Timed).turn(&[Verb::Bye]).timer(0, Outcome::Noop).facts();
    assert_eq!(check(&facts).violations, []);
}

#[test]
fn work_left_behind_is_found() {
    assert_eq!(broken(plain(), |facts| facts.jobs_left = 1), [Promise::Lanes]);
    assert_eq!(broken(plain(), |facts| facts.sessions[0].pending_seq = 9), [Promise::Lanes]);
    let lease = |facts: &mut Facts| {
        let until = Timestamp::from_millis(0);
        facts.sessions[0].lease = Some(Lease { owner: "worker-1".into(), until, token: String::new() });
    };
    assert_eq!(broken(plain(), lease), [Promise::Lanes]);
    assert_eq!(broken(plain(), |facts| facts.troubles.push("a worker ended".into())), [Promise::Processes]);
}

#[test]
fn dead_letters_are_held_to_what_was_sent() {
    let buried = |facts: &mut Facts| {
        facts.bad.push(bad_job(1));
        facts.letters.push(letter(None, Cause::Invalid, "{"));
    };
    assert_eq!(broken(plain(), buried), []);
    let twice = |facts: &mut Facts| {
        facts.bad.push(bad_job(1));
        facts.letters.extend([letter(None, Cause::Invalid, "{"), letter(None, Cause::Invalid, "{")]);
    };
    assert_eq!(broken(plain(), twice), [Promise::DeadLetters]);
    let other_cause = |facts: &mut Facts| {
        facts.bad.push(bad_job(1));
        facts.letters.push(letter(None, Cause::UnknownAgent, "{"));
    };
    assert_eq!(broken(plain(), other_cause), [Promise::DeadLetters]);
    let good = |facts: &mut Facts| facts.letters.push(letter(Some("c1-0"), Cause::Invalid, "say"));
    assert_eq!(broken(plain(), good), [Promise::DeadLetters]);
    let unknown = |facts: &mut Facts| facts.letters.push(letter(None, Cause::Invalid, "?"));
    assert_eq!(broken(plain(), unknown), [Promise::DeadLetters]);
}

#[test]
fn a_message_given_up_has_a_dead_letter_and_an_apology() {
    let given_up = |facts: &mut Facts| {
        facts.turns[1].outcome = Outcome::Cancelled;
        facts.turns[1].reason = Some("attempts: too many".into());
        facts.letters.push(letter(Some("c1-1"), Cause::Attempts, "order"));
    };
    assert_eq!(broken(plain(), given_up), []);
    let without_letter = |facts: &mut Facts| {
        given_up(facts);
        facts.letters.clear();
    };
    assert_eq!(broken(plain(), without_letter), [Promise::DeadLetters]);
    let without_a_word = |facts: &mut Facts| {
        given_up(facts);
        facts.replies.remove(1);
    };
    assert!(broken(plain(), without_a_word).contains(&Promise::Replies));
}
