//! For each promise: a faultless run is found faultless, and one that breaks the promise is found out.

use super::{Counts, Promise, check};
use crate::chaos::agents::{Manner, NUDGE, TIMERS};
use crate::chaos::facts::{Call, Facts, Letter, SeenStatus, Sent, SentBad};
use crate::chaos::talk::{self, GREETING, Line, Verb};
use crate::clock::Timestamp;
use crate::queue::{Cause, Job, JobBody, Reply, ReplyKind, StatusEvent, UserMessage};
use crate::session::{Entry, Lease, Role, Session, Status};
use crate::store::{Outcome, StatusAt, TurnRecord};
use crate::timer::timer_id;
use serde_json::{Map, json};
use std::sync::Arc;

/// A session as it should be, built turn by turn.
struct World {
    facts: Facts,
    session: Session,
    manner: Manner,
    now: i64,
}

impl World {
    fn new(session_id: &str, manner: Manner) -> Self {
        let session = Session::new(session_id, Timestamp::from_millis(0));
        Self { facts: Facts::default(), session, manner, now: 0 }
    }

    fn id(&self) -> String {
        self.session.session_id.clone()
    }

    fn tick(&mut self) -> Timestamp {
        self.now += 10;
        Timestamp::from_millis(self.now)
    }

    /// One turn of these messages, whose ids are `<session>-<n>`.
    fn turn(mut self, verbs: &[Verb]) -> Self {
        let first = self.facts.sent.len();
        let tags: Vec<String> = (0..verbs.len()).map(|n| format!("{}-{}", self.id(), first + n)).collect();
        let lines: Vec<Line> = verbs.iter().zip(&tags).map(|(verb, tag)| Line::new(*verb, tag)).collect();
        let turn_id = tags[0].clone();
        let started_at = self.tick();
        for line in &lines {
            let (session_id, text) = (self.id(), line.to_string());
            let job_id = line.tag.clone();
            self.session.recent_jobs.push(job_id.clone());
            self.remember(Role::User, &turn_id, &text);
            self.facts.sent.push(Sent { session_id, job_id, text, manner: self.manner, accepted: true });
            match line.verb {
                Verb::Note => drop(self.session.profile.insert("note".into(), json!(line.tag))),
                Verb::Bye => self.session.closed_at = Some(started_at),
                Verb::Say | Verb::Order | Verb::OrderEta => self.session.closed_at = None,
            }
        }
        if first == 0 {
            self.reply(&turn_id, ReplyKind::Greeting, "greet", GREETING);
        }
        let mut receipts = Vec::new();
        for (place, (target, tag)) in talk::actions(&lines).into_iter().enumerate() {
            let receipt = format!("{}-{tag}", target.as_str());
            self.call(format!("{}/{turn_id}/{place}/act", self.id()), Some((target, tag.to_owned())), &receipt);
            receipts.push(receipt);
        }
        let answer = talk::answer(&lines, &receipts);
        let mut statuses = vec![Status::Processing];
        if let Some(text) = &answer {
            statuses.push(Status::Typing);
            self.reply(&turn_id, ReplyKind::Response, "respond", text);
        }
        statuses.push(Status::Ready);
        let outcome = if answer.is_some() { Outcome::Answered } else { Outcome::Silent };
        let body = JobBody::UserMessage(UserMessage { text: lines[0].to_string(), ..UserMessage::default() });
        self.record(&turn_id, body, started_at, &statuses, outcome);
        self
    }

    /// The turn of a timer that the turn before armed.
    fn timer(mut self, number: usize, outcome: Outcome) -> Self {
        let armed_by = self.facts.sent.last().unwrap().job_id.clone();
        let id = timer_id(&self.id(), &armed_by, number);
        let turn_id = format!("{id}-1");
        self.now += 5_000;
        let due_at = Timestamp::from_millis(self.now);
        self.session.recent_jobs.push(turn_id.clone());
        let started_at = self.tick();
        let mut statuses = Vec::new();
        match outcome {
            Outcome::Answered => {
                statuses = vec![Status::Processing, Status::Typing, Status::Ready];
                self.reply(&turn_id, ReplyKind::Timer, "timer", NUDGE);
            }
            Outcome::Silent => {
                statuses = vec![Status::Processing, Status::Ready];
                self.call(format!("{}/{turn_id}/0/act", self.id()), None, &format!("follow-up-{turn_id}"));
            }
            _ => {}
        }
        let name = TIMERS[number].0.to_owned();
        let body = JobBody::Timer { timer_id: id, generation: 1, name, due_at, action: None, message: None };
        self.record(&turn_id, body, started_at, &statuses, outcome);
        self
    }

    fn remember(&mut self, role: Role, turn_id: &str, text: &str) {
        let (at, turn_id, text) = (self.tick(), turn_id.to_owned(), text.to_owned());
        Arc::make_mut(&mut self.session.history).push(Entry {
            role,
            text,
            at,
            turn_id,
            kind: None,
            metadata: Map::new(),
        });
    }

