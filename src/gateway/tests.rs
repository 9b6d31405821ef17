//! Rules that hold for every request, on the embedded backend.

use crate::*;
use base::tasks::{OnPanic, Tasks};
use embedded::queue::EmbeddedQueue;
use embedded::store::{EmbeddedFile, EmbeddedStore};
use reqwest::{Client, Method, Response};
use serde_json::Value;
use tokio::net::TcpListener;

struct Running {
    base: String,
    client: Client,
    tasks: Tasks,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

async fn state(tokens: &[&str]) -> GatewayState {
    let mut settings = Settings::default();
    settings.gateway.tokens = tokens.iter().map(|token| (*token).to_owned()).collect();
    let file = EmbeddedFile::in_memory().unwrap();
    let queue = EmbeddedQueue::new(Arc::clone(&file), &settings, &Tasks::new()).await.unwrap();
    let store = EmbeddedStore::new(file, &settings).unwrap();
    GatewayState::new(queue, store, Arc::new(settings))
}

async fn start(tokens: &[&str]) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let tasks = Tasks::new();
    let (state, stop) = (state(tokens).await, tasks.stop_token());
    tasks.spawn("gateway", OnPanic::Log, async move { serve(listener, state, stop).await.unwrap() });
    Running { base, client: base::http_client::builder().no_proxy().build().unwrap(), tasks }
}

impl Running {
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

#[tokio::test]
async fn without_tokens_only_loopback_is_served() {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let error = serve(listener, state(&[" "]).await, CancellationToken::new()).await.unwrap_err().to_string();
    assert!(error.contains("gateway.tokens"), "{error}");
}
