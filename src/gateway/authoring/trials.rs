//! Trials of a draft: one message of a conversation, or one run, as server-sent events. The layer that builds engines
//! implements the trials.

use super::dialogues::load;
use crate::caller::Caller;
use crate::event_stream;
use crate::input::{Body, Params};
use crate::operation::Operation;
use crate::roles::AUTHORS;
use crate::{GatewayState, Reject};
use axum::extract::State;
use axum::response::Response;
use axum::response::sse::Event;
use commands::authoring::trial::{self, TrialRequest};
use engine::rehearsal::trial::Shown;
use futures::StreamExt;

pub(super) const TEST: Operation =
    Operation::post("/api/v1/workflow/{session_id}/test", "authoring", "test_authoring_draft")
        .roles(AUTHORS)
        .summary("Sends a message to the last draft of an agent, or runs the last draft of a workflow.")
        .details(
            "In memory: nothing is stored, and nothing but models is called. `answers` are the results of calls by id; a call \
             without one fails, and a `step` event shows what it would have called. `event:` is `test` (`TrialBegin`), \
             `reply`, `status`, `step` (`StepEvent` or `TrialStep`), `run` or, as the last one, `end` (`TrialEnd`). The conversation goes on with \
             the next message, until there is another draft or 10 minutes have passed.",
        )
        .body::<TrialRequest>()
        .event_stream("Server-sent events until the turn or run ends");
pub(super) async fn test(
    State(state): State<GatewayState>,
    caller: Caller,
    Params(session_id): Params<String>,
    Body(request): Body<TrialRequest>,
) -> Result<Response, Reject> {
    let dialogue = load(&state, &caller, &session_id).await?;
    let trial = trial::trial(&state.workbench(), &caller.author(), &dialogue, request).await?;
    let trials = state.trials.clone().ok_or_else(cannot_rehearse)?;
    trial::has_budget(&state.store, &state.settings.budget).await?;
    let slot = state.streams.take()?;
    let shown = trials.begin(trial).await.map_err(trial::refused)?;
    Ok(event_stream::answer(&state, slot, shown.enumerate().map(|(nth, shown)| frame(nth, &shown))))
}

fn frame(nth: usize, shown: &Shown) -> Event {
    Event::default().id(nth.to_string()).event(shown.event).data(event_stream::data(shown.data.to_string().as_bytes()))
}

/// 503: the program that serves this gateway cannot build an engine.
pub(super) fn cannot_rehearse() -> Reject {
    let hint = "ask a gateway of `turnwheel dev` or `turnwheel serve`; a program serves `Engine::router`";
    Reject::unavailable("test_unavailable", "this gateway cannot run drafts", hint)
}
