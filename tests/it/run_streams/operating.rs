//! Runs and workflows for operators, over HTTP.

use super::{engine, payloads, register, register_report, stage, started, writer};
use crate::gateway::refusal;
use crate::scenarios::on_both_backends;
use crate::support::backend::embedded;
use crate::support::engine::{Backend, DEADLINE};
use crate::support::eventually;
use crate::support::script::{Answer, ScriptedModel};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

on_both_backends!(
    a_run_is_listed_and_shown_with_what_its_stages_were_given,
    a_cancelled_run_ends_and_tells_why,
    a_failed_run_goes_on_where_it_failed,
    a_run_is_repeated_from_a_stage_on,
);

#[tokio::test]
async fn workflows_are_listed_registered_and_shown() {
    let (engine, gateway) = engine(embedded().await, |_, _| "好".into()).await;
    engine.apply(writer("writer")).await;
    let listed = gateway.json("/api/v1/workflows").await;
    let find = |listed: &Value, id: &str| {
        let found = listed["workflows"].as_array().unwrap().iter().find(|workflow| workflow["workflow_id"] == id);
        found.cloned().unwrap_or_default()
    };
    let router = find(&listed, "smart_router");
    assert_eq!((&router["type"], &router["source"]), (&json!("conditional"), &json!("builtin")), "{listed:#}");

    let document = json!({"id": "mine", "type": "pipeline", "description": "一步", "stages": [{"id": "a", "runnable": "writer", "input": "{query}"}]});
    let url = format!("{}/api/v1/workflows/mine", gateway.base);
    let put = async |document: &Value| gateway.client.put(&url).json(document).send().await.unwrap();
    let registered: Value = put(&document).await.json().await.unwrap();
    assert_eq!((&registered["workflow_id"], &registered["changed"]), (&json!("mine"), &json!(true)), "{registered}");
    let again: Value = put(&document).await.json().await.unwrap();
    assert_eq!((&again["changed"], &again["hash"]), (&json!(false), &registered["hash"]));
    let mine = find(&gateway.json("/api/v1/workflows").await, "mine");
    assert_eq!((&mine["description"], &mine["source"]), (&json!("一步"), &json!("store")));
    assert!(mine["updated_at"].is_string() && router["updated_at"].is_null());
    let shown = gateway.json("/api/v1/workflows/mine").await;
    assert_eq!((&shown["definition"], &shown["hash"]), (&document, &registered["hash"]));

    let other = json!({"id": "other", "stages": [{"id": "a", "runnable": "writer"}]});
    assert_eq!(refusal(put(&other).await).await, (400, "other_workflow".to_owned()));
    let nowhere = json!({"id": "mine", "stages": [{"id": "a", "runnable": "nobody", "input": "{query}"}]});
    let refused = put(&nowhere).await;
    assert_eq!(refused.status(), 422);
    let body: Value = refused.json().await.unwrap();
    assert!(body["error"]["message"].as_str().unwrap().contains("Runnable not found: nobody"), "{body}");
    let mut unfit = writer("unfit");
    unfit["model"] = json!("nowhere");
    engine.apply(unfit).await;
    let named = json!({"id": "mine", "stages": [{"id": "a", "runnable": "unfit", "input": "{query}"}]});
    let refused: Value = put(&named).await.json().await.unwrap();
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("the task agent `unfit` cannot run") && message.contains("`nowhere`"), "{refused}");
    let nonsense = json!({"id": "mine", "type": "circle", "stages": []});
    assert_eq!(refusal(put(&nonsense).await).await, (422, "invalid_workflow".to_owned()));
}

