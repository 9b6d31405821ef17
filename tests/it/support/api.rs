//! The API behind skills and tools: answers what it is told to and remembers every call.

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// One call.
#[derive(Clone, Debug)]
pub struct Called {
    pub path: String,
    pub body: Value,
    pub idempotency_key: String,
    pub began: Instant,
    pub ended: Option<Instant>,
}

type Handler = dyn Fn(&str, &Value) -> (u16, Value, Duration) + Send + Sync;

/// See the module.
#[derive(Clone)]
pub struct Api {
    pub base_url: String,
    calls: Arc<Mutex<Vec<Called>>>,
    handler: Arc<Mutex<Arc<Handler>>>,
}

impl Api {
    /// Serves on a free port for the rest of the test; every call is answered by `{"done":true}`.
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api = Self {
            base_url: format!("http://{}", listener.local_addr().unwrap()),
            calls: Arc::default(),
            handler: Arc::new(Mutex::new(Arc::new(|_, _| (200, json!({"done": true}), Duration::ZERO)))),
        };
        let app = Router::new().fallback(answer).with_state(api.clone());
        super::background(async move { axum::serve(listener, app).await.unwrap() });
        api
    }

    /// Changes what it answers: status, body and delay by path and body of the call.
    pub fn script(&self, handler: impl Fn(&str, &Value) -> (u16, Value, Duration) + Send + Sync + 'static) {
        *self.handler.lock().unwrap() = Arc::new(handler);
    }

    /// Calls so far whose path begins with `prefix`.
    pub fn calls(&self, prefix: &str) -> Vec<Called> {
        self.calls.lock().unwrap().iter().filter(|call| call.path.starts_with(prefix)).cloned().collect()
    }
}

async fn answer(State(api): State<Api>, request: Request) -> Response {
    let path = request.uri().to_string();
    let key = request.headers().get("idempotency-key").map(|value| value.to_str().unwrap_or_default().to_owned());
    let bytes: Bytes = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap_or_default();
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let index = {
        let mut calls = api.calls.lock().unwrap();
        calls.push(Called {
            path: path.clone(),
            body,
            idempotency_key: key.unwrap_or_default(),
            began: Instant::now(),
            ended: None,
        });
        calls.len() - 1
    };
    let body = api.calls.lock().unwrap()[index].body.clone();
    let handler = Arc::clone(&api.handler.lock().unwrap());
    let (status, answer, delay) = handler(&path, &body);
    tokio::time::sleep(delay).await;
    api.calls.lock().unwrap()[index].ended = Some(Instant::now());
    (axum::http::StatusCode::from_u16(status).unwrap(), Json(answer)).into_response()
}
