//! The doctor's checks, from the view of this process.

use super::GatewayState;
use super::operation::Operation;
use super::roles::READERS;
use axum::Json;
use axum::extract::State;
use commands::doctor::{self, Finding};
use serde::Serialize;

/// The results of all checks.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct Findings {
    findings: Vec<Finding>,
}

pub(super) const EXAMINE: Operation = Operation::get("/api/v1/doctor", "operation", "doctor")
    .roles(READERS)
    .summary("Checks this deployment and reports problems with their remedies.")
    .ok::<Findings>("The results of the checks");
pub(super) async fn examine(State(state): State<GatewayState>) -> Json<Findings> {
    let (queue, store) = (state.queue.as_ref(), state.store.as_ref());
    let mut findings = doctor::files(&state.settings);
    findings.extend(doctor::telemetry(&state.settings).await);
    findings.extend(doctor::python(&state.settings.python, &state.sandbox).await);
    findings.extend(doctor::connectors(&state.connectors).await);
    findings.extend(doctor::work(queue, store, &state.settings, &state.known).await);
    findings.extend(doctor::unapplied(store, &state.settings).await);
    Json(Findings { findings })
}
