//! The demo API that `turnwheel dev` serves for the starter agents. It has invented orders, deliveries, bookings,
//! follow-ups, a service desk, and the incidents, health and logs of a few services, all in memory. `GET /log` lists
//! the calls, which shows that each action took effect once.
//!
//! This file has the handlers, [`orders`] and [`ops`] the data, [`log`] the record of calls.

mod log;
mod ops;
mod orders;

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use log::{Log, LoggedCall};
use orders::Order;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Port on the loopback address that the starter agents call.
pub const PORT: u16 = 8090;

/// Upper limit of `delay_ms`.
const MAX_DELAY: Duration = Duration::from_secs(60);

type DemoResponse = (StatusCode, Json<Value>);

#[derive(Clone)]
struct Demo {
    log: Arc<Mutex<Log>>,
    stop: CancellationToken,
}

/// Serves until `stop` is cancelled, which also ends the delays of calls in flight.
pub async fn serve(listener: TcpListener, stop: CancellationToken) -> std::io::Result<()> {
    let demo = Demo { log: Arc::default(), stop: stop.clone() };
    axum::serve(listener, router(demo)).with_graceful_shutdown(stop.cancelled_owned()).await
}

fn router(demo: Demo) -> Router {
    Router::new()
        .route("/orders/{order_id}", get(order))
        .route("/eta", get(eta))
        .route("/bookings", post(book))
        .route("/followups", post(follow_up))
        .route("/desk", post(desk))
        .route("/servicenow/incidents", get(incidents))
        .route("/health/services", get(health))
        .route("/logs/search", get(logs))
        .route("/log", get(show_log))
        .fallback(async || {
            failure(
                StatusCode::NOT_FOUND,
                "unknown_path",
                "unknown path",
                "GET /log lists the endpoints that were called",
            )
        })
        .with_state(demo)
}

#[derive(Default, Deserialize)]
struct Wait {
    #[serde(default)]
    order_id: String,
    #[serde(default)]
    delay_ms: u64,
}

async fn order(
    State(demo): State<Demo>,
    Path(order_id): Path<String>,
    Query(wait): Query<Wait>,
    headers: HeaderMap,
) -> DemoResponse {
    let number = demo.begin_call("GET /orders/{order_id}", &headers, &order_id);
    let found = orders::find(&order_id);
    let delay = found.as_ref().map_or(Duration::ZERO, Order::delay).max(Duration::from_millis(wait.delay_ms));
    demo.wait(delay).await;
    let answer = found.map_or_else(|| unknown_order(&order_id), |order| (StatusCode::OK, Json(order.status())));
    demo.end(number, answer)
}

async fn eta(State(demo): State<Demo>, Query(wait): Query<Wait>, headers: HeaderMap) -> DemoResponse {
    let number = demo.begin_call("GET /eta", &headers, &wait.order_id);
    demo.wait(Duration::from_millis(wait.delay_ms)).await;
    let answer = match orders::find(&wait.order_id) {
        Some(order) => (StatusCode::OK, Json(order.arrival())),
        None => unknown_order(&wait.order_id),
    };
    demo.end(number, answer)
}

async fn book(State(demo): State<Demo>, headers: HeaderMap, body: Bytes) -> DemoResponse {
    demo.once("POST /bookings", &headers, &body, |number, booking| {
        let id = format!("TD-{number:04}");
        let text = |name: &str| booking[name].as_str().filter(|text| !text.is_empty());
        let Some(phone) = text("phone") else {
            return failure(StatusCode::UNPROCESSABLE_ENTITY, "no_phone", "预约需要手机号", "send `phone`");
        };
        let model = text("model").unwrap_or("店内推荐车型");
        // Only the last digits, so that the full phone number does not appear in logs and replies.
        let end: String = phone.chars().rev().take(4).collect::<Vec<_>>().into_iter().rev().collect();
        let summary = format!("已预约试驾 {model}，预约号 {id}，手机尾号 {end}，顾问会在当天与您确认时间");
        (
            StatusCode::CREATED,
            Json(json!({ "booking_id": id, "model": model, "date": booking["date"], "summary": summary })),
        )
    })
}

async fn follow_up(State(demo): State<Demo>, headers: HeaderMap, body: Bytes) -> DemoResponse {
    demo.once("POST /followups", &headers, &body, |number, note| {
        (StatusCode::CREATED, Json(json!({ "followup_id": format!("F-{number:04}"), "reason": note["reason"] })))
    })
}

/// The service desk: accepts a handoff and the user's later messages.
async fn desk(State(demo): State<Demo>, headers: HeaderMap, body: Bytes) -> DemoResponse {
    demo.once("POST /desk", &headers, &body, |number, event| {
        let ticket = format!("D-{number:04}");
        (StatusCode::OK, Json(json!({ "accepted": true, "ticket": ticket, "session_id": event["session_id"] })))
    })
}

#[derive(Default, Deserialize)]
struct OpsQuery {
    #[serde(default)]
    priority: String,
    #[serde(default)]
    hours: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    service: String,
    #[serde(default)]
    query: String,
    #[serde(default)]
    delay_ms: u64,
}

