//! Requests of authoring dialogues.

use super::{GatewayClient, reason};
use commands::authoring::chat::ChatMessage;
use commands::authoring::create::{NewDialogue, NewSession};
use commands::authoring::view::{ChatHistory, DialogueDetails, DialogueSummary};
use futures::StreamExt;
use futures::stream::BoxStream;
use reqwest::Method;
use sse_stream::SseStream;
use types::authoring::{Event, Stage};

/// The events of a turn. An error is the reason why the stream broke off.
pub type TurnEvents = BoxStream<'static, Result<Event, String>>;

impl GatewayClient {
    pub async fn begin_dialogue(&self, new: &NewDialogue) -> anyhow::Result<NewSession> {
        self.call(self.api(Method::POST, &["session"]).json(new)).await
    }

    pub async fn dialogues(
        &self,
        user_id: Option<&str>,
        stage: Option<Stage>,
        limit: usize,
    ) -> anyhow::Result<Vec<DialogueSummary>> {
        let filters = user_id.map(|id| ("user_id", id)).into_iter().chain(stage.map(|stage| ("stage", stage.as_str())));
        let filters: Vec<_> = filters.collect();
        let asked = self.api(Method::GET, &["session"]).query(&filters).query(&[("limit", limit.min(1_000))]);
        self.listing(asked, "sessions").await
    }

    pub async fn dialogue(&self, session_id: &str) -> anyhow::Result<DialogueDetails> {
        self.call(self.api(Method::GET, &["session", session_id])).await
    }

    pub async fn dialogue_history(&self, session_id: &str) -> anyhow::Result<ChatHistory> {
        self.call(self.api(Method::GET, &["chat", "history", session_id])).await
    }

    pub async fn delete_dialogue(&self, session_id: &str) -> anyhow::Result<()> {
        self.accepted(self.api(Method::DELETE, &["session", session_id]).send().await).await.map(drop)
    }

    /// Sends a message, and follows its turn. The same message again is the same turn.
    pub async fn say(&self, message: &ChatMessage) -> anyhow::Result<TurnEvents> {
        let request = self.api(Method::POST, &["chat", "stream"]).json(message);
        let response = self.accepted(request.send().await).await?;
        let events = SseStream::from_bytes_stream(response.bytes_stream()).filter_map(async |sse| match sse {
            // An event of a later version may be unreadable.
            Ok(sse) => serde_json::from_str(sse.data.as_deref()?).ok().map(Ok),
            Err(error) => Some(Err(reason(&error))),
        });
        Ok(events.boxed())
    }
}
