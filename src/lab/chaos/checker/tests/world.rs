//! Builds the facts of faultless runs for the checker's tests, and breaks them.

use crate::chaos::agents::{Manner, NUDGE, TIMERS};
use crate::chaos::checker::{Promise, check};
use crate::chaos::conversations::{self, GREETING, ScriptMessage, Verb};
use crate::chaos::evidence::{ActionCall, Letter, RunEvidence, SeenStatus, SentInvalidJob, SentMessage};
use serde_json::{Map, json};
use std::sync::Arc;
use types::cause::Cause;
use types::event::{Reply, ReplyKind, StatusEvent};
use types::job::{Job, JobBody, UserMessage};
use types::outcome::Outcome;
use types::session::{Entry, Role, Session, Status};
use types::timer::timer_id;
use types::timestamp::Timestamp;
use types::turn::{StatusAt, TurnRecord};

/// A faultless session, built turn by turn.
pub(super) struct World {
    evidence: RunEvidence,
    session: Session,
    manner: Manner,
    now: i64,
}

impl World {
    pub(super) fn new(session_id: &str, manner: Manner) -> Self {
        let session = Session::new(session_id, Timestamp::from_millis(0));
        Self { evidence: RunEvidence::default(), session, manner, now: 0 }
    }

    fn id(&self) -> String {
        self.session.session_id.clone()
    }

    fn tick(&mut self) -> Timestamp {
        self.now += 10;
        Timestamp::from_millis(self.now)
    }

    /// Adds a turn with one message for each verb. The ids of the messages are `<session>-<n>`.
    pub(super) fn turn(mut self, verbs: &[Verb]) -> Self {
        let first = self.evidence.sent.len();
        let tags: Vec<String> = (0..verbs.len()).map(|n| format!("{}-{}", self.id(), first + n)).collect();
        let lines: Vec<ScriptMessage> =
            verbs.iter().zip(&tags).map(|(verb, tag)| ScriptMessage::new(*verb, tag)).collect();
        let turn_id = tags[0].clone();
        let started_at = self.tick();
        for line in &lines {
            let (session_id, text) = (self.id(), line.to_string());
            let job_id = line.tag.clone();
            Arc::make_mut(&mut self.session.recent_jobs).push(job_id.clone());
            self.remember(Role::User, &turn_id, &text);
            self.evidence.sent.push(SentMessage { session_id, job_id, text, manner: self.manner, accepted: true });
            match line.verb {
                Verb::Note => drop(self.session.profile.insert("note".into(), json!(line.tag))),
                Verb::Bye => self.session.closed_at = Some(started_at),
                Verb::Say | Verb::Order | Verb::OrderEta | Verb::Errands | Verb::Wish | Verb::Detail => {
                    self.session.closed_at = None
                }
            }
        }
        if first == 0 {
            self.reply(&turn_id, ReplyKind::Greeting, "greet", GREETING);
        }
        let mut receipts = Vec::new();
        for (place, (target, tag)) in conversations::actions(&lines).into_iter().enumerate() {
            let receipt = format!("{}-{tag}", target.as_str());
            self.call(format!("{}/{turn_id}/{place}/act", self.id()), Some((target, tag.to_owned())), &receipt);
            receipts.push(receipt);
        }
        let answer = conversations::answer(&lines, &receipts);
        let mut statuses = vec![Status::Processing];
        if let Some(text) = &answer {
            statuses.push(Status::Typing);
            let (kind, key) = match verbs {
                [Verb::Errands] => (ReplyKind::Final, "0/final"),
                _ => (ReplyKind::Response, "respond"),
            };
            self.reply(&turn_id, kind, key, text);
        }
        statuses.push(Status::Ready);
        let outcome = match (&answer, verbs) {
            (None, _) => Outcome::Silent,
            (Some(_), [Verb::Errands]) => Outcome::Flow,
            (Some(_), _) => Outcome::Answered,
        };
        let body = JobBody::UserMessage(UserMessage { text: lines[0].to_string(), ..UserMessage::default() });
        self.record(&turn_id, body, started_at, &statuses, outcome);
        self
    }

