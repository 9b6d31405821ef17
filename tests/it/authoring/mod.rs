//! Authoring dialogues as turns of their lanes, on both backends. [`dialogues`] has whole dialogues, [`faults`] their
//! faults, [`lanes`] the messages that reach them and their end, [`outages`] unreachable servers, [`remote`]
//! dialogues that another server leads, [`repeats`] repeated messages, [`publications`] publications during a turn,
//! [`scenarios`] the acceptance scenarios over HTTP, [`damages`] the violations that the invariants report. The crash
//! points are those of `crash`.

pub mod answers;
mod damages;
mod dialogues;
mod faults;
mod lanes;
mod outages;
mod publications;
mod remote;
mod repeats;
mod scenarios;
mod trials;

use crate::scenarios::on_both_backends;
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::eventually;
use crate::support::script::{Answer, Asked, ScriptedModel};
use async_trait::async_trait;
use engine::rehearsal::{Draft, RehearsalTest, Rehearse, Rehearsed, RehearsedTest, TestError, TestResult};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use storage::store::Store;
use storage::store::authoring::NewAuthoring;
use types::authoring::{Body, ConfigRequest, ConversationConfig, StoredState, WorkflowContext};
use types::event::Event;
use types::timestamp::Timestamp;
use types::turn::TurnRecord;

/// The events of a turn that leads from the last answer to a published document, as [`whole`] names them.
const LEADS_TO_A_DOCUMENT: [&str; 14] = [
    "clarification",
    "message",
    "negotiation",
    "message",
    "gap_analysis",
    "workflow_generation",
    "workflow_generation_started",
    "message",
    "workflow_draft",
    "debug",
    "workflow_debugging",
    "workflow_complete",
    "completed",
    "message",
];

/// A rehearsal in which every test passes.
pub struct Passing;

#[async_trait]
impl Rehearse for Passing {
    async fn rehearse(&self, _: &Draft, tests: &[RehearsalTest], _: Duration) -> Result<Rehearsed, TestError> {
        let passed = |test: &RehearsalTest| RehearsedTest { name: test.name.clone(), result: TestResult::Passed };
        Ok(Rehearsed::new(tests.iter().map(passed).collect(), None))
    }
}

/// Creates a dialogue of the user u1 about a new workflow.
pub async fn create(store: &dyn Store, session_id: &str) {
    create_with(store, session_id, json!({})).await;
}

pub async fn create_with(store: &dyn Store, session_id: &str, config: Value) {
    let now = Timestamp::from_millis(1_703_001_234_567);
    let id = format!("id-{session_id}");
    let request: ConfigRequest = serde_json::from_value(config).unwrap();
    let config = request.apply(&ConversationConfig::default()).unwrap();
    let state = StoredState::new(id, session_id, "u1", WorkflowContext::default(), now).configured(config, None);
    let new = NewAuthoring { agent_id: "authoring".into(), channel: "web".into(), state };
    assert!(store.create_authoring(new).await.unwrap());
}

/// An engine with one worker and the dialogue s1.
async fn started(backend: Backend, script: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Engine {
    let engine = watching(backend, script).await;
    engine.start_worker();
    engine
}

/// The same without a worker.
async fn watching(backend: Backend, script: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Engine {
    let mut engine = Engine::watching(backend, ScriptedModel::start(script).await).await;
    engine.rehearsal = Some(Arc::new(Passing));
    create(engine.store.as_ref(), "s1").await;
    engine
}

async fn publish(engine: &Engine, job_id: &str, text: &str) {
    let job = json!({"type": "user_message", "session_id": "s1", "job_id": job_id, "text": text, "channel": "web"});
    engine.publish_job("s1", job).await;
}

async fn say(engine: &Engine, job_id: &str, text: &str) -> TurnRecord {
    publish(engine, job_id, text).await;
    engine.turn("s1", job_id).await
}

async fn state(engine: &Engine) -> StoredState {
    engine.store.authoring("s1").await.unwrap().unwrap().state
}

/// The events of a turn of the dialogue, each once.
async fn told(engine: &Engine, turn_id: &str) -> Vec<types::authoring::Event> {
    let mut told: Vec<types::authoring::Event> = Vec::new();
    for event in engine.events("s1").await {
        if let Event::Authoring(event) = event
            && event.turn_id == turn_id
            && !told.iter().any(|known| known.seq == event.seq)
        {
            told.push(Arc::unwrap_or_clone(event));
        }
    }
    told
}

/// The types of events; a status with its stage, an error with its code. Pieces of texts count as one.
fn names(events: &[types::authoring::Event]) -> Vec<String> {
    let name = |event: &types::authoring::Event| match &event.body {
        Body::Status { content } => content.new_stage.as_str().to_owned(),
        Body::Error { content } => content.error_code.as_str().to_owned(),
        Body::Message { content: None, .. } => "delta".to_owned(),
        body => json!(body)["type"].as_str().unwrap().to_owned(),
    };
    let mut names: Vec<String> = events.iter().map(name).collect();
    names.dedup_by(|a, b| a == "delta" && b == "delta");
    names
}

/// The names without those of pieces, which depend on the speed of the machine.
fn whole(events: &[types::authoring::Event]) -> Vec<String> {
    names(events).into_iter().filter(|name| name != "delta").collect()
}

/// Asserts that the turn ends with exactly one last event, and that its numbers increase.
fn ends_once(events: &[types::authoring::Event]) {
    let last: Vec<bool> = events.iter().map(|event| event.is_final).collect();
    assert_eq!(last.iter().filter(|is_final| **is_final).count(), 1, "{events:?}");
    assert!(last.last().unwrap(), "{events:?}");
    assert!(events.is_sorted_by_key(|event| event.seq), "{events:?}");
}

/// The schemas of the requests to the model.
fn asked(engine: &Engine) -> Vec<String> {
    engine.model.asked().iter().map(|asked| asked.schema.replace("authoring_", "")).collect()
}

async fn is_asked(engine: &Engine, schema: &str) {
    let what = format!("the model is asked for {schema}");
    eventually(DEADLINE, &what, || async { asked(engine).iter().any(|asked| asked == schema) }).await;
}
