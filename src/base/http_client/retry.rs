//! Retries of HTTP calls that failed for a transient reason.

use super::private::PrivateTarget;
use crate::clock;
use crate::error::{causes, with_causes};
use backon::{ExponentialBuilder, Retryable};
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use std::future::Future;
use std::time::Duration;
use thiserror::Error;
use tracing::debug;
use types::timestamp::Timestamp;

const MIN_WAIT: Duration = Duration::from_millis(200);
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Why an attempt failed. It has no source, because the text of a source may contain secrets.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{problem}")]
pub struct HttpFault {
    /// The problem, without secrets.
    pub problem: String,
    /// The HTTP status of the response; `None` if there was no response.
    pub status: Option<u16>,
    /// True if a retry may succeed.
    pub transient: bool,
    /// The wait that the server asks for.
    pub retry_after: Option<Duration>,
}

impl HttpFault {
    /// A fault that a retry may resolve.
    pub fn transient(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), status: None, transient: true, retry_after: None }
    }

    /// A fault that every retry would repeat.
    pub fn permanent(problem: impl Into<String>) -> Self {
        Self { transient: false, ..Self::transient(problem) }
    }

    /// The fault of a response whose status is not 2xx.
    pub fn status(status: StatusCode, headers: &HeaderMap, transient: bool, message: &str) -> Self {
        let message = if message.is_empty() { status.canonical_reason().unwrap_or("no message") } else { message };
        Self {
            problem: format!("HTTP {}: {message}", status.as_u16()),
            status: Some(status.as_u16()),
            transient,
            retry_after: retry_after(headers),
        }
    }
}

impl From<reqwest::Error> for HttpFault {
    /// Omits the address, because its query may contain a secret.
    fn from(error: reqwest::Error) -> Self {
        let error = error.without_url();
        if let Some(target) = causes(&error).find_map(|cause| cause.downcast_ref::<PrivateTarget>()) {
            return Self::permanent(target.to_string());
        }
        let transient = !(error.is_builder() || error.is_redirect());
        Self { transient, ..Self::transient(with_causes(&error)) }
    }
}

/// How often to retry, and how long to wait at most.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Retries after the first attempt.
    pub retries: u32,
    /// The longest wait that a server's `Retry-After` may cause.
    pub longest_retry_after: Duration,
}

/// Runs `attempt` until it succeeds, fails permanently, or all retries are used. Returns the outcome and the number of
/// attempts.
pub async fn retry<T, A, F>(policy: Policy, what: &str, mut attempt: A) -> (Result<T, HttpFault>, u32)
where
    A: FnMut() -> F,
    F: Future<Output = Result<T, HttpFault>>,
{
    let waits = ExponentialBuilder::new()
        .with_min_delay(MIN_WAIT)
        .with_max_delay(MAX_WAIT)
        .with_max_times(policy.retries as usize)
        .with_jitter();
    let mut attempts = 0;
    let counted = || {
        attempts += 1;
        attempt()
    };
    let outcome = counted
        .retry(waits)
        .when(|fault: &HttpFault| fault.transient)
        .adjust(|fault, wait| {
            let asked = fault.retry_after.unwrap_or_default().min(policy.longest_retry_after);
            wait.map(|wait| wait.max(asked))
        })
        .notify(|fault, wait| debug!(call = what, ?wait, "call failed, retrying: {fault}"))
        .await;
    (outcome, attempts)
}

/// Limits the duration of one attempt, including connecting, headers and body. A timeout is a transient fault.
pub async fn with_timeout<T>(
    limit: Duration,
    attempt: impl Future<Output = Result<T, HttpFault>>,
) -> Result<T, HttpFault> {
    match tokio::time::timeout(limit, attempt).await {
        Ok(outcome) => outcome,
        Err(_) => Err(HttpFault::transient(format!("no complete answer within {}", types::duration::format(limit)))),
    }
}

/// The wait that the header `retry-after-ms` or `Retry-After` (seconds or an HTTP date) asks for.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(millis) = text("retry-after-ms").and_then(|text| text.parse::<f64>().ok()) {
        return Duration::try_from_secs_f64(millis / 1_000.0).ok();
    }
    let after = text("retry-after")?;
    if let Ok(seconds) = after.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    // An HTTP date is an RFC 2822 date in the zone GMT.
    let date = chrono::DateTime::parse_from_rfc2822(after).ok()?;
    Some(clock::now().until(Timestamp::from_millis(date.timestamp_millis())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())])
    }

    #[test]
    fn retry_after_is_read_in_all_its_forms() {
        assert_eq!(retry_after(&headers("retry-after", "3")), Some(Duration::from_secs(3)));
        assert_eq!(retry_after(&headers("retry-after-ms", "250")), Some(Duration::from_millis(250)));
        assert_eq!(retry_after(&headers("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")), Some(Duration::ZERO));
        let far = retry_after(&headers("retry-after", "Fri, 31 Dec 2100 23:59:59 GMT")).unwrap();
        assert!(far > Duration::from_secs(365 * 86_400));
        assert_eq!(retry_after(&headers("retry-after", "-5")), None);
        assert_eq!(retry_after(&headers("retry-after", "soon")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn waits_as_asked_but_no_longer_than_the_limit() {
        let policy = Policy { retries: 2, longest_retry_after: Duration::from_secs(30) };
        let begun = tokio::time::Instant::now();
        let (outcome, attempts) = retry(policy, "test", || async {
            Err::<(), _>(HttpFault { retry_after: Some(Duration::from_secs(3_600)), ..HttpFault::transient("busy") })
        })
        .await;
        assert_eq!((outcome.unwrap_err().problem.as_str(), attempts), ("busy", 3));
        assert_eq!(begun.elapsed().as_secs(), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_permanent_fault_is_not_repeated() {
        let policy = Policy { retries: 5, longest_retry_after: Duration::ZERO };
        let (outcome, attempts) = retry(policy, "test", || async { Err::<(), _>(HttpFault::permanent("no")) }).await;
        assert_eq!((outcome.unwrap_err(), attempts), (HttpFault::permanent("no"), 1));
    }
}
