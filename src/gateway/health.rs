//! `/healthz`: the process runs. `/readyz`: the queue and the store respond.

use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use std::fmt::Display;
use std::future::Future;
use std::time::Duration;
use tracing::warn;

/// How long the queue and the store may take to respond.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// The health of the process.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Condition {
    /// `ok` or `ready`.
    #[schema(example = "ok")]
    status: &'static str,
}

/// Reports that the process runs.
#[utoipa::path(get, path = "/healthz", operation_id = "healthz", tag = "operation",
    responses((status = 200, description = "The process runs", body = Condition)))]
pub(super) async fn alive() -> Json<Condition> {
    Json(Condition { status: "ok" })
}

/// Reports whether the queue and the store respond.
///
/// 503 `not_ready` names the part that is unreachable.
#[utoipa::path(get, path = "/readyz", operation_id = "readyz", tag = "operation",
    responses((status = 200, description = "The queue and the store respond", body = Condition)))]
pub(super) async fn ready(State(state): State<GatewayState>) -> Result<Json<Condition>, Reject> {
    let (queue, store) =
        tokio::join!(is_reachable("queue", state.queue.ping()), is_reachable("store", state.store.ping()));
    let away: Vec<&str> =
        [(queue, "queue"), (store, "store")].into_iter().filter(|(up, _)| !up).map(|(_, name)| name).collect();
    if away.is_empty() {
        return Ok(Json(Condition { status: "ready" }));
    }
    let message = format!("unreachable: {}", away.join(", "));
    let hint = "`queue` is NATS (setting nats.url), `store` is MongoDB (setting mongodb.uri); see the gateway's log";
    Err(Reject::unavailable("not_ready", message, hint))
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
