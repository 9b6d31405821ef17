//! Events of a session, read back from its stream.

use super::TurnError;
use futures::StreamExt;
use std::time::Duration;
use storage::queue::{From, Queue, QueueError};
use types::event::{Event, ReplyKind, StepEvent};

/// Timeout for each event on the way to the mark.
const EVENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads a session's events from the start of its stream up to `mark`, and returns those that `wanted` selects. Fails
/// if the stream is silent for longer than the timeout.
pub(crate) async fn read_back<T>(
    queue: &dyn Queue,
    mark: &StepEvent,
    wanted: impl Fn(Event) -> Option<T>,
) -> Result<Vec<T>, TurnError> {
    // The timeout applies to each event, not to all of them: a session may have any number of events.
    let late = |_| TurnError::Infrastructure("timed out reading the session's events from the queue".into());
    let opened = tokio::time::timeout(EVENT_TIMEOUT, queue.events(&mark.session_id, From::After(0))).await;
    let mut stream = opened.map_err(late)??;
    let mut found = Vec::new();
    loop {
        let ended = || QueueError::unavailable("the stream of events ended before the expected mark");
        let event = tokio::time::timeout(EVENT_TIMEOUT, stream.next()).await.map_err(late)?.ok_or_else(ended)??;
        match Event::decode(event.event_type, &event.payload) {
            Ok(Event::Step(step)) if step == *mark => return Ok(found),
            Ok(event) => found.extend(wanted(event)),
            Err(_) => {}
        }
    }
}

/// True for a real reply: anything but a greeting, an interim text or a handoff text.
pub(crate) fn is_answer(kind: ReplyKind) -> bool {
    !matches!(kind, ReplyKind::Greeting | ReplyKind::Interim | ReplyKind::Handoff)
}
