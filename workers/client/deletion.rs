//! Requests that delete, and that replay many dead letters.

use super::GatewayClient;
use commands::dead_letters::{LetterFilter, ReplayedLetters};
use commands::definition_deletion::{DeletedAgent, DeletedWorkflow};
use commands::deletion::{DeletedLetter, DeletedSession, DeletedUser};
use reqwest::Method;
use std::time::Duration;

/// How long the deletion of many sessions, or the replay of many letters, may take.
const LONG: Duration = Duration::from_secs(600);

impl GatewayClient {
    pub async fn delete_session(&self, session_id: &str) -> anyhow::Result<DeletedSession> {
        self.call_within(LONG, self.api(Method::DELETE, &["sessions", session_id])).await
    }

    /// Deletes some of the user's sessions: see [`DeletedUser::complete`].
    pub async fn delete_user(&self, user_id: &str) -> anyhow::Result<DeletedUser> {
        self.call_within(LONG, self.api(Method::DELETE, &["users", user_id])).await
    }

    pub async fn delete_agent(&self, agent_id: &str, force: bool) -> anyhow::Result<DeletedAgent> {
        self.call(self.api(Method::DELETE, &["agents", agent_id]).query(&[("force", force)])).await
    }

    pub async fn delete_workflow(&self, workflow_id: &str, force: bool) -> anyhow::Result<DeletedWorkflow> {
        self.call(self.api(Method::DELETE, &["workflows", workflow_id]).query(&[("force", force)])).await
    }

    pub async fn delete_letter(&self, which: &str) -> anyhow::Result<DeletedLetter> {
        self.call(self.api(Method::DELETE, &["dead", which])).await
    }

    /// Replays a page of dead letters: see [`ReplayedLetters::complete`].
    pub async fn replay_many(&self, filter: &LetterFilter) -> anyhow::Result<ReplayedLetters> {
        self.call_within(LONG, self.api(Method::POST, &["dead", "replay"]).json(filter)).await
    }
}
