//! The monitoring ports of the NATS servers: health, and the state of their streams.

use crate::chaos::error::ChaosError;
use base::http_client;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time limit for a request.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Monitoring ports in the order of the servers, and an HTTP client.
pub(super) struct Monitors {
    ports: Vec<u16>,
    client: reqwest::Client,
}

/// Number of messages and last sequence of each stream.
type Streams = BTreeMap<String, (u64, u64)>;

impl Monitors {
    pub(super) fn new(ports: Vec<u16>) -> Result<Self, ChaosError> {
        let client = http_client::builder().no_proxy().timeout(RESPONSE_TIMEOUT).build();
        let client = client.map_err(|error| ChaosError::failed("cannot create an HTTP client", error))?;
        Ok(Self { ports, client })
    }

    /// Returns an unhealthy server and its problem.
    pub(super) async fn ill(&self) -> Option<(usize, String)> {
        for (member, port) in self.ports.iter().enumerate() {
            let problem = match self.client.get(format!("http://127.0.0.1:{port}/healthz")).send().await {
                Ok(answer) if answer.status().is_success() => continue,
                Ok(answer) => answer.text().await.unwrap_or_default(),
                Err(error) => error.to_string(),
            };
            return Some((member, problem));
        }
        None
    }

    /// Returns a server whose streams differ from those of most servers, and the difference.
    pub(super) async fn disagreeing(&self) -> Option<(usize, String)> {
        let mut all = Vec::new();
        for port in &self.ports {
            all.push(self.streams(*port).await);
        }
        odd_one(&all).map(|member| (member, format!("{:?} of {all:?}", all[member])))
    }

    async fn streams(&self, port: u16) -> Option<Streams> {
        let answer = self.client.get(format!("http://127.0.0.1:{port}/jsz?accounts=true&streams=true")).send().await;
        answer.ok()?.json().await.ok().map(|answer: Value| streams(&answer))
    }
}

fn streams(answer: &Value) -> Streams {
    let accounts = answer["account_details"].as_array().into_iter().flatten();
    let all = accounts.flat_map(|account| account["stream_detail"].as_array().into_iter().flatten());
    let number = |stream: &Value, field: &str| stream["state"][field].as_u64().unwrap_or_default();
    let name = |stream: &Value| stream["name"].as_str().unwrap_or_default().to_owned();
    all.map(|stream| (name(stream), (number(stream, "messages"), number(stream, "last_seq")))).collect()
}

/// Index of the first server without a response, or whose state fewer servers share than another state.
fn odd_one(all: &[Option<Streams>]) -> Option<usize> {
    let votes = |answer: &Option<Streams>| all.iter().filter(|other| *other == answer).count();
    let most = all.iter().map(votes).max()?;
    all.iter().position(|answer| answer.is_none() || (votes(answer) < all.len() && (votes(answer) < most || most == 1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(messages: u64) -> Option<Streams> {
        let stream = json!({"name": "TW_JOBS", "state": {"messages": messages, "last_seq": 9}});
        Some(streams(&json!({"account_details": [{"stream_detail": [stream]}]})))
    }

    #[test]
    fn the_server_that_differs_from_the_others_is_found() {
        assert_eq!(odd_one(&[answer(0), answer(0), answer(0)]), None);
        assert_eq!(odd_one(&[answer(0), answer(12), answer(0)]), Some(1));
        assert_eq!(odd_one(&[answer(0), answer(0), None]), Some(2));
        assert_eq!(odd_one(&[answer(1), answer(2), answer(3)]), Some(0), "all servers differ");
    }
}
