//! Clients that reconnect to a finished run get the events that they have missed, then 204.

use super::{RunEvents, engine, payloads, register_report};
use crate::scenarios::on_both_backends;
use crate::support::engine::{Backend, DEADLINE};
use crate::support::eventually;
use crate::support::script::Answer;
use serde_json::{Value, json};

on_both_backends!(
    a_client_that_saw_the_first_failure_sees_the_next_attempt,
    an_id_beyond_the_end_of_an_ended_run_begins_at_its_first_event,
);

async fn a_client_that_saw_the_first_failure_sees_the_next_attempt(backend: Backend) {
    let (engine, gateway) = engine(backend, |stage, _| stage.to_owned()).await;
    register_report(&engine).await;
    engine.model.script(|_| Answer::status(418, "scripted"));
    let mut run = gateway.run("report", &json!({"query": "q", "run_id": "r1"})).await;
    let id = run.rest().await.pop().unwrap().id.unwrap();
    let ended = async |count: usize| {
        eventually(DEADLINE, "the run has failed again", || async {
            let events = lab::invariants::run_events(engine.queue.as_ref(), "r1").await.unwrap();
            let ends = events.iter().filter(|event| event.depth == 0 && event.kind.as_str() == "run_failed").count();
            let run = engine.store.run("r1").await.unwrap().unwrap();
            ends == count && run.status.has_ended()
        })
        .await;
    };
    ended(1).await;
    let path = "/api/v1/workflows/report/run";
    assert_eq!(gateway.browse(path, Some(&id)).await.status(), 204, "no further events");
    assert_eq!(gateway.post("/api/v1/runs/r1/resume", &json!({})).await.status(), 202);
    ended(2).await;
    let again = payloads(&RunEvents::of(gateway.browse(path, Some(&id)).await).rest().await);
    let last = again.last().unwrap();
    assert_eq!((&last["type"], &last["depth"]), (&json!("run_failed"), &json!(0)), "{again:#?}");
    let ids = RunEvents::of(gateway.browse(path, Some("r1:0")).await).rest().await;
    let last_id = ids.last().unwrap().id.clone().unwrap();
    assert_eq!(gateway.browse(path, Some(&last_id)).await.status(), 204);
}

async fn an_id_beyond_the_end_of_an_ended_run_begins_at_its_first_event(backend: Backend) {
    let (engine, gateway) = engine(backend, |stage, _| stage.to_owned()).await;
    register_report(&engine).await;
    let events = gateway.run("report", &json!({"query": "q", "run_id": "r1"})).await.rest().await;
    let last: u64 = events.last().unwrap().id.as_deref().unwrap().rsplit(':').next().unwrap().parse().unwrap();
    let kinds = |events: &[Value]| events.iter().map(|event| event["type"].clone()).collect::<Vec<_>>();
    let all = kinds(&payloads(&events));
    for beyond in [last + 1, last + 1_000] {
        let path = "/api/v1/workflows/report/run";
        let again = RunEvents::of(gateway.browse(path, Some(&format!("r1:{beyond}"))).await).rest().await;
        assert_eq!(kinds(&payloads(&again)), all, "{beyond}");
        let path = "/api/v1/runs/r1/events";
        let again = RunEvents::of(gateway.browse(path, Some(&beyond.to_string())).await).rest().await;
        assert_eq!(kinds(&payloads(&again)), all, "{beyond}");
    }
    assert_eq!(gateway.browse("/api/v1/runs/r1/events", Some(&last.to_string())).await.status(), 204);
}
