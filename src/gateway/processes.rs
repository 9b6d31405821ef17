//! The running processes, as they announce themselves in the store.

use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use storage::store::Process;

/// Running processes, ordered by their start.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct ProcessList {
    processes: Vec<Process>,
}

/// Lists the processes that run now.
///
/// Each has its roles and the names of its models, flows, functions, secrets and private hosts; no values.
#[utoipa::path(get, path = "/api/v1/processes", operation_id = "list_processes", tag = "operation",
    responses((status = 200, description = "The processes", body = ProcessList)))]
pub(super) async fn list(State(state): State<GatewayState>) -> Result<Json<ProcessList>, Reject> {
    Ok(Json(ProcessList { processes: state.store.processes().await? }))
}
