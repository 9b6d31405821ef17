//! Runs in their own lanes: their ends, and how they are resumed.

use super::*;
use crate::scenarios::on_both_backends;
use std::time::Duration;
use storage::queue::Publish;
use storage::store::records::SessionQuery;
use types::cause::Cause;
use types::duration::Text;
use types::outcome::Outcome;
use types::run::{RunQuery, RunStatus};

on_both_backends!(
    a_run_comes_to_its_output,
    a_run_asked_for_twice_is_one,
    a_run_goes_on_where_its_worker_stopped,
    the_time_in_which_nobody_works_on_a_run_is_not_its_own,
    a_failed_run_goes_on_where_it_failed,
    a_cancelled_run_ends_at_once_and_can_go_on,
    a_run_is_repeated_from_a_stage,
    a_run_keeps_the_definitions_that_it_began_with,
    a_run_of_no_workflow_is_given_up_with_the_reason,
    the_lane_of_a_run_takes_no_conversation,
);

async fn a_run_comes_to_its_output(backend: Backend) {
    let engine = engine(backend, echo).await;
    let run_id = start(&engine, NewRun::new("steps", "问")).await;
    let pending = run_of(&engine, &run_id).await;
    assert_eq!((pending.status, pending.query.as_str(), pending.hash.as_str()), (RunStatus::Pending, "问", ""));
    engine.start_worker();
    let run = ended(&engine, &run_id).await;
    assert_eq!((run.status, run.output.as_deref()), (RunStatus::Completed, Some("c(b(a(问)))")), "{:?}", run.error);
    assert_eq!((run.usage.stages, run.usage.model_calls), (3, 3));
    assert_eq!(run.hash, engine.store.workflow("steps").await.unwrap().unwrap().hash);
    assert!(run.started_at >= Some(run.created_at) && run.ended_at >= run.started_at, "{run:?}");
    let events = told(&engine, &run_id, &run_id).await;
    assert_eq!(outermost(&events), [RunEventType::RunStarted, RunEventType::RunCompleted]);
    let last = events.last().unwrap();
    assert_eq!(last.data.as_ref().unwrap()["output"], "c(b(a(问)))");
    assert_once(&events);
    let turn = engine.store.turn(&run_id, &run_id).await.unwrap().unwrap();
    assert_eq!((turn.outcome, turn.statuses.len()), (Outcome::Flow, 0));
    assert!(engine.store.sessions(SessionQuery::default()).await.unwrap().is_empty(), "a run is not a session");
    let listed = engine.store.runs(RunQuery::default()).await.unwrap();
    assert_eq!(listed, [run]);
}

async fn a_run_asked_for_twice_is_one(backend: Backend) {
    let engine = engine(backend, echo).await;
    let new = NewRun { run_id: Some("r1".into()), ..NewRun::new("steps", "问") };
    for _ in 0..3 {
        assert_eq!(start(&engine, new.clone()).await, "r1");
    }
    engine.start_worker();
    ended(&engine, "r1").await;
    assert_eq!(start(&engine, new.clone()).await, "r1");
    let other = NewRun { query: "别的".into(), ..new };
    let refused = run_commands::start_run(engine.queue.as_ref(), engine.store.as_ref(), other).await.unwrap_err();
    assert_eq!(refused.code, "run_id_taken");
    // Even if a client publishes the job without a request.
    let job = json!({"type": "run", "session_id": "r1", "job_id": "again", "workflow_id": "steps", "query": "别的"});
    engine.publish_job("r1", job).await;
    let again =
        eventually(DEADLINE, "the job is processed", || async { engine.store.turn("r1", "again").await.unwrap() });
    assert_eq!(again.await.outcome, Outcome::Noop);
    assert_eq!(asked(&engine), ["a", "b", "c"]);
    let unknown =
        run_commands::start_run(engine.queue.as_ref(), engine.store.as_ref(), NewRun::new("nobody", "问")).await;
    assert_eq!(unknown.unwrap_err().code, "unknown_workflow");
}

async fn a_run_goes_on_where_its_worker_stopped(mut backend: Backend) {
    backend.settings.worker.drain_timeout = Text(Duration::from_millis(50));
    let engine = engine(backend, |asked| if asked.system == "b" { Answer::Hang } else { echo(asked) }).await;
    let worker = engine.start_worker();
    let run_id = start(&engine, NewRun::new("steps", "问")).await;
    is_asked(&engine, "b").await;
    worker.cancel();
    engine.model.script(echo);
    engine.start_worker();
    let run = ended(&engine, &run_id).await;
    assert_eq!(run.output.as_deref(), Some("c(b(a(问)))"));
    assert_eq!(asked(&engine), ["a", "b", "b", "c"], "recorded calls are not repeated");
    let events = told(&engine, &run_id, &run_id).await;
    assert_once(&events);
    assert_eq!(outermost(&events), [RunEventType::RunStarted, RunEventType::RunCompleted]);
}

