//! Dead letters, for the HTTP handlers and for commands that reach queue and store directly: what they are, and putting
//! them back onto their lanes.
//!
//! A job that has been seen is dropped when it comes again: by the queue within its window for `Nats-Msg-Id`, by the
//! session's `recent_jobs`. So a letter goes back under an id of its own, `<job_id>-replay-<letter>`, which is the same
//! however often it is put back: the letter twice is one turn. Then it is removed.

use super::input::{Filter, Params};
use super::sessions::HowMany;
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use commands::dead_letters::{Letter, LetterSummary, Replayed, find, newest, replay};
use commands::sessions::bounded;
use serde::Serialize;

/// Letters, newest first.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct LetterList {
    letters: Vec<LetterSummary>,
}

/// Dead letters: jobs given up.
#[utoipa::path(get, path = "/api/v1/dead", operation_id = "list_letters", tag = "operation", params(HowMany),
    responses((status = 200, description = "Dead letters", body = LetterList)))]
pub(super) async fn get_all(
    State(state): State<GatewayState>,
    Filter(many): Filter<HowMany>,
) -> Result<Json<LetterList>, Reject> {
    let letters = newest(state.queue.as_ref(), bounded(many.limit)?).await?;
    Ok(Json(LetterList { letters }))
}

/// One dead letter with its payload, by number or job id.
#[utoipa::path(get, path = "/api/v1/dead/{which}", operation_id = "show_letter", tag = "operation", params(("which" = String, Path)),
    responses((status = 200, description = "The letter", body = Letter)))]
pub(super) async fn get_one(
    State(state): State<GatewayState>,
    Params(which): Params<String>,
) -> Result<Json<Letter>, Reject> {
    Ok(Json(Letter::from(&find(state.queue.as_ref(), &which).await?)))
}

/// Puts a dead letter's job back onto its lane, and removes the letter.
#[utoipa::path(post, path = "/api/v1/dead/{which}/replay", operation_id = "replay_letter", tag = "operation", params(("which" = String, Path)),
    responses((status = 202, description = "The queue holds it", body = Replayed)))]
pub(super) async fn post_replay(
    State(state): State<GatewayState>,
    Params(which): Params<String>,
) -> Result<(StatusCode, Json<Replayed>), Reject> {
    let replayed = replay(state.queue.as_ref(), state.store.as_ref(), &which).await?;
    Ok((StatusCode::ACCEPTED, Json(replayed)))
}
