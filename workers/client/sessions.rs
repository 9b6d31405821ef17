//! Listings of sessions.

use super::{GatewayClient, known};
use commands::prompts::StepPrompt;
use commands::session_listing::SessionSummary;
use reqwest::Method;
use serde::Serialize;
use types::session::Status;
use types::timestamp::Timestamp;

/// The conditions of a listing of sessions. All of the given ones apply.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SessionFilter {
    pub status: Option<Status>,
    pub agent_id: Option<String>,
    pub channel: Option<String>,
    pub user_id: Option<String>,
    /// Whether the session waits for a user's answer or a human.
    pub waiting: Option<bool>,
    /// The earliest last change.
    pub since: Option<Timestamp>,
    /// The time before which the session last changed.
    pub until: Option<Timestamp>,
    /// Words that all occur in the history.
    pub q: Option<String>,
}

impl GatewayClient {
    /// The first `limit` sessions that fit, last changed first.
    pub async fn sessions(&self, filter: &SessionFilter, limit: usize) -> anyhow::Result<Vec<SessionSummary>> {
        self.entries(self.api(Method::GET, &["sessions"]).query(filter), "sessions", limit).await
    }

    /// The prompt of a model call.
    pub async fn prompt(&self, session_id: &str, turn_id: &str, key: &str) -> anyhow::Result<StepPrompt> {
        let path = ["sessions", session_id, "turns", turn_id, "prompts", key];
        self.call(self.api(Method::GET, &path)).await
    }

    /// The prompt of a model call, if it is stored.
    pub async fn prompt_if_kept(
        &self,
        session_id: &str,
        turn_id: &str,
        key: &str,
    ) -> anyhow::Result<Option<StepPrompt>> {
        known(self.prompt(session_id, turn_id, key).await)
    }
}
