//! Logins of people in a browser: `POST /api/v1/login` exchanges a token for a cookie, `POST /api/v1/logout` removes
//! it, and `GET /api/v1/me` says who asks.

use super::auth::{self, Login};
use super::caller::Caller;
use super::failures::Peer;
use super::input::Body;
use super::operation::Operation;
use super::roles::{ALL, Reach};
use super::{GatewayState, Reject, cookie};
use axum::extract::State;
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::{Extension, Json};
use base::config::Backend;
use serde::{Deserialize, Serialize};
use types::access::Role;
use types::timestamp::Timestamp;

/// A token.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct Credentials {
    /// A token of `gateway.tokens` or `[[gateway.access]]`.
    token: String,
}

/// A login.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct LoggedIn {
    /// The name of the token.
    name: String,
    /// Its role.
    role: Role,
    /// When the login ends.
    expires_at: Timestamp,
}

/// How the caller has identified itself.
#[derive(Clone, Copy, Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
enum LoginKind {
    /// Not at all: the gateway has no tokens.
    None,
    /// By a bearer token.
    Token,
    /// By the cookie of a login.
    Cookie,
}

/// The caller.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct Me {
    /// The name of the token; `local` on a gateway without tokens.
    name: String,
    /// The role of the token; `admin` on a gateway without tokens.
    role: Role,
    login: LoginKind,
    /// When the login ends; only with a cookie.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    /// The version of the gateway.
    version: &'static str,
    /// Where the gateway keeps its data.
    #[schemars(with = "BackendName")]
    backend: Backend,
    /// Whether everything runs in this one process, as with `turnwheel dev`.
    dev: bool,
}

/// The names of the backends.
#[derive(schemars::JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[allow(dead_code, reason = "only its schema is used")]
enum BackendName {
    /// NATS and MongoDB.
    Cluster,
    /// One file.
    Embedded,
}

pub(super) const LOGIN: Operation = Operation::post("/api/v1/login", "operation", "login")
    .summary("Exchanges a token for a cookie, for people in a browser.")
    .details(
        "The cookie `turnwheel_session` lasts 12 hours and counts as the token. It ends earlier when the token is removed \
         or replaced. With the cookie, requests that change something need an `Origin` header that equals the host.",
    )
    .body::<Credentials>()
    .ok::<LoggedIn>("The login; `Set-Cookie` has the cookie");
pub(super) async fn login(
    State(state): State<GatewayState>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    Body(Credentials { token }): Body<Credentials>,
) -> Result<([(HeaderName, String); 1], Json<LoggedIn>), Reject> {
    auth::refuse_foreign(&headers)?;
    let address = peer.map(|Extension(peer)| peer.0);
    let token = token.trim();
    let caller = auth::by_token(&state, Some(token), address).await?;
    let (cookie, expires_at) = state.cookies.issue(&caller, token, cookie::is_secure(&headers)).await?;
    Ok(([(SET_COOKIE, cookie)], Json(LoggedIn { name: caller.name().to_owned(), role: caller.role(), expires_at })))
}

pub(super) const LOGOUT: Operation = Operation::post("/api/v1/logout", "operation", "logout")
    .summary("Removes the cookie of a login.")
    .no_content("The browser forgets the cookie");
pub(super) async fn logout(headers: HeaderMap) -> Result<(StatusCode, [(HeaderName, String); 1]), Reject> {
    auth::refuse_foreign(&headers)?;
    Ok((StatusCode::NO_CONTENT, [(SET_COOKIE, cookie::removal(cookie::is_secure(&headers)))]))
}

pub(super) const ME: Operation = Operation::get("/api/v1/me", "operation", "show_me")
    .roles(ALL)
    .shows(Reach::Open)
    .summary("Shows who asks: the name and the role of the caller's token.")
    .ok::<Me>("The caller");
pub(super) async fn me(State(state): State<GatewayState>, caller: Caller, Extension(by): Extension<Login>) -> Json<Me> {
    let (login, expires_at) = match by {
        Login::None => (LoginKind::None, None),
        Login::Token => (LoginKind::Token, None),
        Login::Cookie { until } => (LoginKind::Cookie, Some(until)),
    };
    let backend = state.settings.backend;
    let dev = backend == Backend::Embedded;
    let version = env!("CARGO_PKG_VERSION");
    Json(Me { name: caller.name().to_owned(), role: caller.role(), login, expires_at, version, backend, dev })
}
