//! Operators: cancelling, resuming and restarting runs of graphs, and how graphs and their runs are shown.

use super::*;
use crate::scenarios::on_both_backends;
use crate::support::api::Answer as Called;
use commands::runs::{cancel_run, resume_run};
use std::sync::Arc;
use tokio::sync::Semaphore;
use types::run::NodeStatus;

on_both_backends!(
    a_run_is_cancelled_at_once_and_only_its_unfinished_nodes_run_after_a_resume,
    a_failed_run_is_resumed_at_the_failed_node,
    a_restart_runs_the_node_and_what_is_behind_it,
    a_graph_is_shown_with_its_levels_and_without_its_secrets,
    a_run_is_shown_while_it_runs,
);

/// rows, then trend and other; send after trend.
fn report() -> Value {
    let nodes = json!([
        call("rows", "rows", "1"),
        call("trend", "trend", "1"),
        call("other", "other", "1"),
        call("send", "send", "1")
    ]);
    graph(nodes, &[("rows", "trend"), ("rows", "other"), ("trend", "send")])
}

fn calls(engine: &Engine) -> Vec<String> {
    let mut paths: Vec<_> = engine.api.calls("").into_iter().map(|call| call.path).collect();
    paths.sort_unstable();
    paths
}

async fn a_run_is_cancelled_at_once_and_only_its_unfinished_nodes_run_after_a_resume(backend: Backend) {
    let engine = engine(backend).await;
    let hangs = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let hanging = Arc::clone(&hangs);
    engine.api.script(move |path, _| match path {
        "/trend" if hanging.load(std::sync::atomic::Ordering::SeqCst) => Called::Hang,
        _ => Called::Now(200, json!({})),
    });
    register(&engine, report()).await;
    let run_id = start(&engine, NewRun::new("g", "")).await;
    let called = async |path: &str| engine.api.calls(path).iter().any(|call| path == "/trend" || call.ended.is_some());
    eventually(DEADLINE, "the run hangs in one node", || async { called("/trend").await && called("/other").await })
        .await;
    let gateway = Gateway::of(&engine).await;
    let graph_of = async || {
        let shown = gateway.json(&format!("/api/v1/runs/{run_id}")).await;
        let nodes = shown["graph"].as_array().cloned().unwrap_or_default();
        nodes.into_iter().map(|node| node["status"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    eventually(DEADLINE, "the running run is shown", || async {
        graph_of().await == ["completed", "running", "completed", "pending"]
    })
    .await;
    let (queue, store) = (engine.queue.as_ref(), engine.store.as_ref());
    cancel_run(queue, store, &run_id, Some("够了".into()), None).await.unwrap();
    let run = ended(&engine, &run_id).await;
    assert_eq!(run.status, RunStatus::Cancelled);
    assert_eq!(graph_of().await, ["completed", "running", "completed", "pending"], "the node was broken off");
    hangs.store(false, std::sync::atomic::Ordering::SeqCst);
    engine.api.forget();
    resume_run(queue, store, &run_id).await.unwrap();
    let run = ended(&engine, &run_id).await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.error);
    assert_eq!(calls(&engine), ["/send", "/trend"]);
}

async fn a_failed_run_is_resumed_at_the_failed_node(backend: Backend) {
    let engine = engine(backend).await;
    let broken = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let is_broken = Arc::clone(&broken);
    engine.api.script(move |path, _| {
        let fails = path == "/trend" && is_broken.load(std::sync::atomic::Ordering::SeqCst);
        (if fails { 404 } else { 200 }, json!({}))
    });
    register(&engine, report()).await;
    let run_id = start(&engine, NewRun::new("g", "")).await;
    let run = ended(&engine, &run_id).await;
    let failed = run.graph.unwrap().remove(1);
    assert_eq!(
        (failed.status, failed.attempts, failed.error_code.as_deref()),
        (NodeStatus::Failed, 1, Some("HTTP_404"))
    );
    let gateway = Gateway::of(&engine).await;
    let diagram = gateway.json(&format!("/api/v1/runs/{run_id}/diagram")).await;
    let mermaid = diagram["mermaid"].as_str().unwrap();
    for part in ["flowchart TD", "[/\"trend<br/>trend\"/]", "class n3 failed", "classDef failed fill:"] {
        assert!(mermaid.contains(part), "{part}: {mermaid}");
    }
    broken.store(false, std::sync::atomic::Ordering::SeqCst);
    engine.api.forget();
    let resumed = gateway.post(&format!("/api/v1/runs/{run_id}/resume"), &json!({})).await;
    assert_eq!(resumed.status(), 202);
    let run = ended(&engine, &run_id).await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.error);
    assert!(!calls(&engine).contains(&"/rows".to_owned()), "{:?}", calls(&engine));
    assert!(run.graph.unwrap().iter().all(|node| node.status == NodeStatus::Completed));
}

async fn a_restart_runs_the_node_and_what_is_behind_it(backend: Backend) {
    let engine = engine(backend).await;
    register(&engine, report()).await;
    let first = start(&engine, NewRun::new("g", "")).await;
    ended(&engine, &first).await;
    let gateway = Gateway::of(&engine).await;
    for body in [json!({"from": "trend"}), json!({"from_stage": "trend"})] {
        engine.api.forget();
        let answered = gateway.post(&format!("/api/v1/runs/{first}/restart"), &body).await;
        assert_eq!(answered.status(), 202);
        let second = answered.json::<Value>().await.unwrap()["run_id"].as_str().unwrap().to_owned();
        let run = ended(&engine, &second).await;
        assert_eq!(
            (run.status, run.from_run.as_deref(), run.from_stage.as_deref()),
            (RunStatus::Completed, Some(first.as_str()), Some("trend"))
        );
        assert_eq!(calls(&engine), ["/send", "/trend"]);
    }
    let refused = gateway.post(&format!("/api/v1/runs/{first}/restart"), &json!({"from": "nothing"})).await;
    assert_eq!(refused.status(), 400);
    let error = refused.json::<Value>().await.unwrap()["error"].take();
    assert_eq!(error["code"], "unknown_stage");
    assert!(error["message"].as_str().unwrap().contains("rows, trend, other, send"), "{error}");
}

async fn a_graph_is_shown_with_its_levels_and_without_its_secrets(backend: Backend) {
    let engine = engine(backend).await;
    let mut secret = report();
    secret["global_config"] = json!({"env": {"KEY": "s3cr3t-value"}});
    secret["nodes"][3]["config"]["headers"] = json!({"x-key": "${KEY}"});
    secret["edges"][2]["condition"] = json!("${trend.output.status} == 200");
    register(&engine, secret).await;
    let gateway = Gateway::of(&engine).await;
    let structure = gateway.json("/api/v1/workflows/g/structure").await;
    assert_eq!(structure["levels"], json!([["rows"], ["trend", "other"], ["send"]]));
    assert_eq!(structure["global_config"]["env"]["KEY"], "***");
    assert!(!structure.to_string().contains("s3cr3t-value"), "{structure}");
    assert_eq!(structure["nodes"][3]["config"]["headers"]["x-key"], "${KEY}");
    assert_eq!(
        structure["edges"][2],
        json!({"source": "trend", "target": "send", "condition": "${trend.output.status} == 200"})
    );
}

async fn a_run_is_shown_while_it_runs(backend: Backend) {
    let engine = engine(backend).await;
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    engine.api.script(move |path, _| match path {
        "/trend" => Called::Gated(Arc::clone(&held), 200, json!({})),
        _ => Called::Now(200, json!({})),
    });
    register(&engine, report()).await;
    let run_id = start(&engine, NewRun::new("g", "")).await;
    let gateway = Gateway::of(&engine).await;
    eventually(DEADLINE, "the diagram has the states of a running run", || async {
        let answered = gateway.get(&format!("/api/v1/runs/{run_id}/diagram")).await;
        let text = answered.text().await.unwrap();
        text.contains("class n2,n4 completed") && text.contains("class n3 running") && text.contains("class n5 pending")
    })
    .await;
    gate.add_permits(1);
    ended(&engine, &run_id).await;
    assert_eq!(gateway.get("/api/v1/runs/nobody/diagram").await.status(), 404);
}
