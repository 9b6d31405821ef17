//! Publication of a run's events on the stream of its session, or on the run's own stream. Each event is published
//! once, even if the run is repeated.

use super::output_chunks::OutputChunks;
use crate::execution::read_back::read_back;
use crate::execution::{Services, TurnError};
use crate::journal::Guard;
use crate::workflow::orchestration::event::{QueuedDecision, QueuedEvent, RunEvent};
use crate::workflow::orchestration::{EventSink, SinkError};
use async_trait::async_trait;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use storage::queue::Queue;
use types::event::{Event, EventType, OutEvent, StepEvent};
use types::excerpt;

/// Key of the step event that marks the end of the events to read back.
const RESUMED_MARK: &str = "resumed";
/// Bytes of the queue's payload limit that are reserved for headers.
const HEADER_RESERVE: usize = 4 * 1024;
/// Limit in bytes on an event, whatever the queue accepts: a run's last event is stored in its lane's session
/// document.
const MAX_EVENT_BYTES: usize = 4 * 1024 * 1024;

/// The stream on which a run's events are published, and the ids that they carry.
#[derive(Clone)]
pub(super) struct EventAddress {
    pub(super) channel: String,
    /// Id of the session that asked for the run, else of the run.
    pub(super) stream: String,
    pub(super) run_id: String,
    pub(super) turn_id: String,
    /// True for a run within a turn of the session. The events of its decisions name the turn.
    pub(super) is_in_turn: bool,
}

impl EventAddress {
    /// Builds the message for an event. If the event exceeds the queue's limit, its texts are cut or removed.
    pub(super) fn publication(&self, event: &RunEvent, limit: usize) -> OutEvent {
        OutEvent {
            channel: self.channel.clone(),
            session_id: self.stream.clone(),
            event_type: EventType::Run,
            msg_id: Some(event.event_id.clone()),
            payload: payload(event, limit.saturating_sub(HEADER_RESERVE).min(MAX_EVENT_BYTES)).into(),
        }
    }

    /// Builds the message for an event of a decision.
    fn decision(&self, decision: QueuedDecision) -> OutEvent {
        let QueuedDecision { event_id, mut event } = decision;
        event["session_id"] = self.stream.as_str().into();
        event["turn_id"] = if self.is_in_turn { self.turn_id.as_str().into() } else { Value::Null };
        OutEvent {
            channel: self.channel.clone(),
            session_id: self.stream.clone(),
            event_type: EventType::Decision,
            msg_id: Some(event_id),
            payload: event.to_string().into_bytes().into(),
        }
    }
}

/// The identity of an event of a decision. A run has each type of event once for a decision.
fn decision_identity(event: &Value) -> String {
    let text = |name: &str| event[name].as_str().unwrap_or_default();
    format!("{}#{}", text("decision_id"), text("type"))
}

fn payload(event: &RunEvent, limit: usize) -> Vec<u8> {
    // Plain data with text keys always serialises.
    let bytes = serde_json::to_vec(event).unwrap_or_default();
    if bytes.len() <= limit {
        return bytes;
    }
    let mut event = event.clone();
    let data = event.data.get_or_insert_with(Map::new);
    data.retain(|name, _| !matches!(name.as_str(), "output" | "branch_outputs"));
    data.insert("truncated".into(), Value::Bool(true));
    data.insert("bytes".into(), bytes.len().into());
    if let Some(snapshot) = &mut event.snapshot {
        // An escaped byte takes up to six bytes.
        snapshot.content = excerpt::cut(&snapshot.content, limit / 8).into_owned();
        snapshot.tool_calls = None;
    }
    if let Some(error) = &mut event.error {
        *error = excerpt::cut(error, limit / 8).into_owned();
    }
    serde_json::to_vec(&event).unwrap_or_default()
}

/// Events that a run has published in earlier attempts and turns.
#[derive(Clone, Default)]
pub(super) struct PublishedEvents {
    /// Ids of the events on the stream.
    ids: HashSet<String>,
    /// Events published before the run waited, as returned by [`event_digest`].
    digests: HashSet<String>,
    /// Last chunk stream of each step.
    streams: HashMap<String, String>,
}

impl PublishedEvents {
    pub(super) fn has(&self, event: &RunEvent) -> bool {
        self.has_id(&event.event_id)
    }

    fn has_id(&self, id: &str) -> bool {
        self.ids.contains(id) || self.digests.contains(&event_digest(id))
    }

    /// Adds events that were published before the run waited, as returned by [`event_digest`].
    pub(super) fn recall(&mut self, digests: &[String]) {
        self.digests.extend(digests.iter().cloned());
    }

