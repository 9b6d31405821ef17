//! How often one caller may send requests, and how often one agent gets messages, so that none takes the gateway from the
//! others.

use super::Reject;
use axum::http::StatusCode;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);

/// The most agents whose messages are counted singly. When there are more, those whose minute is over are forgotten, and
/// the rest are counted together: the id of a message may be that of no agent.
const MAX_AGENTS: usize = 10_000;

/// The messages to each agent.
#[derive(Debug)]
pub(super) struct AgentRates {
    /// 0 is no limit.
    per_minute: u32,
    by_agent: Mutex<HashMap<String, Rate>>,
}

impl AgentRates {
    pub(super) fn new(per_minute: u32) -> Self {
        Self { per_minute, by_agent: Mutex::default() }
    }

    pub(super) fn is_limited(&self) -> bool {
        self.per_minute > 0
    }

    /// Counts one message to an agent; 429 above the limit.
    pub(super) fn count(&self, agent_id: &str) -> Result<(), Reject> {
        if !self.is_limited() {
            return Ok(());
        }
        let now = Instant::now();
        let mut by_agent = self.by_agent.lock().unwrap_or_else(PoisonError::into_inner);
        if by_agent.len() >= MAX_AGENTS && !by_agent.contains_key(agent_id) {
            by_agent.retain(|_, rate| !rate.is_full(now));
        }
        let is_full = by_agent.len() >= MAX_AGENTS && !by_agent.contains_key(agent_id);
        let counted = if is_full { "" } else { agent_id };
        let rate = by_agent.entry(counted.to_owned()).or_insert_with(|| Rate::new(self.per_minute));
        rate.take(now).map_err(|wait| {
            let message = format!("agent `{agent_id}` has got {} messages in a minute", self.per_minute);
            too_many(message, "send it later; the setting is `gateway.agent_messages_per_minute`", seconds(wait))
        })
    }
}

/// The limits of one caller, and their use.
#[derive(Debug)]
pub(super) struct Quota {
    name: String,
    rate: Option<Rate>,
    in_flight: Option<Arc<Semaphore>>,
    max_in_flight: u32,
}

/// A bucket that holds the requests of one minute, and fills up evenly.
#[derive(Debug)]
struct Rate {
    per_minute: u32,
    /// The time at which the bucket is full again.
    full_at: Mutex<Instant>,
}

impl Rate {
    fn new(per_minute: u32) -> Self {
        Self { per_minute, full_at: Mutex::new(Instant::now()) }
    }

    fn is_full(&self, now: Instant) -> bool {
        *self.full_at.lock().unwrap_or_else(PoisonError::into_inner) <= now
    }

    /// Takes one request; otherwise the time until there is one.
    fn take(&self, now: Instant) -> Result<(), Duration> {
        let each = MINUTE / self.per_minute;
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let next = (*full_at).max(now) + each;
        if next > now + MINUTE {
            return Err(next - (now + MINUTE));
        }
        *full_at = next;
        Ok(())
    }
}

impl Quota {
    /// No limits.
    pub(super) fn none() -> Self {
        Self::new("", 0, 0)
    }

    /// The limits of the caller `name`; 0 is no limit.
    pub(super) fn new(name: &str, per_minute: u32, max_in_flight: u32) -> Self {
        let rate = (per_minute > 0).then(|| Rate::new(per_minute));
        let permits = usize::try_from(max_in_flight).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let in_flight = (max_in_flight > 0).then(|| Arc::new(Semaphore::new(permits)));
        Self { name: name.to_owned(), rate, in_flight, max_in_flight }
    }

    /// Counts one request. The permit is that of the request until its response has ended. 429 above a limit.
    pub(super) fn enter(&self) -> Result<Option<OwnedSemaphorePermit>, Reject> {
        let permit = match &self.in_flight {
            None => None,
            Some(places) => Some(Arc::clone(places).try_acquire_owned().map_err(|_| {
                let message = format!("the token `{}` has {} requests in flight", self.name, self.max_in_flight);
                too_many(message, "wait until one ends; event streams count; the setting is `max_in_flight`", 1)
            })?),
        };
        if let Some(rate) = &self.rate
            && let Err(wait) = rate.take(Instant::now())
        {
            let message = format!("the token `{}` has sent {} requests in a minute", self.name, rate.per_minute);
            return Err(too_many(message, "send fewer requests; the setting is `requests_per_minute`", seconds(wait)));
        }
        Ok(permit)
    }
}

/// The value of `Retry-After`.
fn seconds(wait: Duration) -> u32 {
    u32::try_from(wait.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX).max(1)
}

fn too_many(message: String, hint: &str, seconds: u32) -> Reject {
    let reject = Reject::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message, hint);
    Reject { retry_after: Some(seconds), ..reject }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_minute_has_so_many_requests_and_they_come_back_evenly() {
        let quota = Quota::new("web", 60, 0);
        for _ in 0..60 {
            quota.enter().unwrap();
        }
        let refused = quota.enter().unwrap_err();
        assert_eq!((refused.status.as_u16(), refused.retry_after), (429, Some(1)));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(quota.enter().is_ok() && quota.enter().is_ok() && quota.enter().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn each_agent_has_messages_of_its_own() {
        let rates = AgentRates::new(2);
        assert!(rates.count("loud").is_ok() && rates.count("loud").is_ok());
        assert_eq!(rates.count("loud").unwrap_err().status.as_u16(), 429);
        assert!(rates.count("客服").is_ok());
        tokio::time::advance(Duration::from_secs(30)).await;
        assert!(rates.count("loud").is_ok());
        assert!(AgentRates::new(0).count("loud").is_ok());
    }

    #[tokio::test]
    async fn a_request_is_in_flight_until_its_permit_ends() {
        let quota = Quota::new("web", 0, 2);
        let (first, second) = (quota.enter().unwrap(), quota.enter().unwrap());
        assert_eq!(quota.enter().unwrap_err().code, "too_many_requests");
        drop(first);
        assert!(quota.enter().is_ok());
        drop(second);
        assert!(Quota::none().enter().unwrap().is_none());
    }
}
