//! Requests for runs: their user, their workflow or agent, repeated and concurrent requests.

use super::*;
use crate::gateway::Gateway;
use crate::run_streams::payloads;
use crate::scenarios::{on_both_backends, sales};
use commands::error::CommandError;
use futures::future::join_all;
use types::run::{RunQuery, RunStatus};

on_both_backends!(
    a_task_agent_runs_by_itself,
    a_run_has_a_user,
    a_run_of_one_id_is_asked_for_in_one_way,
    runs_can_be_listed_by_their_ends,
);

async fn asks(engine: &Engine, new: NewRun) -> Result<StartedRun, CommandError> {
    run_commands::start_run(engine.queue.as_ref(), engine.store.as_ref(), new).await
}

async fn a_task_agent_runs_by_itself(backend: Backend) {
    let engine = engine(backend, echo).await;
    engine.apply(sales()).await;
    engine.start_worker();
    let run = ended(&engine, &start(&engine, NewRun::new("a", "问")).await).await;
    assert_eq!((run.status, run.output.as_deref()), (RunStatus::Completed, Some("a(问)")), "{:?}", run.error);
    assert_eq!(run.hash, engine.store.agent("a").await.unwrap().unwrap().hash);
    // A shipped agent, over HTTP.
    let gateway = Gateway::of(&engine).await;
    let events = payloads(&gateway.run("general_agent", &json!({"query": "说说天气"})).await.rest().await);
    let last = events.last().unwrap();
    assert_eq!(last["type"], "run_completed");
    assert!(last["data"]["output"].as_str().unwrap().ends_with("(说说天气)"), "{last}");
    let shown = gateway.json(&format!("/api/v1/runs/{}", run.run_id)).await;
    assert_eq!((&shown["timeline"][0]["runnable"], &shown["timeline"][0]["output"]), (&json!("a"), &json!("a(问)")));
    // The run can be repeated unchanged. An agent that takes chats is not a workflow.
    let again = NewRun { from_run: Some(run.run_id.clone()), ..NewRun::default() };
    assert_eq!(ended(&engine, &start(&engine, again).await).await.output.as_deref(), Some("a(问)"));
    assert_eq!(asks(&engine, NewRun::new("sales", "问")).await.unwrap_err().code, "unknown_workflow");
}

async fn a_run_has_a_user(backend: Backend) {
    let engine = engine(backend, echo).await;
    engine.start_worker();
    let gateway = Gateway::of(&engine).await;
    let body = json!({"query": "问", "user_id": "li-wei"});
    let started: Value = gateway.post("/api/v1/workflows/steps/runs", &body).await.json().await.unwrap();
    let run_id = started["run_id"].as_str().unwrap();
    let run = ended(&engine, run_id).await;
    assert_eq!(run.user_id.as_deref(), Some("li-wei"));
    assert_eq!(gateway.json(&format!("/api/v1/runs/{run_id}")).await["user_id"], "li-wei");
    assert_eq!(engine.session(run_id).await.user_id, "li-wei");
    let again = NewRun { from_run: Some(run_id.to_owned()), ..NewRun::default() };
    assert_eq!(ended(&engine, &start(&engine, again).await).await.user_id.as_deref(), Some("li-wei"));
    let wrong = gateway.post("/api/v1/workflows/steps/runs", &json!({"query": "问", "user_id": "li wei"})).await;
    assert_eq!(wrong.status(), 400);
}

async fn a_run_of_one_id_is_asked_for_in_one_way(backend: Backend) {
    let engine = engine(backend, echo).await;
    let new = |query: &str| NewRun { run_id: Some("r1".into()), ..NewRun::new("steps", query) };
    start(&engine, NewRun { session_id: Some("s1".into()), ..new("问") }).await;
    for other in [
        new("问"),
        NewRun { session_id: Some("s2".into()), ..new("问") },
        NewRun { session_id: Some("s1".into()), user_id: Some("u1".into()), ..new("问") },
        NewRun { session_id: Some("s1".into()), channel: Some("web".into()), ..new("问") },
    ] {
        assert_eq!(asks(&engine, other).await.unwrap_err().code, "run_id_taken");
    }
    assert!(asks(&engine, NewRun { session_id: Some("s1".into()), ..new("问") }).await.is_ok());
    // One of several concurrent requests succeeds, all others are refused.
    let new = |query: String| NewRun { run_id: Some("r2".into()), ..NewRun::new("steps", query) };
    let asked = join_all((0..8).map(|n| asks(&engine, new(format!("问 {n}"))))).await;
    let taken: Vec<usize> = (0..8).filter(|n| asked[*n].is_ok()).collect();
    let [first] = taken[..] else { panic!("{asked:?}") };
    engine.start_worker();
    let run = ended(&engine, "r2").await;
    assert_eq!(run.output.unwrap(), format!("c(b(a(问 {first})))"));
}

async fn runs_can_be_listed_by_their_ends(backend: Backend) {
    let engine = engine(backend, |asked| match asked.user.contains("慢") {
        true => Answer::Hang,
        false => echo(asked),
    })
    .await;
    engine.start_worker();
    let slow = start(&engine, NewRun::new("steps", "慢")).await;
    is_asked(&engine, "a").await;
    let quick = start(&engine, NewRun::new("steps", "快")).await;
    ended(&engine, &quick).await;
    let last = async |status| {
        let query =
            RunQuery { workflow_id: Some("steps".into()), status, by_end: true, limit: 1, ..RunQuery::default() };
        engine.store.runs(query).await.unwrap().pop().map(|run| run.run_id)
    };
    assert_eq!(last(None).await.as_ref(), Some(&quick), "a run in progress has no end");
    run_commands::cancel_run(engine.queue.as_ref(), engine.store.as_ref(), &slow, None, None).await.unwrap();
    ended(&engine, &slow).await;
    assert_eq!((last(None).await, last(Some(RunStatus::Completed)).await), (Some(slow.clone()), Some(quick)));
    let lane = RunQuery { lane: Some(slow.clone()), ..RunQuery::default() };
    let of_lane: Vec<_> = engine.store.runs(lane).await.unwrap().into_iter().map(|run| run.run_id).collect();
    assert_eq!(of_lane, [slow]);
}
