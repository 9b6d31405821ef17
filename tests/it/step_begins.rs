//! The event of a step that is under way for 300 ms. The steps wait for a gate, which opens when the event is there.

use crate::scenarios::{acts, answer, on_both_backends, sales};
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::script::{Answer, ScriptedModel, plan};
use crate::support::{api, eventually};
use engine::worker::Worker;
use engine::workflow::{FlowContext, FlowError};
use lab::invariants;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use types::event::{Event, StepEvent};

on_both_backends!(
    a_long_model_call_action_and_flow_are_published_before_they_end,
    a_repeated_turn_publishes_the_begin_of_the_step_that_runs_again,
);

fn gate() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(0))
}

/// The session's step events, in the order of the stream.
async fn steps(engine: &Engine) -> Vec<StepEvent> {
    let events = invariants::events(engine.queue.as_ref(), "s1").await.unwrap();
    events.into_iter().filter_map(|event| if let Event::Step(step) = event { Some(step) } else { None }).collect()
}

/// Waits until the begin of a step is published.
async fn begin(engine: &Engine, turn: &str, key: &str, attempt: u32) -> StepEvent {
    let is_it = |step: &StepEvent| step.turn_id == turn && step.key == key && step.attempt == Some(attempt);
    let found = async || steps(engine).await.into_iter().find(is_it);
    eventually(DEADLINE, &format!("the begin of {key} is published"), found).await
}

/// Each step has one event of its own, and at most one begin in each attempt, before it. A step that was shorter has
/// none.
fn check_order(steps: &[StepEvent]) {
    for (at, step) in steps.iter().enumerate() {
        let (before, after) = (&steps[..at], &steps[at + 1..]);
        if step.has_ended() {
            assert!(after.iter().all(|later| later.key != step.key), "nothing follows {step:?}: {steps:#?}");
            assert!((step.attempt, step.at) == (None, None), "{step:?}");
        } else {
            let same = |other: &&StepEvent| other.key == step.key && other.attempt == step.attempt;
            assert!(!before.iter().any(|other| same(&other)), "once in each attempt: {steps:#?}");
            assert!(step.ok && step.ms >= 300 && step.at.is_some(), "{step:?}");
            let ended = after.iter().find(|later| later.key == step.key && later.has_ended());
            let ended = ended.unwrap_or_else(|| panic!("{step:?} ends: {steps:#?}"));
            assert_eq!(ended.kind, step.kind);
        }
    }
}

async fn a_long_model_call_action_and_flow_are_published_before_they_end(backend: Backend) {
    let gates = [gate(), gate(), gate()];
    let of_model = Arc::clone(&gates[0]);
    let model = ScriptedModel::start(move |asked| match asked.index {
        0 => Answer::json(&plan(json!("您好"), &answer("在"))),
        1 => Answer::json(&acts("processing", "TOOL", "eta", &json!({"order_id": "A1"}))).gated(&of_model),
        2 => Answer::json(&acts("processing", "FLOW", "slow", &json!({}))),
        _ => Answer::json(&answer("好的")),
    })
    .await;
    let mut engine = Engine::watching(backend, model).await;
    let (of_api, of_flow) = (Arc::clone(&gates[1]), Arc::clone(&gates[2]));
    engine.api.script(move |_, _| api::Answer::Gated(Arc::clone(&of_api), 200, json!({"days": 2})));
    engine.flows = engine.flows.clone().with("slow", move |_: FlowContext| {
        let gate = Arc::clone(&of_flow);
        async move {
            drop(gate.acquire().await);
            Ok::<_, FlowError>("流程已办".to_owned())
        }
    });
    engine.start_worker();
    let mut agent = sales();
    agent["flows"] = json!(["slow"]);
    engine.apply(agent).await;
    engine.say("s1", "m-1", "你好").await;
    engine.publish("s1", "m-2", "查一下").await;
    let mut begun = Vec::new();
    for (gate, key) in gates.iter().zip(["0/decide", "0/act", "1/flow"]) {
        let step = begin(&engine, "m-2", key, 1).await;
        assert!(
            !steps(&engine).await.iter().any(|other| other.key == key && other.turn_id == "m-2" && other.has_ended())
        );
        begun.push((step.kind, step.target));
        gate.add_permits(1);
    }
    let named = |kind: &str, target: &str| (kind.to_owned(), target.to_owned());
    let model = engine.settings.models.keys().next().unwrap().as_str();
    assert_eq!(begun, [named("model", model), named("tool", "eta"), named("flow", "slow")]);
    engine.turn("s1", "m-2").await;
    let of_turn: Vec<_> = steps(&engine).await.into_iter().filter(|step| step.turn_id == "m-2").collect();
    check_order(&of_turn);
    // The event of a step that has ended is as it was before.
    let events = invariants::events(engine.queue.as_ref(), "s1").await.unwrap();
    let ended = events.iter().find_map(|event| match event {
        Event::Step(step) if step.has_ended() => serde_json::to_value(step).ok(),
        _ => None,
    });
    let names: Vec<String> = ended.unwrap().as_object().unwrap().keys().cloned().collect();
    assert_eq!(names.len(), 7, "{names:?}");
}

async fn a_repeated_turn_publishes_the_begin_of_the_step_that_runs_again(backend: Backend) {
    let (of_model, of_api) = (gate(), gate());
    let gated = Arc::clone(&of_model);
    let model = ScriptedModel::start(move |asked| match asked.index {
        0 => Answer::json(&plan(json!(null), &acts("processing", "TOOL", "eta", &json!({})))).gated(&gated),
        _ => Answer::json(&answer("好的")),
    })
    .await;
    let engine = Engine::watching(backend, model).await;
    let gated = Arc::clone(&of_api);
    engine.api.script(move |_, _| api::Answer::Gated(Arc::clone(&gated), 200, json!({"days": 2})));
    engine.apply(sales()).await;
    let doomed = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (worker, settings) = (Worker::new(engine.services(), &engine.settings), engine.settings.clone());
    doomed.spawn(async move { worker.run(&settings, CancellationToken::new()).await });
    engine.publish("s1", "m-1", "几天到").await;
    begin(&engine, "m-1", "0/decide", 1).await;
    of_model.add_permits(1);
    begin(&engine, "m-1", "0/act", 1).await;
    // Drops all tasks. Lease and delivery remain, as after a kill.
    doomed.shutdown_background();
    engine.start_worker();
    engine.start_scheduler();
    begin(&engine, "m-1", "0/act", 2).await;
    of_api.add_permits(1);
    let turn = engine.turn("s1", "m-1").await;
    assert_eq!(turn.attempts, 2);
    let steps = steps(&engine).await;
    check_order(&steps);
    let begins: Vec<(&str, Option<u32>)> =
        steps.iter().filter(|step| !step.has_ended()).map(|step| (step.key.as_str(), step.attempt)).collect();
    let of_first: Vec<_> = begins.iter().filter(|(key, _)| *key == "0/decide").collect();
    assert_eq!(of_first, [&("0/decide", Some(1))], "a replayed step has not begun: {begins:?}");
}
