//! Clients, gateways and workers that disconnect or die during a run: no event is missing or repeated.

use super::{RunEvents, engine, of_type, payloads, register_report, stage, started};
use crate::gateway::{Gateway, data, refusal};
use crate::scenarios::{answer, on_both_backends, sales};
use crate::support::backend::{self, cluster};
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::eventually;
use crate::support::process::Process;
use crate::support::script::{Answer, ScriptedModel, plan};
use serde_json::{Value, json};
use sse_stream::Sse;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::Semaphore;

on_both_backends!(
    a_client_that_leaves_ends_nothing_and_comes_back_where_it_was,
    a_run_of_the_same_id_is_one_run,
    a_stream_goes_on_at_another_gateway,
    a_run_in_a_session_is_told_on_the_session_s_stream,
);

/// A model that responds by the stage. It holds the stage `report` while the gate has no permit.
async fn gated() -> (ScriptedModel, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(1));
    let held = Arc::clone(&gate);
    let model = ScriptedModel::start(move |asked| {
        let answer = Answer::Content(format!("{} 的一段结果", stage(asked)));
        if stage(asked) == "report" { answer.gated(&held) } else { answer }
    })
    .await;
    (model, gate)
}

fn ids(events: &[Sse]) -> Vec<String> {
    events.iter().map(|event| data(event)["event_id"].as_str().unwrap().to_owned()).collect()
}

fn last_id(events: &[Sse]) -> &str {
    events.last().unwrap().id.as_deref().unwrap()
}

/// Event ids without the run's id, which differs between runs, and without deltas, whose number depends on timing.
fn plain(ids: &[String]) -> Vec<&str> {
    ids.iter().map(|id| id.split_once('/').unwrap().1).filter(|id| !id.contains("/step_delta/")).collect()
}

fn is_whole(found: &[String], run_id: &str, whole: &[String]) {
    assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), found.len(), "no event is repeated: {found:#?}");
    assert!(found.iter().all(|id| id.starts_with(run_id)), "{run_id}: {found:?}");
    assert_eq!(plain(found), plain(whole), "no event is missing");
}

async fn run_id_of(gateway: &Gateway, workflow_id: &str) -> Vec<String> {
    let listed = gateway.json(&format!("/api/v1/runs?workflow_id={workflow_id}")).await;
    let runs = listed["runs"].as_array().unwrap().iter();
    runs.map(|run| run["run_id"].as_str().unwrap().to_owned()).collect()
}

async fn a_client_that_leaves_ends_nothing_and_comes_back_where_it_was(backend: Backend) {
    let (model, gate) = gated().await;
    let (engine, gateway) = started(backend, model, 1).await;
    register_report(&engine).await;
    let whole = ids(&gateway.run("report", &json!({"query": "q"})).await.rest().await);
    let path = "/workflows/report/run?query=q";

    gate.acquire().await.unwrap().forget();
    let mut browser = RunEvents::of(gateway.browse(path, None).await);
    let opening = browser.next_block().await.unwrap();
    assert_eq!(opening.data, None, "the first block has an id and no data");
    let run_id = opening.id.unwrap().strip_suffix(":0").unwrap().to_owned();
    let first = browser.until("stage_completed").await;
    assert_eq!(last_id(&first).rsplit_once(':').unwrap().0, run_id);
    drop(browser);

    let mut again = RunEvents::of(gateway.browse(path, Some(last_id(&first))).await);
    let opening = again.next_block().await.unwrap();
    assert_eq!(opening.id.as_deref(), Some(last_id(&first)), "a client that disconnects now resumes at the same event");
    gate.add_permits(1);
    let second = again.rest().await;
    is_whole(&[ids(&first), ids(&second)].concat(), &run_id, &whole);
    assert_eq!(data(second.last().unwrap())["type"], "run_completed");

    let over = gateway.browse(path, Some(last_id(&second))).await;
    assert_eq!(over.status(), 204, "204 stops the browser's reconnects");
    let by_query = format!("{path}&last_event_id={}", last_id(&second));
    assert_eq!(gateway.browse(&by_query, None).await.status(), 204);
    let nothing_seen = RunEvents::of(gateway.browse(path, Some(&format!("{run_id}:0"))).await).rest().await;
    is_whole(&ids(&nothing_seen), &run_id, &whole);
    assert_eq!(run_id_of(&gateway, "report").await.len(), 2, "none of this started a run");

    let other = gateway.browse("/workflows/smart_router/run?query=q", Some(last_id(&first))).await;
    assert_eq!(refusal(other).await, (404, "unknown_run".to_owned()));
    let nonsense = gateway.browse(path, Some("nonsense")).await;
    assert_eq!(refusal(nonsense).await, (400, "invalid_event_id".to_owned()));
}

async fn a_run_of_the_same_id_is_one_run(backend: Backend) {
    let (engine, gateway) = engine(backend, |stage, _| format!("{stage} 的结果")).await;
    register_report(&engine).await;
    let body = json!({"query": "q", "run_id": "run:1"});
    let mut first = gateway.run("report", &body).await;
    let mut second = gateway.run("report", &body).await;
    let (first, second) = (first.rest().await, second.rest().await);
    assert_eq!(ids(&first), ids(&second));
    assert_eq!(data(&first[0])["run_id"], "run:1");
    let late = ids(&gateway.run("report", &body).await.rest().await);
    assert_eq!(late, ids(&first), "the id also counts after the end");
    assert_eq!(engine.model.asked().len(), 2, "each stage was asked once");
    let over = gateway.browse("/workflows/report/run", Some(last_id(&first))).await;
    assert_eq!(over.status(), 204, "an id may have a colon");
}

