//! Runs of workflows on the embedded and on the cluster backend: until they end, through stops and failures.

mod abandoned;
mod damaged;
mod endings;
mod pauses;
mod rules;
mod sessions;
mod starting;

use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::eventually;
use crate::support::script::{Answer, Asked, ScriptedModel};
use base::clock;
use commands::runs::{NewRun, StartedRun};
use commands::{operator, runs as run_commands};
use definitions::workflow::definition::WorkflowRecord;
use engine::workflow::orchestration::event::{RunEvent, RunEventType};
use lab::invariants;
use serde_json::{Value, json};
use types::run::RunRecord;

/// Responds with the name of the agent and its input.
fn echo(asked: &Asked) -> Answer {
    Answer::Content(format!("{}({})", asked.system, asked.user))
}

/// An engine with this model, the task agents a, b and c, and a pipeline `steps` of all three.
async fn engine(backend: Backend, model: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Engine {
    let engine = Engine::watching(backend, ScriptedModel::start(model).await).await;
    for id in ["a", "b", "c"] {
        engine.apply(json!({"id": id, "model": "default", "system_prompt": id})).await;
    }
    register(&engine, steps()).await;
    engine
}

fn steps() -> Value {
    json!({"id": "steps", "stages": [
        {"id": "first", "runnable": "a", "input": "{query}"},
        {"id": "second", "runnable": "b", "input": "{first}"},
        {"id": "third", "runnable": "c", "input": "{second}"},
    ]})
}

async fn register(engine: &Engine, document: Value) {
    let workflow = WorkflowRecord::from_document(document, clock::now()).unwrap();
    engine.store.put_workflow(workflow).await.unwrap();
}

async fn start(engine: &Engine, new: NewRun) -> String {
    commands::runs::start_run(engine.queue.as_ref(), engine.store.as_ref(), new).await.unwrap().run_id
}

async fn resume(engine: &Engine, run_id: &str) -> StartedRun {
    commands::runs::resume_run(engine.queue.as_ref(), engine.store.as_ref(), run_id).await.unwrap()
}

async fn run_of(engine: &Engine, run_id: &str) -> RunRecord {
    engine.store.run(run_id).await.unwrap().expect("the run has a record")
}

/// Waits until the run has ended, its lane is free and its last event is published. Returns its record.
async fn ended(engine: &Engine, run_id: &str) -> RunRecord {
    eventually(DEADLINE, &format!("run {run_id} has ended"), || async {
        let run = engine.store.run(run_id).await.unwrap().filter(|run| run.status.has_ended())?;
        let waiting = engine.queue.next_in_lane(&run.lane, 0, 0).await.unwrap();
        let session = engine.store.session(&run.lane).await.unwrap()?;
        let at_rest = session.lease.is_none() && session.turn.is_none();
        (at_rest && waiting.is_none_or(|next| next.seq > session.last_seq)).then_some(run)
    })
    .await
}

/// Events of the run on a stream so far, in order.
async fn told(engine: &Engine, stream: &str, run_id: &str) -> Vec<RunEvent> {
    let all = invariants::run_events(engine.queue.as_ref(), stream).await.unwrap();
    all.into_iter().filter(|event| event.root_run_id == run_id).collect()
}

/// Types of the outermost run's own events.
fn outermost(events: &[RunEvent]) -> Vec<RunEventType> {
    events.iter().filter(|event| event.depth == 0 && event.path.is_empty()).map(|event| event.kind).collect()
}

/// Checks that no event is repeated.
fn assert_once(events: &[RunEvent]) {
    let mut ids: Vec<_> = events.iter().map(|event| event.event_id.as_str()).collect();
    ids.sort_unstable();
    let all = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), all, "every event is published once: {ids:#?}");
}

/// The agents that were asked, in order.
fn asked(engine: &Engine) -> Vec<String> {
    engine.model.asked().into_iter().map(|asked| asked.system).collect()
}

/// Waits until an agent is asked.
async fn is_asked(engine: &Engine, agent: &str) {
    let what = format!("{agent} is asked");
    eventually(DEADLINE, &what, || async { asked(engine).iter().any(|asked| asked == agent) }).await;
}
