//! The models with their circuits, and the agents and workflow stages that use them.

use super::input::Filter;
use super::operation::Operation;
use super::roles::{READERS, Reach};
use super::sessions::WidePageParams;
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use commands::models::{ModelList, list};
use engine::model::registry::ModelInfo;

pub(super) const SHOW: Operation = Operation::get("/api/v1/models", "agents", "list_models")
    .roles(READERS)
    .shows(Reach::Open)
    .summary("Lists agents, workflow stages and models, with the models that each of them uses.")
    .details(
        "Each agent has its models and its token budget, each stage the models that it names itself. The circuits are \
         those of this process. Keys and addresses are not shown. A page goes through the three lists, one after the other.",
    )
    .query::<WidePageParams>()
    .ok::<ModelList>("The agents, stages and models");
pub(super) async fn show(
    State(state): State<GatewayState>,
    Filter(page): Filter<WidePageParams>,
) -> Result<Json<ModelList>, Reject> {
    Ok(Json(list(state.store.as_ref(), known(&state), &state.settings.budget, &page.bounds()?).await?))
}

/// The models that agents may name on this gateway.
pub(super) fn known(state: &GatewayState) -> Vec<ModelInfo> {
    state.models.as_ref().map_or_else(|| ModelInfo::from_settings(&state.settings), |listing| listing())
}
