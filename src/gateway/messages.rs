//! `POST /api/v1/messages`.

use super::input::Body;
use super::operation::Operation;
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use commands::enqueue::Accepted;
use commands::messages::{self, NewMessage};
use serde_json::{Map, Value};

pub(super) const POST_MESSAGE: Operation = Operation::post("/api/v1/messages", "messages", "post_message")
    .summary("Publishes a user's message.")
    .details(
        "202 means that the queue has stored it. `job_id` names the turn: a repeat with the same `job_id` also gets \
         202, and there is one turn.",
    )
    .body::<NewMessage>()
    .accepted::<Accepted>("The queue has stored the message");
pub(super) async fn post_message(
    State(state): State<GatewayState>,
    Body(document): Body<Map<String, Value>>,
) -> Result<(StatusCode, Json<Accepted>), Reject> {
    messages::log_unknown_fields(&document);
    let message: NewMessage = serde_path_to_error::deserialize(Value::Object(document)).map_err(|error| {
        let place = Some(error.path().to_string()).filter(|path| path != ".").map(|path| format!("{path}: "));
        let message = format!("{}{}", place.unwrap_or_default(), error.inner());
        Reject::invalid(
            "invalid_message",
            message,
            "send {session_id, agent_id, text, job_id?, user_id?, channel?, metadata?}",
        )
    })?;
    let accepted = messages::submit(state.queue.as_ref(), state.store.as_ref(), message).await?;
    Ok((StatusCode::ACCEPTED, Json(accepted)))
}
