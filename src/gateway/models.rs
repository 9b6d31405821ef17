//! What answers for whom: models with their circuits, the agents that ask them, and stages of workflows that name some.

use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use commands::models::{ModelList, list};
use engine::model::registry::ModelInfo;

/// Agents with the models that they ask and the tokens that they may use, stages that name models of their own, and the models
/// with their circuits as this process sees them; without keys and addresses.
#[utoipa::path(get, path = "/api/v1/models", operation_id = "list_models", tag = "agents",
    responses((status = 200, description = "Agents, stages and models", body = ModelList)))]
pub(super) async fn show(State(state): State<GatewayState>) -> Result<Json<ModelList>, Reject> {
    Ok(Json(list(state.store.as_ref(), known(&state), &state.settings.budget).await?))
}

/// The models that agents may name here.
pub(super) fn known(state: &GatewayState) -> Vec<ModelInfo> {
    state.models.as_ref().map_or_else(|| ModelInfo::of_settings(&state.settings), |listing| listing())
}
