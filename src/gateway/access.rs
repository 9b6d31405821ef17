//! Middleware of each endpoint: whether the caller has a role for it, may see the session that it is about, and keeps to
//! its limits. Actions enter the audit trail.

use super::caller::Caller;
use super::operation::Operation;
use super::roles::Reach;
use super::{GatewayState, Reject, audit};
use axum::RequestExt;
use axum::body::Body;
use axum::extract::{RawPathParams, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::middleware::Next;
use axum::response::Response;
use commands::access::address_of;
use commands::error::CommandError;
use futures::StreamExt;
use tokio::sync::OwnedSemaphorePermit;
use types::access::Scope;
use types::ids;

/// Checks one request to `operation`.
pub(super) async fn guard(
    State((state, operation)): State<(GatewayState, Operation)>,
    mut request: Request,
    next: Next,
) -> Result<Response, Reject> {
    let caller = request.extract_parts::<Caller>().await?;
    let permit = caller.quota().enter()?;
    if !operation.roles.contains(&caller.role()) {
        return Err(caller.lacks(operation.roles));
    }
    let params = request.extract_parts::<RawPathParams>().await.map_err(|problem| {
        Reject::invalid("invalid_path", problem.body_text(), "ids in paths are percent-encoded UTF-8")
    })?;
    let params: Vec<(&str, &str)> = params.iter().collect();
    if !caller.scope().is_everything() {
        may_see(&state, &caller, &operation, &params).await?;
    }
    let Some(action) = audit::Action::begin(&state, &caller, &operation, &params, request.headers()).await? else {
        return Ok(held(next.run(request).await, permit));
    };
    let response = next.run(request).await;
    action.end(&state, response.status()).await;
    Ok(held(response, permit))
}

/// Fails if a limited caller may not see the session, run or agent in the path. For such a caller it does not exist.
async fn may_see(
    state: &GatewayState,
    caller: &Caller,
    operation: &Operation,
    params: &[(&str, &str)],
) -> Result<(), Reject> {
    match operation.reach() {
        Reach::Open | Reach::Selected => return Ok(()),
        Reach::Everything => return Err(caller.is_limited("this concerns all of them")),
        Reach::Path => {}
    }
    for (name, id) in params {
        match *name {
            "session_id" => session_in_scope(state, caller.scope(), id).await?,
            "run_id" => run_in_scope(state, caller.scope(), id).await?,
            "agent_id" if !caller.scope().covers_agent(id) => return Err(CommandError::unknown_agent(id).into()),
            // An agent serves the sessions of all channels.
            "agent_id" if operation.is_audited() && caller.scope().agents.is_empty() => {
                return Err(caller.is_limited("an agent serves others, too"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Fails with `unknown_session` unless the session is in the scope, also before a worker has seen its first message.
pub(super) async fn session_in_scope(state: &GatewayState, scope: &Scope, session_id: &str) -> Result<(), Reject> {
    ids::check("session_id", session_id)?;
    let unknown = || Err(CommandError::unknown_session(session_id).into());
    if !scope.covers_id(session_id) {
        return unknown();
    }
    if scope.channels.is_empty() && scope.agents.is_empty() {
        return Ok(());
    }
    match address_of(state.queue.as_ref(), state.store.as_ref(), session_id).await? {
        Some(address) if scope.covers(session_id, &address.channel, &address.agent_id) => Ok(()),
        _ => unknown(),
    }
}

/// Fails with `unknown_run` unless the run belongs to a session in the scope.
async fn run_in_scope(state: &GatewayState, scope: &Scope, run_id: &str) -> Result<(), Reject> {
    ids::check("run_id", run_id)?;
    let run = state.store.run(run_id).await?;
    let session_id = run.and_then(|run| run.origin_session);
    let visible = match &session_id {
        Some(session_id) => session_in_scope(state, scope, session_id).await.is_ok(),
        None => false,
    };
    if visible { Ok(()) } else { Err(CommandError::unknown_run(run_id).into()) }
}

/// The response, with the caller's place in flight until its events end.
fn held(response: Response, permit: Option<OwnedSemaphorePermit>) -> Response {
    let Some(permit) = permit else { return response };
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("text/event-stream") {
        return response;
    }
    response.map(|body| {
        Body::from_stream(body.into_data_stream().map(move |chunk| {
            let _held = &permit;
            chunk
        }))
    })
}
