//! Rules that hold for every request, on the embedded backend.

use crate::*;
use base::tasks::{OnPanic, Tasks};
use embedded::queue::EmbeddedQueue;
use embedded::store::{EmbeddedFile, EmbeddedStore};
use reqwest::{Client, Method, Response};
use serde_json::Value;
use tokio::net::TcpListener;

pub(crate) struct Running {
    base: String,
    client: Client,
    tasks: Tasks,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

pub(crate) async fn state(tokens: &[&str]) -> GatewayState {
    state_with(tokens, |_| {}).await
}

async fn state_with(tokens: &[&str], edit: impl FnOnce(&mut Settings)) -> GatewayState {
    let mut settings = Settings::default();
    edit(&mut settings);
    settings.gateway.tokens = tokens.iter().map(|token| (*token).to_owned()).collect();
    let file = EmbeddedFile::in_memory().unwrap();
    let queue = EmbeddedQueue::new(Arc::clone(&file), &settings, &Tasks::new()).await.unwrap();
    let store = EmbeddedStore::new(file, &settings).unwrap();
    GatewayState::new(queue, store, Arc::new(settings))
}

async fn start(tokens: &[&str]) -> Running {
    start_with(tokens, |_| {}).await
}

/// A gateway with these administrators' tokens and edited settings.
pub(crate) async fn start_with(tokens: &[&str], edit: impl FnOnce(&mut Settings)) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let tasks = Tasks::new();
    let (state, stop) = (state_with(tokens, edit).await, tasks.stop_token());
    tasks.spawn("gateway", OnPanic::Log, async move { serve(listener, state, stop).await.unwrap() });
    Running { base, client: client(), tasks }
}

/// A client that shows redirections.
fn client() -> Client {
    base::http_client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap()
}

impl Running {
    /// Sends a GET with these headers.
    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        let request = self.client.get(format!("{}{path}", self.base));
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).send().await.unwrap()
    }

    async fn send(&self, method: Method, path: &str) -> Response {
        self.client.request(method, format!("{}{path}", self.base)).send().await.unwrap()
    }

    async fn refusal(&self, method: Method, path: &str) -> (u16, String) {
        let response = self.send(method, path).await;
        let status = response.status().as_u16();
        let body: Value = response.json().await.unwrap();
        (status, body["error"]["code"].as_str().unwrap().to_owned())
    }
}

#[tokio::test]
async fn unknown_paths_methods_and_ids_are_refused_in_one_shape() {
    let gateway = start(&[]).await;
    for (method, path, status, code) in [
        (Method::GET, "/nowhere", 404, "unknown_path"),
        (Method::GET, "/api/v1/messages", 405, "wrong_method"),
        (Method::POST, "/healthz", 405, "wrong_method"),
        (Method::GET, "/api/v1/sessions/a.b", 400, "invalid_id"),
        (Method::GET, "/api/v1/sessions/%FF", 400, "invalid_path"),
        (Method::GET, "/api/v1/sessions/a%2Fb/events", 400, "invalid_id"),
        (Method::POST, "/api/v1/sessions/%24a/cancel", 400, "invalid_id"),
        (Method::GET, "/api/v1/agents/a%20b", 400, "invalid_id"),
        (Method::GET, "/api/v1/agents/%E5%AE%A2%E6%9C%8D", 404, "unknown_agent"),
        (Method::GET, "/api/v1/sessions/s1", 404, "unknown_session"),
        (Method::GET, "/api/v1/sessions/s1/events", 404, "unknown_session"),
        (Method::GET, "/api/v1/sessions/s1/turns", 404, "unknown_session"),
        (Method::GET, "/api/v1/sessions/s1/turns/t1", 404, "unknown_session"),
        (Method::POST, "/api/v1/sessions/s1/close", 404, "unknown_session"),
        (Method::GET, "/api/v1/sessions?status=asleep", 400, "invalid_query"),
        (Method::GET, "/api/v1/sessions?limit=0", 400, "invalid_query"),
        (Method::GET, "/api/v1/sessions/s1/events?last_event_id=x", 400, "invalid_event_id"),
    ] {
        assert_eq!(gateway.refusal(method.clone(), path).await, (status, code.to_owned()), "{method} {path}");
    }
}

#[tokio::test]
async fn with_tokens_everything_but_health_asks_for_one() {
    let gateway = start(&["s3cret"]).await;
    assert_eq!(gateway.send(Method::GET, "/healthz").await.status(), 200);
    assert_eq!(gateway.send(Method::GET, "/readyz").await.status(), 200);
    for path in ["/api/v1/agents", "/api/v1/sessions/s1/events", "/nowhere"] {
        assert_eq!(gateway.refusal(Method::GET, path).await, (401, "unauthorized".to_owned()), "{path}");
    }
    let url = format!("{}/api/v1/agents", gateway.base);
    assert_eq!(gateway.client.get(&url).bearer_auth("wrong").send().await.unwrap().status(), 401);
    assert_eq!(gateway.client.get(&url).bearer_auth("s3cret").send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_request_id_is_echoed_or_made() {
    let gateway = start(&[]).await;
    let url = format!("{}/healthz", gateway.base);
    let echoed = gateway.client.get(&url).header("x-request-id", "r-1").send().await.unwrap();
    assert_eq!(echoed.headers()["x-request-id"], "r-1");
    let made = gateway.send(Method::GET, "/nowhere").await;
    assert!(!made.headers()["x-request-id"].is_empty());
}

/// More than the buffers of both sides of a connection take.
const MANY: usize = 64;

#[tokio::test]
async fn a_client_that_does_not_read_loses_its_connection() {
    let state = state(&[]).await;
    let event = |number: usize| types::event::OutEvent {
        channel: "web".into(),
        session_id: "s1".into(),
        event_type: types::event::EventType::Reply,
        msg_id: Some(format!("s1/{number}")),
        payload: serde_json::json!({"text": "x".repeat(256 * 1024)}).to_string().into(),
    };
    state.queue.emit((0..MANY).map(event).collect()).await.unwrap();
    let (write_time, limits) = (std::time::Duration::from_millis(200), state.limits);
    let state = state.with_limits(Limits { connections: 1, write_time, ..limits });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tasks = Tasks::new();
    let stop = tasks.stop_token();
    tasks.spawn("gateway", OnPanic::Log, async move { serve(listener, state, stop).await.unwrap() });
    let mut slow = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = b"GET /api/v1/sessions/s1/events?last_event_id=0 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
    tokio::io::AsyncWriteExt::write_all(&mut slow, request).await.unwrap();
    slow.readable().await.unwrap();
    // The only connection is free again when the slow client has lost it.
    let client = base::http_client::builder().no_proxy().build().unwrap();
    let next = client.get(format!("http://{address}/healthz")).send();
    let answered = tokio::time::timeout(std::time::Duration::from_secs(30), next).await;
    assert_eq!(answered.expect("the slow client keeps its connection").unwrap().status(), 200);
    tasks.stop();
}

#[tokio::test]
async fn without_tokens_only_loopback_is_served() {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let error = serve(listener, state(&[" "]).await, CancellationToken::new()).await.unwrap_err().to_string();
    assert!(error.contains("gateway.tokens"), "{error}");
}
