//! Starts runs and follows them with server-sent events. From the start on the run is a job on the queue: a client that
//! leaves does not end it.

use super::caller::Caller;
use super::event_stream::{self, EventStream, Position};
use super::input::{Body, Filter, Params};
use super::operation::Operation;
use super::roles::{AUTHORS, READERS};
use super::run_events::{self, FollowedEvent, stream_of};
use super::{GatewayState, Reject, events};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use commands::authoring::Author;
use commands::error::CommandError;
use commands::runs::{NewRun, StartedRun};
use commands::{enqueue, run_details};
use futures::{Stream, StreamExt, stream};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::Arc;
use storage::queue::From;
use storage::store::Store;
use types::authoring::Artifact;
use types::ids::{self, DottedId, Id};
use types::run::RunRecord;

/// A run to start.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct RunRequest {
    /// The workflow's input. Not empty; a graph needs none.
    #[serde(default)]
    query: String,
    /// The inputs of a graph by name, as its `global_config.inputs` declares them; at most 1 MiB.
    #[serde(default)]
    input: Option<Map<String, Value>>,
    /// The session that the run belongs to. Its history precedes the query, and its stream has the run's events.
    #[schemars(with = "Option<Id>")]
    session_id: Option<String>,
    /// The user for whom it runs.
    #[schemars(with = "Option<DottedId>")]
    user_id: Option<String>,
    /// The channel of the run's events; `default` if omitted.
    #[schemars(with = "Option<Id>")]
    channel: Option<String>,
    /// Id of the run; a UUID by default. A repeat with the same id and content is the same run.
    #[schemars(with = "Option<Id>")]
    run_id: Option<String>,
}

/// A run to start, as query parameters.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct RunParams {
    /// The workflow's input, not empty. Not needed with a `Last-Event-ID`, nor for a graph. The inputs of a graph are a
    /// JSON object in it.
    #[schemars(extend("example" = "batteries"))]
    query: Option<String>,
    /// The session that the run belongs to.
    #[schemars(with = "Option<Id>")]
    session_id: Option<String>,
    /// The user for whom it runs.
    #[schemars(with = "Option<DottedId>")]
    user_id: Option<String>,
    /// The channel of the run's events; `default` if omitted.
    #[schemars(with = "Option<Id>")]
    channel: Option<String>,
    /// Id of the run; a UUID by default. A repeat with the same id and content is the same run.
    #[schemars(with = "Option<Id>")]
    run_id: Option<String>,
    /// Same as the header `Last-Event-ID`. The header wins.
    #[schemars(extend("example" = "r1:17"))]
    last_event_id: Option<String>,
}

/// How run events are written as server-sent events.
#[derive(Clone, Copy)]
enum Form {
    /// `event:` has the run event's type.
    Named,
    /// Without `event:`, for a browser's `onmessage`.
    Unnamed,
    /// Same as in a session's stream.
    Plain,
}

impl Form {
    fn frame(self, run_id: &str, event: &FollowedEvent) -> Event {
        let frame = match self {
            Self::Plain => return events::frame(&event.stored),
            Self::Named => Event::default().event(event.kind.as_str()),
            Self::Unnamed => Event::default(),
        };
        frame.id(format!("{run_id}:{}", event.stored.seq)).data(event_stream::data(&event.stored.payload))
    }

    /// An id without data, sent before the first event. A browser that loses the connection this early reconnects with
    /// the id, and so does not start a second run. Clients do not see a block without data as an event.
    fn opening(self, run_id: &str, after: u64) -> Option<Event> {
        match self {
            Self::Named | Self::Unnamed => Some(Event::default().id(format!("{run_id}:{after}"))),
            Self::Plain => None,
        }
    }
}

pub(super) const POST_RUN: Operation = Operation::post(
    "/api/v1/workflows/{workflow_id}/run",
    "workflows",
    "run_workflow",
)
.roles(AUTHORS)
.summary("Starts a run and follows it until it ends. Authors can run only workflows that they have published.")
.details(
    "`event:` is the type, `data:` a `RunEvent`, `id:` is `<run_id>:<sequence>`. A client that leaves does not end \
     the run.",
)
.body::<RunRequest>()
.event_stream("Server-sent events until the run ends");
pub(super) async fn post_run(
    State(state): State<GatewayState>,
    caller: Caller,
    Params(workflow_id): Params<String>,
    Body(request): Body<RunRequest>,
) -> Result<Response, Reject> {
    let request = request.by(&state, &caller, &workflow_id).await?;
    start(state, workflow_id, request, Form::Named).await
}

