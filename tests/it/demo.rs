//! The demo API, over HTTP.

use base::tasks::{OnPanic, Tasks};
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

pub struct DemoApi {
    pub base: String,
    client: Client,
    tasks: Tasks,
}

impl DemoApi {
    pub async fn start() -> Self {
        // Another test of the process may have installed the provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let tasks = Tasks::new();
        let stop: CancellationToken = tasks.stop_token();
        tasks.spawn("demo", OnPanic::Log, async move { lab::demo::serve(listener, stop).await.unwrap() });
        Self { base, client: Client::new(), tasks }
    }

    pub async fn get(&self, path: &str) -> (StatusCode, Value) {
        let answer = self.client.get(format!("{}{path}", self.base)).send().await.unwrap();
        (answer.status(), answer.json().await.unwrap())
    }

    async fn post(&self, path: &str, key: &str, body: &str) -> (StatusCode, Value) {
        let mut request = self.client.post(format!("{}{path}", self.base)).body(body.to_owned());
        if !key.is_empty() {
            request = request.header("Idempotency-Key", key);
        }
        let answer = request.send().await.unwrap();
        (answer.status(), answer.json().await.unwrap())
    }
}

#[tokio::test]
async fn orders_and_deliveries_are_found_however_they_are_written() {
    let api = DemoApi::start().await;
    for id in ["A1001", "a1001"] {
        let (status, order) = api.get(&format!("/orders/{id}")).await;
        assert_eq!((status, &order["order_id"]), (StatusCode::OK, &json!("A1001")));
        assert!(order["summary"].as_str().unwrap().contains("已发货"));
    }
    let (_, eta) = api.get("/eta?order_id=A1001&delay_ms=20").await;
    assert_eq!(eta["days"], 2);
    assert!(eta["summary"].as_str().unwrap().contains("已发货") && eta["summary"].as_str().unwrap().contains("2 天"));
    for path in ["/orders/X9", "/eta", "/nothing"] {
        let (status, error) = api.get(path).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert!(error["error"]["message"].is_string() && error["error"]["hint"].is_string(), "{error}");
    }
}

#[tokio::test]
async fn an_effect_with_the_same_key_happens_once() {
    let api = DemoApi::start().await;
    let body = r#"{"phone":"13800138000","model":"S7","date":"周六"}"#;
    let (status, first) = api.post("/bookings", "k1", body).await;
    assert_eq!((status, first["booking_id"].as_str().unwrap()), (StatusCode::CREATED, "TD-0001"));
    assert!(!first.to_string().contains("13800138000"));
    assert_eq!(api.post("/bookings", "k1", body).await, (status, first));
    assert_eq!(api.post("/bookings", "k2", body).await.1["booking_id"], "TD-0002");
    assert_eq!(api.post("/bookings", "", body).await.1["booking_id"], "TD-0003");
    assert_eq!(api.post("/bookings", "k3", "{}").await.0, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(api.post("/bookings", "k3", "{").await.0, StatusCode::BAD_REQUEST);
    assert_eq!(api.post("/followups", "k1", "").await.0, StatusCode::CREATED);
    let (status, taken) = api.post("/desk", "k1", r#"{"event":"handoff","session_id":"s1","text":"转人工"}"#).await;
    assert_eq!((status, &taken["session_id"]), (StatusCode::OK, &json!("s1")));

    let (_, log) = api.get("/log").await;
    assert_eq!(log["counts"]["POST /bookings"], json!({"calls": 6, "effects": 3}));
    let repeats = log["calls"].as_array().unwrap().iter().filter(|call| call["repeat"] == true).count();
    assert_eq!(repeats, 1);
    assert_eq!(log["calls"][0]["endpoint"], "POST /desk");
    assert!(log["calls"][0]["about"].as_str().unwrap().contains("转人工"));
}

#[tokio::test]
async fn stopping_does_not_wait_for_a_slow_answer() {
    let api = DemoApi::start().await;
    let slow = api.client.get(format!("{}/orders/SLOW-1", api.base)).send();
    let stopping = async {
        let seen = async { while api.get("/log").await.1["calls"] == json!([]) {} };
        tokio::time::timeout(Duration::from_secs(5), seen).await.unwrap();
        // Less than the order's own delay of five seconds.
        assert!(api.tasks.shutdown(Duration::from_secs(3)).await);
    };
    let (answer, ()) = tokio::join!(slow, stopping);
    assert_eq!(answer.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn operations_have_incidents_health_and_logs() {
    let api = DemoApi::start().await;
    let (status, found) = api.get("/servicenow/incidents?priority=p1&hours=24").await;
    assert_eq!(
        (status, &found["count"], &found["incidents"][0]["service"]),
        (StatusCode::OK, &json!(2), &json!("payment"))
    );
    assert!(found["summary"].as_str().unwrap().contains("INC0101"), "{found}");
    assert_eq!(api.get("/servicenow/incidents?priority=P4").await.1["count"], 0);
    assert_eq!(api.get("/health/services").await.1["services"].as_array().unwrap().len(), 5);
    let (_, payment) = api.get("/health/services?name=Payment").await;
    assert_eq!(payment["services"][0]["status"], "degraded");
    let (_, logs) = api.get("/logs/search?service=payment&query=TIMEOUT").await;
    assert_eq!((&logs["count"], &logs["entries"][0]["level"]), (&json!(1), &json!("ERROR")));
    for (path, status, code) in [
        ("/servicenow/incidents?hours=many", StatusCode::UNPROCESSABLE_ENTITY, "bad_hours"),
        ("/health/services?name=mail", StatusCode::NOT_FOUND, "unknown_service"),
        ("/logs/search?service=mail", StatusCode::NOT_FOUND, "unknown_service"),
        ("/logs/search?service=legacy-billing", StatusCode::NOT_FOUND, "not_collected"),
    ] {
        let (found, error) = api.get(path).await;
        assert_eq!((found, &error["error"]["code"]), (status, &json!(code)), "{path}");
    }
}
