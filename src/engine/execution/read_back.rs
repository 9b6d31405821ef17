//! Events of a session, read back from its stream.

use super::TurnError;
use futures::StreamExt;
use std::time::Duration;
use storage::queue::{From, Queue, QueueError};
use types::event::{Event, ReplyKind, StepEvent};

/// How long the stream may take to come to the mark.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is wanted of a session's events, up to a `mark` that is on its stream.
pub(crate) async fn read_back<T>(
    queue: &dyn Queue,
    mark: &StepEvent,
    wanted: impl Fn(Event) -> Option<T>,
) -> Result<Vec<T>, TurnError> {
    // A session may have any number of events: as long as they come, they are read.
    let late = |_| TurnError::Infrastructure("the events do not come".into());
    let opened = tokio::time::timeout(PATIENCE, queue.events(&mark.session_id, From::After(0))).await;
    let mut stream = opened.map_err(late)??;
    let mut found = Vec::new();
    loop {
        let ended = || QueueError::Unavailable("the stream of events has ended".into());
        let event = tokio::time::timeout(PATIENCE, stream.next()).await.map_err(late)?.ok_or_else(ended)??;
        match Event::decode(event.event_type, &event.payload) {
            Ok(Event::Step(step)) if step == *mark => return Ok(found),
            Ok(event) => found.extend(wanted(event)),
            Err(_) => {}
        }
    }
}

/// More than a greeting, an interim message or the promise of a human.
pub(crate) fn is_answer(kind: ReplyKind) -> bool {
    !matches!(kind, ReplyKind::Greeting | ReplyKind::Interim | ReplyKind::Handoff)
}
