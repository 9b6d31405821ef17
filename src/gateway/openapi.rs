//! `GET /openapi.json`: the description of the API. [`Routes`] takes a handler only together with its [`Operation`], so
//! that none is served undescribed.

use super::access::guard;
use super::error_codes::{self, Codes};
use super::operation::Operation;
use super::reject::ErrorResponse;
use super::roles::{ALL, Reach};
use super::{GatewayState, schemas};
use axum::Router;
use axum::body::Bytes;
use axum::extract::Extension;
use axum::handler::Handler;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, on};
use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

/// The text at the beginning of the document.
const DESCRIPTION: &str = "\
A durable workflow engine for conversational agents: send messages by POST, receive replies as server-sent events. With \
tokens in the settings, every endpoint except the health checks requires a bearer token with a role; without them the \
gateway serves only its own machine. An error response has a stable `code`; the examples of each response list its codes. A response \
repeats the request's `x-request-id`, or has a new one.";

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
    endpoints: Vec<Endpoint>,
    access: Access,
    /// The state for the guard of each endpoint; `None` for endpoints without one.
    guarded: Option<GatewayState>,
}

/// An operation under one path, with the errors of its handler.
pub(super) struct Endpoint {
    path: String,
    operation: Operation,
    /// The end of the operation's id under this path.
    suffix: &'static str,
    errors: &'static [Codes],
    access: Access,
}

impl Routes {
    /// Routes that every caller may use.
    pub(super) fn unguarded(access: Access) -> Self {
        Self { router: Router::new(), endpoints: Vec::new(), access, guarded: None }
    }

    /// Routes for callers with the roles of each operation.
    pub(super) fn guarded(access: Access, state: &GatewayState) -> Self {
        Self { guarded: Some(state.clone()), ..Self::unguarded(access) }
    }