    /// Adds the turn of a timer that the previous user turn armed.
    pub(super) fn timer(mut self, number: usize, outcome: Outcome) -> Self {
        let armed_by = self.evidence.sent.last().unwrap().job_id.clone();
        let id = timer_id(&self.id(), &armed_by, number);
        let turn_id = format!("{id}-1");
        self.now += 5_000;
        let due_at = Timestamp::from_millis(self.now);
        Arc::make_mut(&mut self.session.recent_jobs).push(turn_id.clone());
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
            metadata: Default::default(),
        });
    }

    fn reply(&mut self, turn_id: &str, kind: ReplyKind, key: &str, text: &str) {
        let at = self.tick();
        self.remember(Role::Assistant, turn_id, text);
        self.evidence.replies.push(Reply {
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
            supersedes: None,
            at,
            metadata: Map::new(),
        });
    }

    fn call(&mut self, key: String, asked: Option<(conversations::Target, String)>, receipt: &str) {
        let at = self.tick();
        self.evidence.calls.push(ActionCall { key, asked, receipt: Some(receipt.to_owned()), repeated: false, at });
    }

    fn record(&mut self, turn_id: &str, body: JobBody, started_at: Timestamp, statuses: &[Status], outcome: Outcome) {
        let at = self.tick();
        let mut previous = self.session.workflow_state.status;
        for (number, status) in statuses.iter().enumerate() {
            let (session_id, turn_id) = (self.id(), turn_id.to_owned());
            let id = format!("{session_id}/{turn_id}/status/{number}");
            let event = StatusEvent { session_id, turn_id, status: *status, previous, reason: None, at, turn: None };
            self.evidence.statuses.push(SeenStatus { id, event });
            previous = *status;
        }
        self.session.workflow_state.status = previous;
        self.evidence.turns.push(TurnRecord {
            session_id: self.id(),
            turn_id: turn_id.to_owned(),
            job: Job { session_id: self.id(), job_id: turn_id.to_owned(), body },
            statuses: statuses.iter().map(|status| StatusAt { status: *status, at }).collect(),
            outcome,
            reason: None,
            attempts: 1,
            queued_at: None,
            started_at,
            committed_at: at,
            hash: String::new(),
            actions: Vec::new(),
            tokens: 0,
        });
    }

    pub(super) fn evidence(mut self) -> RunEvidence {
        self.evidence.sessions.push(self.session);
        self.evidence
    }
}

/// A session with plain replies, actions and silent actions.
pub(super) fn plain() -> RunEvidence {
    World::new("c1", Manner::Plain)
        .turn(&[Verb::Say])
        .turn(&[Verb::OrderEta])
        .turn(&[Verb::Note])
        .turn(&[Verb::Order])
        .turn(&[Verb::Errands])
        .evidence()
}

pub(super) fn timed() -> RunEvidence {
    World::new("c2", Manner::Timed)
        .turn(&[Verb::Say])
        .timer(0, Outcome::Answered)
        .turn(&[Verb::Say])
        .timer(0, Outcome::Answered)
        .timer(1, Outcome::Silent)
        .evidence()
}

pub(super) fn merging() -> RunEvidence {
    World::new("c3", Manner::Merging).turn(&[Verb::Say]).turn(&[Verb::Order, Verb::Say, Verb::Order]).evidence()
}

/// The promises that are broken after `change` was applied to a faultless run.
pub(super) fn broken(mut evidence: RunEvidence, change: impl FnOnce(&mut RunEvidence)) -> Vec<Promise> {
    assert_eq!(check(&evidence).violations, [], "the run is faultless before the change");
    change(&mut evidence);
    let mut promises: Vec<Promise> =
        check(&evidence).violations.into_iter().map(|violation| violation.promise).collect();
    promises.dedup();
    promises
}

pub(super) fn letter(job_id: Option<&str>, cause: Cause, payload: &str) -> Letter {
    Letter { session_id: "c1".into(), cause, job_id: job_id.map(str::to_owned), payload: payload.into() }
}

pub(super) fn bad_job(sends: u32) -> SentInvalidJob {
    SentInvalidJob { session_id: "c1".into(), payload: "{".into(), cause: Cause::Invalid, accepted: true, sends }
}
