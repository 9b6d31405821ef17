//! Trials of drafts: a person talks with a draft, or runs it, in an engine in memory, through the gateway.
//!
//! A conversation exists only in the process that began it. It takes one of [`PLACES`]. When all places are taken, a
//! new conversation ends the one that was idle for the longest time. Nothing of a conversation is stored.

use super::rehearsal::{LiveRehearsal, new_run};
use super::{Engine, EngineError, NewMessage, NewRun};
use async_trait::async_trait;
use base::error::SharedError;
use base::tasks::{OnPanic, Tasks};
use connectors::Connectors;
use definitions::agent::AgentRecord;
use definitions::workflow::definition::WorkflowRecord;
use engine::action::stand_in::{HANDOFF_ID, NotMade, StandIn};
use engine::action::tool::Tools;
use engine::rehearsal::Draft;
use engine::rehearsal::trial::{Shown, Trial, TrialBegin, TrialEnd, TrialError, TrialStep, Try};
use futures::channel::mpsc;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, SinkExt, StreamExt};
use sandbox::Sandbox;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use storage::queue::{From, StreamEvent};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};
use types::event::EventType;
use uuid::Uuid;

/// How many conversations and runs a process has at the same time.
const PLACES: usize = 16;
/// How long a conversation waits for its next message.
const IDLE: Duration = Duration::from_secs(10 * 60);
/// How often idle conversations are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// The longest time of one message or run.
const LIMIT: Duration = Duration::from_secs(180);
/// How long to wait for the events of a turn or run that has ended. They are in memory.
const REST: Duration = Duration::from_secs(2);

/// The place of a dialogue's conversation. It is locked while the draft answers.
type Seat = Arc<AsyncMutex<Option<Talk>>>;
/// A locked seat.
type Taken = OwnedMutexGuard<Option<Talk>>;

/// The conversations of one process.
#[derive(Clone)]
pub(super) struct TrialRoom(Arc<Room>);

struct Room {
    rehearsal: LiveRehearsal,
    /// The tools that live trials call.
    tools: Tools,
    sandbox: Arc<Sandbox>,
    connectors: Arc<Connectors>,
    places: Arc<Semaphore>,
    seats: Mutex<HashMap<String, Seat>>,
    tasks: Tasks,
    sweeping: AtomicBool,
}

impl TrialRoom {
    /// Creates a room with the models, functions and connections of an engine.
    pub(super) fn of(engine: &Engine) -> Self {
        Self(Arc::new(Room {
            rehearsal: LiveRehearsal::of(engine),
            tools: engine.tools.clone(),
            sandbox: Arc::clone(&engine.sandbox),
            connectors: Arc::clone(&engine.connectors),
            places: Arc::new(Semaphore::new(PLACES)),
            seats: Mutex::default(),
            tasks: engine.roles.clone(),
            sweeping: AtomicBool::new(false),
        }))
    }

    /// Starts the task that ends idle conversations, unless it runs already.
    fn sweep(&self) {
        if self.0.sweeping.swap(true, Ordering::Relaxed) {
            return;
        }
        let (room, stop) = (Arc::downgrade(&self.0), self.0.tasks.stop_token());
        self.0.tasks.spawn("idle tests of drafts", OnPanic::Log, async move {
            while stop.run_until_cancelled(sleep(SWEEP_INTERVAL)).await.is_some() {
                let Some(room) = room.upgrade() else { return };
                room.end_idle(IDLE);
            }
        });
    }
}

impl Room {
    /// Takes the seat of a dialogue; `None` while its draft answers. Like everything that looks at seats, it locks them
    /// only within the lock of all: otherwise a seat that is only being looked at would seem to be taken.
    fn seat(&self, session_id: &str) -> Option<Taken> {
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(seats.entry(session_id.to_owned()).or_default()).try_lock_owned().ok()
    }

    /// Ends the conversations that were idle for this long.
    fn end_idle(&self, limit: Duration) {
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        seats.retain(|_, seat| {
            let Ok(talk) = seat.try_lock() else { return true };
            talk.as_ref().is_some_and(|talk| talk.used.elapsed() < limit)
        });
    }

