//! The documents of dialogues: drafts, differences, publications, and the catalogue.

use super::dialogues::load;
use crate::caller::Caller;
use crate::input::{Body, Filter, Params};
use crate::operation::Operation;
use crate::roles::{AUTHORS, AUTHORS_AND_READERS, Reach};
use crate::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use commands::authoring::artifact::{self, Against, DialogueStatus, DraftDetails, PublishRequest, PublishedDraft};
use definitions::difference::Difference;
use engine::authoring::catalogue::{Catalogue, Listing};
use serde::Deserialize;

/// The draft to show.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct DraftFilter {
    /// The hash of the version to show; by default the last draft.
    hash: Option<String>,
}

/// The document to compare with.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct DiffFilter {
    /// `base`: the document from which the draft was made. `published`: the published document with its id.
    #[schemars(extend("enum" = ["base", "published"]), extend("default" = "base"))]
    against: Option<String>,
}

pub(super) const STATUS: Operation =
    Operation::get("/api/v1/workflow/{session_id}/status", "authoring", "show_authoring_status")
        .roles(AUTHORS_AND_READERS)
        .summary("Shows the document of an authoring dialogue: the published one, else the draft.")
        .ok::<DialogueStatus>("The document, if there is one");
pub(super) async fn status(
    State(state): State<GatewayState>,
    caller: Caller,
    Params(session_id): Params<String>,
) -> Result<Json<DialogueStatus>, Reject> {
    let dialogue = load(&state, &caller, &session_id).await?;
    Ok(Json(artifact::status(state.store.as_ref(), dialogue).await?))
}

pub(super) const DRAFT: Operation =
    Operation::get("/api/v1/workflow/{session_id}/draft", "authoring", "show_authoring_draft")
        .roles(AUTHORS_AND_READERS)
        .summary("Shows the last draft of an authoring dialogue, with the results of its checks.")
        .details("With the header `accept: application/yaml` the response is the document as a file.")
        .query::<DraftFilter>()
        .ok::<DraftDetails>("The draft");
pub(super) async fn draft(
    State(state): State<GatewayState>,
    caller: Caller,
    Params(session_id): Params<String>,
    Filter(which): Filter<DraftFilter>,
    headers: HeaderMap,
) -> Result<Response, Reject> {
    let dialogue = load(&state, &caller, &session_id).await?;
    let draft = artifact::draft(state.store.as_ref(), &dialogue, which.hash.as_deref()).await?;
    let wanted = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if wanted.contains("yaml") {
        let file = definitions::document::yaml::to_yaml(&draft.document);
        return Ok(([(CONTENT_TYPE, "application/yaml")], file).into_response());
    }
    Ok(Json(draft).into_response())
}

pub(super) const DIFF: Operation =
    Operation::get("/api/v1/workflow/{session_id}/diff", "authoring", "compare_authoring_draft")
        .roles(AUTHORS_AND_READERS)
        .summary("Compares the last draft of an authoring dialogue by path, new hosts first.")
        .query::<DiffFilter>()
        .ok::<Difference>("The differences");
pub(super) async fn diff(
    State(state): State<GatewayState>,
    caller: Caller,
    Params(session_id): Params<String>,
    Filter(which): Filter<DiffFilter>,
) -> Result<Json<Difference>, Reject> {
    let against = Against::parse(which.against.as_deref())?;
    let dialogue = load(&state, &caller, &session_id).await?;
    Ok(Json(artifact::difference(state.store.as_ref(), &dialogue, against).await?))
}

pub(super) const PUBLISH: Operation =
    Operation::post("/api/v1/workflow/{session_id}/publish", "authoring", "publish_authoring_draft")
        .roles(AUTHORS)
        .summary("Puts the last draft of an authoring dialogue into use.")
        .details(
            "Refused if the hash is not that of the last draft, if somebody has changed what it replaces, or if its \
             tests failed. Every turn and run that begins after the response uses it.",
        )
        .body::<PublishRequest>()
        .ok::<PublishedDraft>("The draft is in use");
pub(super) async fn publish(
    State(state): State<GatewayState>,
    caller: Caller,
    Params(session_id): Params<String>,
    Body(request): Body<PublishRequest>,
) -> Result<Json<PublishedDraft>, Reject> {
    let dialogue = load(&state, &caller, &session_id).await?;
    let bench = state.workbench();
    Ok(Json(artifact::publish(&bench, &caller.author(), dialogue, &request).await?))
}

pub(super) const CATALOGUE: Operation =
    Operation::get("/api/v1/authoring/catalogue", "authoring", "show_authoring_catalogue")
        .roles(AUTHORS_AND_READERS)
        .shows(Reach::Open)
        .summary("Lists the installed items that a document can use.")
        .ok::<Listing>("At most 200 items");
pub(super) async fn catalogue(State(state): State<GatewayState>) -> Result<Json<Listing>, Reject> {
    Ok(Json(Catalogue::gather(&state.workbench(), "").await?.listing()))
}
