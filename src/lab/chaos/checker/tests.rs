//! For each promise: the checker accepts a faultless run, and finds the violation in a run that breaks the promise.

mod world;

use super::{Counts, Promise, check};
use crate::chaos::agents::Manner;
use crate::chaos::conversations::{self, Verb};
use crate::chaos::evidence::{ActionCall, RunEvidence, SeenDialogue, SentMessage};
use std::sync::Arc;
use types::cause::Cause;
use types::event::{Reply, ReplyKind};
use types::job::JobBody;
use types::outcome::Outcome;
use types::session::{Lease, Status};
use types::timestamp::Timestamp;
use types::turn::TurnRecord;
use world::{World, bad_job, broken, letter, merging, plain, timed};

#[test]
fn a_faultless_run_is_found_faultless_and_counted() {
    for evidence in [plain(), timed(), merging()] {
        assert_eq!(check(&evidence).violations, []);
    }
    let counts = check(&merging()).counts;
    let wanted = Counts { sessions: 1, turns: 2, merged: 2, replies: 3, actions: 2, ..Counts::default() };
    assert_eq!(counts, wanted);
    let findings = check(&timed());
    assert_eq!((findings.counts.timers_fired, findings.counts.timers_cancelled, findings.lateness.len()), (3, 1, 3));
}

#[test]
fn a_lost_message_is_found() {
    let never_handled = |evidence: &mut RunEvidence| {
        let lost = SentMessage { job_id: "c1-9".into(), text: "say #c1-9".into(), ..evidence.sent[0].clone() };
        evidence.sent.push(lost);
    };
    assert_eq!(broken(plain(), never_handled), [Promise::NothingLost]);
    let without_record = |evidence: &mut RunEvidence| drop(evidence.turns.remove(1));
    assert!(broken(plain(), without_record).contains(&Promise::NothingLost));
    let whole_session = |evidence: &mut RunEvidence| drop(evidence.sessions.pop());
    assert!(broken(plain(), whole_session).contains(&Promise::NothingLost));
    assert_eq!(broken(plain(), |evidence| evidence.bad.push(bad_job(1))), [Promise::NothingLost]);
}

#[test]
fn a_message_that_was_never_acknowledged_may_be_lost() {
    let refused = |evidence: &mut RunEvidence| {
        evidence.sent.push(SentMessage { job_id: "c1-9".into(), accepted: false, ..evidence.sent[0].clone() });
    };
    assert_eq!(broken(plain(), refused), []);
}

#[test]
fn a_second_turn_for_a_job_is_found() {
    let handled_again = |evidence: &mut RunEvidence| {
        let again = evidence.sessions[0].recent_jobs[1].clone();
        Arc::make_mut(&mut evidence.sessions[0].recent_jobs).push(again);
    };
    assert!(broken(plain(), handled_again).contains(&Promise::NothingTwice));
    let stranger =
        |evidence: &mut RunEvidence| Arc::make_mut(&mut evidence.sessions[0].recent_jobs).push("c1-77".into());
    assert!(broken(plain(), stranger).contains(&Promise::NothingTwice));
    let not_in_lane = |evidence: &mut RunEvidence| {
        evidence.turns.push(TurnRecord { turn_id: "c1-77".into(), ..evidence.turns[0].clone() });
    };
    assert_eq!(broken(plain(), not_in_lane), [Promise::NothingTwice]);
    let written_late = |evidence: &mut RunEvidence| evidence.turns[0].committed_at = Timestamp::from_millis(1_000_000);
    assert_eq!(broken(plain(), written_late), [Promise::NothingTwice]);
}

#[test]
fn a_wrong_order_is_found() {
    let turns_swapped = |evidence: &mut RunEvidence| Arc::make_mut(&mut evidence.sessions[0].recent_jobs).swap(1, 3);
    assert!(broken(plain(), turns_swapped).contains(&Promise::Order));
    let replies_swapped = |evidence: &mut RunEvidence| evidence.replies.swap(1, 2);
    assert!(broken(plain(), replies_swapped).contains(&Promise::Order));
    let status_late = |evidence: &mut RunEvidence| {
        let first = evidence.statuses.remove(0);
        evidence.statuses.push(first);
    };
    assert!(broken(plain(), status_late).contains(&Promise::Order));
}

#[test]
fn a_missing_wrong_or_second_reply_is_found() {
    assert!(broken(plain(), |evidence| drop(evidence.replies.remove(2))).contains(&Promise::Replies));
    assert!(broken(plain(), |evidence| evidence.replies[2].text = "nonsense".into()).contains(&Promise::Replies));
    let greeted_again = |evidence: &mut RunEvidence| {
        let again = Reply { turn_id: "c1-3".into(), reply_id: "c1/c1-3/greet".into(), ..evidence.replies[0].clone() };
        evidence.replies.push(again);
    };
    assert!(broken(plain(), greeted_again).contains(&Promise::Replies));
    let cancelled = |evidence: &mut RunEvidence| evidence.turns[1].outcome = Outcome::Cancelled;
    assert!(broken(plain(), cancelled).contains(&Promise::Replies));
    let not_by_graph = |evidence: &mut RunEvidence| {
        evidence.replies.last_mut().unwrap().kind = ReplyKind::Response;
    };
    assert!(broken(plain(), not_by_graph).contains(&Promise::Replies));
}

