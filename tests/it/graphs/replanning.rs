//! Replans at the quiet point: the kept results, the nodes that run again, and their keys.

use super::{
    called, decisions, edge, engine, http, is_replan, output, prompts, recovers, register, replans, run, told,
};
use crate::scenarios::on_both_backends;
use crate::support::engine::Backend;
use commands::runs::NewRun;
use serde_json::{Value, json};
use types::run::RunStatus;

on_both_backends!(
    an_invalid_recovery_leads_to_a_replan,
    a_replan_waits_for_slower_siblings_and_runs_once,
    replans_are_bounded,
    a_run_in_progress_is_drawn_with_its_replan,
    a_run_restarts_from_a_node_of_its_revision,
);

/// The shape of the sales plan: `node_0` to `node_4` in a chain, and `side`, which follows `node_0`, too.
fn plan() -> Value {
    let mut nodes = vec![http("node_0", "zero"), http("side", "side")];
    for n in 1..=4 {
        let mut node = http(&format!("node_{n}"), &format!("{n}"));
        node["config"]["body"] = json!({"of": format!("${{node_{}.output.data}}", n - 1)});
        nodes.push(node);
    }
    let edges: Vec<Value> = (1..=4).map(|n| edge(&format!("node_{}", n - 1), &format!("node_{n}"))).collect();
    let edges = [edges, vec![edge("node_0", "side")]].concat();
    json!({"id": "g", "nodes": nodes, "edges": edges})
}

/// Replaces `node_1` by a node without id, as models write it.
fn changes(asked: &str) -> Value {
    let url = asked.split("\"url\": \"").nth(1).unwrap().split('"').next().unwrap().replace("<\\/", "</");
    let url = url.rsplit_once('/').unwrap().0;
    json!({
        "remove_nodes": ["node_1"],
        "add_nodes": [{"type": "HTTP", "name": "备用", "config": {"url": format!("{url}/spare"), "method": "POST"}}],
        "update_edges": [{"source": "node_0", "target": "spare"}, {"source": "spare", "target": "node_2"}],
    })
}

async fn an_invalid_recovery_leads_to_a_replan(backend: Backend) {
    let engine = engine(backend, |asked| match is_replan(asked) {
        true => replans(&changes(&asked.system)),
        false => recovers("node_1", &json!({"action": "RETRY"})),
    })
    .await;
    engine.api.script(|path, _| if path == "/1" { (503, json!({})) } else { (200, json!({"path": path})) });
    register(&engine, plan()).await;
    let run = run(&engine).await;
    assert_eq!(run.status, RunStatus::Completed, "{run:?}");
    let mut calls = called(&engine);
    calls.sort();
    assert_eq!(calls, ["/1", "/2", "/3", "/4", "/side", "/spare", "/zero"], "nothing that is done is called again");
    assert_eq!(engine.api.calls("/2")[0].body, json!({"of": {"path": "/spare"}}), "references are renamed");
    assert!(prompts(&engine)[1].contains("`recovery_plan.max_attempts` is missing"), "{}", prompts(&engine)[1]);
    let expected = [
        "node_execution_failed -",
        "decision_made error_recovery",
        "decision_rejected error_recovery",
        "decision_made replan_workflow",
        "decision_validated replan_workflow",
    ];
    assert_eq!(told(&engine, &run.run_id).await, expected);
    let steps = engine.store.steps(&run.run_id, &run.run_id).await.unwrap();
    let keys: Vec<&str> = steps.iter().map(|step| step.key.as_str()).collect();
    for key in ["node_0/run", "node_1/failed", "replan[1]", "spare@1/run", "node_2@1/run"] {
        assert!(keys.contains(&key), "{key}: {keys:?}");
    }
    assert!(!keys.contains(&"side@1/run"), "{keys:?}");
}