async fn the_time_in_which_nobody_works_on_a_run_is_not_its_own(mut backend: Backend) {
    const LIMIT: Duration = Duration::from_secs(4);
    backend.settings.worker.drain_timeout = Text(Duration::from_millis(50));
    let engine = engine(backend, |asked| if asked.system == "b" { Answer::Hang } else { echo(asked) }).await;
    let mut limited = steps();
    limited["limits"] = json!({"timeout": "4s"});
    register(&engine, limited).await;
    let worker = engine.start_worker();
    let run_id = start(&engine, NewRun::new("steps", "问")).await;
    is_asked(&engine, "b").await;
    worker.cancel();
    let begun = run_of(&engine, &run_id).await.started_at.unwrap();
    engine.model.script(echo);
    eventually(DEADLINE, "its timeout would have passed", || async { begun.until(clock::now()) > LIMIT }).await;
    engine.start_worker();
    let run = ended(&engine, &run_id).await;
    assert_eq!(run.output.as_deref(), Some("c(b(a(问)))"), "{:?}", run.error);
}

async fn a_failed_run_goes_on_where_it_failed(backend: Backend) {
    let refuses = |asked: &Asked| if asked.system == "b" { Answer::status(418, "scripted") } else { echo(asked) };
    let engine = engine(backend, refuses).await;
    engine.start_worker();
    let run_id = start(&engine, NewRun::new("steps", "问")).await;
    let failed = ended(&engine, &run_id).await;
    let error = failed.error.clone().expect("a failed run has an error");
    assert_eq!(
        (failed.status, error.path.as_str(), failed.output.as_deref()),
        (RunStatus::Failed, "second", None),
        "{error}"
    );
    resume(&engine, &run_id).await;
    let again = ended_after(&engine, &failed).await;
    assert_eq!(again.status, RunStatus::Failed);
    engine.model.script(echo);
    resume(&engine, &run_id).await;
    let run = ended_after(&engine, &again).await;
    assert_eq!((run.output.as_deref(), &run.error), (Some("c(b(a(问)))"), &None));
    assert_eq!(run.created_at, failed.created_at);
    assert_eq!(asked(&engine), ["a", "b", "b", "b", "c"], "only the failed call is repeated");
    let events = told(&engine, &run_id, &run_id).await;
    assert_once(&events);
    let ends = [RunEventType::RunFailed, RunEventType::RunFailed, RunEventType::RunCompleted];
    assert_eq!(outermost(&events)[1..], ends, "each attempt has an end");
    let refused = run_commands::resume_run(engine.queue.as_ref(), engine.store.as_ref(), &run_id).await.unwrap_err();
    assert_eq!(refused.code, "run_not_failed");
}

async fn a_cancelled_run_ends_at_once_and_can_go_on(backend: Backend) {
    let engine = engine(backend, |asked| if asked.system == "b" { Answer::Hang } else { echo(asked) }).await;
    engine.start_worker();
    let run_id = start(&engine, NewRun::new("steps", "问")).await;
    is_asked(&engine, "b").await;
    let (queue, store) = (engine.queue.as_ref(), engine.store.as_ref());
    run_commands::cancel_run(queue, store, &run_id, Some("太慢".into()), Some("op".into())).await.unwrap();
    let run = ended(&engine, &run_id).await;
    assert_eq!((run.status, run.error.unwrap().cause.as_str()), (RunStatus::Cancelled, "operator: op: 太慢"));
    let events = told(&engine, &run_id, &run_id).await;
    assert_eq!(outermost(&events), [RunEventType::RunStarted, RunEventType::RunFailed]);
    assert_eq!(events.last().unwrap().error.as_deref(), Some("operator: op: 太慢"));
    let refused = run_commands::cancel_run(queue, store, &run_id, None, None).await.unwrap_err();
    assert_eq!(refused.code, "run_ended");
    engine.model.script(echo);
    resume(&engine, &run_id).await;
    eventually(DEADLINE, "the run continues to its output", || async {
        ended(&engine, &run_id).await.output.as_deref() == Some("c(b(a(问)))")
    })
    .await;
    assert_eq!(asked(&engine), ["a", "b", "b", "c"]);
}

