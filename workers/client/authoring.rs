//! Requests of authoring dialogues.

use super::{GatewayClient, reason};
use commands::authoring::artifact::{DraftDetails, PublishRequest, PublishedDraft};
use commands::authoring::chat::ChatMessage;
use commands::authoring::create::{NewDialogue, NewSession};
use commands::authoring::trial::TrialRequest;
use commands::authoring::view::{ChatHistory, DialogueDetails, DialogueSummary};
use definitions::difference::Difference;
use futures::StreamExt;
use futures::stream::BoxStream;
use reqwest::Method;
use serde_json::Value;
use sse_stream::SseStream;
use types::authoring::{Event, Stage};

/// The events of a turn. An error is the reason why the stream broke off.
pub type TurnEvents = BoxStream<'static, Result<Event, String>>;

/// The events of a test of a draft.
pub type TestEvents = BoxStream<'static, Result<(String, Value), String>>;

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
        self.entries(self.api(Method::GET, &["session"]).query(&filters), "sessions", limit).await
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

    pub async fn draft(&self, session_id: &str) -> anyhow::Result<DraftDetails> {
        self.call(self.api(Method::GET, &["workflow", session_id, "draft"])).await
    }

    /// Compares the last draft with the document from which it was made.
    pub async fn draft_difference(&self, session_id: &str) -> anyhow::Result<Difference> {
        self.call(self.api(Method::GET, &["workflow", session_id, "diff"])).await
    }

    pub async fn publish_draft(&self, session_id: &str, order: &PublishRequest) -> anyhow::Result<PublishedDraft> {
        self.call(self.api(Method::POST, &["workflow", session_id, "publish"]).json(order)).await
    }

    /// Tests the last draft. Each event has its name and its payload.
    pub async fn test_draft(&self, session_id: &str, request: &TrialRequest) -> anyhow::Result<TestEvents> {
        let request = self.api(Method::POST, &["workflow", session_id, "test"]).json(request);
        let response = self.accepted(request.send().await).await?;
        let events = SseStream::from_bytes_stream(response.bytes_stream()).filter_map(async |sse| match sse {
            Ok(sse) => {
                let data = serde_json::from_str(sse.data.as_deref()?).ok()?;
                Some(Ok((sse.event.unwrap_or_default(), data)))
            }
            Err(error) => Some(Err(reason(&error))),
        });
        Ok(events.boxed())
    }

    /// Sends a message, and follows its turn. A repeat of the message belongs to the same turn.
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
