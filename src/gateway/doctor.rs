//! What is wrong here, as this process sees it.

use super::GatewayState;
use axum::Json;
use axum::extract::State;
use commands::doctor::{self, Finding};
use serde::Serialize;

/// What was looked at.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Findings {
    findings: Vec<Finding>,
}

/// What is wrong with this deployment, and what to change.
#[utoipa::path(get, path = "/api/v1/doctor", operation_id = "doctor", tag = "operation",
    responses((status = 200, description = "Findings", body = Findings)))]
pub(super) async fn examine(State(state): State<GatewayState>) -> Json<Findings> {
    let (queue, store) = (state.queue.as_ref(), state.store.as_ref());
    let mut findings = doctor::files(&state.settings);
    findings.extend(doctor::telemetry(&state.settings).await);
    findings.extend(doctor::work(queue, store, (&state.settings, &state.known)).await);
    findings.extend(doctor::unapplied(store, &state.settings).await);
    Json(Findings { findings })
}