async fn a_run_is_repeated_from_a_stage(backend: Backend) {
    let engine = engine(backend, echo).await;
    engine.start_worker();
    let source = start(&engine, NewRun::new("steps", "问")).await;
    ended(&engine, &source).await;
    engine.model.script(|asked| Answer::Content(format!("{}/{}", asked.system, asked.user)));
    let from =
        |stage: &str| NewRun { from_run: Some(source.clone()), from_stage: Some(stage.into()), ..NewRun::default() };
    let run_id = start(&engine, from("second")).await;
    let run = ended(&engine, &run_id).await;
    assert_eq!(run.output.as_deref(), Some("c/b/a(问)"), "the first stage is reused: {:?}", run.error);
    assert_eq!((run.from_run.as_deref(), run.from_stage.as_deref()), (Some(source.as_str()), Some("second")));
    assert_eq!((run.workflow_id.as_str(), run.query.as_str()), ("steps", "问"));
    assert_eq!(asked(&engine), ["a", "b", "c", "b", "c"]);
    assert_once(&told(&engine, &run_id, &run_id).await);
    let refused =
        run_commands::start_run(engine.queue.as_ref(), engine.store.as_ref(), from("nowhere")).await.unwrap_err();
    assert!(refused.code == "unknown_stage" && refused.message.contains("first, second, third"), "{refused:?}");
}

async fn a_run_keeps_the_definitions_that_it_began_with(mut backend: Backend) {
    backend.settings.worker.drain_timeout = Text(Duration::from_millis(50));
    let engine = engine(backend, |asked| if asked.system == "b" { Answer::Hang } else { echo(asked) }).await;
    let worker = engine.start_worker();
    let run_id = start(&engine, NewRun::new("steps", "问")).await;
    is_asked(&engine, "b").await;
    worker.cancel();
    register(&engine, json!({"id": "steps", "stages": [{"id": "only", "runnable": "a", "input": "{query}"}]})).await;
    engine.apply(json!({"id": "c", "model": "default", "system_prompt": "another"})).await;
    engine.model.script(echo);
    engine.start_worker();
    assert_eq!(ended(&engine, &run_id).await.output.as_deref(), Some("c(b(a(问)))"));
    let next = start(&engine, NewRun::new("steps", "问")).await;
    assert_eq!(ended(&engine, &next).await.output.as_deref(), Some("a(问)"));
}

async fn a_run_of_no_workflow_is_given_up_with_the_reason(backend: Backend) {
    let engine = engine(backend, echo).await;
    engine.start_worker();
    let job = json!({"type": "run", "session_id": "r1", "job_id": "j1", "workflow_id": "nobody", "query": "问"});
    engine.publish_job("r1", job).await;
    eventually(DEADLINE, "it is a dead letter", || async { !engine.dead_letters().await.is_empty() }).await;
    assert_eq!(engine.dead_letters().await, [(Cause::Invalid, Some("j1".into()))]);
    let letter = engine.queue.dead_letters(0, 1).await.unwrap().remove(0).letter;
    assert!(letter.reason.contains("there is no workflow `nobody`"), "{}", letter.reason);
    assert!(engine.store.session("r1").await.unwrap().is_none());
    // A workflow whose stages cannot run ends as failed.
    register(&engine, json!({"id": "broken", "stages": [{"id": "x", "runnable": "nobody", "input": "{query}"}]})).await;
    let run = ended(&engine, &start(&engine, NewRun::new("broken", "问")).await).await;
    assert_eq!(run.status, RunStatus::Failed);
    assert!(run.error.unwrap().cause.starts_with("Runnable not found: nobody"));
}

async fn the_lane_of_a_run_takes_no_conversation(backend: Backend) {
    let engine = engine(backend, echo).await;
    engine.apply(crate::scenarios::sales()).await;
    engine.start_worker();
    let run_id = start(&engine, NewRun { run_id: Some("r1".into()), ..NewRun::new("steps", "问") }).await;
    ended(&engine, &run_id).await;
    engine.publish("r1", "m-1", "你好").await;
    eventually(DEADLINE, "it is a dead letter", || async { !engine.dead_letters().await.is_empty() }).await;
    assert_eq!(engine.dead_letters().await, [(Cause::Invalid, Some("m-1".into()))]);
    let job = json!({"type": "run", "session_id": "other", "workflow_id": "steps", "query": "问"});
    let payload = serde_json::to_vec(&job).unwrap().into();
    engine.queue.publish(Publish { session_id: "r1".into(), msg_id: None, payload }).await.unwrap();
    eventually(DEADLINE, "so is a job of another lane", || async { engine.dead_letters().await.len() == 2 }).await;
}

/// Waits until the run has ended again.
async fn ended_after(engine: &Engine, before: &RunRecord) -> RunRecord {
    let ended_again = || async {
        let run = ended(engine, &before.run_id).await;
        (run.turn_id != before.turn_id).then_some(run)
    };
    eventually(DEADLINE, "the run ends again", ended_again).await
}
