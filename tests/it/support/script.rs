//! A model behind a real OpenAI-compatible HTTP endpoint, whose answers a test scripts.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, routing::post};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What the model is asked.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The schema's name; empty for plain text.
    pub schema: String,
    /// The rendered prompt.
    pub system: String,
    /// The last user message.
    pub user: String,
    /// How many calls came before.
    pub index: usize,
    pub began: Instant,
    pub ended: Option<Instant>,
}

/// What it answers.
pub enum Answer {
    Text(String),
    Json(Value),
    Status(u16),
    After(Duration, Box<Answer>),
}

type Handler = dyn Fn(&Asked) -> Answer + Send + Sync;

/// See the module.
#[derive(Clone)]
pub struct ScriptedModel {
    pub base_url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    handler: Arc<Mutex<Arc<Handler>>>,
}

impl ScriptedModel {
    /// Serves on a free port for the rest of the test.
    pub async fn start(handler: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let model = Self {
            base_url: format!("http://{}/v1", listener.local_addr().unwrap()),
            asked: Arc::default(),
            handler: Arc::new(Mutex::new(Arc::new(handler))),
        };
        let app = Router::new().route("/v1/chat/completions", post(complete)).with_state(model.clone());
        super::background(async move { axum::serve(listener, app).await.unwrap() });
        model
    }

    /// Answers one after the other; the last one again and again.
    pub async fn answering(answers: Vec<Value>) -> Self {
        Self::start(move |asked| Answer::Json(answers[asked.index.min(answers.len() - 1)].clone())).await
    }

    /// Changes what it answers from now on; the count of calls goes on.
    pub fn script(&self, handler: impl Fn(&Asked) -> Answer + Send + Sync + 'static) {
        *self.handler.lock().unwrap() = Arc::new(handler);
    }

    /// Every call so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

async fn complete(State(model): State<ScriptedModel>, Json(body): Json<Value>) -> Response {
    let text = |role: &str| {
        let messages = body["messages"].as_array().cloned().unwrap_or_default();
        let last = messages.iter().rev().find(|message| message["role"] == role);
        last.and_then(|message| message["content"].as_str()).unwrap_or_default().to_owned()
    };
    let schema = body["response_format"]["json_schema"]["name"].as_str().unwrap_or_default().to_owned();
    let (asked, index) = {
        let mut all = model.asked.lock().unwrap();
        let index = all.len();
        let (system, user) = (text("system"), text("user"));
        all.push(Asked { schema, system, user, index, began: Instant::now(), ended: None });
        (all[index].clone(), index)
    };
    let handler = Arc::clone(&model.handler.lock().unwrap());
    let mut answer = handler(&asked);
    while let Answer::After(delay, inner) = answer {
        tokio::time::sleep(delay).await;
        answer = *inner;
    }
    let response = match answer {
        Answer::Text(text) => completion(&text),
        Answer::Json(value) => completion(&value.to_string()),
        Answer::Status(status) => {
            (StatusCode::from_u16(status).unwrap(), Json(json!({"error": {"message": "scripted"}}))).into_response()
        }
        Answer::After(..) => unreachable!(),
    };
    model.asked.lock().unwrap()[index].ended = Some(Instant::now());
    response
}

fn completion(text: &str) -> Response {
    Json(json!({
        "model": "scripted-1",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }))
    .into_response()
}

/// A phase 2 decision.
pub fn decision(next_status: &str, action: Value, response: Value) -> Value {
    json!({ "reasoning": "scripted", "next_status": next_status, "action": action, "response": response })
}

/// A phase 1 answer: the plan's texts and the first decision.
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
