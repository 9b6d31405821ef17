//! `GET /api/v1/events`: the events of all sessions and runs that a caller may see, as server-sent events.

use super::caller::Caller;
use super::event_frames::{gap, keep_alive, located, opened};
use super::event_stream::{self, KEEP_ALIVE, invalid_event_id};
use super::front_ends::{event_shown_to, is_shown_whole};
use super::hub::{Item, Reader};
use super::input::Filter;
use super::operation::Operation;
use super::roles::{FRONT_ENDS_AND_READERS, Reach};
use super::sights::{Selection, Sight};
use super::{GatewayState, Reject};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use futures::stream::{self, StreamExt};
use serde::Deserialize;
use std::time::Duration;
use tokio::time::Instant;
use types::access::Role;
use types::event::EventType;
use types::ids::{self, Id};

/// Shortest time between two writes to a reader that keeps up. Each write costs a system call here and one in the
/// reader. An event that comes after a pause is written immediately.
const BATCH_INTERVAL: Duration = Duration::from_millis(50);
/// Size at which a batch is written although more events are ready.
const MAX_BATCH_BYTES: usize = 64 * 1024;

/// The events to send. All of the given conditions apply.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct EventFilter {
    /// Events after this sequence, which is an `id` that the client has seen, or the `as_of` of a listing. Without it:
    /// events from now on. The header `Last-Event-ID` wins.
    #[schemars(extend("example" = "1042"))]
    after: Option<String>,
    /// Only these types, separated by commas: `reply`, `status`, `step`, `run`, `decision`, `authoring`, `turn`,
    /// `handoff`.
    #[schemars(extend("example" = "reply,status"))]
    types: Option<String>,
    /// Only events of this session, or of a run without one.
    #[schemars(with = "Option<Id>")]
    session_id: Option<String>,
    /// Only events of this agent's sessions.
    #[schemars(with = "Option<Id>")]
    agent_id: Option<String>,
    /// Only events of this channel.
    #[schemars(with = "Option<Id>")]
    channel: Option<String>,
}

pub(super) const FOLLOW: Operation = Operation::get("/api/v1/events", "messages", "follow_all_events")
    .roles(FRONT_ENDS_AND_READERS)
    .shows(Reach::Selected)
    .summary("Follows the events of all sessions and runs that the caller may see.")
    .details(
        "The first event is `open`, with the last sequence of the stream as `as_of`. Each further one has as `id` its \
         sequence, as `event` its type, and as `data` `{session_id, channel, agent_id?, event}`, where `event` is the \
         payload as in the events of one session. A client that reads too slowly, or whose position is older than what \
         the gateway keeps, gets `gap` with the sequences `from` to `to` that it has missed, and then what follows. After \
         a `gap`, read the listings again. The response ends when the stream of events was replaced by another one.",
    )
    .query::<EventFilter>()
    .last_event_id("The last `id` that the client has seen: the events after it follow.")
    .event_stream("Server-sent events");
pub(super) async fn follow(
    State(state): State<GatewayState>,
    caller: Caller,
    Filter(filter): Filter<EventFilter>,
    headers: HeaderMap,
) -> Result<Response, Reject> {
    let after = event_stream::last_event_id(&headers, filter.after.as_deref())?;
    let after = after.map(|id| id.parse().map_err(|_| invalid_event_id(&id))).transpose()?;
    let sight = Sight::new(&state, caller.scope().clone(), selection(filter)?);
    let role = caller.role();
    let slot = state.streams.take()?;
    let (reader, as_of) = state.hub.open(after, &state.limits).await?;
    let frames = Frames { reader, sight, role, caught_up: None };
    let batches = stream::unfold(frames, |mut frames| async move { Some((frames.next().await?, frames)) });
    Ok(event_stream::answer_bytes(&state, slot, stream::iter([opened(as_of)]).chain(batches)))
}

/// The frames for one reader, in batches.
struct Frames {
    reader: Reader,
    sight: Sight,
    role: Role,
    /// When the reader had taken all events that were there.
    caught_up: Option<Instant>,
}

