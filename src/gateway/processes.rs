//! The running processes, as they announce themselves in the store.

use super::input::Filter;
use super::operation::Operation;
use super::roles::READERS;
use super::sessions::WidePageParams;
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use commands::paging::{Listing, fit, part_of};
use serde::Serialize;
use storage::store::Process;
use types::timestamp::Timestamp;

/// Running processes, ordered by their start.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct ProcessList {
    processes: Vec<Process>,
    /// The cursor of the next page: give it as `after`. Missing at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

pub(super) const LIST: Operation = Operation::get("/api/v1/processes", "operation", "list_processes")
    .roles(READERS)
    .summary("Lists the processes that run now.")
    .details("Each has its roles and the names of its models, flows, functions, secrets and private hosts; no values.")
    .query::<WidePageParams>()
    .ok::<ProcessList>("The processes");
pub(super) async fn list(
    State(state): State<GatewayState>,
    Filter(page): Filter<WidePageParams>,
) -> Result<Json<ProcessList>, Reject> {
    // A process without a time of its start is listed before all others.
    let place = |process: &Process| {
        (process.started_at.unwrap_or(Timestamp::from_millis(i64::MIN)), process.process_id.clone())
    };
    let page = part_of(state.store.processes().await?, &page.bounds()?, |process, after| place(process) > *after);
    let Listing { items: processes, next } = fit(page, place);
    Ok(Json(ProcessList { processes, next }))
}
