//! CORS: pages of other origins see only what `gateway.cors` permits. And request ids.

use crate::gateway::Gateway;
use crate::support::backend::embedded_with;
use crate::support::engine::DEADLINE;
use crate::support::eventually;
use crate::support::process::Process;
use crate::support::servers::free_port;
use base::config::{Backend, Settings};
use reqwest::header::HeaderMap;
use reqwest::{Method, Response};
use serde_json::{Value, json};

const PAGE: &str = "https://chat.example.com";

async fn gateway(cors: &[&str], tokens: &[&str]) -> Gateway {
    let mut settings = Settings::default();
    settings.gateway.cors = cors.iter().map(|origin| (*origin).to_owned()).collect();
    settings.gateway.tokens = tokens.iter().map(|token| (*token).to_owned()).collect();
    let backend = embedded_with(settings).await;
    Gateway::start(&backend.queue, &backend.store, &backend.settings).await
}

impl Gateway {
    async fn ask_as_page(&self, method: Method, path: &str, origin: &str, headers: &[(&str, &str)]) -> Response {
        let request = self.client.request(method, format!("{}{path}", self.base)).header("origin", origin);
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).send().await.unwrap()
    }

    /// The preflight request of a browser before a page's request with a token.
    async fn preflight(&self, origin: &str) -> Response {
        let asked = [
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "authorization,content-type"),
        ];
        self.ask_as_page(Method::OPTIONS, "/api/v1/messages", origin, &asked).await
    }
}

fn allowed(headers: &HeaderMap) -> Option<&str> {
    headers.get("access-control-allow-origin").map(|value| value.to_str().unwrap())
}

fn lists(headers: &HeaderMap, name: &str, wanted: &str) -> bool {
    let listed = headers[name].to_str().unwrap().to_lowercase();
    listed.split(',').any(|item| item.trim() == wanted)
}

#[tokio::test]
async fn a_listed_page_is_answered_before_it_shows_its_token_and_may_read_the_answer() {
    let gateway = gateway(&["https://Chat.example.com/"], &["s3cret"]).await;
    let preflight = gateway.preflight(PAGE).await;
    assert!(preflight.status().is_success(), "{}", preflight.status());
    let headers = preflight.headers();
    assert_eq!(allowed(headers), Some(PAGE));
    for method in ["get", "post", "put", "delete"] {
        assert!(lists(headers, "access-control-allow-methods", method), "{method}");
    }
    assert!(["authorization", "content-type", "last-event-id", "traceparent", "tracestate"].iter().all(|name| lists(
        headers,
        "access-control-allow-headers",
        name
    )));
    assert!(headers.contains_key("x-request-id"));

    let listed = gateway.ask_as_page(Method::GET, "/api/v1/agents", PAGE, &[("authorization", "Bearer s3cret")]).await;
    assert_eq!((listed.status().as_u16(), allowed(listed.headers())), (200, Some(PAGE)));
    assert!(lists(listed.headers(), "access-control-expose-headers", "x-request-id"));
    let refused = gateway.ask_as_page(Method::GET, "/api/v1/agents", PAGE, &[]).await;
    assert_eq!((refused.status().as_u16(), allowed(refused.headers())), (401, Some(PAGE)), "a page can read why");
}

#[tokio::test]
async fn other_pages_may_not_read_anything() {
    let listed = gateway(&[PAGE], &["s3cret"]).await;
    let none = gateway(&[], &["s3cret"]).await;
    for gateway in [&listed, &none] {
        assert_eq!(allowed(gateway.preflight("https://evil.example").await.headers()), None);
        let answer =
            gateway.ask_as_page(Method::GET, "/healthz", "https://evil.example", &[("authorization", "Bearer s3cret")]);
        assert_eq!(allowed(answer.await.headers()), None);
    }
    let all = gateway(&["*"], &["s3cret"]).await;
    assert_eq!(allowed(all.preflight("https://anywhere.example").await.headers()), Some("*"));
}

#[tokio::test]
async fn without_tokens_a_listed_page_may_call_and_others_may_not() {
    let gateway = gateway(&["https://chat.example.com"], &[]).await;
    let listed = gateway.ask_as_page(Method::GET, "/api/v1/agents", PAGE, &[]).await;
    assert_eq!((listed.status().as_u16(), allowed(listed.headers())), (200, Some(PAGE)));
    assert_eq!(gateway.ask_as_page(Method::GET, "/api/v1/agents", "https://evil.example", &[]).await.status(), 403);
}

#[tokio::test]
async fn every_answer_has_a_request_id() {
    let gateway = gateway(&[PAGE], &["s3cret"]).await;
    for (method, path, token) in [
        (Method::GET, "/healthz", ""),
        (Method::GET, "/metrics", "Bearer s3cret"),
        (Method::GET, "/openapi.json", "Bearer s3cret"),
        (Method::GET, "/api/v1/sessions/s1/events", "Bearer s3cret"),
        (Method::GET, "/nowhere", "Bearer s3cret"),
        (Method::DELETE, "/api/v1/messages", "Bearer s3cret"),
        (Method::POST, "/api/v1/messages", "Bearer s3cret"),
        (Method::GET, "/api/v1/agents", "Bearer wrong"),
    ] {
        let given = [("authorization", token), ("x-request-id", "r-1")];
        let answer = gateway.ask_as_page(method.clone(), path, PAGE, &given).await;
        assert_eq!(answer.headers()["x-request-id"], "r-1", "{method} {path}");
        let made = gateway.ask_as_page(method.clone(), path, PAGE, &given[..1]).await;
        assert!(!made.headers()["x-request-id"].is_empty(), "{method} {path}");
    }
}

#[tokio::test]
async fn what_is_logged_for_a_request_has_its_id() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = Settings { backend: Backend::Embedded, ..Settings::default() };
    settings.gateway.listen = ([127, 0, 0, 1], free_port()).into();
    let log = "info,turnwheel_commands=debug";
    let _dev = Process::start(dir.path(), &settings, &["--log-json", "--log", log, "dev"]);
    let client = base::http_client::builder().no_proxy().build().unwrap();
    let url = format!("http://{}/api/v1/messages", settings.gateway.listen);
    let message = json!({"session_id": "s1", "agent_id": "sales", "text": "hi", "colour": "red"});
    let line: Value = eventually(DEADLINE, "the message is posted and logged", || async {
        let _ = client.post(&url).header("x-request-id", "r-77").json(&message).send().await;
        let log = Process::log(dir.path());
        let line = log.lines().find(|line| line.contains("colour"))?;
        serde_json::from_str(line).ok()
    })
    .await;
    assert_eq!(line["spans"][0]["request_id"], "r-77", "{line}");
    assert_eq!(line["spans"][0]["path"], "/api/v1/messages", "{line}");
}
