//! The API behind skills and tools: returns scripted responses and records every call.

use super::connections::Connections;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use base::clock::Clock;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};
use types::timestamp::Timestamp;

/// One call.
#[derive(Clone, Debug)]
pub struct Called {
    pub path: String,
    pub body: Value,
    pub idempotency_key: String,
    pub traceparent: String,
    /// Time of arrival on the clock of the engine's records.
    pub at: Timestamp,
    pub began: Instant,
    /// `None` while the call is in flight, and for good if the caller disconnected.
    pub ended: Option<Instant>,
}

/// Response to a call.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Status and body.
    Now(u16, Value),
    /// Status and body once the gate has a permit. It does not consume the permit.
    Gated(Arc<Semaphore>, u16, Value),
    /// No response.
    Hang,
}

impl From<(u16, Value)> for Answer {
    fn from((status, body): (u16, Value)) -> Self {
        Self::Now(status, body)
    }
}

type Handler = dyn Fn(&str, &Value) -> Answer + Send + Sync;

struct Inner {
    clock: Mutex<Clock>,
    calls: Mutex<Vec<Called>>,
    handler: Mutex<Arc<Handler>>,
}

/// The running API. It stops when the last clone is dropped.
#[derive(Clone)]
pub struct Api {
    pub base_url: String,
    pub connections: Connections,
    inner: Arc<Inner>,
    _stop: Arc<DropGuard>,
}

impl Api {
    /// Serves on a free port. By default every response is `{"done":true}`.
    pub async fn start() -> Self {
        let (connections, listener) = Connections::listen().await;
        let inner = Arc::new(Inner {
            clock: Mutex::default(),
            calls: Mutex::default(),
            handler: Mutex::new(Arc::new(|_, _| Answer::Now(200, json!({"done": true})))),
        });
        let (base_url, stop) = (format!("http://{}", connections.address()), CancellationToken::new());
        let (app, stopped) = (Router::new().fallback(answer).with_state(Arc::clone(&inner)), stop.clone());
        super::background(async move {
            tokio::select! {
                () = stopped.cancelled() => {}
                ended = async { axum::serve(listener, app).await } => ended.unwrap(),
            }
        });
        Self { base_url, connections, inner, _stop: Arc::new(stop.drop_guard()) }
    }

    /// Sets the handler, which returns the response by path and body of the call.
    pub fn script<A: Into<Answer>>(&self, handler: impl Fn(&str, &Value) -> A + Send + Sync + 'static) {
        *self.inner.handler.lock().unwrap() = Arc::new(move |path, body| handler(path, body).into());
    }

    /// Takes the times of calls from this clock.
    pub fn go_by(&self, clock: Clock) {
        *self.inner.clock.lock().unwrap() = clock;
    }

    /// True while a call waits for its response. Calls older than a second are ignored: their callers are gone.
    pub fn is_asked(&self) -> bool {
        let waits = |call: &Called| call.ended.is_none() && call.began.elapsed() < super::GIVEN_UP;
        self.inner.calls.lock().unwrap().iter().any(waits)
    }

    /// Clears the recorded calls.
    pub fn forget(&self) {
        self.inner.calls.lock().unwrap().clear();
    }

    /// Recorded calls whose path begins with `prefix`.
    pub fn calls(&self, prefix: &str) -> Vec<Called> {
        self.inner.calls.lock().unwrap().iter().filter(|call| call.path.starts_with(prefix)).cloned().collect()
    }
}

fn header(request: &Request, name: &str) -> String {
    request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

async fn answer(State(api): State<Arc<Inner>>, request: Request) -> Response {
    let path = request.uri().to_string();
    let (key, traceparent) = (header(&request, "idempotency-key"), header(&request, "traceparent"));
    let bytes: Bytes = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap_or_default();
    let body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let began = Instant::now();
    let index = {
        let mut calls = api.calls.lock().unwrap();
        calls.push(Called {
            path: path.clone(),
            body: body.clone(),
            idempotency_key: key,
            traceparent,
            at: api.clock.lock().unwrap().now(),
            began,
            ended: None,
        });
        calls.len() - 1
    };
    let handler = Arc::clone(&api.handler.lock().unwrap());
    let (status, answer) = match handler(&path, &body) {
        Answer::Now(status, answer) => (status, answer),
        Answer::Gated(gate, status, answer) => {
            drop(gate.acquire().await.unwrap());
            (status, answer)
        }
        Answer::Hang => std::future::pending().await,
    };
    if let Some(known) = api.calls.lock().unwrap().get_mut(index).filter(|known| known.began == began) {
        known.ended = Some(Instant::now());
    }
    (axum::http::StatusCode::from_u16(status).unwrap(), Json(answer)).into_response()
}
