//! An OpenAI-compatible server on a local port that sends scripted responses and records its requests.
use super::connections::Connections;
use super::model_stream::Stream;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use base::clock::Clock;
use base::tasks::{OnPanic, Tasks};
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use types::timestamp::Timestamp;

/// Key of the queue for calls without a schema.
pub const PLAIN: &str = "text";

/// Shorter than a step of the crash tests' clock, and longer than their processes are busy.
const MOVED: Duration = Duration::from_secs(2);

/// One received call.
#[derive(Clone, Debug)]
pub struct Call {
    pub headers: HeaderMap,
    pub body: Value,
    /// Number of earlier calls.
    pub number: usize,
    /// Time of arrival on the clock of the engine's records.
    pub at: Timestamp,
    pub began: Instant,
    /// `None` while the call is in flight, and for good if the caller disconnected.
    pub ended: Option<Instant>,
    /// True if its response waits for idle processes.
    pub when_idle: bool,
}

impl Call {
    /// Name of the requested schema, `json_object` if only that was requested, or [`PLAIN`].
    pub fn schema(&self) -> &str {
        let format = &self.body["response_format"];
        format["json_schema"]["name"].as_str().or(format["type"].as_str()).unwrap_or(PLAIN)
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Names of the offered tools.
    pub fn tools(&self) -> Vec<&str> {
        let tools = self.body["tools"].as_array().into_iter().flatten();
        tools.filter_map(|tool| tool["function"]["name"].as_str()).collect()
    }

    /// URLs of the pictures in all messages.
    pub fn images(&self) -> Vec<String> {
        let messages = self.body["messages"].as_array().into_iter().flatten();
        let parts = messages.filter_map(|message| message["content"].as_array()).flatten();
        parts.filter_map(|part| part["image_url"]["url"].as_str()).map(str::to_owned).collect()
    }

    /// Text of the last message with this role.
    pub fn message(&self, role: &str) -> &str {
        let mut messages = self.body["messages"].as_array().into_iter().flatten().rev();
        let last = messages.find(|message| message["role"] == role);
        // The text precedes the pictures.
        let text = last.and_then(|message| message["content"].as_str().or(message["content"][0]["text"].as_str()));
        text.unwrap_or_default()
    }
}

/// Response of the server to a call.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A chat completion with this content, sent in one piece even if a stream was requested.
    Content(String),
    /// A chat completion that calls these tools with these arguments.
    Calls(Vec<(String, String)>),
    /// A streamed response.
    Stream(Stream),
    /// This body with status 200.
    Raw(String),
    /// Status, headers and body.
    Status(u16, Vec<(&'static str, String)>, String),
    /// The response when the server's clock is moved, which the crash tests do while all processes are idle.
    WhenIdle(Box<Answer>),
    /// The response once the gate has a permit. It does not consume the permit, so one permit lets all calls pass.
    Gated(Arc<Semaphore>, Box<Answer>),
    /// The connection closes within the body.
    Broken,
    /// No response.
    Hang,
}

impl Answer {
    /// A chat completion with this JSON as content.
    pub fn json(content: &Value) -> Self {
        Self::Content(content.to_string())
    }

    /// A decision with this reply.
    pub fn typing(response: &str) -> Self {
        Self::json(&json!({"reasoning": "scripted", "next_status": "typing", "action": null, "response": response}))
    }

    /// A chat completion that calls one tool.
    pub fn call(tool: &str, arguments: &Value) -> Self {
        Self::Calls(vec![(tool.to_owned(), arguments.to_string())])
    }

    /// This response once `gate` has a permit.
    pub fn gated(self, gate: &Arc<Semaphore>) -> Self {
        Self::Gated(Arc::clone(gate), Box::new(self))
    }

    /// An error without headers.
    pub fn status(status: u16, body: &str) -> Self {
        Self::Status(status, Vec::new(), body.to_owned())
    }
}

type Script = Box<dyn Fn(&Call) -> Option<Answer> + Send + Sync>;

#[derive(Default)]
struct Inner {
    clock: Mutex<Clock>,
    calls: Mutex<Vec<Call>>,
    queues: Mutex<HashMap<String, VecDeque<Answer>>>,
    script: Mutex<Option<Script>>,
    changed: tokio::sync::Notify,
}

impl Inner {
    fn record(&self, headers: HeaderMap, body: Value) -> Call {
        let mut calls = self.calls.lock().unwrap();
        let at = self.clock.lock().unwrap().now();
        let call =
            Call { headers, body, number: calls.len(), at, began: Instant::now(), ended: None, when_idle: false };
        calls.push(call.clone());
        self.changed.notify_waiters();
        call
    }
}

/// The server. Dropping it stops it.
pub struct ModelServer {
    inner: Arc<Inner>,
    tasks: Tasks,
    pub connections: Connections,
}

impl ModelServer {
    pub async fn start() -> Self {
        let inner = Arc::<Inner>::default();
        let router = Router::new().route("/v1/chat/completions", post(handle));
        // A mebibyte of text is more than a mebibyte of JSON, and a request contains it more than once.
        let router = router.layer(DefaultBodyLimit::disable()).with_state(Arc::clone(&inner));
        let (connections, listener) = Connections::listen().await;
        let tasks = Tasks::new();
        let stop = tasks.stop_token();
        tasks.spawn("model server", OnPanic::Log, async move {
            tokio::select! {
                () = stop.cancelled() => {}
                ended = async { axum::serve(listener, router).await } => ended.unwrap(),
            }
        });
        Self { inner, tasks, connections }
    }

    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.connections.address())
    }