#[tokio::test]
async fn what_is_unknown_is_404_everywhere() {
    let (_engine, gateway) = engine(embedded().await, |_, _| "好".into()).await;
    for path in ["/api/v1/workflows/nowhere", "/workflows/nowhere/structure", "/api/workflows/nowhere/run?query=q"] {
        assert_eq!(refusal(gateway.get(path).await).await, (404, "unknown_workflow".to_owned()), "{path}");
    }
    for path in ["/api/v1/runs/nowhere", "/api/v1/runs/nowhere/events"] {
        assert_eq!(refusal(gateway.get(path).await).await, (404, "unknown_run".to_owned()), "{path}");
    }
    for verb in ["run", "runs"] {
        let refused = gateway.post(&format!("/api/v1/workflows/nowhere/{verb}"), &json!({"query": "q"})).await;
        assert_eq!(refusal(refused).await, (404, "unknown_workflow".to_owned()), "{verb}");
    }
    for verb in ["cancel", "resume", "restart"] {
        let refused = gateway.post(&format!("/api/v1/runs/nowhere/{verb}"), &json!({"from_stage": "plan"})).await;
        assert_eq!(refusal(refused).await, (404, "unknown_run".to_owned()), "{verb}");
    }
    assert_eq!(refusal(gateway.get("/workflows/smart_router/run").await).await, (400, "empty_query".to_owned()));
    let bad = gateway.post("/workflows/smart_router/run", &json!({"session_id": "s1"})).await;
    assert_eq!(refusal(bad).await, (400, "empty_query".to_owned()));
    let bad = gateway.post("/workflows/smart_router/run", &json!({"query": "q", "session_id": "a.b"})).await;
    assert_eq!(refusal(bad).await, (400, "invalid_id".to_owned()));
}

async fn a_run_is_listed_and_shown_with_what_its_stages_were_given(backend: Backend) {
    let (engine, gateway) = engine(backend, |stage, _| format!("{stage} 的结果")).await;
    register_report(&engine).await;
    let started = gateway.post("/api/v1/workflows/report/runs", &json!({"query": "电池"})).await;
    assert_eq!(started.status(), 202);
    let started: Value = started.json().await.unwrap();
    let run_id = started["run_id"].as_str().unwrap().to_owned();
    assert_eq!(started, json!({"run_id": run_id, "workflow_id": "report"}));
    let shown = eventually(DEADLINE, "the run has ended", || async {
        let shown = gateway.json(&format!("/api/v1/runs/{run_id}")).await;
        (shown["status"] == "completed").then_some(shown)
    })
    .await;
    assert_eq!((&shown["output"], &shown["query"]), (&json!("report 的结果"), &json!("电池")));
    assert_eq!((&shown["usage"]["stages"], &shown["usage"]["model_calls"]), (&json!(2), &json!(2)));
    let timeline = shown["timeline"].as_array().unwrap();
    let seen: Vec<_> = timeline
        .iter()
        .map(|stage| {
            [&stage["path"], &stage["status"], &stage["input"], &stage["output"]].map(|field| field.as_str().unwrap())
        })
        .collect();
    assert_eq!(
        seen,
        [
            ["plan", "completed", "计划：电池", "plan 的结果"],
            ["report", "completed", "报告：plan 的结果", "report 的结果"],
        ]
    );
    assert!(timeline.iter().all(|stage| stage["ms"].is_u64() && stage["tokens"]["prompt"] == 11), "{timeline:#?}");

    let listed = gateway.json("/api/v1/runs?workflow_id=report&status=completed&limit=5").await;
    assert_eq!(listed["runs"][0]["run_id"], run_id.as_str());
    assert_eq!(gateway.json("/api/v1/runs?status=failed").await["runs"], json!([]));
    let refused = gateway.get("/api/v1/runs?status=asleep").await;
    assert_eq!(refusal(refused).await, (400, "invalid_query".to_owned()));

    // Like a session's stream: events are named `run`, and ids are sequences.
    let response = gateway.get(&format!("/api/v1/runs/{run_id}/events")).await;
    let events = super::RunEvents::of(response).rest().await;
    assert!(events.iter().all(|event| event.event.as_deref() == Some("run")));
    let last = events.last().unwrap().id.as_deref().unwrap();
    assert!(last.parse::<u64>().is_ok());
    let over = gateway.browse(&format!("/api/v1/runs/{run_id}/events"), Some(last)).await;
    assert_eq!(over.status(), 204);
    assert_eq!(gateway.get(&format!("/api/v1/sessions/{run_id}")).await.status(), 404, "a run is not a session");
}

async fn a_cancelled_run_ends_and_tells_why(backend: Backend) {
    let model = ScriptedModel::start(|_| Answer::Hang).await;
    let (engine, gateway) = started(backend, model, 1).await;
    register_report(&engine).await;
    let mut run = gateway.run("report", &json!({"query": "q", "run_id": "r1"})).await;
    run.until("stage_started").await;
    eventually(DEADLINE, "the model is asked", || async { !engine.model.asked().is_empty() }).await;
    let cancelled = gateway.post("/api/v1/runs/r1/cancel", &json!({"reason": "问错了", "by": "li"})).await;
    assert_eq!(cancelled.status(), 202);
    let events = payloads(&run.rest().await);
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["depth"]), (&json!("run_failed"), &json!(0)));
    assert!(last["error"].as_str().unwrap().contains("问错了"), "{last}");
    let shown = gateway.json("/api/v1/runs/r1").await;
    assert_eq!(shown["status"], "cancelled", "{shown:#}");
}

