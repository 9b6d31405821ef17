//! Bearer tokens. If the settings have any, every endpoint except the health checks requires one. Without tokens, the
//! gateway serves only clients on its own machine, and refuses requests that a web page of another site makes a browser
//! send.

use super::caller::Caller;
use super::cors::Origins;
use super::failures::Peer;
use super::{GatewayState, Reject};
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::middleware::Next;
use axum::response::Response;
use std::net::IpAddr;
use tracing::Span;
use url::{Host, Url};

/// Middleware: lets a request pass with a valid token, or from this machine if no tokens are set. Adds its [`Caller`] to
/// the request.
pub(super) async fn require(
    State(state): State<GatewayState>,
    mut request: Request,
    next: Next,
) -> Result<Response, Reject> {
    let address = request.extensions().get::<Peer>().map(|peer| peer.0);
    let caller = caller(&state, request.headers(), address).await?;
    Span::current().record("caller", caller.name());
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

/// The caller with these headers, at this address.
pub(super) async fn caller(
    state: &GatewayState,
    headers: &HeaderMap,
    address: Option<IpAddr>,
) -> Result<Caller, Reject> {
    if state.tokens.is_empty() {
        return local(headers, &state.cors).map_err(Reject::foreign).map(|()| Caller::local());
    }
    let caller = bearer(headers).and_then(|given| state.tokens.caller(given));
    if caller.is_none() {
        tokio::time::sleep(state.failures.count(address)).await;
    }
    caller.ok_or_else(Reject::unauthorized)
}

/// Checks that `host` and `origin` name this machine; returns the name of the header that does not.
///
/// A page of another site can make a browser call this machine, either across sites or under the site's own name if
/// that name resolves to this machine. The browser then sends the site in `host` or `origin`. Origins listed by the
/// operator pass.
fn local(headers: &HeaderMap, listed: &Origins) -> Result<(), &'static str> {
    let names_this_machine = |authority: &str| {
        let parsed = Url::parse(&format!("http://{authority}/"));
        parsed.is_ok_and(|url| match url.host() {
            Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        })
    };
    for (header, scheme_ends) in [(HOST, ""), (ORIGIN, "://")] {
        let Some(value) = headers.get(&header) else { continue };
        if header == ORIGIN && listed.lists(value) {
            continue;
        }
        let value = value.to_str().unwrap_or_default();
        let authority = value.split_once(scheme_ends).map_or("", |(_, authority)| authority);
        if !names_this_machine(authority) {
            return Err(if header == HOST { "host" } else { "origin" });
        }
    }
    Ok(())
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_s_own_pages_are_local() {
        let headers = |host: &str, origin: &str| {
            let named = [(HOST, host), (ORIGIN, origin)].into_iter().filter(|(_, value)| !value.is_empty());
            HeaderMap::from_iter(named.map(|(name, value)| (name, value.parse().unwrap())))
        };
        let listed = Origins::new(&["https://pages.example".into()]);
        for (host, origin) in [
            ("127.0.0.1:8080", ""),
            ("localhost", "http://localhost:3000"),
            ("[::1]:8080", "https://127.0.0.1"),
            ("app.localhost:8080", ""),
            ("localhost", "https://pages.example"),
            ("", ""),
        ] {
            assert!(local(&headers(host, origin), &listed).is_ok(), "{host} {origin}");
        }
        for (host, origin, refused) in [
            ("evil.example:8080", "", "host"),
            ("localhost.evil.example", "", "host"),
            ("127.0.0.1@evil.example", "", "host"),
            ("10.0.0.1", "", "host"),
            ("127.0.0.1:8080", "https://evil.example", "origin"),
            ("evil.example", "https://pages.example", "host"),
            ("localhost", "null", "origin"),
            ("localhost", "file://", "origin"),
        ] {
            assert_eq!(local(&headers(host, origin), &listed), Err(refused), "{host} {origin}");
        }
    }
}