async fn a_stream_goes_on_at_another_gateway(backend: Backend) {
    let (model, gate) = gated().await;
    let (engine, gateway) = started(backend, model, 1).await;
    register_report(&engine).await;
    let whole = ids(&gateway.run("report", &json!({"query": "q"})).await.rest().await);
    gate.acquire().await.unwrap().forget();
    let mut browser = RunEvents::of(gateway.browse("/workflows/report/run?query=q", None).await);
    let mut first = browser.until("stage_completed").await;
    gateway.stop();
    first.extend(browser.rest().await);
    let restarted = Gateway::of(&engine).await;
    let mut again = RunEvents::of(restarted.browse("/workflows/report/run?query=q", Some(last_id(&first))).await);
    gate.add_permits(1);
    let second = again.rest().await;
    let run_id = data(&first[0])["run_id"].as_str().unwrap().to_owned();
    is_whole(&[ids(&first), ids(&second)].concat(), &run_id, &whole);
}

async fn a_run_in_a_session_is_told_on_the_session_s_stream(backend: Backend) {
    let model = ScriptedModel::start(|asked| match asked.schema.as_str() {
        "plan_and_decision" => Answer::json(&plan(Value::Null, &answer("您好"))),
        _ => Answer::Content(format!("{}：{}", stage(asked), asked.user)),
    })
    .await;
    let (engine, gateway) = started(backend, model, 1).await;
    engine.apply(sales()).await;
    register_report(&engine).await;
    engine.say("s1", "m-1", "你好").await;

    let body = json!({"query": "写报告", "session_id": "s1"});
    let (mut one, mut other) = (gateway.run("report", &body).await, gateway.run("report", &body).await);
    let (one, other) = (one.rest().await, other.rest().await);
    for events in [&one, &other] {
        let roots: BTreeSet<_> = payloads(events).iter().map(|event| event["root_run_id"].to_string()).collect();
        assert_eq!(roots.len(), 1, "only events of its run: {roots:?}");
        assert_eq!(data(events.last().unwrap())["type"], "run_completed");
    }
    assert_eq!(plain(&ids(&one)), plain(&ids(&other)));
    let output = data(one.last().unwrap())["data"]["output"].as_str().unwrap().to_owned();
    for part in ["用户: 你好", "助手: 您好", "当前请求: 写报告"] {
        assert!(output.contains(part), "{part}: {output}");
    }

    let mut session = RunEvents(gateway.events("s1", Some(0)).await.0);
    let mut told = 0;
    while told < one.len() + other.len() {
        let event = session.next().await.unwrap();
        told += usize::from(event.event.as_deref() == Some("run"));
    }
    let listed = gateway.json("/api/v1/runs?session_id=s1").await;
    assert_eq!(listed["runs"].as_array().unwrap().len(), 2);
    let sessions = gateway.json("/api/v1/sessions").await;
    let names: Vec<_> = sessions["sessions"].as_array().unwrap().iter().map(|session| &session["session_id"]).collect();
    assert_eq!(names, ["s1"], "a run is not a session");
}

/// Worker processes, one of which is killed during the second stage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_worker_is_not_seen_in_the_stream() {
    let (model, gate) = gated().await;
    let engine = Engine::watching(cluster().await, model).await;
    let gateway = Gateway::of(&engine).await;
    register_report(&engine).await;
    let dir = tempfile::tempdir().unwrap();
    let _stays = Process::start(dir.path(), &engine.settings, &["worker"]);
    let whole = ids(&gateway.run("report", &json!({"query": "q"})).await.rest().await);
    drop(_stays);

    let first = Process::start(dir.path(), &engine.settings, &["worker"]);
    engine.model.forget();
    gate.acquire().await.unwrap().forget();
    let mut run = gateway.run("report", &json!({"query": "q"})).await;
    // A published event is recorded.
    let mut events = run.until("stage_completed").await;
    eventually(DEADLINE, "the second stage is asked", || async {
        engine.model.asked().iter().any(|asked| stage(asked) == "report")
    })
    .await;
    first.kill();
    gate.add_permits(1);
    let _second = Process::start(dir.path(), &engine.settings, &["worker"]);
    events.extend(run.rest().await);
    let run_id = data(&events[0])["run_id"].as_str().unwrap().to_owned();
    is_whole(&ids(&events), &run_id, &whole);
    let stages: Vec<_> = engine.model.asked().iter().map(stage).collect();
    assert_eq!(stages, ["plan", "report", "report"], "a recorded stage does not run again");
    let done = of_type(&payloads(&events), "run_completed").len();
    assert_eq!(done, 3, "two agents and the workflow");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_another_site_starts_no_run() {
    let (engine, gateway) = engine(backend::embedded().await, |_, _| "好".into()).await;
    register_report(&engine).await;
    let url = format!("{}/workflows/report/run?query=q", gateway.base);
    let picture = gateway.client.get(&url).header("sec-fetch-site", "cross-site").send().await.unwrap();
    assert_eq!(refusal(picture).await, (403, "foreign_page".to_owned()));
    let typed = gateway.client.get(&url).header("sec-fetch-site", "none").send().await.unwrap();
    assert_eq!(RunEvents::of(typed).rest().await.last().map(data).unwrap()["type"], "run_completed");
    assert_eq!(run_id_of(&gateway, "report").await.len(), 1);
}
