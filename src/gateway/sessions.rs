//! Sessions and their turns: list and show.

use super::caller::Caller;
use super::front_ends::shown_to;
use super::input::{Filter, Params};
use super::operation::Operation;
use super::roles::{FRONT_ENDS_AND_READERS, READERS, Reach};
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use commands::error::CommandError;
use commands::paging::{DEFAULT_LIMIT, Listing, MAX_LIMIT, bounds, fit, wide_bounds};
use commands::prompts::{StepPrompt, step_prompt};
use commands::session_listing::{MAX_EXAMINED, MAX_SEARCH_CHARS, SessionSummary, list_sessions, search_words};
use commands::sessions::{SessionDetails, TurnDetails, has_jobs, public_view, turn_place};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use storage::store::records::SessionQuery;
use types::access::Scope;
use types::ids::{self, Id};
use types::page::{Bounds, Place};
use types::session::{Kind, Session, Status};
use types::timestamp::Timestamp;
use types::turn::TurnRecord;

/// How long a response waits for the queue before it omits `has_jobs` or `as_of`.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(1);

/// Sessions, last changed first.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct SessionList {
    sessions: Vec<SessionSummary>,
    /// The cursor of the next page: give it as `after`. Missing at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// The last sequence of the stream of events when the listing was read: `GET /api/v1/events?after=` continues from
    /// it. Missing if the queue does not respond within 1 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    as_of: Option<u64>,
}

/// Turns, newest first.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct TurnList {
    turns: Vec<TurnRecord>,
    /// The cursor of the next page: give it as `after`. Missing at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Filter of the listing. All of the given conditions apply.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct SessionFilter {
    /// Only sessions in this status.
    status: Option<Status>,
    /// Only sessions of this agent.
    #[schemars(with = "Option<Id>")]
    agent_id: Option<String>,
    /// Only sessions of this channel.
    #[schemars(with = "Option<Id>")]
    channel: Option<String>,
    /// Only sessions of this user.
    #[schemars(with = "Option<Id>")]
    user_id: Option<String>,
    /// True for only the sessions that wait for a user's answer or that a human has; false for the others.
    waiting: Option<bool>,
    /// Only sessions whose `updated_at` is this time or later.
    since: Option<Timestamp>,
    /// Only sessions whose `updated_at` is earlier than this time.
    until: Option<Timestamp>,
    /// Only sessions whose history has all of these words, in upper or lower case. Spaces separate words. At most 10
    /// words.
    #[schemars(length(max = MAX_SEARCH_CHARS))]
    q: Option<String>,
    /// The highest number of sessions.
    #[schemars(range(min = 1, max = MAX_LIMIT), extend("default" = DEFAULT_LIMIT))]
    limit: Option<usize>,
    /// The `next` of the previous page: this page has the entries behind it.
    after: Option<String>,
}

impl SessionFilter {
    /// The query of a caller with this scope. Fails with `invalid_id` or `invalid_query`.
    fn query(self, scope: Scope) -> Result<SessionQuery, CommandError> {
        let Self { status, agent_id, channel, user_id, waiting, since, until, q, limit, after } = self;
        let ids = [("agent_id", &agent_id), ("channel", &channel), ("user_id", &user_id)];
        for (name, id) in ids.into_iter().filter_map(|(name, id)| Some((name, id.as_ref()?))) {
            ids::check(name, id)?;
        }
        let words = search_words(q.as_deref().unwrap_or_default())?;
        let Bounds { after, limit, max_bytes } = bounds(after, limit)?;
        let max_examined = MAX_EXAMINED;
        Ok(SessionQuery {
            scope,
            status,
            agent_id,
            channel,
            user_id,
            waiting,
            since,
            until,
            words,
            limit,
            after,
            max_bytes,
            max_examined,
        })
    }
}

pub(super) const LIST: Operation = Operation::get("/api/v1/sessions", "sessions", "list_sessions")
    .roles(READERS)
    .shows(Reach::Selected)
    .summary("Lists sessions, last changed first.")
    .details(
        "A page with filters compares at most 10,000 sessions: it may have fewer entries than `limit`, or none, and a \
         `next`. Secrets are masked in `last_message`.",
    )
    .query::<SessionFilter>()
    .ok::<SessionList>("The sessions");
pub(super) async fn list(
    State(state): State<GatewayState>,
    caller: Caller,
    Filter(which): Filter<SessionFilter>,
) -> Result<Json<SessionList>, Reject> {
    let query = which.query(caller.scope().clone())?;
    let as_of = as_of(&state).await;
    let listed = list_sessions(state.store.as_ref(), &state.settings, query).await?;
    let Listing { items: sessions, next } = listed;
    Ok(Json(SessionList { sessions, next, as_of }))
}

pub(super) const SHOW: Operation = Operation::get("/api/v1/sessions/{session_id}", "sessions", "show_session")
    .roles(FRONT_ENDS_AND_READERS)
    .summary("Shows a session: its status, history, profile and timers.")
    .details("`has_jobs` is missing if the queue does not respond within 1 s.")
    .ok::<SessionDetails>("The session, without its lease");