    /// Takes a place. When all places are taken, ends the conversation that was idle for the longest time.
    fn place(&self) -> Result<OwnedSemaphorePermit, TrialError> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(place);
        }
        let longest = {
            let seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
            let idle = seats.values().filter_map(|seat| Arc::clone(seat).try_lock_owned().ok());
            let longest = idle.filter_map(|talk| Some((talk.as_ref()?.used, talk))).min_by_key(|(used, _)| *used);
            longest.and_then(|(_, mut talk)| talk.take())
        };
        drop(longest);
        Arc::clone(&self.places).try_acquire_owned().map_err(|_| TrialError::TooMany(PLACES))
    }

    /// Starts the engine of a trial.
    async fn start(&self, trial: &Trial, place: OwnedSemaphorePermit) -> Result<Talk, EngineError> {
        let reads = trial.draft.reads_texts_of();
        let rehearsal = self.rehearsal.now(reads).await?;
        let stand_in = (!trial.live).then(|| Arc::new(StandIn::watched()));
        let engine = match &stand_in {
            Some(stand_in) => rehearsal.start(&trial.draft, None, stand_in, LIMIT).await?,
            None => {
                let mut builder = rehearsal.builder().patience(LIMIT);
                builder.tools = self.tools.clone();
                let mut engine = Box::pin(builder.open()).await?;
                (engine.sandbox, engine.connectors) = (Arc::clone(&self.sandbox), Arc::clone(&self.connectors));
                rehearsal.fill(&engine, &trial.draft).await?;
                // No scheduler: no follow-up timer of a draft fires.
                engine.start_worker()?;
                engine
            }
        };
        let (session_id, hash) = (format!("test-{}", Uuid::new_v4()), trial.hash.clone());
        let reads_texts = reads.is_some();
        Ok(Talk { engine, stand_in, session_id, hash, reads_texts, used: Instant::now(), _place: place })
    }
}

#[async_trait]
impl Try for TrialRoom {
    async fn begin(&self, trial: Trial) -> Result<BoxStream<'static, Shown>, TrialError> {
        self.sweep();
        let mut seat = self.0.seat(&trial.session_id).ok_or(TrialError::Busy)?;
        let kept = seat.take().filter(|talk| talk.goes_on_with(&trial));
        let begins = kept.is_none();
        let talk = match kept {
            Some(talk) => talk,
            None => {
                let place = self.0.place()?;
                let started = Box::pin(self.0.start(&trial, place)).await;
                started.map_err(|error| TrialError::Start(SharedError::from(error)))?
            }
        };
        let (sender, shown) = mpsc::channel(0);
        // Both are polled together, so dropping the stream drops the conversation.
        let work = talk.show(trial, begins, seat, sender).boxed();
        Ok(stream::select(shown, stream::once(work).filter_map(async |()| None)).boxed())
    }
}

/// A conversation with a draft, or a run of it.
struct Talk {
    engine: Engine,
    /// `None` if calls are made.
    stand_in: Option<Arc<StandIn>>,
    session_id: String,
    hash: String,
    /// Whether the draft answers from stored texts.
    reads_texts: bool,
    used: Instant,
    _place: OwnedSemaphorePermit,
}

impl Talk {
    /// True if a trial is the next message of this conversation.
    fn goes_on_with(&self, trial: &Trial) -> bool {
        matches!(trial.draft, Draft::Agent(..))
            && self.hash == trial.hash
            // What an operator's draft knows, and has said, is not for the author.
            && self.reads_texts == trial.draft.reads_texts_of().is_some()
            && self.stand_in.is_none() == trial.live
            && self.used.elapsed() < IDLE
    }

    /// Shows a trial. A conversation that did not break off waits in its seat for the next message.
    async fn show(mut self, trial: Trial, begins: bool, mut seat: Taken, sender: mpsc::Sender<Shown>) {
        let mut out = Out { sender, stand_in: self.stand_in.clone(), calls: Vec::new() };
        let workflow_id = match &trial.draft {
            Draft::Agent(agent, _) => agent.id(),
            Draft::Workflow(workflow) => workflow.id(),
        };
        let begin =
            TrialBegin { workflow_id: workflow_id.to_owned(), hash: trial.hash.clone(), begins, live: trial.live };
        out.send("test", json!(begin)).await;
        if let Some(stand_in) = &self.stand_in {
            stand_in.give(trial.answers.clone());
        }
        let shown = async {
            match &trial.draft {
                Draft::Agent(agent, _) => self.say(agent, &trial.text, &mut out).await,
                Draft::Workflow(workflow) => self.run(workflow, trial.input.clone(), &mut out).await,
            }
        };
        let shown = timeout(LIMIT, Box::pin(shown)).await;
        let failed = |reason: String| TrialEnd { status: "failed".into(), reason: Some(reason), ..TrialEnd::default() };
        let (end, goes_on) = match shown {
            Ok(Ok(end)) => (end, matches!(trial.draft, Draft::Agent(..))),
            Ok(Err(error)) => (failed(error.to_string()), false),
            Err(_) => (failed(format!("the draft did not end within {} s", LIMIT.as_secs())), false),
        };
        let unanswered = self.stand_in.iter().flat_map(|stand_in| stand_in.missing());
        let end = TrialEnd { unanswered: unanswered.map(|missing| missing.to_string()).collect(), ..end };
        out.show_calls().await;
        if goes_on {
            self.used = Instant::now();
            *seat = Some(self);
        }
        // The next message may arrive as soon as the client has received the last event.
        drop(seat);
        out.send("end", json!(end)).await;
    }

