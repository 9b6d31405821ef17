//! The events of one run, filtered from the stream to which it publishes. The stream ends with the run's last event. If
//! that event was never published or has expired, the stream ends by the run's record.

use super::Reject;
use super::event_stream::EventStream;
use engine::run;
use engine::workflow::orchestration::event::RunEventType;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::{From, Queue, StreamEvent};
use storage::store::Store;
use tokio::time::{Instant, sleep, timeout_at};
use types::event::EventType;
use types::run::{RunRecord, RunStatus};

/// How often a stream checks whether it has to read the run's record.
const TICK_INTERVAL: Duration = Duration::from_millis(200);
/// After this many ticks without an event the stream reads the run's record.
const QUIET_TICKS: u32 = 20;
/// How long to wait for the next event that is already stored.
const STORED_EVENT_TIMEOUT: Duration = Duration::from_secs(2);

/// The fields of a run event that a stream needs.
#[derive(Debug, Deserialize)]
struct EventHead {
    #[serde(rename = "type")]
    kind: RunEventType,
    run_id: String,
    root_run_id: String,
    #[serde(default)]
    event_id: String,
    depth: u32,
}

/// An event of the followed run.
pub(super) struct FollowedEvent {
    /// The stored event, as published.
    pub(super) stored: StreamEvent,
    /// Its type.
    pub(super) kind: RunEventType,
    /// True if the outermost run published it, not a nested one.
    root: bool,
    event_id: String,
}

impl FollowedEvent {
    /// Reads the event; `None` if it belongs to another run.
    fn from_event(stored: StreamEvent, run_id: &str) -> Option<Self> {
        if stored.event_type != EventType::Run {
            return None;
        }
        let head: EventHead = serde_json::from_slice(&stored.payload).ok()?;
        let root = head.depth == 0 && head.run_id == head.root_run_id;
        let EventHead { kind, root_run_id, event_id, .. } = head;
        (root_run_id == run_id).then_some(Self { stored, kind, root, event_id })
    }

    fn ends(&self) -> bool {
        self.root && matches!(self.kind, RunEventType::RunCompleted | RunEventType::RunFailed)
    }
}

/// The session whose stream has the run's events.
pub(super) fn stream_of(run: &RunRecord) -> &str {
    run.origin_session.as_deref().unwrap_or(&run.run_id)
}

/// True if no event of an ended run follows `seq`: a client that reconnects repeatedly may stop.
pub(super) async fn has_sent_last(queue: &dyn Queue, run: &RunRecord, seq: u64) -> Result<bool, Reject> {
    match next_after(queue, run, seq, seq.saturating_sub(1)).await? {
        Some(is_last) => Ok(is_last),
        // No stored event of the run follows. An id beyond the stream's end starts with the oldest stored event.
        None => Ok(next_after(queue, run, seq, seq).await?.unwrap_or(true)),
    }
}

/// Reads the run's events after `after`. Returns true if the first one is `seq` and ends the run, false if others
/// follow or come first, and `None` if no stored event of the run follows.
async fn next_after(queue: &dyn Queue, run: &RunRecord, seq: u64, after: u64) -> Result<Option<bool>, Reject> {
    let mut events = queue.events(stream_of(run), From::After(after)).await?;
    let deadline = Instant::now() + STORED_EVENT_TIMEOUT;
    // Stored events arrive immediately. After the deadline the stream has no further one.
    while let Ok(Some(event)) = timeout_at(deadline, events.next()).await {
        let Some(event) = FollowedEvent::from_event(event?, &run.run_id) else { continue };
        if event.stored.seq != seq {
            return Ok(Some(false));
        }
        if event.ends() && event.event_id == last_event_id(run) {
            return Ok(Some(true));
        }
    }
    Ok(None)
}

/// The id of the event that ended the run. A resumed run has earlier end events with other ids.
fn last_event_id(run: &RunRecord) -> String {
    let kind = match run.status {
        RunStatus::Completed => RunEventType::RunCompleted,
        _ => RunEventType::RunFailed,
    };
    run::last_event_id(run, kind)
}

/// Streams a run's events until the run ends.
pub(super) fn follow(
    feed: EventStream,
    store: Arc<dyn Store>,
    run_id: String,
) -> impl Stream<Item = FollowedEvent> + Send + 'static {
    let ticks = stream::unfold((), |()| async { Some((None, sleep(TICK_INTERVAL).await)) });
    let source = stream::select(feed.into_stream().map(Some), ticks).boxed();
    let following = RunFollower { source, store, run_id, failed: false, over: false, quiet: 0 };
    stream::unfold(following, |mut following| async move { following.next().await.map(|event| (event, following)) })
}

struct RunFollower {
    source: BoxStream<'static, Option<StreamEvent>>,
    store: Arc<dyn Store>,
    run_id: String,
    /// The last event was a failure. A resumed run publishes more events after it.
    failed: bool,
    over: bool,
    quiet: u32,
}

impl RunFollower {
    async fn next(&mut self) -> Option<FollowedEvent> {
        while !self.over {
            match self.source.next().await? {
                Some(event) => {
                    let Some(event) = FollowedEvent::from_event(event, &self.run_id) else { continue };
                    self.quiet = 0;
                    self.failed = event.ends() && event.kind == RunEventType::RunFailed;
                    self.over = event.ends() && event.kind == RunEventType::RunCompleted;
                    return Some(event);
                }
                None => self.tick().await,
            }
        }
        None
    }

    /// Reads the run's record after a failure, and after a while without events.
    async fn tick(&mut self) {
        self.quiet = self.quiet.saturating_add(1);
        let silent = self.quiet.is_multiple_of(QUIET_TICKS);
        if !self.failed && !silent {
            return;
        }
        self.over = match commands::run_details::load(self.store.as_ref(), &self.run_id).await {
            Ok(run) if run.status == RunStatus::Completed => silent,
            Ok(run) => run.status.has_ended(),
            // An unreachable store is read again at a later tick.
            Err(_) => false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(kind: &str, run_id: &str, root: &str, depth: u32) -> StreamEvent {
        let payload = json!({"type": kind, "run_id": run_id, "root_run_id": root, "event_id": "e", "depth": depth});
        StreamEvent { seq: 1, event_type: EventType::Run, payload: payload.to_string().into() }
    }

    #[test]
    fn only_the_outermost_run_ends_the_stream() {
        let ends =
            |kind, run_id, depth| FollowedEvent::from_event(event(kind, run_id, "r1", depth), "r1").unwrap().ends();
        assert!(ends("run_completed", "r1", 0) && ends("run_failed", "r1", 0));
        assert!(!ends("run_completed", "r2", 1) && !ends("run_started", "r1", 0));
    }

    #[test]
    fn other_runs_and_other_events_of_the_session_are_passed_over() {
        assert!(FollowedEvent::from_event(event("run_started", "r2", "r2", 0), "r1").is_none());
        assert!(
            FollowedEvent::from_event(StreamEvent { event_type: EventType::Reply, ..event("x", "r1", "r1", 0) }, "r1")
                .is_none()
        );
    }
}
