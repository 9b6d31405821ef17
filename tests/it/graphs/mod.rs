//! Graphs whose nodes fail: recoveries, replans, their bounds and their events, on both backends.

mod crashes;
mod recovering;
mod replanning;

use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::eventually;
use crate::support::script::{Answer, Asked, ScriptedModel};
use base::clock;
use commands::runs::NewRun;
use definitions::workflow::definition::WorkflowRecord;
use serde_json::{Value, json};
use types::event::Event;
use types::run::RunRecord;

/// An engine with a coordinator `planner` that decides like this. LLM nodes get `said`.
async fn engine(backend: Backend, decides: impl Fn(&Asked) -> Value + Send + Sync + 'static) -> Engine {
    let model = ScriptedModel::start(move |asked| match asked.schema.as_str() {
        "conversation_decision" => Answer::json(&decides(asked)),
        _ => Answer::Content("said".into()),
    });
    let engine = Engine::watching(backend, model.await).await;
    engine.apply(json!({"id": "planner", "model": "default", "sop": "修好它", "mode": "coordinator"})).await;
    engine
}

/// Registers a graph, with `{api}` replaced by the API's address.
async fn register(engine: &Engine, mut graph: Value) {
    graph["type"] = json!("graph");
    graph["name"] = json!("图");
    graph["coordinator"] = json!("planner");
    let text = graph.to_string().replace("{api}", &engine.api.base_url);
    let record = WorkflowRecord::from_document(serde_json::from_str(&text).unwrap(), clock::now()).unwrap();
    engine.store.put_workflow(record).await.unwrap();
}

/// An HTTP node that calls the API at this path.
fn http(id: &str, path: &str) -> Value {
    json!({"node_id": id, "type": "HTTP", "name": id, "config": {"url": format!("{{api}}/{path}"), "method": "POST"}})
}

fn edge(source: &str, target: &str) -> Value {
    json!({"source": source, "target": target})
}

fn decision(kind: &str, mut payload: Value) -> Value {
    payload["action_type"] = json!(kind);
    payload["workflow_id"] = json!("g");
    payload["execution_context"] = json!({"failure_reason": "it failed", "retry_count": 1});
    json!({"reasoning": "因为", "decisions": [{"decision_type": kind, "confidence": 0.9, "payload": payload}]})
}

fn recovers(node: &str, plan: &Value) -> Value {
    decision("error_recovery", json!({"failed_node_id": node, "failure_reason": "太慢了", "recovery_plan": plan}))
}

fn replans(changes: &Value) -> Value {
    decision("replan_workflow", json!({"reason": "换一个", "suggested_changes": changes}))
}

/// True for the question how to change the whole graph.
fn is_replan(asked: &Asked) -> bool {
    asked.system.contains("It cannot go on")
}

async fn start(engine: &Engine) -> String {
    let new = NewRun::new("g", "开始");
    commands::runs::start_run(engine.queue.as_ref(), engine.store.as_ref(), new).await.unwrap().run_id
}

/// Waits until the run has ended and its last event is published.
async fn ended(engine: &Engine, run_id: &str) -> RunRecord {
    eventually(DEADLINE, &format!("run {run_id} has ended"), || async {
        let run = engine.store.run(run_id).await.unwrap().filter(|run| run.status.has_ended())?;
        let session = engine.store.session(&run.lane).await.unwrap()?;
        (session.lease.is_none() && session.turn.is_none()).then_some(run)
    })
    .await
}

/// Runs the graph `g` on a worker until it has ended.
async fn run(engine: &Engine) -> RunRecord {
    let run_id = start(engine).await;
    engine.start_worker();
    ended(engine, &run_id).await
}

/// The output of a run as JSON.
fn output(run: &RunRecord) -> Value {
    serde_json::from_str(run.output.as_deref().unwrap_or_else(|| panic!("{run:?}"))).unwrap()
}

/// The events of decisions on a stream, in order.
async fn decisions(engine: &Engine, stream: &str) -> Vec<Value> {
    let events = engine.events(stream).await.into_iter();
    let decisions = events.filter_map(|event| match event {
        Event::Decision(decision) => Some(decision),
        _ => None,
    });
    decisions.collect()
}

/// The types of the decision events, with the type of the decision.
async fn told(engine: &Engine, stream: &str) -> Vec<String> {
    let line = |event: &Value| {
        format!("{} {}", event["type"].as_str().unwrap(), event["decision_type"].as_str().unwrap_or("-"))
    };
    decisions(engine, stream).await.iter().map(line).collect()
}

/// The paths of the API's calls, in order.
fn called(engine: &Engine) -> Vec<String> {
    engine.api.calls("").into_iter().map(|call| call.path).collect()
}

/// The prompts of the coordinator's questions.
fn prompts(engine: &Engine) -> Vec<String> {
    let asked = engine.model.asked().into_iter().filter(|asked| asked.schema == "conversation_decision");
    asked.map(|asked| asked.system).collect()
}
