//! `GET /openapi.json`: the description of the API, generated from the handlers. [`Routes`] takes a handler only
//! together with its description, so that none is served undescribed.

use super::error_codes::Codes;
use super::reject::{ErrorDetails, ErrorResponse};
use super::{
    GatewayState, agents, control, dead_letters, doctor, error_codes, examples, health, knowledge, processes,
    run_stream, runs, sessions, timers, workflows,
};
use axum::Router;
use axum::body::Bytes;
use axum::extract::Extension;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue};
use axum::routing::MethodRouter;
use definitions::workflow::definition::StoredWorkflow;
use engine::workflow::orchestration::event::RunEvent;
use types::event::{Reply, StatusEvent, StepEvent, TurnEvent};
use types::ids::{DottedId, Id};
use utoipa::__dev::Tags;
use utoipa::ToSchema;
use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn, Paths};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Content, OpenApi, Ref, RefOr, Required, ResponseBuilder};

/// The name of the security scheme in the document.
const BEARER: &str = "bearer";

/// The parts of the document that do not come from a handler: its head, the tags and the schemas.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Turnwheel",
        description = "A durable workflow engine for conversational agents: send messages by POST, receive replies as \
               server-sent events. With `gateway.tokens` set, every endpoint except the health checks requires a \
               bearer token; without it the gateway serves only its own machine. An error response has a stable \
               `code`; the examples of each response list its codes. A response repeats the request's \
               `x-request-id`, or has a new one."
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
        commands::knowledge::NewText, commands::knowledge::StoredSource, commands::knowledge::RemovedSource, ErrorResponse, ErrorDetails, Reply, StatusEvent, StepEvent,
        RunEvent, TurnEvent, StoredWorkflow, workflows::WorkflowList, commands::workflows::Registered, run_stream::RunRequest,
        commands::runs::StartedRun, runs::RunList, commands::run_details::RunDetails, runs::Cancellation, runs::Restart,
    )),
)]
struct Description;

/// Who may call a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Every client.
    Everyone,
    /// Clients and pages on the gateway's machine, because no tokens are set.
    ThisMachine,
    /// Clients with a bearer token.
    Token,
}

/// Collects handlers with their descriptions.
pub(super) struct Routes {
    router: Router<GatewayState>,
    paths: Paths,
    access: Access,
}

impl Routes {
    pub(super) fn new(access: Access) -> Self {
        Self { router: Router::new(), paths: Paths::new(), access }
    }

    /// Serves `handler` under the path in its description `P`. `errors` are those of the handler; the errors of the
    /// parameters, the body and the access are added.
    pub(super) fn add<P>(self, handler: MethodRouter<GatewayState>, errors: &[Codes]) -> Self
    where
        P: utoipa::Path + Tags<'static>,
    {
        self.put::<P>(&P::path(), "", handler, errors)
    }

    /// Serves `handler` under the path in `P`, under `/api`, and without a prefix. Each path gets its own operation id.
    pub(super) fn add_everywhere<P>(self, handler: &MethodRouter<GatewayState>, errors: &[Codes]) -> Self
    where
        P: utoipa::Path + Tags<'static>,
    {
        let path = P::path();
        let short = path.strip_prefix("/api/v1").unwrap_or(&path).to_owned();
        [(path, ""), (format!("/api{short}"), "_under_api"), (short, "_at_root")]
            .into_iter()
            .fold(self, |routes, (path, suffix)| routes.put::<P>(&path, suffix, handler.clone(), errors))
    }

    fn put<P>(mut self, path: &str, suffix: &str, handler: MethodRouter<GatewayState>, errors: &[Codes]) -> Self
    where
        P: utoipa::Path + Tags<'static>,
    {
        let mut operation = P::operation();
        // `Path::operation` leaves the tags out.
        operation.tags = Some(P::tags().into_iter().map(str::to_owned).collect());
        operation.security = Some(match self.access {
            Access::Everyone | Access::ThisMachine => Vec::new(),
            Access::Token => vec![SecurityRequirement::new(BEARER, [] as [&str; 0])],
        });
        examples::add(&mut operation);
        describe_parameters(&mut operation);
        let common = common_errors(&operation, self.access);
        let errors = common.iter().chain(errors).copied().flatten();
        operation.responses.responses.extend(error_codes::responses(errors).responses);
        let other = ResponseBuilder::new()
            .description("Any other error")
            .content("application/json", Content::new(Some(Ref::from_schema_name(ErrorResponse::name()))));
        operation.responses.responses.insert("default".to_owned(), other.into());
        operation.operation_id = operation.operation_id.map(|id| id + suffix);
        self.paths.add_path_operation(path, P::methods(), operation);
        Self { router: self.router.route(path, handler), ..self }
    }

    /// Returns the router and the descriptions.
    pub(super) fn parts(self) -> (Router<GatewayState>, Paths) {
        (self.router, self.paths)
    }
}

/// The errors of the extractors and of the authentication.
fn common_errors(operation: &Operation, access: Access) -> Vec<Codes> {
    let mut errors = match access {
        Access::Everyone => Vec::new(),
        Access::ThisMachine => vec![error_codes::FOREIGN],
        Access::Token => vec![error_codes::TOKEN],
    };
    let parameters = operation.parameters.iter().flatten();
    for parameter in parameters.filter_map(described) {
        match parameter.parameter_in {
            ParameterIn::Path => errors.push(error_codes::PATH),
            ParameterIn::Query | ParameterIn::QueryString => errors.push(error_codes::QUERY),
            ParameterIn::Header | ParameterIn::Cookie => {}
        }
    }
    if let Some(RefOr::T(body)) = &operation.request_body {
        errors.push(error_codes::BODY);
        // Only a body that may be left out may have any content type.
        errors.extend((body.required == Some(Required::True)).then_some(error_codes::CONTENT_TYPE));
    }
    errors
}

/// Describes the parameters of the path, which have the same meaning everywhere.
fn describe_parameters(operation: &mut Operation) {
    for parameter in operation.parameters.iter_mut().flatten() {
        let RefOr::T(parameter) = parameter else { continue };
        let (description, example) = match parameter.name.as_str() {
            "session_id" => ("The session", "s1"),
            "turn_id" => ("The turn", "m-1"),
            "agent_id" => ("The agent", "sales"),
            "workflow_id" => ("The workflow. For a run also a task agent", "research_workflow"),
            "run_id" => ("The run", "r1"),
            "source" => ("Name of the text, percent-encoded", "kb/returns.md"),
            "which" => ("Number of the dead letter, or id of its job", "7"),
            _ => continue,
        };
        if parameter.parameter_in == ParameterIn::Path {
            let described = ParameterBuilder::from(std::mem::take(parameter));
            *parameter = described.description(Some(description)).example(Some(example.into())).build();
        }
    }
}

const fn described<T>(item: &RefOr<T>) -> Option<&T> {
    match item {
        RefOr::T(item) => Some(item),
        RefOr::Ref(_) => None,
    }
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
