//! Bearer tokens, and cookies of logins with them. If the settings have tokens, every endpoint except the health checks
//! requires one. Without tokens, the gateway serves only clients on its own machine, and refuses requests that a web
//! page of another site makes a browser send.

use super::caller::Caller;
use super::cors::Origins;
use super::failures::Peer;
use super::{GatewayState, Reject, cookie};
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;
use std::net::IpAddr;
use tracing::Span;
use types::timestamp::Timestamp;
use url::{Host, Url};

/// How a caller has identified itself, in a request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Login {
    /// Not at all: the gateway has no tokens.
    None,
    /// By a bearer token.
    Token,
    /// By the cookie of a login, which ends at `until`.
    Cookie {
        /// The end of the login.
        until: Timestamp,
    },
}

/// Middleware: lets a request pass with a valid token or cookie, or from this machine if no tokens are set. Adds its
/// [`Caller`] and its [`Login`] to the request.
pub(super) async fn require(
    State(state): State<GatewayState>,
    mut request: Request,
    next: Next,
) -> Result<Response, Reject> {
    let address = request.extensions().get::<Peer>().map(|peer| peer.0);
    let (caller, login) = match (state.tokens.is_empty(), cookie::find(request.headers())) {
        // Without tokens there are no logins. A request with `Authorization` counts by that alone.
        (false, Some(cookie)) if !request.headers().contains_key(AUTHORIZATION) => {
            let found = by_cookie(&state, cookie, address).await?;
            own_page(request.method(), request.headers())?;
            found
        }
        (true, _) => (caller(&state, request.headers(), address).await?, Login::None),
        (false, _) => (caller(&state, request.headers(), address).await?, Login::Token),
    };
    Span::current().record("caller", caller.name());
    request.extensions_mut().insert(caller);
    request.extensions_mut().insert(login);
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
    by_token(state, bearer(headers), address).await
}

/// The caller with this token. A refusal takes its time.
pub(super) async fn by_token(
    state: &GatewayState,
    token: Option<&str>,
    address: Option<IpAddr>,
) -> Result<Caller, Reject> {
    let caller = token.and_then(|given| state.tokens.caller(given));
    admitted(state, caller, address).await
}

async fn by_cookie(state: &GatewayState, cookie: &str, address: Option<IpAddr>) -> Result<(Caller, Login), Reject> {
    let found = state.cookies.caller(&state.tokens, cookie).await?;
    let found = found.map(|(caller, until)| (caller, Login::Cookie { until }));
    admitted(state, found, address).await
}

/// Refuses after a pause unless a caller was found.
async fn admitted<T>(state: &GatewayState, found: Option<T>, address: Option<IpAddr>) -> Result<T, Reject> {
    if found.is_none() {
        tokio::time::sleep(state.failures.count(address)).await;
    }
    found.ok_or_else(Reject::unauthorized)
}

/// Refuses a request with a cookie that a page of another origin may have caused. Browsers add the cookie by
/// themselves, and name the page in `Origin` of requests that change something.
fn own_page(method: &Method, headers: &HeaderMap) -> Result<(), Reject> {
    if !method.is_safe() && !headers.contains_key(ORIGIN) {
        return Err(Reject::foreign_origin());
    }
    // Some requests start runs by GET, where browsers name no origin.
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    if site.is_some_and(|site| !matches!(site, b"same-origin" | b"none")) {
        return Err(Reject::foreign_origin());
    }
    refuse_foreign(headers)
}

/// Refuses a request whose `Origin` is not the host that the request names.
pub(super) fn refuse_foreign(headers: &HeaderMap) -> Result<(), Reject> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let origin = origin.to_str().ok().and_then(|origin| Url::parse(origin).ok());
    let own = origin.filter(|origin| matches!(origin.scheme(), "http" | "https")).is_some_and(|origin| {
        let host = Url::parse(&format!("{}://{host}/", origin.scheme()));
        host.is_ok_and(|host| host.origin() == origin.origin())
    });
    if own { Ok(()) } else { Err(Reject::foreign_origin()) }
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
    fn the_own_page_is_the_one_of_the_host_that_was_asked() {
        let headers = |host: &str, origin: &str| {
            HeaderMap::from_iter([(HOST, host.parse().unwrap()), (ORIGIN, origin.parse().unwrap())])
        };
        for (host, origin) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("console.example", "https://console.example"),
            ("Console.Example:443", "https://console.example"),
            ("[::1]:8080", "http://[::1]:8080"),
        ] {
            assert!(refuse_foreign(&headers(host, origin)).is_ok(), "{host} {origin}");
        }
        for (host, origin) in [
            ("console.example", "https://evil.example"),
            ("console.example", "https://console.example.evil.example"),
            ("console.example", "https://console.example:8443"),
            ("console.example", "https://console.example@evil.example"),
            ("console.example", "null"),
            ("console.example", ""),
            ("", "https://console.example"),
            ("console.example", "chrome-extension://console.example"),
        ] {
            assert_eq!(refuse_foreign(&headers(host, origin)).unwrap_err().code, "foreign_origin", "{host} {origin}");
        }
    }

    #[test]
    fn with_a_cookie_a_change_needs_an_origin_and_no_site_may_be_foreign() {
        let headers = |pairs: &[(&'static str, &str)]| {
            let named = [("host", "console.example")].iter().chain(pairs).map(|(name, value)| (*name, *value));
            HeaderMap::from_iter(
                named.map(|(name, value)| (axum::http::HeaderName::from_static(name), value.parse().unwrap())),
            )
        };
        let own = ("origin", "https://console.example");
        assert!(own_page(&Method::POST, &headers(&[own])).is_ok());
        assert!(own_page(&Method::POST, &headers(&[])).is_err());
        assert!(own_page(&Method::GET, &headers(&[])).is_ok());
        assert!(own_page(&Method::GET, &headers(&[("sec-fetch-site", "same-origin")])).is_ok());
        assert!(own_page(&Method::GET, &headers(&[("sec-fetch-site", "same-site")])).is_err());
        assert!(own_page(&Method::GET, &headers(&[("sec-fetch-site", "cross-site")])).is_err());
        assert!(own_page(&Method::GET, &headers(&[("origin", "https://evil.example")])).is_err());
    }

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
