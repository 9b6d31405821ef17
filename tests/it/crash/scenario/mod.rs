//! The scenarios: agents, messages, and a model and an API whose responses depend on the request only, so that a
//! repeated turn gets the same responses.

mod coordinators;
mod dialogues;
mod flows;
mod graphs;
mod turns;

pub use coordinators::*;
pub use dialogues::*;
pub use flows::*;
pub use graphs::*;
pub use turns::*;

use crate::scenarios::{answer, sales_with};
use crate::support::script::{Answer, Asked, plan};
use serde_json::{Value, json};
use types::job::Command;
use types::session::{Session, Status};

/// Session id and job of a message.
pub type Message = (&'static str, Value);

/// A sequence of messages and its expected result.
#[derive(Clone)]
pub struct Scenario {
    pub name: &'static str,
    pub agent: Value,
    pub workflows: Vec<Value>,
    /// Whether s1 is an authoring dialogue.
    pub dialogue: bool,
    pub model: fn(&Asked) -> Answer,
    /// Messages that are processed before any fault.
    pub before: Vec<Message>,
    /// Each wave is sent when the previous one has been processed, or when a fault strikes.
    pub waves: Vec<Vec<Message>>,
    /// Whether a scheduler runs.
    pub timers: bool,
    pub max_attempts: u32,
    /// A process that resumes from a pause learns that its leases are lost. Pauses between a worker's lease check and
    /// its publication are excluded: no check can hold back the events of a turn that was dead-lettered meanwhile.
    pub learns: bool,
    /// Reads are as stale as the contracts permit.
    pub lags: bool,
    /// Every conversation has the same result as without faults.
    pub same: bool,
    /// Whether the final state of session s1 is correct.
    pub end: fn(&Session) -> bool,
}

impl Scenario {
    fn new(name: &'static str, model: fn(&Asked) -> Answer) -> Self {
        Self {
            name,
            agent: agent(json!({})),
            workflows: Vec::new(),
            dialogue: false,
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

/// A user message in s1.
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

/// The decision alone, or with a plan and a greeting.
fn decided(asked: &Asked, decision: Value) -> Answer {
    Answer::json(&if asked.schema == "plan_and_decision" {
        plan(json!("您好，我是小智"), &decision)
    } else {
        decision
    })
}

/// Replies to every message with its own text.
fn echo(asked: &Asked) -> Answer {
    decided(asked, answer(&format!("{}!", asked.user)))
}

/// Responses of the API.
pub fn api(path: &str, _body: &Value) -> (u16, Value) {
    // Nodes of graphs that fail: one until it is changed, one for good.
    match path {
        "/busy" => return (503, json!({})),
        "/gone" => return (404, json!({})),
        _ => {}
    }
    let answer = match path {
        path if path.starts_with("/orders/") => json!({"status": "shipped"}),
        path if path.starts_with("/eta") => json!({"days": "two_days"}),
        _ => json!({"done": true}),
    };
    (200, answer)
}
