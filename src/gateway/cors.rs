//! Cross-origin requests: the web pages that may call the gateway from a browser (`gateway.cors`). Browsers send the
//! preflight request without a token, so it needs none.

use axum::http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH, RETRY_AFTER};
use axum::http::{HeaderName, HeaderValue, Method};
use std::sync::Arc;
use std::time::Duration;
use tower_http::cors::{AllowOrigin, CorsLayer};
use url::Url;

/// How long a browser may cache the preflight response.
const MAX_AGE: Duration = Duration::from_secs(600);

/// The allowed origins from the settings. Cheap to clone.
#[derive(Clone)]
pub(super) struct Origins {
    all: bool,
    listed: Arc<[HeaderValue]>,
}

impl Origins {
    pub(super) fn new(settings: &[String]) -> Self {
        // Browsers send origins in lower case, in punycode, and without the scheme's default port.
        let written = |origin: &String| Url::parse(origin).ok().map(|url| url.origin().ascii_serialization());
        let listed = settings.iter().filter_map(written).filter_map(|origin| origin.parse().ok());
        Self { all: settings.iter().any(|origin| origin == "*"), listed: listed.collect() }
    }

    /// True for an origin that the operator has listed. `*` lists no origin: it requires tokens.
    pub(super) fn lists(&self, origin: &HeaderValue) -> bool {
        self.listed.contains(origin)
    }

    /// The layer that responds to preflight requests; `None` if no other origin may call.
    pub(super) fn layer(&self) -> Option<CorsLayer> {
        let origins = match self.all {
            true => AllowOrigin::any(),
            false if self.listed.is_empty() => return None,
            false => AllowOrigin::list(self.listed.iter().cloned()),
        };
        let header = HeaderName::from_static;
        let cors = CorsLayer::new()
            .allow_origin(origins)
            .allow_methods([Method::GET, Method::POST, Method::PUT, Method::DELETE])
            .allow_headers([
                AUTHORIZATION,
                CONTENT_TYPE,
                IF_MATCH,
                IF_NONE_MATCH,
                header("last-event-id"),
                header("traceparent"),
                header("tracestate"),
                header("x-request-id"),
            ])
            .expose_headers([ALLOW, ETAG, RETRY_AFTER, header("x-request-id")])
            .max_age(MAX_AGE);
        Some(cors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_compared_as_browsers_write_them() {
        let origins =
            Origins::new(&["https://Chat.Example.com:443/".into(), "http://例子.测试:8000".into(), "*".into()]);
        let lists = |origin: &str| origins.lists(&origin.parse().unwrap());
        assert!(lists("https://chat.example.com") && lists("http://xn--fsqu00a.xn--0zwm56d:8000"));
        for other in
            ["http://chat.example.com", "https://chat.example.com.evil.example", "https://evil.example", "null"]
        {
            assert!(!lists(other), "{other}");
        }
        assert!(Origins::new(&[]).layer().is_none());
    }
}
