//! What is tried at every point: agents, messages, and a model and an API that answer by what they are asked, so that
//! whoever repeats a turn gets the same answers.

mod flows;
mod turns;

pub use flows::*;
pub use turns::*;

use crate::scenarios::{answer, sales_with};
use crate::support::script::{Answer, Asked, plan};
use serde_json::{Value, json};
use std::time::Duration;
use types::job::Command;
use types::session::{Session, Status};

/// What one message is.
pub type Message = (&'static str, Value);

/// One course of events.
#[derive(Clone)]
pub struct Scenario {
    pub name: &'static str,
    pub agent: Value,
    pub workflows: Vec<Value>,
    pub model: fn(&Asked) -> Answer,
    /// Handled before any fault.
    pub before: Vec<Message>,
    /// Each wave is sent when the one before it has been handled, or at the fault.
    pub waves: Vec<Vec<Message>>,
    /// A scheduler runs as well.
    pub timers: bool,
    pub max_attempts: u32,
    /// Who wakes up from a pause learns that its leases are lost, and the pauses are none that strike between a worker's
    /// look at its lease and what it publishes: of a turn that was given up nothing keeps that back.
    pub learns: bool,
    /// Reads lag behind writes as far as they may.
    pub lags: bool,
    /// Whatever happens, every conversation ends up as it does undisturbed.
    pub same: bool,
    /// How session s1 has to end.
    pub end: fn(&Session) -> bool,
}

impl Scenario {
    fn new(name: &'static str, model: fn(&Asked) -> Answer) -> Self {
        Self {
            name,
            agent: agent(json!({})),
            workflows: Vec::new(),
            model,
            before: Vec::new(),
            waves: Vec::new(),
            timers: false,
            max_attempts: 5,
            learns: false,
            lags: false,
            same: true,
            end: |session| session.workflow_state.status == Status::Ready,
        }
    }

    fn after_greeting(mut self) -> Self {
        self.before = vec![says("m-0", "你好")];
        self
    }

    fn wave(mut self, wave: Vec<Message>) -> Self {
        self.waves.push(wave);
        self
    }

    fn with(mut self, fields: Value) -> Self {
        self.agent = agent(fields);
        self
    }

    fn ending(mut self, end: fn(&Session) -> bool) -> Self {
        self.end = end;
        self
    }
}

#[allow(clippy::needless_pass_by_value, reason = "as a scenario writes it")]
fn agent(fields: Value) -> Value {
    sales_with(&fields)
}

/// A message of the user in s1.
fn says(job_id: &str, text: &str) -> Message {
    says_in("s1", job_id, text)
}

fn says_in(session_id: &'static str, job_id: &str, text: &str) -> Message {
    let job = json!({"type": "user_message", "session_id": session_id, "agent_id": "sales", "job_id": job_id, "text": text,
                     "user_id": "u1", "channel": "web"});
    (session_id, job)
}

fn control(job_id: &str, command: Command) -> Message {
    ("s1", json!({"type": "control", "session_id": "s1", "job_id": job_id, "command": command, "by": "op"}))
}

/// The decision alone, or with a plan that greets.
fn decided(asked: &Asked, decision: Value) -> Answer {
    Answer::json(&if asked.schema == "plan_and_decision" {
        plan(json!("您好，我是小智"), &decision)
    } else {
        decision
    })
}

/// Answers every message with itself.
fn echo(asked: &Asked) -> Answer {
    decided(asked, answer(&format!("{}!", asked.user)))
}

/// What the API answers.
pub fn api(path: &str, _body: &Value) -> (u16, Value, Duration) {
    let answer = match path {
        path if path.starts_with("/orders/") => json!({"status": "shipped"}),
        path if path.starts_with("/eta") => json!({"days": "two_days"}),
        _ => json!({"done": true}),
    };
    (200, answer, Duration::ZERO)
}
