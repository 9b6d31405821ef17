//! The running processes, as they announce themselves.

use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use storage::store::Process;

/// Processes, by their start.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct ProcessList {
    processes: Vec<Process>,
}

/// The processes that run now, with the names of models, flows, functions, secrets and private hosts that they have.
#[utoipa::path(get, path = "/api/v1/processes", operation_id = "list_processes", tag = "operation",
    responses((status = 200, description = "Processes", body = ProcessList)))]
pub(super) async fn list(State(state): State<GatewayState>) -> Result<Json<ProcessList>, Reject> {
    Ok(Json(ProcessList { processes: state.store.processes().await? }))
}
