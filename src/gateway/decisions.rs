//! Decisions of coordinator agents: judged, recorded in sessions, and their JSON Schemas.

use super::input::{Body, Filter, Params};
use super::operation::Operation;
use super::roles::{AUTHORS_AND_READERS, READERS, Reach};
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use commands::decisions::{self, DecisionVerdict, ProposedDecision, named_schema};
use commands::paging::{DEFAULT_LIMIT, MAX_LIMIT, bounds};
use commands::session_decisions::{DecisionPage, SessionDecision, decisions_page};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

pub(super) const VALIDATE: Operation = Operation::post("/api/v1/decisions/validate", "decisions", "validate_decision")
    .roles(AUTHORS_AND_READERS)
    .audited(false)
    .summary("Judges a decision of a coordinator agent, without carrying it out.")
    .details(
        "The verdict has every error, and the payload after correction. `world` replaces the stored workflows, so \
             that every rule can be tried.",
    )
    .body::<ProposedDecision>()
    .ok::<DecisionVerdict>("The verdict; also that on an invalid decision");
pub(super) async fn validate(
    State(state): State<GatewayState>,
    Body(proposed): Body<ProposedDecision>,
) -> Result<Json<DecisionVerdict>, Reject> {
    let (store, models) = (state.store.as_ref(), state.known.models());
    Ok(Json(decisions::validate(store, &state.settings, models, &state.sandbox, proposed).await?))
}

pub(super) const SCHEMAS: Operation = Operation::get("/api/v1/decisions/schema", "decisions", "list_decision_schemas")
    .roles(AUTHORS_AND_READERS)
    .shows(Reach::Open)
    .summary("Returns the JSON Schemas of all payloads and of a coordinator's answers, by name.")
    .ok::<BTreeMap<String, Map<String, Value>>>("The schemas");
pub(super) async fn schemas() -> Json<BTreeMap<&'static str, Value>> {
    Json(decisions::schemas())
}

pub(super) const SCHEMA: Operation =
    Operation::get("/api/v1/decisions/schema/{action_type}", "decisions", "show_decision_schema")
        .roles(AUTHORS_AND_READERS)
        .shows(Reach::Open)
        .summary("Returns the JSON Schema of one payload, or of a coordinator's answer.")
        .ok::<Map<String, Value>>("The schema");
pub(super) async fn schema(Params(name): Params<String>) -> Result<Json<Value>, Reject> {
    Ok(Json(named_schema(&name)?))
}

/// Decisions, in the order in which they were taken.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct DecisionList {
    decisions: Vec<SessionDecision>,
    /// The number of turns that the page covers, also those without decisions.
    turns: usize,
    /// The cursor of the next page: give it as `after`. Missing at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// The turns whose decisions are listed, and whether they are judged again.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct DecisionFilter {
    /// The highest number of turns, the newest first.
    #[schemars(range(min = 1, max = MAX_LIMIT), extend("default" = DEFAULT_LIMIT))]
    limit: Option<usize>,
    /// The `next` of the previous page: this page has earlier turns.
    after: Option<String>,
    /// True to judge each decision again, by the rules, settings and agent file of now.
    #[serde(default)]
    replay: bool,
}

pub(super) const LIST: Operation =
    Operation::get("/api/v1/sessions/{session_id}/decisions", "decisions", "list_decisions")
        .roles(READERS)
        .summary("Lists the decisions of a session's last turns with their verdicts.")
        .details("A turn's decisions are listed after its commit. Secrets are masked.")
        .query::<DecisionFilter>()
        .ok::<DecisionList>("The decisions");
pub(super) async fn list(
    State(state): State<GatewayState>,
    Params(session_id): Params<String>,
    Filter(which): Filter<DecisionFilter>,
) -> Result<Json<DecisionList>, Reject> {
    let turns = bounds(which.after, which.limit)?;
    let (store, models) = (state.store.as_ref(), state.known.models());
    let DecisionPage { decisions, turns, next } =
        decisions_page(store, &state.settings, models, &state.sandbox, &session_id, turns, which.replay).await?;
    Ok(Json(DecisionList { decisions, turns, next }))
}
