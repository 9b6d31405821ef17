//! Recoveries of one node: RETRY, SKIP, MODIFY, ABORT, their bounds, and the events of a run.

use super::{called, decisions, edge, engine, http, output, prompts, recovers, register, run, told};
use crate::scenarios::on_both_backends;
use crate::support::api;
use crate::support::engine::{Backend, Engine};
use engine::run::timeline;
use futures::StreamExt;
use lab::invariants;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use storage::queue::From;
use types::event::Event;
use types::run::RunStatus;

on_both_backends!(
    s25_a_node_that_times_out_is_retried_with_a_longer_time,
    a_node_is_skipped_with_or_without_an_alternative,
    a_changed_node_calls_another_address_under_its_own_key,
    an_aborted_run_names_its_node,
    a_node_that_never_recovers_ends_the_run,
    a_spent_budget_ends_the_run_without_a_recovery,
    secrets_of_env_are_in_no_event_and_no_prompt,
);

/// a, then `flaky`, then b with its output.
fn chain() -> Value {
    let mut flaky = http("flaky", "slow");
    flaky["config"]["timeout"] = json!(1);
    let mut last = http("b", "b");
    last["config"]["body"] = json!({"from": "${flaky.output}"});
    json!({"id": "g", "nodes": [http("a", "a"), flaky, last], "edges": [edge("a", "flaky"), edge("flaky", "b")]})
}

async fn s25_a_node_that_times_out_is_retried_with_a_longer_time(backend: Backend) {
    let plan = json!({"action": "RETRY", "delay": 1, "max_attempts": 3, "modifications": {"config.timeout": 5}});
    let engine = engine(backend, move |_| recovers("flaky", &plan)).await;
    let hung = AtomicBool::new(false);
    engine.api.script(move |path, _| match path {
        "/slow" if !hung.swap(true, Ordering::SeqCst) => api::Answer::Hang,
        _ => (200, json!({"done": true})).into(),
    });
    register(&engine, chain()).await;
    let run = run(&engine).await;
    assert_eq!(run.status, RunStatus::Completed, "{run:?}");
    let calls = engine.api.calls("/slow");
    assert_eq!(calls.len(), 2);
    assert!(calls[0].at.until(calls[1].at) >= Duration::from_secs(2), "the timeout and the delay");
    assert_ne!(calls[0].idempotency_key, calls[1].idempotency_key, "a changed request has a key of its own");
    let events = decisions(&engine, &run.run_id).await;
    let expected = ["node_execution_failed -", "decision_made error_recovery", "decision_validated error_recovery"];
    assert_eq!(told(&engine, &run.run_id).await, expected);
    assert_eq!((&events[0]["error_code"], &events[0]["attempts"]), (&json!("TIMEOUT"), &json!(1)));
    assert_eq!((&events[0]["run_id"], &events[0]["turn_id"]), (&json!(run.run_id), &Value::Null));
    assert!(events.iter().all(|event| event["decision_id"] == events[0]["decision_id"]));
    let prompt = &prompts(&engine)[0];
    assert!(prompt.contains("the node took longer than 1s") && prompt.contains("修好它"), "{prompt}");
    let told = invariants::run_events(engine.queue.as_ref(), &run.run_id).await.unwrap();
    let completed = told.iter().find(|event| event.event_id.ends_with("/flaky/stage_completed")).unwrap();
    assert_eq!(completed.data.as_ref().unwrap()["attempts"], 2);
    insta::assert_snapshot!("a_recovery", stream(&engine, &run.run_id).await);
}

