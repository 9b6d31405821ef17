//! Workflows over HTTP: the events of a run as a channel or a browser sees them. [`scenarios`] has the acceptance
//! scenarios, [`resuming`] interruptions of clients, gateways and workers.

mod ends;
mod operating;
mod resuming;
mod scenarios;

use crate::gateway::{Gateway, data};
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::script::{Answer, Asked, ScriptedModel};
use base::clock;
use definitions::workflow::definition::WorkflowRecord;
use futures::StreamExt;
use futures::stream::BoxStream;
use reqwest::Response;
use serde_json::{Value, json};
use sse_stream::{Sse, SseStream};
use std::collections::BTreeMap;

/// The events of a run.
pub struct RunEvents(BoxStream<'static, Sse>);

impl RunEvents {
    pub fn of(response: Response) -> Self {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let events = SseStream::from_bytes_stream(response.bytes_stream());
        Self(events.filter_map(|event| std::future::ready(event.ok())).boxed())
    }

    /// The next block, including blocks without data; `None` at the end.
    pub async fn next_block(&mut self) -> Option<Sse> {
        tokio::time::timeout(DEADLINE, self.0.next()).await.expect("an event or the end within the deadline")
    }

    /// The next event that a browser would report.
    pub async fn next(&mut self) -> Option<Sse> {
        loop {
            let block = self.next_block().await?;
            if block.data.is_some() {
                return Some(block);
            }
        }
    }

    /// Reads up to the first event of this type, and returns it last.
    pub async fn until(&mut self, kind: &str) -> Vec<Sse> {
        let mut events = Vec::new();
        loop {
            let event = self.next().await.unwrap_or_else(|| panic!("the stream has ended before {kind}"));
            let found = data(&event)["type"] == kind;
            events.push(event);
            if found {
                return events;
            }
        }
    }

    /// Reads all events up to the end of the stream.
    pub async fn rest(&mut self) -> Vec<Sse> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

impl Gateway {
    /// `POST …/run`.
    pub async fn run(&self, workflow_id: &str, body: &Value) -> RunEvents {
        RunEvents::of(self.post(&format!("/api/v1/workflows/{workflow_id}/run"), body).await)
    }

    /// `GET …/run` with this query, and the last event id if given.
    pub async fn browse(&self, path: &str, last_id: Option<&str>) -> Response {
        let request = self.client.get(format!("{}{path}", self.base));
        let request = last_id.into_iter().fold(request, |request, id| request.header("Last-Event-ID", id));
        request.send().await.unwrap()
    }
}

/// Payloads of the events, without ids that differ between runs.
pub fn payloads(events: &[Sse]) -> Vec<Value> {
    events.iter().map(data).collect()
}

pub fn of_type<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

/// Merges the deltas of each answer into one, because their number depends on timing.
fn whole_answers(events: &[Value]) -> Vec<Value> {
    let mut whole: Vec<Value> = Vec::new();
    for event in events {
        match whole.last_mut() {
            Some(last) if event["type"] == "step_delta" && last["type"] == "step_delta" => {
                assert_eq!(last["step_id"], event["step_id"]);
                let text = [&*last, event].map(|event| event["delta"]["content"].as_str().unwrap()).concat();
                last["delta"]["content"] = json!(text);
            }
            _ => whole.push(event.clone()),
        }
    }
    whole
}

/// The events as text. Ids that differ between runs become numbers in the order of their appearance.
pub fn masked(events: &[Value]) -> String {
    let mut runs = BTreeMap::new();
    let line = |event: &Value| {
        let run_id = event["run_id"].as_str().unwrap().to_owned();
        let count = runs.len();
        let run = *runs.entry(run_id).or_insert(count);
        let root = event["root_run_id"].as_str().unwrap();
        let event_id = event["event_id"].as_str().unwrap().replace(root, "RUN");
        // The ids of deltas end with the stream's id, which differs between runs.
        let event_id = event_id.split_inclusive("/step_delta").next().unwrap().to_owned();
        let indent = "  ".repeat(usize::try_from(event["depth"].as_u64().unwrap()).unwrap());
        let mut line = format!("{indent}{event_id} run {run}");
        for field in ["stage_id", "branch_id", "iteration", "snapshot", "data", "error"] {
            if !event[field].is_null() {
                line.push_str(&format!(" {field}={}", event[field]));
            }
        }
        if let Some(text) = event["delta"]["content"].as_str() {
            line.push_str(&format!(" delta={text:?}"));
        }
        line
    };
    whole_answers(events).iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Stage of a model call, such as `iterative_research[1]/reflection`.
pub fn stage(asked: &Asked) -> String {
    // <session>/<turn>/<stage…>/<n>/model
    let parts: Vec<&str> = asked.idempotency_key.split('/').collect();
    parts[2..parts.len() - 2].join("/")
}

/// An engine whose model gets the stage of each call and responds by `script`.
pub async fn engine(
    backend: Backend,
    script: impl Fn(&str, &Asked) -> String + Send + Sync + 'static,
) -> (Engine, Gateway) {
    let model = ScriptedModel::start(move |asked| Answer::Content(script(&stage(asked), asked))).await;
    started(backend, model, 1).await
}

pub async fn started(backend: Backend, model: ScriptedModel, workers: usize) -> (Engine, Gateway) {
    let engine = Engine::start(backend, model, workers).await;
    let gateway = Gateway::of(&engine).await;
    (engine, gateway)
}

/// A task agent whose prompt is its name.
pub fn writer(id: &str) -> Value {
    json!({"id": id, "system_prompt": format!("你是 {id}")})
}

/// Registers a workflow.
pub async fn register(engine: &Engine, document: Value) {
    let workflow = WorkflowRecord::from_document(document, clock::now()).unwrap();
    engine.store.put_workflow(workflow).await.unwrap();
}

/// Registers a workflow with the stages `plan` and `report`, both by one agent.
pub async fn register_report(engine: &Engine) {
    engine.apply(writer("writer")).await;
    register(
        engine,
        json!({"id": "report", "type": "pipeline", "description": "先计划，再报告", "stages": [
            {"id": "plan", "runnable": "writer", "input": "计划：{query}"},
            {"id": "report", "runnable": "writer", "input": "报告：{plan}"},
        ]}),
    )
    .await;
}