async fn incidents(State(demo): State<Demo>, Query(asked): Query<OpsQuery>, headers: HeaderMap) -> DemoResponse {
    let about = format!("{} {}", asked.priority, asked.hours);
    let number = demo.begin_call("GET /servicenow/incidents", &headers, about.trim());
    demo.wait(Duration::from_millis(asked.delay_ms)).await;
    let hours = if asked.hours.trim().is_empty() { Ok(24) } else { asked.hours.trim().parse::<u64>() };
    let answer = match hours {
        Ok(hours) => (StatusCode::OK, Json(ops::incidents(asked.priority.trim(), hours))),
        Err(_) => {
            failure(StatusCode::UNPROCESSABLE_ENTITY, "bad_hours", "`hours` 要是整数", "send a number, such as 24")
        }
    };
    demo.end(number, answer)
}

async fn health(State(demo): State<Demo>, Query(asked): Query<OpsQuery>, headers: HeaderMap) -> DemoResponse {
    let number = demo.begin_call("GET /health/services", &headers, &asked.name);
    demo.wait(Duration::from_millis(asked.delay_ms)).await;
    let found = ops::health(&asked.name);
    let answer = found.map_or_else(|| unknown_service(&asked.name), |services| (StatusCode::OK, Json(services)));
    demo.end(number, answer)
}

async fn logs(State(demo): State<Demo>, Query(asked): Query<OpsQuery>, headers: HeaderMap) -> DemoResponse {
    let about = format!("{} {}", asked.service, asked.query);
    let number = demo.begin_call("GET /logs/search", &headers, about.trim());
    demo.wait(Duration::from_millis(asked.delay_ms)).await;
    let answer = match ops::logs(&asked.service, &asked.query) {
        Ok(found) => (StatusCode::OK, Json(found)),
        Err(ops::NoLogs::Unknown) => unknown_service(&asked.service),
        Err(ops::NoLogs::NotCollected) => {
            let hint = "ask the operators of the service";
            failure(StatusCode::NOT_FOUND, "not_collected", &format!("{} 的日志没有接入平台", asked.service), hint)
        }
    };
    demo.end(number, answer)
}

async fn show_log(State(demo): State<Demo>) -> Json<Value> {
    Json(demo.log().show())
}

impl Demo {
    fn log(&self) -> std::sync::MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a call on arrival, so that the log also has calls whose caller was killed while it waited.
    fn begin_call(&self, endpoint: &'static str, headers: &HeaderMap, about: &str) -> u64 {
        self.log().begin_call(LoggedCall::new(endpoint, key(headers), about))
    }

    fn end(&self, number: u64, answer: DemoResponse) -> DemoResponse {
        self.log().end(number, answer.0.as_u16());
        answer
    }

    async fn wait(&self, delay: Duration) {
        if !delay.is_zero() {
            let _ = tokio::time::timeout(delay.min(MAX_DELAY), self.stop.cancelled()).await;
        }
    }

    /// Runs `effect` once for each `Idempotency-Key`. A repeated call gets the first response.
    fn once(
        &self,
        endpoint: &'static str,
        headers: &HeaderMap,
        body: &[u8],
        effect: impl FnOnce(u64, &Value) -> DemoResponse,
    ) -> DemoResponse {
        let parsed = match body {
            [] => Ok(json!({})),
            body => serde_json::from_slice::<Value>(body),
        };
        let mut log = self.log();
        let number = log.begin_call(LoggedCall::new(endpoint, key(headers), &String::from_utf8_lossy(body)));
        let answer = match (log.earlier(endpoint, key(headers)), parsed) {
            (Some((status, answer)), _) => {
                log.repeated(number);
                (StatusCode::from_u16(status).unwrap_or(StatusCode::OK), Json(answer))
            }
            (None, Err(error)) => {
                failure(StatusCode::BAD_REQUEST, "bad_json", &error.to_string(), "send a JSON object")
            }
            (None, Ok(content)) => {
                let answer = effect(log.next_effect(endpoint), &content);
                if answer.0.is_success() {
                    log.took_effect(endpoint, key(headers), answer.0.as_u16(), &answer.1.0);
                }
                answer
            }
        };
        log.end(number, answer.0.as_u16());
        answer
    }
}

fn key(headers: &HeaderMap) -> Option<&str> {
    headers.get("idempotency-key").and_then(|value| value.to_str().ok())
}

fn unknown_order(order_id: &str) -> DemoResponse {
    let order_id: String = order_id.chars().take(40).collect();
    let hint = format!("known order ids: {}", orders::IDS.join(", "));
    failure(StatusCode::NOT_FOUND, "unknown_order", &format!("没有订单 {order_id}"), &hint)
}

fn unknown_service(name: &str) -> DemoResponse {
    let name: String = name.chars().take(40).collect();
    let hint = format!("known services: {}", ops::services());
    failure(StatusCode::NOT_FOUND, "unknown_service", &format!("没有服务 {name}"), &hint)
}

fn failure(status: StatusCode, code: &str, message: &str, hint: &str) -> DemoResponse {
    (status, Json(json!({"error": {"code": code, "message": message, "hint": hint}})))
}
