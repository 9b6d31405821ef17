//! Bearer tokens: with `gateway.tokens` set, every endpoint but the health checks asks for one.

use super::{GatewayState, Reject};
use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::Response;
use std::hint::black_box;
use std::sync::Arc;

/// The tokens of the settings.
#[derive(Clone)]
pub(super) struct Tokens(Arc<[String]>);

impl Tokens {
    /// Blank tokens do not count: they would let everybody in.
    pub(super) fn new(tokens: &[String]) -> Self {
        Self(tokens.iter().filter(|token| !token.trim().is_empty()).cloned().collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Compares with every token in full, so that the time it takes tells nothing about them.
    fn admit(&self, given: &str) -> bool {
        self.0.iter().fold(false, |admitted, token| equal(token.as_bytes(), given.as_bytes()) | admitted)
    }
}

/// Compares all bytes whatever they are; only the length of `given` shows in the time.
fn equal(token: &[u8], given: &[u8]) -> bool {
    let differ = given.iter().enumerate().fold(token.len() ^ given.len(), |differ, (index, byte)| {
        differ | usize::from(byte ^ token[index % token.len()])
    });
    black_box(differ) == 0
}

/// Lets a request pass when no tokens are set, or with one of them.
pub(super) async fn require(
    State(state): State<GatewayState>,
    request: Request,
    next: Next,
) -> Result<Response, Reject> {
    if state.tokens.is_empty() || bearer(&request).is_some_and(|given| state.tokens.admit(given)) {
        return Ok(next.run(request).await);
    }
    Err(Reject::unauthorized())
}

fn bearer(request: &Request) -> Option<&str> {
    let value = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_token_is_admitted() {
        let tokens = Tokens::new(&["s3cret".into(), "other".into(), " ".into()]);
        for (given, admitted) in
            [("s3cret", true), ("other", true), ("s3cre", false), ("s3crets3cret", false), ("", false), (" ", false)]
        {
            assert_eq!(tokens.admit(given), admitted, "{given:?}");
        }
    }

    #[test]
    fn blank_tokens_are_none() {
        assert!(Tokens::new(&[String::new(), "  ".into()]).is_empty());
    }
}