    fn add(&mut self, event: &Event) {
        let event = match event {
            Event::Run(event) => event,
            Event::Decision(event) => {
                self.ids.insert(decision_identity(event));
                return;
            }
            _ => return,
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        self.ids.extend(text(&event["event_id"]));
        if let (Some(step), Some(stream)) = (text(&event["step_id"]), text(&event["delta"]["stream_id"])) {
            self.streams.insert(step, stream);
        }
    }
}

/// Publishes a mark on the stream, and reads back the run's events before it. The queue drops repeated messages only
/// within its duplicate window, so a repeated run must know which events are already on the stream.
pub(super) async fn read_published(
    services: &Services,
    address: &EventAddress,
    epoch: u64,
    guard: &Guard,
) -> Result<PublishedEvents, TurnError> {
    let (key, epoch) = (format!("{}/{RESUMED_MARK}", address.run_id), epoch.to_string());
    let mark = StepEvent::ended(&address.stream, &address.turn_id, &key, RESUMED_MARK, &epoch, true, 0);
    let event = OutEvent {
        channel: address.channel.clone(),
        session_id: address.stream.clone(),
        event_type: EventType::Step,
        msg_id: Some(format!("{}/{}/step/{RESUMED_MARK}-{epoch}", address.run_id, address.turn_id)),
        payload: serde_json::to_vec(&mark).unwrap_or_default().into(),
    };
    if !guard.holds().await? {
        return Err(TurnError::Lost);
    }
    services.queue.emit([event].into()).await?;
    let run_id = address.run_id.as_str();
    let of_run = |event: Event| {
        let is_own = match &event {
            Event::Run(event) => event["root_run_id"] == run_id,
            Event::Decision(event) => event["run_id"] == run_id,
            _ => false,
        };
        is_own.then_some(event)
    };
    let mut published = PublishedEvents::default();
    read_back(services.queue.as_ref(), &mark, of_run).await?.iter().for_each(|event| published.add(event));
    Ok(published)
}

/// Publishes a run's events on the queue, except those that were already published.
pub(super) struct QueuePublisher {
    queue: Arc<dyn Queue>,
    address: EventAddress,
    guard: Guard,
    published: PublishedEvents,
    /// Events seen in this attempt, as returned by [`event_digest`]. Without chunks, whose ids are never repeated.
    digests: Mutex<HashSet<String>>,
    /// Current chunk stream of each step.
    streams: Mutex<HashMap<String, String>>,
    /// Publishes the run's output as chunks to the user.
    chunks: Option<OutputChunks>,
}

/// Short digest of an event's id. A waiting run stores one for each published event.
pub(super) fn event_digest(event_id: &str) -> String {
    format!("{:.16}", format!("{:x}", md5::compute(event_id)))
}

impl QueuePublisher {
    pub(super) fn new(
        services: &Services,
        address: EventAddress,
        guard: Guard,
        mut published: PublishedEvents,
        chunks: Option<OutputChunks>,
    ) -> Self {
        let (queue, streams) = (Arc::clone(&services.queue), Mutex::new(std::mem::take(&mut published.streams)));
        Self { queue, address, guard, published, digests: Mutex::default(), streams, chunks }
    }

    /// Returns the digests of all events that the run has published, in this turn and in earlier ones, as returned by
    /// [`event_digest`].
    pub(super) fn published_digests(&self) -> Vec<String> {
        let mut digests: Vec<_> = self.digests.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
        digests.sort_unstable();
        digests
    }

    /// Records an event, unless it is a piece of an answer. Returns true if it has not been published yet.
    fn record_event(&self, id: &str, is_piece: bool) -> bool {
        if !is_piece {
            self.digests.lock().unwrap_or_else(PoisonError::into_inner).insert(event_digest(id));
        }
        !self.published.has_id(id)
    }

    async fn emit(&self, events: Vec<QueuedEvent>) -> Result<(), TurnError> {
        let limit = self.queue.max_payload();
        let mut publications = Vec::with_capacity(events.len());
        for event in events {
            match event {
                QueuedEvent::Run(mut event) if self.record_event(&event.event_id, event.delta.is_some()) => {
                    self.note_stream(&mut event);
                    publications.push(self.address.publication(&event, limit));
                    publications.extend(self.chunks.as_ref().and_then(|chunks| chunks.piece(&event)));
                }
                QueuedEvent::Decision(decision) if self.record_event(&decision_identity(&decision.event), false) => {
                    publications.push(self.address.decision(decision));
                }
                QueuedEvent::Run(_) | QueuedEvent::Decision(_) => {}
            }
        }
        match publications.is_empty() {
            true => Ok(()),
            false if !self.guard.holds().await? => Err(TurnError::Lost),
            false => Ok(self.queue.emit(publications.into()).await?),
        }
    }
}

impl QueuePublisher {
    /// Sets `supersedes` on the first piece of a stream that replaces another stream of the same step, from this
    /// worker or an earlier one.
    fn note_stream(&self, event: &mut RunEvent) {
        let (Some(delta), Some(step_id)) = (&mut event.delta, &event.step_id) else { return };
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if streams.get(step_id) != Some(&delta.stream_id) {
            delta.supersedes = streams.insert(step_id.clone(), delta.stream_id.clone());
        }
    }
}

#[async_trait]
impl EventSink for QueuePublisher {
    async fn publish(&self, events: Vec<QueuedEvent>) -> Result<(), SinkError> {
        Ok(self.emit(events).await?)
    }
}

/// The turn's error for a failed publication of a [`QueuePublisher`].
pub(super) fn turn_error(error: SinkError) -> TurnError {
    error.downcast::<TurnError>().map_or_else(|error| TurnError::Infrastructure(error.into()), |error| *error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflow::orchestration::event::Snapshot;
    use crate::workflow::orchestration::failed_event;

    #[test]
    fn an_event_that_is_too_large_says_so_in_place_of_its_texts() {
        let mut event = failed_event("r", "x");
        event.data =
            Some(Map::from_iter([("output".into(), "长".repeat(10_000).into()), ("iterations".into(), 2.into())]));
        event.snapshot = Some(Snapshot { role: "assistant".into(), content: "\u{1}".repeat(10_000), tool_calls: None });
        assert_eq!(payload(&event, 1_000_000), serde_json::to_vec(&event).unwrap());
        let cut = payload(&event, 8_000);
        assert!(cut.len() <= 8_000, "{}", cut.len());
        let cut: RunEvent = serde_json::from_slice(&cut).unwrap();
        let data = cut.data.unwrap();
        assert_eq!((data.get("output"), &data["truncated"], &data["iterations"]), (None, &true.into(), &2.into()));
        assert!(data["bytes"].as_u64().unwrap() > 30_000 && cut.event_id == event.event_id);
    }
}
