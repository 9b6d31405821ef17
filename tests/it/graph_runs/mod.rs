//! Runs of graphs as callers and operators meet them, on both backends: their inputs, their waits and questions, and how
//! they are cancelled, resumed, restarted and shown.

mod command_line;
mod expired;
mod inputs;
mod items;
mod operating;
mod paths;
mod questions;
mod waits;

use crate::gateway::Gateway;
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::eventually;
use crate::support::script::{Answer, Asked, ScriptedModel};
use base::clock;
use commands::error::CommandError;
use commands::runs::{NewRun, StartedRun};
use definitions::workflow::definition::WorkflowRecord;
use engine::workflow::orchestration::event::RunEvent;
use lab::invariants;
use serde_json::{Value, json};
use types::run::{RunRecord, RunStatus};

/// Answers each question of a model with its text in brackets.
fn echo(asked: &Asked) -> Answer {
    Answer::Content(format!("[{}]", asked.user))
}

/// An engine with a worker and a scheduler, whose models echo.
async fn engine(backend: Backend) -> Engine {
    Engine::start(backend, ScriptedModel::start(echo).await, 1).await
}

/// Registers a graph, with `{api}` replaced by the API's address.
async fn register(engine: &Engine, document: Value) {
    let text = document.to_string().replace("{api}", &engine.api.base_url);
    let workflow = WorkflowRecord::from_document(serde_json::from_str(&text).unwrap(), clock::now()).unwrap();
    engine.store.put_workflow(workflow).await.unwrap();
}

/// A graph `g` of these nodes and edges.
#[allow(clippy::needless_pass_by_value, reason = "as a test writes it")]
fn graph(nodes: Value, edges: &[(&str, &str)]) -> Value {
    let edges: Vec<_> = edges.iter().map(|(source, target)| json!({"source": source, "target": target})).collect();
    json!({"type": "graph", "id": "g", "name": "图", "nodes": nodes, "edges": edges})
}

#[allow(clippy::needless_pass_by_value, reason = "as a test writes it")]
fn node(id: &str, kind: &str, config: Value) -> Value {
    json!({"node_id": id, "type": kind, "name": id, "config": config})
}

/// A node that calls the API under `/<path>` and takes the text `body`.
fn call(id: &str, path: &str, body: &str) -> Value {
    node(id, "HTTP", json!({"url": format!("{{api}}/{path}"), "method": "POST", "body": {"x": body}}))
}

async fn try_start(engine: &Engine, new: NewRun) -> Result<StartedRun, CommandError> {
    commands::runs::start_run(engine.queue.as_ref(), engine.store.as_ref(), new).await
}

async fn start(engine: &Engine, new: NewRun) -> String {
    try_start(engine, new).await.unwrap().run_id
}

/// A run of the graph `g` with these inputs.
fn with_input(input: Value) -> NewRun {
    let Value::Object(input) = input else { panic!("{input}") };
    NewRun { input: Some(input), ..NewRun::new("g", "") }
}

async fn run_of(engine: &Engine, run_id: &str) -> RunRecord {
    engine.store.run(run_id).await.unwrap().expect("the run has a record")
}

/// Waits until the run has this status and its lane is at rest. Returns its record.
async fn at_rest(engine: &Engine, run_id: &str, is: impl Fn(RunStatus) -> bool) -> RunRecord {
    eventually(DEADLINE, &format!("run {run_id} is at rest"), || async {
        let run = engine.store.run(run_id).await.unwrap().filter(|run| is(run.status))?;
        let waiting = engine.queue.next_in_lane(run_id, 0, 0).await.unwrap();
        let session = engine.store.session(run_id).await.unwrap()?;
        let at_rest = session.lease.is_none() && session.turn.is_none();
        (at_rest && waiting.is_none_or(|next| next.seq > session.last_seq)).then_some(run)
    })
    .await
}

async fn ended(engine: &Engine, run_id: &str) -> RunRecord {
    at_rest(engine, run_id, RunStatus::has_ended).await
}

/// The events of the run so far, in order.
async fn told(engine: &Engine, run_id: &str) -> Vec<RunEvent> {
    let all = invariants::run_events(engine.queue.as_ref(), run_id).await.unwrap();
    all.into_iter().filter(|event| event.root_run_id == run_id).collect()
}