    fn reply(&mut self, turn_id: &str, kind: ReplyKind, key: &str, text: &str) {
        let at = self.tick();
        self.remember(Role::Assistant, turn_id, text);
        self.facts.replies.push(Reply {
            reply_id: format!("{}/{turn_id}/{key}", self.id()),
            session_id: self.id(),
            agent_id: self.manner.agent_id().into(),
            user_id: String::new(),
            channel: "web".into(),
            turn_id: turn_id.to_owned(),
            kind,
            text: text.to_owned(),
            seq: 0,
            stream_id: None,
            at,
            metadata: Map::new(),
        });
    }

    fn call(&mut self, key: String, asked: Option<(talk::Target, String)>, receipt: &str) {
        let at = self.tick();
        self.facts.calls.push(Call { key, asked, receipt: Some(receipt.to_owned()), repeated: false, at });
    }

    fn record(&mut self, turn_id: &str, body: JobBody, started_at: Timestamp, statuses: &[Status], outcome: Outcome) {
        let at = self.tick();
        let mut previous = self.session.workflow_state.status;
        for (number, status) in statuses.iter().enumerate() {
            let (session_id, turn_id) = (self.id(), turn_id.to_owned());
            let id = format!("{session_id}/{turn_id}/status/{number}");
            let event = StatusEvent { session_id, turn_id, status: *status, previous, reason: None, at };
            self.facts.statuses.push(SeenStatus { id, event });
            previous = *status;
        }
        self.session.workflow_state.status = previous;
        self.facts.turns.push(TurnRecord {
            session_id: self.id(),
            turn_id: turn_id.to_owned(),
            job: Job { session_id: self.id(), job_id: turn_id.to_owned(), body },
            statuses: statuses.iter().map(|status| StatusAt { status: *status, at }).collect(),
            outcome,
            reason: None,
            attempts: 1,
            started_at,
            committed_at: at,
            hash: String::new(),
        });
    }

    fn facts(mut self) -> Facts {
        self.facts.sessions.push(self.session);
        self.facts
    }
}

/// A session with plain answers, actions, silent actions.
fn plain() -> Facts {
    World::new("c1", Manner::Plain)
        .turn(&[Verb::Say])
        .turn(&[Verb::OrderEta])
        .turn(&[Verb::Note])
        .turn(&[Verb::Order])
        .facts()
}

fn timed() -> Facts {
    World::new("c2", Manner::Timed)
        .turn(&[Verb::Say])
        .timer(0, Outcome::Answered)
        .turn(&[Verb::Say])
        .timer(0, Outcome::Answered)
        .timer(1, Outcome::Silent)
        .facts()
}

fn merging() -> Facts {
    World::new("c3", Manner::Merging).turn(&[Verb::Say]).turn(&[Verb::Order, Verb::Say, Verb::Order]).facts()
}

/// The promises that are broken when a faultless run is changed like this.
fn broken(mut facts: Facts, change: impl FnOnce(&mut Facts)) -> Vec<Promise> {
    assert_eq!(check(&facts).violations, [], "before the change");
    change(&mut facts);
    let mut promises: Vec<Promise> = check(&facts).violations.into_iter().map(|violation| violation.promise).collect();
    promises.dedup();
    promises
}

fn letter(job_id: Option<&str>, cause: Cause, payload: &str) -> Letter {
    Letter { session_id: "c1".into(), cause, job_id: job_id.map(str::to_owned), payload: payload.into() }
}

fn bad_job(sends: u32) -> SentBad {
    SentBad { session_id: "c1".into(), payload: "{".into(), cause: Cause::Invalid, accepted: true, sends }
}

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
        facts.sessions[0].recent_jobs.push(again);
    };
    assert!(broken(plain(), handled_again).contains(&Promise::NothingTwice));
    let stranger = |facts: &mut Facts| facts.sessions[0].recent_jobs.push("c1-77".into());
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
    let turns_swapped = |facts: &mut Facts| facts.sessions[0].recent_jobs.swap(1, 3);
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
    assert_eq!(broken(timed(), |facts| due(facts, 1, 50)), [Promise::Timers], "before it was due");
    assert_eq!(broken(timed(), |facts| due(facts, 1, -4_900)), [Promise::Timers], "due before its delay");
    let cancelled = World::new("c2", Manner::Timed)
        .turn(&[Verb::Say])
        .timer(0, Outcome::Answered)
        .timer(1, Outcome::Silent)
        .facts();
    let after_user = |facts: &mut Facts| facts.sessions[0].recent_jobs.swap(0, 1);
    assert!(broken(cancelled.clone(), after_user).contains(&Promise::Timers));
    let not_fired = |facts: &mut Facts| {
        facts.sessions[0].recent_jobs.pop();
        facts.turns.pop();
        facts.calls.pop();
    };
    assert!(broken(cancelled.clone(), not_fired).contains(&Promise::Timers));
    let pending = |facts: &mut Facts| {
        let (due_at, name) = (Timestamp::from_millis(0), "nudge".to_owned());
        let timer =
            crate::timer::Timer { timer_id: "t".into(), name, due_at, generation: 1, action: None, message: None };
        facts.sessions[0].timers.push(timer);
    };
    assert_eq!(broken(cancelled, pending), [Promise::Timers]);
    let closed = World::new("c2", Manner::Timed).turn(&[Verb::Bye]).facts();
    assert_eq!(check(&closed).violations, [], "a closed conversation has no timers");
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