#[test]
fn a_reply_under_a_known_id_counts_once_unless_it_says_something_else() {
    let repeated = |evidence: &mut RunEvidence| evidence.replies.push(evidence.replies[1].clone());
    assert_eq!(broken(plain(), repeated), []);
    let differing = |evidence: &mut RunEvidence| {
        evidence.replies.push(Reply { text: "something else".into(), ..evidence.replies[1].clone() });
    };
    assert_eq!(broken(plain(), differing), [Promise::Replies]);
}

#[test]
fn a_history_that_differs_from_what_was_said_is_found() {
    let twice = |evidence: &mut RunEvidence| {
        let entry = evidence.sessions[0].history[0].clone();
        Arc::make_mut(&mut evidence.sessions[0].history).insert(1, entry);
    };
    assert_eq!(broken(plain(), twice), [Promise::History]);
    let missing = |evidence: &mut RunEvidence| drop(Arc::make_mut(&mut evidence.sessions[0].history).pop());
    assert_eq!(broken(plain(), missing), [Promise::History]);
}

#[test]
fn an_action_left_out_or_done_twice_is_found() {
    let left_out = |evidence: &mut RunEvidence| evidence.calls[0].receipt = None;
    assert!(broken(plain(), left_out).contains(&Promise::Actions));
    let other_key = |evidence: &mut RunEvidence| {
        let again =
            ActionCall { key: "c1/c1-1/7/act".into(), receipt: Some("order-99".into()), ..evidence.calls[0].clone() };
        evidence.calls.push(again);
    };
    assert_eq!(broken(plain(), other_key), [Promise::Actions]);
    let other_turn = |evidence: &mut RunEvidence| evidence.calls[0].key = "c1/c1-3/0/act".into();
    assert_eq!(broken(plain(), other_turn), [Promise::Actions]);
    let unasked = |evidence: &mut RunEvidence| {
        let asked = Some((conversations::Target::Eta, "c1-0".to_owned()));
        evidence.calls.push(ActionCall { key: "c1/c1-0/0/act".into(), asked, ..evidence.calls[0].clone() });
    };
    assert_eq!(broken(plain(), unasked), [Promise::Actions]);
    let not_noted = |evidence: &mut RunEvidence| evidence.sessions[0].profile.clear();
    assert_eq!(broken(plain(), not_noted), [Promise::Actions]);
    let not_closed = |evidence: &mut RunEvidence| evidence.sessions[0].closed_at = None;
    assert_eq!(broken(World::new("c1", Manner::Plain).turn(&[Verb::Bye]).evidence(), not_closed), [Promise::Actions]);
    let no_follow_up = |evidence: &mut RunEvidence| evidence.calls.clear();
    assert_eq!(broken(timed(), no_follow_up), [Promise::Actions]);
}

#[test]
fn an_action_again_under_its_key_is_counted_and_no_more() {
    let mut evidence = plain();
    evidence.calls.push(ActionCall { repeated: true, ..evidence.calls[0].clone() });
    let findings = check(&evidence);
    assert_eq!((findings.violations.len(), findings.counts.calls_repeated), (0, 1));
}

#[test]
fn an_illegal_or_missing_status_is_found() {
    let illegal = |evidence: &mut RunEvidence| {
        evidence.statuses[1].event.status = Status::Transferred;
        evidence.statuses[2].event.previous = Status::Transferred;
        evidence.statuses[2].event.status = Status::Typing;
    };
    assert!(broken(plain(), illegal).contains(&Promise::Statuses));
    assert!(broken(plain(), |evidence| drop(evidence.statuses.remove(1))).contains(&Promise::Statuses));
    let document = |evidence: &mut RunEvidence| evidence.sessions[0].workflow_state.status = Status::Typing;
    assert_eq!(broken(plain(), document), [Promise::Statuses]);
    let record = |evidence: &mut RunEvidence| assert!(evidence.turns[0].statuses.pop().is_some());
    assert_eq!(broken(plain(), record), [Promise::Statuses]);
}

fn due(evidence: &mut RunEvidence, turn: usize, shift: i64) {
    if let JobBody::Timer { due_at, .. } = &mut evidence.turns[turn].job.body {
        *due_at = Timestamp::from_millis(due_at.as_millis() + shift);
    }
}