impl Frames {
    /// Waits for the next event that the reader sees, and returns the frames of all events that are ready by then.
    /// `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        let until = Instant::now() + KEEP_ALIVE;
        let mut batch = Vec::new();
        while batch.is_empty() {
            if let Some(caught_up) = self.caught_up.take() {
                tokio::time::sleep_until(caught_up + BATCH_INTERVAL).await;
            }
            let Ok(item) = tokio::time::timeout_at(until, self.reader.next()).await else {
                return Some(keep_alive());
            };
            self.add(item?, &mut batch).await;
            while batch.len() < MAX_BATCH_BYTES {
                let Some(item) = self.reader.take() else {
                    self.caught_up = Some(Instant::now());
                    break;
                };
                self.add(item, &mut batch).await;
            }
        }
        Some(batch.into())
    }

    async fn add(&self, item: Item, batch: &mut Vec<u8>) {
        let event = match item {
            Item::Gap { from, to } => return batch.extend_from_slice(&gap(from, to)),
            Item::Event(event) => event,
        };
        let logged = &event.logged;
        match self.sight.shows(&event).await {
            Ok(None) => {}
            Ok(Some(agent_id)) if is_shown_whole(self.role, logged.event_type) => {
                batch.extend_from_slice(&event.frame(agent_id.as_ref()));
            }
            Ok(Some(agent_id)) => {
                let payload = event_shown_to(self.role, logged.event_type, &logged.payload);
                batch.extend_from_slice(&located(logged, &payload, agent_id.as_deref()));
            }
            // Whether the caller may see it is unknown, which must not be a silent hole.
            Err(_) => batch.extend_from_slice(&gap(logged.seq, logged.seq)),
        }
    }
}

fn selection(filter: EventFilter) -> Result<Selection, Reject> {
    let EventFilter { types, session_id, agent_id, channel, .. } = filter;
    for (field, id) in [("session_id", &session_id), ("agent_id", &agent_id), ("channel", &channel)] {
        id.iter().try_for_each(|id| ids::check(field, id))?;
    }
    let unknown = |token: &str| {
        let message = format!("types: there is no type `{token}`");
        Reject::invalid(
            "invalid_query",
            message,
            "the types are reply, status, step, run, decision, authoring, turn and handoff",
        )
    };
    let parse = |token: &str| EventType::from_token(token.trim()).ok_or_else(|| unknown(token.trim()));
    let types = types.map(|types| types.split(',').map(parse).collect::<Result<Vec<_>, _>>()).transpose()?;
    Ok(Selection { types, session_id, agent_id, channel })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::state;
    use serde_json::json;
    use std::sync::Arc;
    use types::access::Scope;
    use types::event::OutEvent;

    async fn frames(state: &GatewayState, session_id: Option<&str>) -> Frames {
        let selection = Selection { session_id: session_id.map(str::to_owned), ..Selection::default() };
        let (reader, _) = state.hub.open(None, &state.limits).await.unwrap();
        let sight = Sight::new(state, Scope::default(), selection);
        Frames { reader, sight, role: Role::Admin, caught_up: None }
    }

    fn event(number: usize) -> OutEvent {
        OutEvent {
            channel: "web".into(),
            session_id: "s1".into(),
            event_type: EventType::Status,
            msg_id: Some(format!("s1/{number}")),
            payload: json!({"number": number}).to_string().into(),
        }
    }

    #[tokio::test]
    async fn events_that_are_ready_are_one_write_in_their_order() {
        let state = state(&[]).await;
        let mut frames = frames(&state, None).await;
        let (mut other, _) = state.hub.open(None, &state.limits).await.unwrap();
        state.queue.emit((0..100).map(event).collect()).await.unwrap();
        for _ in 0..100 {
            assert!(matches!(other.next().await, Some(Item::Event(_))));
        }
        let batch = frames.next().await.unwrap();
        let text = std::str::from_utf8(&batch).unwrap();
        assert_eq!(text.matches("event: status").count(), 100);
        let place = |number: usize| text.find(&format!("{{\"number\":{number}}}")).unwrap();
        assert!((1..100).all(|number| place(number - 1) < place(number)), "{text}");
        assert!(frames.caught_up.is_some(), "the next write waits for its time");
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_is_kept_alive_also_while_all_events_are_hidden() {
        let state = state(&[]).await;
        let mut frames = frames(&state, Some("s2")).await;
        let queue = Arc::clone(&state.queue);
        let tasks = base::tasks::Tasks::new();
        tasks.spawn("events", base::tasks::OnPanic::Log, async move {
            for number in 0.. {
                queue.emit(Arc::new([event(number)])).await.unwrap();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let begun = Instant::now();
        assert_eq!(frames.next().await.unwrap(), keep_alive());
        let passed = begun.elapsed();
        assert!((KEEP_ALIVE..KEEP_ALIVE + Duration::from_secs(1)).contains(&passed), "{passed:?}");
        tasks.stop();
    }
}
