//! Requests about conversations that are handed off.

use super::GatewayClient;
use commands::handoffs::{ClaimResult, HandoffSummary};
use reqwest::Method;
use serde_json::json;
use types::job::{Command, Control};

impl GatewayClient {
    /// Handoffs in this state, such as `waiting`; `by` is the person of the state `mine`.
    pub async fn handoffs(&self, state: &str, by: Option<&str>, limit: usize) -> anyhow::Result<Vec<HandoffSummary>> {
        let filters: Vec<_> = [("state", state)].into_iter().chain(by.map(|by| ("by", by))).collect();
        self.entries(self.api(Method::GET, &["handoffs"]).query(&filters), "handoffs", limit).await
    }

    /// Ends a claim, passes it on, or makes one.
    pub async fn change_claim(&self, session_id: &str, order: &Control) -> anyhow::Result<ClaimResult> {
        let verb = match order.command {
            Command::Unclaim => "unclaim",
            Command::Transfer => "transfer",
            _ => "claim",
        };
        self.call(self.api(Method::POST, &["sessions", session_id, verb]).json(&json!(order))).await
    }
}