    /// Adds responses for calls with this schema ([`PLAIN`] for none). Each is used once, in order.
    pub fn push(&self, schema: &str, answers: impl IntoIterator<Item = Answer>) {
        self.inner.queues.lock().unwrap().entry(schema.to_owned()).or_default().extend(answers);
    }

    /// Sets the handler for calls without a queued response. `None` becomes an error status.
    pub fn script(&self, script: impl Fn(&Call) -> Option<Answer> + Send + Sync + 'static) {
        *self.inner.script.lock().unwrap() = Some(Box::new(script));
    }

    pub fn calls(&self) -> Vec<Call> {
        self.inner.calls.lock().unwrap().clone()
    }

    /// Takes the times of calls from this clock.
    pub fn go_by(&self, clock: Clock) {
        *self.inner.clock.lock().unwrap() = clock;
    }

    /// True while a call waits for its response. Calls older than a second are ignored: their callers are gone. So are
    /// calls that are answered when all processes are idle.
    pub fn is_asked(&self) -> bool {
        let waits = |call: &Call| call.ended.is_none() && !call.when_idle && call.began.elapsed() < super::GIVEN_UP;
        self.inner.calls.lock().unwrap().iter().any(waits)
    }

    /// Clears the recorded calls. Numbers restart from 0.
    pub fn forget(&self) {
        self.inner.calls.lock().unwrap().clear();
    }

    /// Waits until `count` calls have arrived.
    pub async fn wait_for_calls(&self, count: usize) {
        let enough = async {
            loop {
                let changed = self.inner.changed.notified();
                if self.inner.calls.lock().unwrap().len() >= count {
                    return;
                }
                changed.await;
            }
        };
        let waited = tokio::time::timeout(super::engine::DEADLINE, enough).await;
        assert!(waited.is_ok(), "{} calls arrived, expected {count}", self.calls().len());
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

async fn handle(State(inner): State<Arc<Inner>>, headers: HeaderMap, body: Bytes) -> Response {
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let (call, answer) = {
        // Held until the answer is chosen: a test that sees the call and replaces the script replaces it for later calls.
        let script = inner.script.lock().unwrap();
        let call = inner.record(headers, body);
        let queued = inner.queues.lock().unwrap().get_mut(call.schema()).and_then(VecDeque::pop_front);
        let answer = queued.or_else(|| script.as_ref().and_then(|script| script(&call)));
        (call, answer)
    };
    // The engine does not retry this status, so a gap in a script fails the test immediately.
    let gap = || Answer::status(418, &format!("the script has no more responses for `{}`", call.schema()));
    let answer = answer.unwrap_or_else(gap);
    let note = |change: fn(&mut Call)| {
        let mut calls = inner.calls.lock().unwrap();
        calls.get_mut(call.number).filter(|known| known.began == call.began).map(change);
    };
    if matches!(answer, Answer::WhenIdle(_)) {
        note(|call| call.when_idle = true);
    }
    let clock = inner.clock.lock().unwrap().clone();
    let response = respond(answer, &call, &clock).await;
    note(|call| call.ended = Some(Instant::now()));
    response
}

async fn respond(mut answer: Answer, call: &Call, clock: &Clock) -> Response {
    loop {
        answer = match answer {
            Answer::WhenIdle(then) => {
                clock.sleep_until(clock.moment() + MOVED).await;
                *then
            }
            Answer::Gated(gate, then) => {
                drop(gate.acquire().await.unwrap());
                *then
            }
            _ => break,
        }
    }
    match answer {
        Answer::Content(content) => completion(&json!({"content": content}), "stop", call).into_response(),
        Answer::Calls(calls) => {
            let calls = calls.iter().enumerate().map(|(at, (name, arguments))| {
                let function = json!({"name": name, "arguments": arguments});
                json!({"id": format!("call-{}-{at}", call.number), "type": "function", "function": function})
            });
            let message = json!({"content": null, "tool_calls": calls.collect::<Value>()});
            completion(&message, "tool_calls", call).into_response()
        }
        Answer::Stream(stream) => stream.respond(),
        Answer::Raw(body) => body.into_response(),
        Answer::Status(status, headers, body) => {
            let mut response = (StatusCode::from_u16(status).unwrap(), body).into_response();
            for (name, value) in headers {
                response.headers_mut().insert(name, value.parse().unwrap());
            }
            response
        }
        Answer::Broken => {
            let parts = [Ok("{\"choices\":"), Err(std::io::Error::other("connection lost"))];
            Body::from_stream(futures::stream::iter(parts)).into_response()
        }
        Answer::Hang => std::future::pending().await,
        Answer::WhenIdle(_) | Answer::Gated(..) => unreachable!("unwrapped above"),
    }
}

fn completion(message: &Value, finish_reason: &str, call: &Call) -> String {
    let mut message = message.clone();
    message["role"] = json!("assistant");
    json!({
        "id": format!("call-{}", call.number), "object": "chat.completion", "model": call.body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    })
    .to_string()
}
