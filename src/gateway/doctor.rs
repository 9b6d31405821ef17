//! What is wrong here, as this process sees it.

use super::GatewayState;
use crate::doctor;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

/// `GET /api/v1/doctor`
pub(super) async fn examine(State(state): State<GatewayState>) -> Json<Value> {
    let mut findings = doctor::files(&state.settings);
    findings.extend(doctor::work(state.queue.as_ref(), state.store.as_ref(), &state.settings, &state.flows).await);
    Json(json!({ "findings": findings }))
}