async fn a_replan_waits_for_slower_siblings_and_runs_once(backend: Backend) {
    let engine = engine(backend, |asked| replans(&changes(&asked.system))).await;
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let held = std::sync::Arc::clone(&gate);
    engine.api.script(move |path, _| match path {
        "/1" => (404, json!({})).into(),
        "/side" => crate::support::api::Answer::Gated(std::sync::Arc::clone(&held), 200, json!({})),
        _ => crate::support::api::Answer::Now(200, json!({"path": path})),
    });
    register(&engine, plan()).await;
    let run_id = super::start(&engine).await;
    engine.start_worker();
    crate::support::eventually(crate::support::engine::DEADLINE, "the replan is decided", || async {
        told(&engine, &run_id).await.contains(&"decision_made replan_workflow".to_owned())
    })
    .await;
    assert!(engine.api.calls("/spare").is_empty(), "a sibling still runs");
    assert!(!told(&engine, &run_id).await.contains(&"decision_validated replan_workflow".to_owned()));
    gate.add_permits(1);
    let run = super::ended(&engine, &run_id).await;
    assert_eq!((run.status, prompts(&engine).len()), (RunStatus::Completed, 1), "{run:?}");
    let mut calls = called(&engine);
    calls.sort();
    assert_eq!(calls, ["/1", "/2", "/3", "/4", "/side", "/spare", "/zero"]);
    let events = decisions(&engine, &run_id).await;
    assert_eq!(events[1]["decision_id"], events[2]["decision_id"], "{events:?}");
}

async fn replans_are_bounded(backend: Backend) {
    let engine = engine(backend, |_| replans(&json!({"remove_nodes": ["nobody"]}))).await;
    engine.api.script(|path, _| if path == "/1" { (404, json!({})) } else { (200, json!({})) });
    register(&engine, plan()).await;
    let run = run(&engine).await;
    let error = run.error.unwrap();
    assert!(error.cause.starts_with("recovery_exhausted: the run has had 3 replans"), "{error:?}");
    assert_eq!((error.path.as_str(), prompts(&engine).len()), ("node_1", 3));
    let rejected = told(&engine, &run.run_id).await;
    assert_eq!(rejected.iter().filter(|event| *event == "decision_rejected replan_workflow").count(), 3);
}

/// The class of a node in a flowchart; `None` if it is not drawn.
fn class(mermaid: &str, node: &str) -> Option<String> {
    let line = mermaid.lines().find(|line| line.contains(&format!("\"{node}<br/>")))?;
    let drawn = line.trim().split('[').next().unwrap();
    let classes = mermaid.lines().filter_map(|line| line.trim().strip_prefix("class ")?.split_once(' '));
    let mut of_node = classes.filter(|(nodes, _)| nodes.split(',').any(|one| one == drawn));
    of_node.next().map(|(_, class)| class.to_owned())
}

async fn a_run_in_progress_is_drawn_with_its_replan(backend: Backend) {
    let engine = engine(backend, |asked| replans(&changes(&asked.system))).await;
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let held = std::sync::Arc::clone(&gate);
    engine.api.script(move |path, _| match path {
        "/1" => (404, json!({})).into(),
        "/2" => crate::support::api::Answer::Gated(std::sync::Arc::clone(&held), 200, json!({})),
        _ => crate::support::api::Answer::Now(200, json!({"path": path})),
    });
    register(&engine, plan()).await;
    let run_id = super::start(&engine).await;
    engine.start_worker();
    let drawn = async || {
        let shown = commands::run_details::diagram(&engine.store, &engine.flows, &run_id).await.unwrap().mermaid;
        ["node_0", "node_1", "side", "spare", "node_2", "node_3"].map(|node| class(&shown, node))
    };
    let states = |of_spare: &str, of_second: &str, of_third: &str| {
        let states = ["completed", "", "completed", of_spare, of_second, of_third];
        states.map(|state| Some(state.to_owned()).filter(|state| !state.is_empty()))
    };
    crate::support::eventually(crate::support::engine::DEADLINE, "node_2 is called", || async {
        !engine.api.calls("/2").is_empty()
    })
    .await;
    assert_eq!(drawn().await, states("completed", "running", "pending"), "the removed node is not drawn");
    gate.add_permits(1);
    super::ended(&engine, &run_id).await;
    assert_eq!(drawn().await, states("completed", "completed", "completed"));
}

async fn a_run_restarts_from_a_node_of_its_revision(backend: Backend) {
    let engine = engine(backend, |asked| replans(&changes(&asked.system))).await;
    engine.api.script(|path, _| if path == "/1" { (404, json!({})) } else { (200, json!({"path": path})) });
    register(&engine, plan()).await;
    let first = run(&engine).await;
    let before = output(&first);
    engine.api.forget();
    let new = NewRun { from_run: Some(first.run_id), from_stage: Some("node_3".into()), ..NewRun::default() };
    let again = commands::runs::start_run(engine.queue.as_ref(), engine.store.as_ref(), new).await.unwrap().run_id;
    let again = super::ended(&engine, &again).await;
    assert_eq!(output(&again), before);
    assert_eq!((called(&engine), prompts(&engine).len()), (vec!["/3".to_owned(), "/4".to_owned()], 1));
}
