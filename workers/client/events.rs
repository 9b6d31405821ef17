//! The gateway's server-sent events of a session or run.

use super::{GatewayClient, reason};
use futures::StreamExt;
use futures::stream::BoxStream;
use reqwest::Method;
use sse_stream::SseStream;
use storage::queue::StreamEvent;
use types::event::EventType;

/// A stream of events to follow.
#[derive(Clone, Debug)]
pub enum Followed {
    /// All events of a session.
    Session(String),
    /// The events of a run, until it ends.
    Run(String),
}

/// A stream of events. An error is the reason why the stream broke off.
pub type Events = BoxStream<'static, Result<StreamEvent, String>>;

impl GatewayClient {
    /// Opens the events of a session or run after `last_id`, or from now on.
    pub async fn events(&self, followed: &Followed, last_id: Option<u64>) -> anyhow::Result<Events> {
        let path = match followed {
            Followed::Session(session_id) => ["sessions", session_id, "events"],
            Followed::Run(run_id) => ["runs", run_id, "events"],
        };
        let mut request = self.api(Method::GET, &path);
        if let Some(id) = last_id {
            request = request.header("last-event-id", id.to_string());
        }
        let response = self.accepted(request.send().await).await?;
        let events = SseStream::from_bytes_stream(response.bytes_stream()).filter_map(async |sse| match sse {
            Ok(sse) => event(&sse).map(Ok),
            Err(error) => Some(Err(reason(&error))),
        });
        Ok(events.boxed())
    }
}

/// Decodes a server-sent event; `None` if it has no id or an unknown type, for example of a later version.
fn event(sse: &sse_stream::Sse) -> Option<StreamEvent> {
    Some(StreamEvent {
        seq: sse.id.as_deref()?.parse().ok()?,
        event_type: EventType::from_token(sse.event.as_deref()?)?,
        payload: sse.data.clone()?.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_without_id_or_of_other_types_are_passed_over() {
        let frame = sse_stream::Sse::default().id("7").event("reply").data("{}");
        assert_eq!(event(&frame).unwrap().seq, 7);
        assert!(event(&sse_stream::Sse::default().event("reply").data("{}")).is_none());
        assert!(event(&sse_stream::Sse::default().id("7").event("other").data("{}")).is_none());
    }
}