pub(super) async fn show(
    State(state): State<GatewayState>,
    caller: Caller,
    Params(session_id): Params<String>,
) -> Result<Json<SessionDetails>, Reject> {
    let session = load(&state, &session_id).await?;
    let asked = tokio::time::timeout(QUEUE_TIMEOUT, has_jobs(state.queue.as_ref(), &session)).await;
    let has_jobs = asked.ok().and_then(Result::ok);
    let session = match state.internals {
        true => Session { outbox: Vec::new(), ..session },
        false => public_view(session),
    };
    let session = shown_to(caller.role(), session);
    Ok(Json(SessionDetails { session, has_jobs }))
}

/// The part of a listing.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct PageParams {
    /// The highest number of entries.
    #[schemars(range(min = 1, max = MAX_LIMIT), extend("default" = DEFAULT_LIMIT))]
    limit: Option<usize>,
    /// The `next` of the previous page: this page has the entries behind it.
    after: Option<String>,
}

impl PageParams {
    pub(super) fn bounds<P: Place>(self) -> Result<Bounds<P>, Reject> {
        Ok(bounds(self.after, self.limit)?)
    }
}

/// The part of a listing that is rarely long.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct WidePageParams {
    /// The highest number of entries.
    #[schemars(range(min = 1, max = MAX_LIMIT), extend("default" = MAX_LIMIT))]
    limit: Option<usize>,
    /// The `next` of the previous page: this page has the entries behind it.
    after: Option<String>,
}

impl WidePageParams {
    pub(super) fn bounds<P: Place>(self) -> Result<Bounds<P>, Reject> {
        Ok(wide_bounds(self.after, self.limit)?)
    }
}

pub(super) const TURNS: Operation = Operation::get("/api/v1/sessions/{session_id}/turns", "sessions", "list_turns")
    .roles(READERS)
    .summary("Lists a session's turns, newest first.")
    .details("A turn is listed after its commit.")
    .query::<PageParams>()
    .ok::<TurnList>("The turns");
pub(super) async fn turns(
    State(state): State<GatewayState>,
    Params(session_id): Params<String>,
    Filter(page): Filter<PageParams>,
) -> Result<Json<TurnList>, Reject> {
    let bounds = page.bounds()?;
    load(&state, &session_id).await?;
    let page = state.store.turns_page(&session_id, bounds).await?;
    let Listing { items: turns, next } = fit(page, turn_place);
    Ok(Json(TurnList { turns, next }))
}

pub(super) const TURN: Operation =
    Operation::get("/api/v1/sessions/{session_id}/turns/{turn_id}", "sessions", "show_turn")
        .roles(READERS)
        .summary("Shows a turn with its steps.")
        .details("`limit` and `after` select steps, in the order of their keys.")
        .query::<WidePageParams>()
        .ok::<TurnDetails>("The turn");
pub(super) async fn turn(
    State(state): State<GatewayState>,
    Params((session_id, turn_id)): Params<(String, String)>,
    Filter(page): Filter<WidePageParams>,
) -> Result<Json<TurnDetails>, Reject> {
    ids::check("turn_id", &turn_id)?;
    let bounds = page.bounds()?;
    load(&state, &session_id).await?;
    let found = state.store.turn(&session_id, &turn_id).await?;
    let turn = found.ok_or_else(|| CommandError::unknown_turn(&session_id, &turn_id))?;
    let page = state.store.steps_page(&session_id, &turn_id, bounds).await?;
    let Listing { items: steps, next } = fit(page, |step| step.key.clone());
    Ok(Json(TurnDetails { turn, steps, next }))
}

pub(super) const PROMPT: Operation = Operation::get(
    "/api/v1/sessions/{session_id}/turns/{turn_id}/prompts/{key}",
    "sessions",
    "show_prompt",
)
.roles(READERS)
.summary("Shows the prompt of a model call: its messages as they were sent.")
.details(
    "Secrets are masked. Model calls keep their prompts while the setting `journal.prompts` of the workers is `full`. \
             `key` is the step's, percent-encoded: `0%2Fdecide`. `session_id` may be a run in a lane of its own.",
)
.ok::<StepPrompt>("The messages");
pub(super) async fn prompt(
    State(state): State<GatewayState>,
    Params((session_id, turn_id, key)): Params<(String, String, String)>,
) -> Result<Json<StepPrompt>, Reject> {
    Ok(Json(step_prompt(state.store.as_ref(), &session_id, &turn_id, &key).await?))
}

/// The last sequence of the stream of events, from which a client follows a listing. Read before the listing: a
/// concurrent change may be in both, and is never in neither.
pub(super) async fn as_of(state: &GatewayState) -> Option<u64> {
    let asked = tokio::time::timeout(QUEUE_TIMEOUT, state.queue.event_bounds()).await;
    Some(asked.ok()?.ok()?.last)
}

async fn load(state: &GatewayState, session_id: &str) -> Result<Session, Reject> {
    ids::check("session_id", session_id)?;
    let session = state.store.session(session_id).await?.filter(|session| state.internals || session.kind != Kind::Run);
    Ok(session.ok_or_else(|| CommandError::unknown_session(session_id))?)
}
