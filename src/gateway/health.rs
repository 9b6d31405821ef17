//! `/healthz`: the process runs. `/readyz`: the queue and the store respond.

use super::operation::Operation;
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tracing::warn;

/// How long the queue and the store may take to respond.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the result of an examination counts.
const READY_TTL: Duration = Duration::from_secs(1);

/// The health of the process.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct Condition {
    /// `ok` or `ready`.
    #[schemars(extend("example" = "ok"))]
    status: &'static str,
}

pub(super) const ALIVE: Operation = Operation::get("/healthz", "operation", "healthz")
    .summary("Reports that the process runs.")
    .ok::<Condition>("The process runs");
pub(super) async fn alive() -> Json<Condition> {
    Json(Condition { status: "ok" })
}

pub(super) const READY: Operation = Operation::get("/readyz", "operation", "readyz")
    .summary("Reports whether the queue and the store respond.")
    .details("503 `not_ready` names the part that is unreachable.")
    .ok::<Condition>("The queue and the store respond");
pub(super) async fn ready(State(state): State<GatewayState>) -> Result<Json<Condition>, Reject> {
    let away = state.readiness.away(&state).await;
    if away.is_empty() {
        return Ok(Json(Condition { status: "ready" }));
    }
    let message = format!("unreachable: {}", away.join(", "));
    let hint = "`queue` is NATS (setting nats.url), `store` is MongoDB (setting mongodb.uri); see the gateway's log";
    Err(Reject::unavailable("not_ready", message, hint))
}

/// The result of the last examination. It needs no token, so many requests must not become many examinations.
#[derive(Clone, Debug, Default)]
pub(super) struct Readiness(Arc<Mutex<Option<Examined>>>);

#[derive(Debug)]
struct Examined {
    at: Instant,
    /// The names of the parts that did not respond.
    away: Vec<&'static str>,
}

impl Readiness {
    /// The names of the parts that do not respond.
    async fn away(&self, state: &GatewayState) -> Vec<&'static str> {
        let mut last = self.0.lock().await;
        if let Some(Examined { away, .. }) = last.as_ref().filter(|last| last.at.elapsed() < READY_TTL) {
            return away.clone();
        }
        let (queue, store) =
            tokio::join!(is_reachable("queue", state.queue.ping()), is_reachable("store", state.store.ping()));
        let parts = [(queue, "queue"), (store, "store")];
        let away: Vec<&str> = parts.into_iter().filter(|(up, _)| !up).map(|(_, name)| name).collect();
        *last = Some(Examined { at: Instant::now(), away: away.clone() });
        away
    }
}

async fn is_reachable<E: Display>(name: &str, ping: impl Future<Output = Result<(), E>>) -> bool {
    match tokio::time::timeout(CHECK_TIMEOUT, ping).await {
        Ok(Ok(())) => true,
        Ok(Err(problem)) => {
            warn!("the {name} is unreachable: {problem}");
            false
        }
        Err(_) => {
            warn!("the {name} is unreachable: timed out after {CHECK_TIMEOUT:?}");
            false
        }
    }
}