/// A model that responds by the stage. `report` fails while the flag is set.
async fn breakable() -> (ScriptedModel, Arc<AtomicBool>) {
    let broken = Arc::new(AtomicBool::new(true));
    let is_broken = Arc::clone(&broken);
    let model = ScriptedModel::start(move |asked| match stage(asked) == "report" && is_broken.load(Ordering::SeqCst) {
        true => Answer::status(400, "no"),
        false => Answer::Content(format!("{} 的结果", stage(asked))),
    })
    .await;
    (model, broken)
}

async fn a_failed_run_goes_on_where_it_failed(backend: Backend) {
    let (model, broken) = breakable().await;
    let (engine, gateway) = started(backend, model, 1).await;
    register_report(&engine).await;
    let failed = payloads(&gateway.run("report", &json!({"query": "q", "run_id": "r1"})).await.rest().await);
    assert_eq!(failed.last().unwrap()["type"], "run_failed", "{failed:#?}");
    let shown = gateway.json("/api/v1/runs/r1").await;
    assert_eq!((&shown["status"], &shown["error"]["path"]), (&json!("failed"), &json!("report")), "{shown:#}");
    assert_eq!(shown["timeline"][1]["status"], "failed", "{shown:#}");

    broken.store(false, Ordering::SeqCst);
    let resumed = gateway.post("/api/v1/runs/r1/resume", &json!({})).await;
    assert_eq!(resumed.status(), 202);
    let shown = eventually(DEADLINE, "the run is completed", || async {
        let shown = gateway.json("/api/v1/runs/r1").await;
        (shown["status"] == "completed").then_some(shown)
    })
    .await;
    assert_eq!((&shown["output"], &shown["error"]), (&json!("report 的结果"), &Value::Null));
    let stages: Vec<_> = engine.model.asked().iter().map(stage).collect();
    assert_eq!(stages, ["plan", "report", "report"]);
    let events = super::RunEvents::of(gateway.get("/api/v1/runs/r1/events").await).rest().await;
    let types: Vec<_> =
        payloads(&events).iter().filter(|event| event["depth"] == 0).map(|event| event["type"].clone()).collect();
    assert_eq!(types.last(), Some(&json!("run_completed")), "the stream continues after the failure: {types:?}");
    let again = gateway.post("/api/v1/runs/r1/resume", &json!({})).await;
    assert_eq!(again.status(), 409, "a completed run cannot be resumed");
}

async fn a_run_is_repeated_from_a_stage_on(backend: Backend) {
    let (engine, gateway) = engine(backend, |stage, asked| format!("{stage} 第 {} 次", asked.index)).await;
    register_report(&engine).await;
    gateway.run("report", &json!({"query": "q", "run_id": "r1"})).await.rest().await;
    let refused = gateway.post("/api/v1/runs/r1/restart", &json!({"from_stage": "repport"})).await;
    let (status, _) = refusal(refused).await;
    assert!((400..500).contains(&status), "{status}");
    let restarted = gateway.post("/api/v1/runs/r1/restart", &json!({"from_stage": "report"})).await;
    assert_eq!(restarted.status(), 202);
    let restarted: Value = restarted.json().await.unwrap();
    let run_id = restarted["run_id"].as_str().unwrap();
    assert_ne!(run_id, "r1");
    let shown = eventually(DEADLINE, "the new run is completed", || async {
        let shown = gateway.json(&format!("/api/v1/runs/{run_id}")).await;
        (shown["status"] == "completed").then_some(shown)
    })
    .await;
    assert_eq!((&shown["from_run"], &shown["from_stage"]), (&json!("r1"), &json!("report")));
    assert_eq!(shown["output"], "report 第 2 次");
    assert_eq!(shown["timeline"][0]["output"], "plan 第 0 次", "the earlier stages are reused");
    assert_eq!(engine.model.asked().len(), 3);

    register(&engine, json!({"id": "report", "stages": [{"id": "other", "runnable": "writer", "input": "{query}"}]}))
        .await;
    let kept = gateway.json("/api/v1/runs/r1").await;
    assert_eq!(kept["timeline"][1]["path"], "report", "a run is shown with the definition at its start");
}
