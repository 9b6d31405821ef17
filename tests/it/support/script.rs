//! A model whose decisions a test scripts, on a [`ModelServer`].

use super::connections::Connections;
use super::model_server::{Call, ModelServer};
use base::clock::Clock;
use serde_json::{Value, json};
use std::time::Instant;
use types::timestamp::Timestamp;

pub use super::model_server::Answer;

/// One request to the model.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Name of the schema; empty for plain text.
    pub schema: String,
    /// The rendered prompt.
    pub system: String,
    /// The last user message.
    pub user: String,
    /// URLs of the pictures in the prompt.
    pub images: Vec<String>,
    /// Names of the offered tools.
    pub tools: Vec<String>,
    /// The last message if it is a tool's result.
    pub result: Option<String>,
    /// The requested temperature.
    pub temperature: Option<f64>,
    /// Number of earlier calls.
    pub index: usize,
    pub idempotency_key: String,
    pub traceparent: String,
    pub at: Timestamp,
    pub began: Instant,
    pub ended: Option<Instant>,
}

impl From<&Call> for Asked {
    fn from(call: &Call) -> Self {
        Self {
            schema: call.body["response_format"]["json_schema"]["name"].as_str().unwrap_or_default().to_owned(),
            system: call.message("system").to_owned(),
            user: call.message("user").to_owned(),
            images: call.images(),
            tools: call.tools().into_iter().map(str::to_owned).collect(),
            result: call.body["messages"]
                .as_array()
                .and_then(|messages| messages.last())
                .filter(|message| message["role"] == "tool")
                .and_then(|message| message["content"].as_str())
                .map(str::to_owned),
            temperature: call.body["temperature"].as_f64(),
            index: call.number,
            idempotency_key: call.header("idempotency-key").to_owned(),
            traceparent: call.header("traceparent").to_owned(),
            at: call.at,
            began: call.began,
            ended: call.ended,
        }
    }
}

/// The scripted model.
pub struct ScriptedModel {
    server: ModelServer,
}

impl ScriptedModel {
    /// Serves on a free port until it is dropped.
    pub async fn start(handler: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let model = Self { server: ModelServer::start().await };
        model.script(handler);
        model
    }

    /// Sends these responses in order, and repeats the last one.
    pub async fn answering(answers: Vec<Value>) -> Self {
        Self::start(move |asked| Answer::json(&answers[asked.index.min(answers.len() - 1)])).await
    }

    pub fn base_url(&self) -> String {
        self.server.base_url()
    }

    pub fn connections(&self) -> &Connections {
        &self.server.connections
    }

    /// Replaces the handler. The index of calls continues.
    pub fn script(&self, handler: impl Fn(&Asked) -> Answer + Send + Sync + 'static) {
        self.server.script(move |call| Some(handler(&Asked::from(call))));
    }

    /// Takes the times of calls from this clock.
    pub fn go_by(&self, clock: Clock) {
        self.server.go_by(clock);
    }

    /// True while a call waits for its response.
    pub fn is_asked(&self) -> bool {
        self.server.is_asked()
    }

    /// Clears the recorded calls. Indexes restart from 0.
    pub fn forget(&self) {
        self.server.forget();
    }

    /// All recorded calls.
    pub fn asked(&self) -> Vec<Asked> {
        self.server.calls().iter().map(Asked::from).collect()
    }
}

/// A decision of phase 2, with an existing plan.
#[allow(clippy::needless_pass_by_value, reason = "as a test writes it")]
pub fn decision(next_status: &str, action: Value, response: Value) -> Value {
    json!({ "reasoning": "scripted", "next_status": next_status, "action": action, "response": response })
}

/// A response of phase 1: the plan and the first decision.
#[allow(clippy::needless_pass_by_value, reason = "as a test writes it")]
pub fn plan(greeting: Value, decision: &Value) -> Value {
    json!({
        "plan": { "name": "小智", "tone": "热情", "greeting": greeting, "sop": "1. 问候 2. 回答", "timers": [], "constraints": "简短" },
        "decision": decision,
    })
}

/// A SKILL, TOOL, FLOW or SYSTEM action.
pub fn action(kind: &str, target: &str, params: &Value) -> Value {
    json!({ "type": kind, "target": target, "params": params })
}