/// The events of a run in the order of the stream, without ids and times.
async fn stream(engine: &Engine, run_id: &str) -> String {
    let mut events = engine.queue.events(run_id, From::After(0)).await.unwrap();
    let mut lines = Vec::new();
    loop {
        let event = events.next().await.unwrap().unwrap();
        let line = match Event::decode(event.event_type, &event.payload).unwrap() {
            Event::Run(event) => {
                let text = |name: &str| event[name].as_str().unwrap_or("-").to_owned();
                format!("run {} {} {}", text("type"), text("stage_id"), text("event_id"))
            }
            Event::Decision(mut event) => {
                event["at"] = json!("AT");
                format!("decision {event}")
            }
            _ => continue,
        };
        lines.push(line.replace(run_id, "RUN").replace(&engine.api.base_url, "API"));
        if lines.last().is_some_and(|line| line.starts_with("run run_completed")) {
            return lines.join("\n");
        }
    }
}

async fn a_node_is_skipped_with_or_without_an_alternative(backend: Backend) {
    let engine = engine(backend, |asked| match asked.system.contains("\"node_id\": \"flaky\"") {
        true if asked.system.contains("\"HTTP_500\"") => recovers("flaky", &json!({"action": "SKIP"})),
        _ => recovers("flaky", &json!({"action": "SKIP", "alternative_node": "a"})),
    })
    .await;
    engine.api.script(|path, _| match path {
        "/slow" => (500, json!({})),
        "/a" => (200, json!({"from": "a"})),
        _ => (200, json!({"done": true})),
    });
    register(&engine, chain()).await;
    let first = run(&engine).await;
    assert_eq!(first.status, RunStatus::Completed, "{first:?}");
    assert_eq!(engine.api.calls("/b")[0].body, json!({"from": null}), "nodes behind it get null");
    let shown = timeline::load(&engine.store, &engine.flows, &first).await.unwrap();
    let paths: Vec<&str> = shown.timeline.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(paths, ["a", "flaky", "flaky/recover[1]", "b"]);

    engine.api.forget();
    engine.api.script(|path, _| match path {
        "/slow" => (404, json!({})),
        "/a" => (200, json!({"from": "a"})),
        _ => (200, json!({"done": true})),
    });
    let second = run(&engine).await;
    assert_eq!(second.status, RunStatus::Completed, "{second:?}");
    assert_eq!(
        engine.api.calls("/b")[0].body["from"]["data"],
        json!({"from": "a"}),
        "or the output of the alternative"
    );
    assert_eq!(engine.api.calls("/a").len(), 1, "which had run");
}

async fn a_changed_node_calls_another_address_under_its_own_key(backend: Backend) {
    let engine = engine(backend, |asked| {
        let url = asked.system.split("\"url\": \"").nth(1).unwrap().split('"').next().unwrap();
        let url = url.rsplit_once('/').unwrap().0.replace("<\\/", "</");
        recovers("flaky", &json!({"action": "MODIFY", "modifications": {"config.url": format!("{url}/fast")}}))
    })
    .await;
    engine.api.script(|path, _| if path == "/slow" { (503, json!({})) } else { (200, json!({"done": true})) });
    let mut graph = chain();
    graph["nodes"][1]["retry_config"] = json!({"max_retries": 1, "retry_delay": 0});
    register(&engine, graph).await;
    let run = run(&engine).await;
    assert_eq!(run.status, RunStatus::Completed, "{run:?}");
    assert_eq!(called(&engine), ["/a", "/slow", "/slow", "/fast", "/b"]);
    let keys: Vec<String> = engine.api.calls("").into_iter().map(|call| call.idempotency_key).collect();
    assert_eq!(keys[1], keys[2], "attempts of the same request share their key");
    assert!(keys[3].starts_with(&format!("{}/", keys[1])), "{keys:?}");
}

async fn an_aborted_run_names_its_node(backend: Backend) {
    let engine = engine(backend, |_| recovers("flaky", &json!({"action": "ABORT"}))).await;
    engine.api.script(|path, _| if path == "/slow" { (404, json!({})) } else { (200, json!({})) });
    register(&engine, chain()).await;
    let run = run(&engine).await;
    let error = run.error.unwrap();
    assert_eq!((run.status, error.path.as_str()), (RunStatus::Failed, "flaky"));
    assert!(error.cause.starts_with("HTTP_404: ") && error.cause.ends_with("太慢了"), "{error:?}");
    assert_eq!(called(&engine), ["/a", "/slow"]);
}

