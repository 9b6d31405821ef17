//! Which nodes run, when, and with what: no barriers, branches, and references in requests.

use super::*;
use crate::scenarios::on_both_backends;
use crate::support::api::Answer as Called;
use engine::workflow::orchestration::event::RunEventType;
use std::sync::Arc;
use tokio::sync::Semaphore;
use types::run::{NodeState, NodeStatus};

on_both_backends!(
    a_node_starts_as_soon_as_those_before_it_have_ended,
    one_side_of_a_condition_runs_and_the_other_is_skipped,
    references_keep_their_kinds_and_are_escaped_in_urls,
);

fn states(run: &RunRecord) -> Vec<(&str, NodeStatus)> {
    let state = |node: &'_ NodeState| node.status;
    run.graph.as_ref().unwrap().iter().map(|node| (node.node_id.as_str(), state(node))).collect()
}

async fn a_node_starts_as_soon_as_those_before_it_have_ended(backend: Backend) {
    let engine = engine(backend).await;
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    engine.api.script(move |path, _| match path {
        "/c" => Called::Gated(Arc::clone(&held), 200, json!({})),
        _ => Called::Now(200, json!({})),
    });
    let nodes = json!([
        call("a", "a", "1"),
        call("b", "b", "1"),
        call("c", "c", "1"),
        call("d", "d", "1"),
        call("e", "e", "1")
    ]);
    register(&engine, graph(nodes, &[("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("b", "e")])).await;
    let run_id = start(&engine, NewRun { run_id: Some("r1".into()), ..NewRun::new("g", "") }).await;
    let called = async |path: &str| !engine.api.calls(path).is_empty();
    eventually(DEADLINE, "b and c are called together", || async { called("/b").await && called("/c").await }).await;
    let of_e = |event: &RunEvent| event.kind == RunEventType::StageCompleted && event.stage_id.as_deref() == Some("e");
    eventually(DEADLINE, "e does not wait for c", || async { told(&engine, &run_id).await.iter().any(of_e) }).await;
    assert!(!called("/d").await, "d waits for c");
    gate.add_permits(1);
    let run = ended(&engine, &run_id).await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.error);
    let events = told(&engine, &run_id).await;
    let place = |kind: RunEventType, node: &str| {
        let is = |event: &RunEvent| event.kind == kind && event.stage_id.as_deref() == Some(node);
        events.iter().position(is).unwrap_or_else(|| panic!("{node}: {events:#?}"))
    };
    assert!(place(RunEventType::StageCompleted, "e") < place(RunEventType::StageCompleted, "c"));
    assert!(place(RunEventType::StageCompleted, "c") < place(RunEventType::StageStarted, "d"));
    let last = events.last().unwrap();
    assert_eq!((last.kind, last.depth), (RunEventType::RunCompleted, 0));
    assert_eq!(run.revision, Some(0));
    for node in run.graph.unwrap() {
        assert_eq!((node.status, node.attempts, node.kind.as_str()), (NodeStatus::Completed, 1, "HTTP"), "{node:?}");
        assert!(node.ms.is_some() && node.error_code.is_none(), "{node:?}");
    }
}

async fn one_side_of_a_condition_runs_and_the_other_is_skipped(backend: Backend) {
    let engine = engine(backend).await;
    engine.api.script(|path, _| (200, if path == "/a" { json!({"n": 3}) } else { json!({}) }));
    let nodes = json!([
        call("a", "a", "1"),
        node("if", "CONDITION", json!({"expression": "${a.output.data.n} > 5"})),
        call("yes", "yes", "1"),
        call("no", "no", "1"),
        call("after", "after", "1"),
        call("big", "big", "1")
    ]);
    let mut branches = graph(nodes, &[("a", "if"), ("yes", "after")]);
    for edge in [
        json!({"source": "if", "target": "yes", "condition": "true"}),
        json!({"source": "if", "target": "no", "condition": "false"}),
        json!({"source": "a", "target": "big", "condition": "${a.output.data.n} > 5"}),
    ] {
        branches["edges"].as_array_mut().unwrap().push(edge);
    }
    register(&engine, branches).await;
    let run_id = start(&engine, NewRun::new("g", "")).await;
    let run = ended(&engine, &run_id).await;
    use NodeStatus::{Completed, Skipped};
    let expected = [
        ("a", Completed),
        ("if", Completed),
        ("yes", Skipped),
        ("no", Completed),
        ("after", Skipped),
        ("big", Skipped),
    ];
    assert_eq!(states(&run), expected, "{:?}", run.error);
    assert!(engine.api.calls("/yes").is_empty() && engine.api.calls("/after").is_empty());
    let events = told(&engine, &run_id).await;
    let skipped = ["yes", "after", "big"];
    let of_skipped = |event: &&RunEvent| event.stage_id.as_deref().is_some_and(|stage| skipped.contains(&stage));
    assert_eq!(events.iter().find(of_skipped), None, "a skipped node tells nothing");
    let gateway = Gateway::of(&engine).await;
    let shown = gateway.json(&format!("/api/v1/runs/{run_id}")).await;
    let yes = shown["timeline"].as_array().unwrap().iter().find(|stage| stage["path"] == "yes").unwrap();
    assert_eq!(yes["status"], "skipped");
    assert_eq!(
        shown["graph"][2],
        json!({"node_id": "yes", "type": "HTTP", "status": "skipped", "attempts": 0, "ms": null, "error_code": null})
    );
}

async fn references_keep_their_kinds_and_are_escaped_in_urls(backend: Backend) {
    let engine = engine(backend).await;
    engine.api.script(|_, _| (200, json!({"list": [1, {"a": null}], "text": "a/b?c"})));
    let sent = node(
        "b",
        "HTTP",
        json!({"url": "{api}/to/${a.output.data.text}", "method": "POST",
        "body": {"x": "${a.output.data.list}", "y": "n=${a.output.status}", "z": "$${a}"}}),
    );
    register(&engine, graph(json!([call("a", "a", "1"), sent]), &[("a", "b")])).await;
    let run = ended(&engine, &start(&engine, NewRun::new("g", "")).await).await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.error);
    let called = engine.api.calls("/to/").remove(0);
    assert_eq!(called.path, "/to/a%2Fb%3Fc");
    assert_eq!(called.body, json!({"x": [1, {"a": null}], "y": "n=200", "z": "${a}"}));
}
