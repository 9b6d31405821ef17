//! `/healthz`: the process runs. `/readyz`: queue and store answer.

use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use std::fmt::Display;
use std::future::Future;
use std::time::Duration;
use tracing::warn;

/// How long queue and store may take to answer.
const LIMIT: Duration = Duration::from_secs(2);

/// 200 while the process runs.
pub(super) async fn alive() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// 200 while queue and store answer, else 503 that names which is away.
pub(super) async fn ready(State(state): State<GatewayState>) -> Result<Json<Value>, Reject> {
    let (queue, store) = tokio::join!(answers("queue", state.queue.ping()), answers("store", state.store.ping()));
    let away: Vec<&str> =
        [(queue, "queue"), (store, "store")].into_iter().filter(|(up, _)| !up).map(|(_, name)| name).collect();
    if away.is_empty() {
        return Ok(Json(json!({ "status": "ready" })));
    }
    let message = format!("away: {}", away.join(", "));
    let hint = "`queue` is NATS (setting nats.url), `store` is MongoDB (setting mongodb.uri); see the gateway's log";
    Err(Reject::unavailable("not_ready", message, hint))
}

async fn answers<E: Display>(name: &str, ping: impl Future<Output = Result<(), E>>) -> bool {
    match tokio::time::timeout(LIMIT, ping).await {
        Ok(Ok(())) => true,
        Ok(Err(problem)) => {
            warn!("the {name} is away: {problem}");
            false
        }
        Err(_) => {
            warn!("the {name} does not answer within {LIMIT:?}");
            false
        }
    }
}