#[test]
fn an_early_missing_cancelled_or_second_timer_is_found() {
    assert_eq!(
        broken(timed(), |evidence| due(evidence, 1, 50)),
        [Promise::Timers],
        "the timer took effect before it was due"
    );
    assert_eq!(
        broken(timed(), |evidence| due(evidence, 1, -4_900)),
        [Promise::Timers],
        "the timer was due before its delay had passed"
    );
    let cancelled = World::new("c2", Manner::Timed)
        .turn(&[Verb::Say])
        .timer(0, Outcome::Answered)
        .timer(1, Outcome::Silent)
        .evidence();
    let after_user = |evidence: &mut RunEvidence| Arc::make_mut(&mut evidence.sessions[0].recent_jobs).swap(0, 1);
    assert!(broken(cancelled.clone(), after_user).contains(&Promise::Timers));
    let not_fired = |evidence: &mut RunEvidence| {
        Arc::make_mut(&mut evidence.sessions[0].recent_jobs).pop();
        evidence.turns.pop();
        evidence.calls.pop();
    };
    assert!(broken(cancelled.clone(), not_fired).contains(&Promise::Timers));
    let pending = |evidence: &mut RunEvidence| {
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
        evidence.sessions[0].timers.push(timer);
    };
    assert_eq!(broken(cancelled, pending), [Promise::Timers]);
    let closed = World::new("c2", Manner::Timed).turn(&[Verb::Bye]).evidence();
    assert_eq!(check(&closed).violations, [], "closing the conversation cancels its timers");
}

#[test]
fn a_timer_that_found_itself_cancelled_is_no_violation() {
    let evidence = World::new("c2", Manner::Timed).turn(&[Verb::Bye]).timer(0, Outcome::Noop).evidence();
    assert_eq!(check(&evidence).violations, []);
}

#[test]
fn work_left_behind_is_found() {
    assert_eq!(broken(plain(), |evidence| evidence.jobs_left = 1), [Promise::Lanes]);
    assert_eq!(broken(plain(), |evidence| evidence.sessions[0].pending_seq = 9), [Promise::Lanes]);
    let lease = |evidence: &mut RunEvidence| {
        let until = Timestamp::from_millis(0);
        evidence.sessions[0].lease = Some(Lease { owner: "worker-1".into(), until, token: String::new() });
    };
    assert_eq!(broken(plain(), lease), [Promise::Lanes]);
    assert_eq!(broken(plain(), |evidence| evidence.troubles.push("a worker ended".into())), [Promise::Processes]);
}

#[test]
fn dead_letters_are_held_to_what_was_sent() {
    let buried = |evidence: &mut RunEvidence| {
        evidence.bad.push(bad_job(1));
        evidence.letters.push(letter(None, Cause::Invalid, "{"));
    };
    assert_eq!(broken(plain(), buried), []);
    let twice = |evidence: &mut RunEvidence| {
        evidence.bad.push(bad_job(1));
        evidence.letters.extend([letter(None, Cause::Invalid, "{"), letter(None, Cause::Invalid, "{")]);
    };
    assert_eq!(broken(plain(), twice), [Promise::DeadLetters]);
    let other_cause = |evidence: &mut RunEvidence| {
        evidence.bad.push(bad_job(1));
        evidence.letters.push(letter(None, Cause::UnknownAgent, "{"));
    };
    assert_eq!(broken(plain(), other_cause), [Promise::DeadLetters]);
    let good = |evidence: &mut RunEvidence| evidence.letters.push(letter(Some("c1-0"), Cause::Invalid, "say"));
    assert_eq!(broken(plain(), good), [Promise::DeadLetters]);
    let unknown = |evidence: &mut RunEvidence| evidence.letters.push(letter(None, Cause::Invalid, "?"));
    assert_eq!(broken(plain(), unknown), [Promise::DeadLetters]);
}

#[test]
fn a_message_given_up_has_a_dead_letter_and_an_apology() {
    let given_up = |evidence: &mut RunEvidence| {
        evidence.turns[1].outcome = Outcome::Cancelled;
        evidence.turns[1].reason = Some("attempts: too many".into());
        evidence.letters.push(letter(Some("c1-1"), Cause::Attempts, "order"));
    };
    assert_eq!(broken(plain(), given_up), []);
    let without_letter = |evidence: &mut RunEvidence| {
        given_up(evidence);
        evidence.letters.clear();
    };
    assert_eq!(broken(plain(), without_letter), [Promise::DeadLetters]);
    let without_a_word = |evidence: &mut RunEvidence| {
        given_up(evidence);
        evidence.replies.remove(1);
    };
    assert!(broken(plain(), without_a_word).contains(&Promise::Replies));
}

#[test]
fn a_dialogue_with_two_states_or_another_stage_than_its_session_is_found() {
    let dialogue = |session_stage: &str, stages: &[&str]| SeenDialogue {
        session_id: "c1".into(),
        session_stage: session_stage.into(),
        stages: stages.iter().map(|stage| (*stage).to_owned()).collect(),
    };
    let broken_by = |seen: SeenDialogue| {
        let mut evidence = World::new("c1", Manner::Authoring).turn(&[Verb::Wish]).evidence();
        evidence.dialogues = vec![dialogue("completed", &["completed"])];
        broken(evidence, |evidence| evidence.dialogues = vec![seen])
    };
    assert_eq!(broken_by(dialogue("completed", &["completed"])), []);
    assert_eq!(broken_by(dialogue("completed", &["debug"])), [Promise::Dialogues]);
    assert_eq!(broken_by(dialogue("completed", &["completed", "completed"])), [Promise::Dialogues]);
    assert_eq!(broken_by(dialogue("completed", &[])), [Promise::Dialogues]);
}