async fn a_node_that_never_recovers_ends_the_run(backend: Backend) {
    let engine = engine(backend, |_| recovers("flaky", &json!({"action": "RETRY", "max_attempts": 1}))).await;
    engine.api.script(|path, _| if path == "/slow" { (503, json!({})) } else { (200, json!({})) });
    register(&engine, chain()).await;
    let run = run(&engine).await;
    let error = run.error.unwrap();
    assert!(error.cause.starts_with("recovery_exhausted: ") && error.cause.contains("HTTP_503"), "{error:?}");
    assert_eq!((engine.api.calls("/slow").len(), prompts(&engine).len()), (4, 3));

    // A resumed run may recover again.
    engine.api.forget();
    engine.api.script(|_, _| (200, json!({"done": true})));
    commands::runs::resume_run(engine.queue.as_ref(), engine.store.as_ref(), &run.run_id).await.unwrap();
    let run = super::ended(&engine, &run.run_id).await;
    assert_eq!((run.status, called(&engine)), (RunStatus::Completed, vec!["/slow".to_owned(), "/b".to_owned()]));
    assert_eq!(output(&run)["data"], json!({"done": true}));
}

async fn a_spent_budget_ends_the_run_without_a_recovery(backend: Backend) {
    let engine = engine(backend, |_| recovers("b", &json!({"action": "SKIP"}))).await;
    // One call of the scripted model uses 18 tokens.
    engine.apply(json!({"id": "writer", "model": "default", "system_prompt": "写小结", "budget": {"day": 18}})).await;
    let writes = |id: &str| json!({"node_id": id, "type": "RUNNABLE", "name": id, "config": {"runnable": "writer", "input": id}});
    let edges = [edge("a", "b"), edge("b", "c")];
    let graph = json!({"id": "g", "nodes": [writes("a"), writes("b"), http("c", "c")], "edges": edges});
    register(&engine, graph.clone()).await;
    let asks_coordinator = run(&engine).await;
    let mut skips = graph;
    skips["recovery"] = json!({"action": "SKIP"});
    register(&engine, skips).await;
    let run_id = super::start(&engine).await;
    let has_plan = super::ended(&engine, &run_id).await;
    for (run, path) in [(asks_coordinator, "b"), (has_plan, "a")] {
        let error = run.error.unwrap_or_else(|| panic!("{path}"));
        assert_eq!((run.status, error.path.as_str()), (RunStatus::Failed, path), "{error:?}");
        assert!(error.cause.contains("the day budget of agent `writer` is spent: 18 of 18 tokens"), "{error:?}");
        assert!(decisions(&engine, &run.run_id).await.is_empty(), "no recovery begins");
    }
    assert_eq!((engine.model.asked().len(), called(&engine).len()), (1, 0), "only the first node has run");
}

async fn secrets_of_env_are_in_no_event_and_no_prompt(backend: Backend) {
    let engine = engine(backend, |_| recovers("flaky", &json!({"action": "SKIP"}))).await;
    engine
        .api
        .script(|path, _| if path == "/slow" { (404, json!({"echo": "top-secret-1"})) } else { (200, json!({})) });
    let mut graph = chain();
    graph["global_config"] = json!({"env": {"TOKEN": "top-secret-1"}});
    graph["nodes"][0]["config"]["body"] = json!({"token": "${TOKEN}"});
    register(&engine, graph).await;
    let run = run(&engine).await;
    assert_eq!(run.status, RunStatus::Completed, "{run:?}");
    assert_eq!(engine.api.calls("/a")[0].body["token"], "top-secret-1");
    let events = decisions(&engine, &run.run_id).await;
    assert!(events.len() == 3 && events.iter().all(|event| !event.to_string().contains("top-secret-1")), "{events:?}");
    assert!(!prompts(&engine)[0].contains("top-secret-1"));
}
