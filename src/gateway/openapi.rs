//! `GET /openapi.json`: the description of the API, generated from the handlers. [`Routes`] takes a handler only
//! together with its description, so that none is served undescribed.

use super::reject::{Fault, Refusal};
use super::{
    GatewayState, agents, control, dead_letters, doctor, health, knowledge, processes, run_stream, runs, sessions,
    timers, workflows,
};
use axum::Router;
use axum::body::Bytes;
use axum::extract::Extension;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue};
use axum::routing::MethodRouter;
use definitions::workflow::definition::StoredWorkflow;
use engine::workflow::orchestration::event::RunEvent;
use types::event::{Reply, StatusEvent, StepEvent};
use types::ids::{DottedId, Id};
use utoipa::openapi::path::{Operation, Paths};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Content, OpenApi, Ref, ResponseBuilder};

/// The name of the security scheme in the document.
const BEARER: &str = "bearer";

/// The parts of the document that do not come from a handler: its head, the tags and the schemas.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Turnwheel",
        description = "A durable workflow engine for conversational agents: send messages by POST, receive replies as \
               server-sent events. With `gateway.tokens` set, every endpoint except the health checks requires a \
               bearer token. A response repeats the request's `x-request-id`, or has a new one."
    ),
    tags(
        (name = "messages", description = "For channels: send messages, receive events"),
        (name = "sessions", description = "Conversations: status, history, turns and operators' commands"),
        (name = "agents", description = "Agents, models and knowledge"),
        (name = "workflows", description = "Workflows and their runs"),
        (name = "operation", description = "Health, metrics, processes and dead letters"),
    ),
    components(schemas(
        Id, DottedId, commands::messages::NewMessage, commands::enqueue::Accepted, commands::operator::PostedReply, control::CommandDetails, control::HumanReply, sessions::SessionList,
        commands::sessions::SessionDetails, sessions::TurnList, commands::sessions::TurnDetails, types::session::Session, agents::AgentList, agents::Applied,
        commands::models::ModelList, definitions::agent::StoredAgent, health::Condition, timers::TimerList, dead_letters::DeadLetterList,
        commands::dead_letters::DeadLetterDetails, commands::dead_letters::ReplayedLetter, doctor::Findings, processes::ProcessList, knowledge::SourceList, knowledge::HitList,
        commands::knowledge::NewText, commands::knowledge::StoredSource, commands::knowledge::RemovedSource, Refusal, Fault, Reply, StatusEvent, StepEvent,
        RunEvent, StoredWorkflow, workflows::WorkflowList, commands::workflows::Registered, run_stream::RunRequest,
        commands::runs::StartedRun, runs::RunList, commands::run_details::RunDetails, runs::Cancellation, runs::Restart,
    )),
)]
struct Description;

/// Collects handlers with their descriptions.
pub(super) struct Routes {
    router: Router<GatewayState>,
    paths: Paths,
}

impl Routes {
    pub(super) fn new() -> Self {
        Self { router: Router::new(), paths: Paths::new() }
    }

    /// Serves `handler` under the path in its description `P`.
    pub(super) fn add<P: utoipa::Path>(self, handler: MethodRouter<GatewayState>) -> Self {
        self.put::<P>(&P::path(), "", handler)
    }

    /// Serves `handler` under the path in `P`, under `/api`, and without a prefix. Each path gets its own operation id.
    pub(super) fn add_everywhere<P: utoipa::Path>(self, handler: &MethodRouter<GatewayState>) -> Self {
        let path = P::path();
        let short = path.strip_prefix("/api/v1").unwrap_or(&path).to_owned();
        [(path, ""), (format!("/api{short}"), "_under_api"), (short, "_at_root")]
            .into_iter()
            .fold(self, |routes, (path, suffix)| routes.put::<P>(&path, suffix, handler.clone()))
    }

    fn put<P: utoipa::Path>(mut self, path: &str, suffix: &str, handler: MethodRouter<GatewayState>) -> Self {
        let mut operation = P::operation();
        operation.operation_id = operation.operation_id.map(|id| id + suffix);
        let refusal = ResponseBuilder::new()
            .description("An error: the problem, its place, and the remedy")
            .content("application/json", Content::new(Some(Ref::from_schema_name("Refusal"))));
        operation.responses.responses.insert("default".to_owned(), refusal.into());
        self.paths.add_path_operation(path, P::methods(), operation);
        Self { router: self.router.route(path, handler), paths: self.paths }
    }

    /// Returns the router and the descriptions. With `tokens`, the descriptions require a bearer token.
    pub(super) fn parts(mut self, tokens: bool) -> (Router<GatewayState>, Paths) {
        if tokens {
            for operation in self.paths.paths.values_mut().flat_map(operations) {
                operation.security = Some(vec![SecurityRequirement::new(BEARER, [] as [&str; 0])]);
            }
        }
        (self.router, self.paths)
    }
}

fn operations(item: &mut utoipa::openapi::PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.post, &mut item.put, &mut item.delete, &mut item.patch].into_iter().flatten()
}

/// The OpenAPI document as it is served. Cheap to clone.
#[derive(Clone)]
pub(super) struct Document(Bytes);

impl Document {
    /// Generates the document of a gateway that serves these paths.
    pub(super) fn new(paths: impl IntoIterator<Item = Paths>) -> Self {
        let mut description: OpenApi = <Description as utoipa::OpenApi>::openapi();
        paths.into_iter().for_each(|paths| description.paths.merge(paths));
        let bearer = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("One of the tokens in `gateway.tokens`"));
        let components = description.components.get_or_insert_default();
        components.add_security_scheme(BEARER, SecurityScheme::Http(bearer.build()));
        // Serialising plain data with text keys into memory cannot fail.
        Self(serde_json::to_vec(&description).unwrap_or_default().into())
    }
}

/// Returns this description (OpenAPI 3.1).
#[utoipa::path(get, path = "/openapi.json", operation_id = "openapi", tag = "operation",
    responses((status = 200, description = "This document", body = serde_json::Value)))]
pub(super) async fn show(Extension(document): Extension<Document>) -> ([(HeaderName, HeaderValue); 1], Bytes) {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], document.0)
}