    async fn say(&self, agent: &AgentRecord, text: &str, out: &mut Out) -> Result<TrialEnd, EngineError> {
        let mut events = self.engine.queue().events(&self.session_id, From::Now).await?;
        let message =
            NewMessage { user_id: Some("tester".into()), ..NewMessage::new(&self.session_id, agent.id(), text) };
        let mut asked = pin!(self.engine.ask(message));
        let mut has_ended = false;
        let is_last = |data: &Value| !data["turn"].is_null();
        let answer = loop {
            tokio::select! {
                Some(event) = events.next() => has_ended |= out.forward(event?, is_last).await,
                answer = &mut asked => break answer?,
            }
        };
        while !has_ended && let Ok(Some(event)) = timeout(REST, events.next()).await {
            has_ended = out.forward(event?, is_last).await;
        }
        let status = answer.turn.statuses.last().map(|last| last.status).unwrap_or_default();
        let (reason, actions) = (answer.turn.reason, answer.turn.actions);
        Ok(TrialEnd { status: status.as_str().to_owned(), reason, actions, ..TrialEnd::default() })
    }

    async fn run(
        &self,
        workflow: &WorkflowRecord,
        input: Option<Value>,
        out: &mut Out,
    ) -> Result<TrialEnd, EngineError> {
        let run_id = self.session_id.clone();
        let mut events = self.engine.queue().events(&run_id, From::Now).await?;
        let new = NewRun { run_id: Some(run_id.clone()), ..new_run(workflow, input) };
        self.engine.start_run(new).await?;
        let mut ended = pin!(self.engine.run_ended(&run_id));
        let mut has_ended = false;
        let is_last = |data: &Value| {
            data["run_id"] == run_id && matches!(data["type"].as_str(), Some("run_completed" | "run_failed"))
        };
        let ended = loop {
            tokio::select! {
                Some(event) = events.next() => has_ended |= out.forward(event?, is_last).await,
                ended = &mut ended => break ended?,
            }
        };
        while !has_ended && let Ok(Some(event)) = timeout(REST, events.next()).await {
            has_ended = out.forward(event?, is_last).await;
        }
        let (status, reason) = (ended.status.as_str().to_owned(), ended.error.map(|failure| failure.to_string()));
        Ok(TrialEnd { status, reason, output: ended.output, ..TrialEnd::default() })
    }
}

/// The events of a trial, to be sent on its stream.
struct Out {
    sender: mpsc::Sender<Shown>,
    stand_in: Option<Arc<StandIn>>,
    /// Calls that no published event has shown yet.
    calls: Vec<NotMade>,
}

impl Out {
    async fn send(&mut self, event: &'static str, data: Value) {
        // A receiver that is gone has dropped this work, too.
        let _ = self.sender.send(Shown { event, data }).await;
    }

    /// Sends an event of the engine, with the call that it is about. Returns true for the last event.
    async fn forward(&mut self, event: StreamEvent, is_last: impl Fn(&Value) -> bool) -> bool {
        let Ok(mut data) = serde_json::from_slice::<Value>(&event.payload) else { return false };
        self.take_calls();
        if event.event_type == EventType::Step && data["phase"].is_null() {
            let is_about =
                |call: &NotMade| data["target"] == *call.id || (call.id == HANDOFF_ID && data["kind"] == HANDOFF_ID);
            if let Some(at) = self.calls.iter().position(is_about) {
                data["would_call"] = json!(self.calls.remove(at).would_call);
            }
        } else if event.event_type != EventType::Step {
            self.show_calls().await;
        }
        let ends = is_last(&data);
        self.send(event.event_type.as_str(), data).await;
        ends
    }

    fn take_calls(&mut self) {
        self.calls.extend(self.stand_in.iter().flat_map(|stand_in| stand_in.take_calls()));
    }

    /// Sends the calls for which the engine publishes no step, such as those of nodes.
    async fn show_calls(&mut self) {
        self.take_calls();
        for NotMade { id, answered, would_call } in std::mem::take(&mut self.calls) {
            self.send("step", json!(TrialStep { target: id, ok: answered, would_call })).await;
        }
    }
}

#[cfg(test)]
mod tests;
