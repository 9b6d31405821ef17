//! The running processes, as they announce themselves in the store.

use super::operation::Operation;
use super::roles::READERS;
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use storage::store::Process;

/// Running processes, ordered by their start.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct ProcessList {
    processes: Vec<Process>,
}

pub(super) const LIST: Operation = Operation::get("/api/v1/processes", "operation", "list_processes")
    .roles(READERS)
    .summary("Lists the processes that run now.")
    .details("Each has its roles and the names of its models, flows, functions, secrets and private hosts; no values.")
    .ok::<ProcessList>("The processes");
pub(super) async fn list(State(state): State<GatewayState>) -> Result<Json<ProcessList>, Reject> {
    Ok(Json(ProcessList { processes: state.store.processes().await? }))
}