pub(super) const GET_RUN: Operation = Operation::get(
    "/api/v1/workflows/{workflow_id}/run",
    "workflows",
    "run_workflow_by_address",
)
.roles(AUTHORS)
.audited(true)
.summary("Starts a run and follows it, for a browser's EventSource: the events have no name.")
.details(
    "With a `Last-Event-ID` that run continues, and no run is started. After its last event the response is 204, \
     so that the browser does not reconnect.",
)
.query::<RunParams>()
.last_event_id("The last `id` that the client has seen: the events of that run after it follow.")
.event_stream("Server-sent events until the run ends")
.no_content("The run has ended, and the client has seen its last event");
pub(super) async fn get_run(
    State(state): State<GatewayState>,
    caller: Caller,
    Params(workflow_id): Params<String>,
    Filter(asked): Filter<RunParams>,
    headers: HeaderMap,
) -> Result<Response, Reject> {
    ids::check("workflow_id", &workflow_id)?;
    may_run(&state, &caller, &workflow_id).await?;
    if let Some(last) = event_stream::last_event_id(&headers, asked.last_event_id.as_deref())? {
        return resume(state, &workflow_id, &last).await;
    }
    if state.tokens.is_empty() && is_of_another_site(&headers) {
        return Err(Reject::foreign("sec-fetch-site"));
    }
    let RunParams { query, session_id, user_id, channel, run_id, .. } = asked;
    let request = RunRequest { query: query.unwrap_or_default(), input: None, session_id, user_id, channel, run_id };
    let request = request.by(&state, &caller, &workflow_id).await?;
    start(state, workflow_id, request, Form::Unnamed).await
}

/// Fails with `unknown_workflow` for an author who has not published the workflow.
async fn may_run(state: &GatewayState, caller: &Caller, workflow_id: &str) -> Result<(), Reject> {
    let Author::User(name) = caller.author() else { return Ok(()) };
    ids::check("workflow_id", workflow_id)?;
    match state.store.owner(Artifact::Workflow, workflow_id).await? {
        Some(owner) if owner == name => Ok(()),
        _ => Err(CommandError::unknown_workflow(workflow_id).into()),
    }
}

/// True for a request that a page of another site makes a browser send without a preflight request, for example as an
/// image. It must not start a run. Requests whose response the page may read have an `origin`, which `auth` checks.
fn is_of_another_site(headers: &HeaderMap) -> bool {
    let from = headers.get("sec-fetch-site").and_then(|value| value.to_str().ok());
    matches!(from, Some("cross-site" | "same-site")) && !headers.contains_key("origin")
}

pub(super) const POST_START: Operation =
    Operation::post("/api/v1/workflows/{workflow_id}/runs", "workflows", "start_run")
        .roles(AUTHORS)
        .summary("Starts a run without following it. Authors can run only workflows that they have published.")
        .body::<RunRequest>()
        .accepted::<StartedRun>("The queue has stored the run");
pub(super) async fn post_start(
    State(state): State<GatewayState>,
    caller: Caller,
    Params(workflow_id): Params<String>,
    Body(request): Body<RunRequest>,
) -> Result<(StatusCode, Json<StartedRun>), Reject> {
    let request = request.by(&state, &caller, &workflow_id).await?;
    let new = request.into_new_run(workflow_id);
    let started = commands::runs::start_run(state.queue.as_ref(), state.store.as_ref(), new).await?;
    Ok((StatusCode::ACCEPTED, Json(started)))
}

pub(super) const FOLLOW: Operation = Operation::get("/api/v1/runs/{run_id}/events", "workflows", "follow_run")
    .roles(READERS)
    .summary("Follows a run until it ends.")
    .details("`id:` is the sequence in the stream of events, `event:` is `run`, `data:` a `RunEvent`.")
    .query::<Position>()
    .last_event_id("The last `id` that the client has seen: the events after it follow. Without it: all stored events.")
    .event_stream("Server-sent events until the run ends")
    .no_content("The run has ended, and the client has seen its last event");