    /// Serves `handler` under the path of `operation`. `errors` are those of the handler; the errors of the parameters,
    /// the body and the access are added.
    pub(super) fn add<H, T>(self, operation: Operation, handler: H, errors: &'static [Codes]) -> Self
    where
        H: Handler<T, GatewayState>,
        T: 'static,
    {
        self.put(operation.path.to_owned(), "", operation, on(operation.filter, handler), errors)
    }

    /// Serves `handler` under the path of `operation`, under `/api`, and without a prefix. Each path gets its own
    /// operation id.
    pub(super) fn add_everywhere<H, T>(self, operation: Operation, handler: H, errors: &'static [Codes]) -> Self
    where
        H: Handler<T, GatewayState>,
        T: 'static,
    {
        let (path, handler) = (operation.path, on(operation.filter, handler));
        let short = path.strip_prefix("/api/v1").unwrap_or(path);
        [(path.to_owned(), ""), (format!("/api{short}"), "_under_api"), (short.to_owned(), "_at_root")]
            .into_iter()
            .fold(self, |routes, (path, suffix)| routes.put(path, suffix, operation, handler.clone(), errors))
    }

    fn put(
        mut self,
        path: String,
        suffix: &'static str,
        operation: Operation,
        handler: MethodRouter<GatewayState>,
        errors: &'static [Codes],
    ) -> Self {
        let handler = match &self.guarded {
            Some(state) => handler.layer(from_fn_with_state((state.clone(), operation), guard)),
            None => handler,
        };
        let router = self.router.route(&path, handler);
        self.endpoints.push(Endpoint { path, operation, suffix, errors, access: self.access });
        Self { router, ..self }
    }

    /// Returns the router and its endpoints.
    pub(super) fn parts(self) -> (Router<GatewayState>, Vec<Endpoint>) {
        (self.router, self.endpoints)
    }
}

impl Endpoint {
    fn describe(&self, schemas: &mut SchemaGenerator) -> Value {
        let error = json!(schemas.subschema_for::<ErrorResponse>());
        let mut responses = self.operation.successes(schemas);
        let errors = self.common_errors();
        responses.extend(error_codes::responses(errors.iter().chain(self.errors).copied().flatten(), &error));
        let other = json!({"description": "Any other error", "content": {"application/json": {"schema": error}}});
        responses.insert("default".to_owned(), other);
        let mut described = self.operation.describe(self.suffix, schemas);
        described["responses"] = Value::Object(responses);
        described["security"] = match self.access {
            Access::Everyone | Access::ThisMachine => json!([]),
            Access::Token => {
                let of = |scheme: &'static str| self.operation.roles.iter().map(move |role| json!({scheme: [role]}));
                of("bearer").chain(of("cookie")).collect()
            }
        };
        described
    }

    /// The errors of the authentication and of the extractors.
    fn common_errors(&self) -> Vec<Codes> {
        let mut errors = match self.access {
            Access::Everyone => Vec::new(),
            Access::ThisMachine => vec![error_codes::FOREIGN],
            Access::Token => vec![error_codes::TOKEN, error_codes::ROLE, error_codes::ORIGIN],
        };
        if self.access == Access::Token && self.operation.is_audited() {
            errors.push(error_codes::STORE);
        }
        let Operation { path, query, body, .. } = self.operation;
        errors.extend(path.contains('{').then_some(error_codes::PATH));
        errors.extend(query.map(|_| error_codes::QUERY));
        errors.extend(body.map(|_| error_codes::BODY));
        // Only a body that may be left out may have any content type.
        let of_type = |body: super::operation::Body| match body.yaml {
            true => error_codes::FILE_TYPE,
            false => error_codes::CONTENT_TYPE,
        };
        errors.extend(body.filter(|body| body.required).map(of_type));
        errors
    }
}

/// The OpenAPI document as it is served. Cheap to clone.
#[derive(Clone)]
pub(super) struct Document(Bytes);

impl Document {
    /// Generates the document of a gateway with these endpoints.
    pub(super) fn new(endpoints: impl IntoIterator<Item = Endpoint>) -> Self {
        let mut schemas = schemas::generator();
        let mut paths = Map::new();
        for endpoint in endpoints {
            let described = endpoint.describe(&mut schemas);
            paths.entry(endpoint.path).or_insert_with(|| json!({}))[endpoint.operation.method] = described;
        }
        let bearer = json!({
            "type": "http", "scheme": "bearer",
            "description": "A token of `gateway.tokens` or `[[gateway.access]]`. Each operation lists the roles of its callers."
        });
        let cookie = json!({
            "type": "apiKey", "in": "cookie", "name": "turnwheel_session",
            "description": "A login of `POST /api/v1/login`. It counts as its token."
        });
        let license = env!("CARGO_PKG_LICENSE");
        let document = json!({
            "openapi": "3.1.0",
            "info": {
                "title": "Turnwheel",
                "description": DESCRIPTION,
                "license": {"name": license, "identifier": license},
                "version": env!("CARGO_PKG_VERSION"),
            },
            "paths": paths,
            "components": {"schemas": schemas.take_definitions(true), "securitySchemes": {"bearer": bearer, "cookie": cookie}},
            "tags": [
                {"name": "messages", "description": "For channels: send messages, receive events"},
                {"name": "sessions", "description": "Conversations: status, history, turns and operators' commands"},
                {"name": "agents", "description": "Agents, models and knowledge"},
                {"name": "workflows", "description": "Workflows and their runs"},
                {"name": "decisions", "description": "Decisions of coordinator agents: judged without being carried out"},
                {"name": "authoring", "description": "Dialogues that make workflows and agents"},
                {"name": "operation", "description": "Health, metrics, processes and dead letters"},
            ],
        });
        Self(document.to_string().into())
    }
}

pub(super) const SHOW: Operation = Operation::get("/openapi.json", "operation", "openapi")
    .roles(ALL)
    .shows(Reach::Open)
    .summary("Returns this description (OpenAPI 3.1).")
    .ok::<Value>("This document");
pub(super) async fn show(Extension(document): Extension<Document>) -> ([(HeaderName, HeaderValue); 1], Bytes) {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], document.0)
}
