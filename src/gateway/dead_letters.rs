//! Dead letters: list, show and replay.
//!
//! A replay cannot reuse the job's id: the queue drops repeats of a `Nats-Msg-Id` within its window, and the session
//! drops ids that are in its `recent_jobs`. The job therefore gets the id `<job_id>-replay-<number>`, which is the same
//! for each replay of one dead letter: replaying it twice is one turn.

use super::input::{Body, Filter, Params};
use super::operation::Operation;
use super::roles::{OPERATORS, READERS};
use super::sessions::{PageParams, as_of};
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use commands::dead_letters::{
    DeadLetterDetails, DeadLetterSummary, LetterFilter, ReplayedLetter, ReplayedLetters, find, letters, replay,
    replay_many,
};
use commands::paging::{Listing, fit};
use serde::Serialize;

/// Dead letters, newest first.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct DeadLetterList {
    letters: Vec<DeadLetterSummary>,
    /// The cursor of the next page: give it as `after`. Missing at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// The last sequence of the stream of events when the listing was read: `GET /api/v1/events?after=` continues from
    /// it. Missing if the queue does not respond within 1 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    as_of: Option<u64>,
}

pub(super) const GET_ALL: Operation = Operation::get("/api/v1/dead", "operation", "list_letters")
    .roles(READERS)
    .summary("Lists dead letters, newest first.")
    .details("A dead letter is a job that the engine does not try again by itself.")
    .query::<PageParams>()
    .ok::<DeadLetterList>("The dead letters");
pub(super) async fn get_all(
    State(state): State<GatewayState>,
    Filter(page): Filter<PageParams>,
) -> Result<Json<DeadLetterList>, Reject> {
    let as_of = as_of(&state).await;
    let page = letters(state.queue.as_ref(), &page.bounds()?).await?;
    let Listing { items: letters, next } = fit(page, |letter| letter.seq);
    Ok(Json(DeadLetterList { letters, next, as_of }))
}

pub(super) const GET_ONE: Operation = Operation::get("/api/v1/dead/{which}", "operation", "show_letter")
    .roles(READERS)
    .summary("Shows a dead letter with its payload, by number or job id.")
    .ok::<DeadLetterDetails>("The dead letter");
pub(super) async fn get_one(
    State(state): State<GatewayState>,
    Params(which): Params<String>,
) -> Result<Json<DeadLetterDetails>, Reject> {
    Ok(Json(DeadLetterDetails::from(&find(state.queue.as_ref(), &which).await?)))
}

pub(super) const POST_REPLAY: Operation = Operation::post("/api/v1/dead/{which}/replay", "operation", "replay_letter")
    .roles(OPERATORS)
    .summary("Puts a dead letter's job back on its lane, and removes the dead letter.")
    .details("The job gets a new `job_id`.")
    .accepted::<ReplayedLetter>("The queue has stored the job");
pub(super) async fn post_replay(
    State(state): State<GatewayState>,
    Params(which): Params<String>,
) -> Result<(StatusCode, Json<ReplayedLetter>), Reject> {
    let replayed = replay(state.queue.as_ref(), state.store.as_ref(), &which).await?;
    Ok((StatusCode::ACCEPTED, Json(replayed)))
}

pub(super) const POST_REPLAY_MANY: Operation = Operation::post("/api/v1/dead/replay", "operation", "replay_letters")
    .roles(OPERATORS)
    .summary("Puts the jobs of many dead letters back on their lanes, and removes these dead letters.")
    .details(
        "The body selects them by `cause` and `agent_id`; `{}` selects all. A request looks at up to `limit` letters: \
         repeat it with `after` and `until` of the response until `complete` is true. A letter whose job would fail \
         again, or whose lane is full, is in `refused` and stays. After an error the same request can be repeated.",
    )
    .body::<LetterFilter>()
    .accepted::<ReplayedLetters>("The queue has stored the jobs of the replayed letters");
pub(super) async fn post_replay_many(
    State(state): State<GatewayState>,
    Body(filter): Body<LetterFilter>,
) -> Result<(StatusCode, Json<ReplayedLetters>), Reject> {
    let done = replay_many(state.queue.as_ref(), state.store.as_ref(), filter).await?;
    Ok((StatusCode::ACCEPTED, Json(done)))
}