pub(super) async fn follow(
    State(state): State<GatewayState>,
    Params(run_id): Params<String>,
    Filter(position): Filter<Position>,
    headers: HeaderMap,
) -> Result<Response, Reject> {
    let run = run_details::load(state.store.as_ref(), &run_id).await?;
    let after = match event_stream::last_event_id(&headers, position.last_event_id.as_deref())? {
        Some(id) => id.parse().map_err(|_| event_stream::invalid_event_id(&id))?,
        None => 0,
    };
    continue_run(&state, &run, after, Form::Plain).await
}

impl RunRequest {
    /// Returns the request of this caller. The runs of an author belong to the author, and have no session.
    async fn by(mut self, state: &GatewayState, caller: &Caller, workflow_id: &str) -> Result<Self, Reject> {
        may_run(state, caller, workflow_id).await?;
        if let Author::User(name) = caller.author() {
            (self.session_id, self.user_id) = (None, Some(name));
        }
        Ok(self)
    }

    fn into_new_run(self, workflow_id: String) -> NewRun {
        let Self { query, input, session_id, user_id, channel, run_id } = self;
        NewRun { workflow_id, query, input, session_id, user_id, channel, run_id, ..NewRun::default() }
    }
}

async fn start(state: GatewayState, workflow_id: String, request: RunRequest, form: Form) -> Result<Response, Reject> {
    let slot = state.streams.take()?;
    let (queue, store) = (state.queue.clone(), state.store.clone());
    if request.run_id.is_some() {
        // Another client may have started this run before, so its stored events are part of the response.
        let session_id = request.session_id.clone();
        let StartedRun { run_id, .. } =
            commands::runs::start_run(&*queue, &*store, request.into_new_run(workflow_id)).await?;
        let stream = match store.run(&run_id).await? {
            Some(run) => stream_of(&run).to_owned(),
            None => session_id.unwrap_or_else(|| run_id.clone()),
        };
        let feed = EventStream::open(queue, stream, From::After(0)).await?;
        return Ok(event_stream::answer(&state, slot, frames(store, feed, run_id, 0, form)));
    }
    let run_id = enqueue::new_id();
    let stream = request.session_id.clone().unwrap_or_else(|| run_id.clone());
    ids::check("session_id", &stream)?;
    // Opened before the run starts, so that no event is missed.
    let feed = EventStream::open(queue.clone(), stream, From::Now).await?;
    let request = RunRequest { run_id: Some(run_id.clone()), ..request };
    commands::runs::start_run(&*queue, &*store, request.into_new_run(workflow_id)).await?;
    Ok(event_stream::answer(&state, slot, frames(store, feed, run_id, 0, form)))
}

/// Continues the run whose event the client has seen last.
async fn resume(state: GatewayState, workflow_id: &str, last: &str) -> Result<Response, Reject> {
    let parsed = last.rsplit_once(':').and_then(|(run_id, seq)| Some((run_id, seq.parse().ok()?)));
    let hint = "ids of a run's events are `<run_id>:<sequence>`";
    let (run_id, seq) = parsed.ok_or_else(|| Reject { hint: hint.into(), ..event_stream::invalid_event_id(last) })?;
    let run = run_details::load(state.store.as_ref(), run_id).await?;
    if run.workflow_id != workflow_id {
        return Err(CommandError::unknown_run(run_id).into());
    }
    continue_run(&state, &run, seq, Form::Unnamed).await
}

async fn continue_run(state: &GatewayState, run: &RunRecord, after: u64, form: Form) -> Result<Response, Reject> {
    let slot = state.streams.take()?;
    if run.status.has_ended() && run_events::has_sent_last(state.queue.as_ref(), run, after).await? {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let feed = EventStream::open(state.queue.clone(), stream_of(run).to_owned(), From::After(after)).await?;
    Ok(event_stream::answer(state, slot, frames(state.store.clone(), feed, run.run_id.clone(), after, form)))
}

fn frames(
    store: Arc<dyn Store>,
    feed: EventStream,
    run_id: String,
    after: u64,
    form: Form,
) -> impl Stream<Item = Event> + Send + 'static {
    let opening = stream::iter(form.opening(&run_id, after));
    let events = run_events::follow(feed, store, run_id.clone());
    opening.chain(events.map(move |event| form.frame(&run_id, &event)))
}
