//! Workflows with a stage that asks: the run waits, and the answer continues it.

use super::*;
use crate::scenarios::on_both_backends;
use crate::support::engine::{Backend, DEADLINE};
use crate::support::eventually;
use base::clock;
use commands::runs::NewRun;
use definitions::workflow::definition::WorkflowRecord;
use engine::workflow::orchestration::event::{RunEvent, RunEventType};
use engine::workflow::orchestration::timeline::StageStatus;
use lab::invariants;
use std::time::{Duration, Instant};
use types::duration;
use types::job::Command;
use types::outcome::Outcome;
use types::run::{RunQuery, RunRecord, RunStatus};

on_both_backends!(
    a_run_waits_and_the_answer_continues_it,
    a_run_that_is_left_ends_cancelled_and_tells_it_once,
    a_run_that_is_cancelled_leaves_the_session_free,
    questions_side_by_side_are_asked_one_after_the_other,
    a_run_of_its_own_has_nobody_to_ask,
    the_time_of_a_stage_is_not_the_user_s,
);

/// Timeout of a stage that asks, without the user's time. Enough for the step before the question on a slow machine.
const LIMIT: Duration = Duration::from_secs(2);

/// Asks the question in its input.
async fn asks(flow: FlowContext, done: Done) -> Result<String, FlowError> {
    let input = flow.input.clone();
    flow.step("before", &input, |_| noted(&done, format!("before {input}"))).await?;
    let answer = flow.ask(format!("{input}？")).await?;
    Ok(format!("{input}={answer}"))
}

/// Returns after the other branch's question has waited longer than the timeout of its stage.
async fn slow(flow: FlowContext, done: Done) -> Result<String, FlowError> {
    flow.step("work", "", |_| async {
        eventually(DEADLINE, "the other branch asks", || async { !done.all().is_empty() }).await;
        let asked = Instant::now();
        eventually(DEADLINE, "its timeout has passed", || async { asked.elapsed() > LIMIT }).await;
        Ok::<_, String>("done".to_owned())
    })
    .await
}

async fn with(backend: Backend, workflow: Value) -> (Engine, Done) {
    let (mut engine, done) = engine(backend, json!({})).await;
    let seen = done.clone();
    engine.flows = engine.flows.clone().with("asks", move |flow: FlowContext| asks(flow, seen.clone()));
    let seen = done.clone();
    engine.flows = engine.flows.clone().with("slow", move |flow: FlowContext| slow(flow, seen.clone()));
    for id in ["a", "b"] {
        engine.apply(json!({"id": id, "model": "default", "system_prompt": id})).await;
    }
    let workflow = WorkflowRecord::from_document(workflow, clock::now()).unwrap();
    engine.store.put_workflow(workflow).await.unwrap();
    engine.start_worker();
    (engine, done)
}

fn stage(id: &str, runnable: &str, input: &str) -> Value {
    json!({"id": id, "runnable": runnable, "input": input})
}

/// A task agent, a question, another task agent.
fn steps() -> Value {
    json!({"id": "steps", "stages": [stage("first", "a", "{query}"), stage("which", "asks", "哪个"), stage("third", "b", "{first} {which}")]})
}

async fn run(engine: &Engine) -> RunRecord {
    let mut runs = engine.store.runs(RunQuery::default()).await.unwrap();
    assert_eq!(runs.len(), 1, "{runs:?}");
    runs.remove(0)
}

async fn told(engine: &Engine) -> Vec<RunEvent> {
    let told = invariants::run_events(engine.queue.as_ref(), "s1").await.unwrap();
    let mut ids: Vec<_> = told.iter().map(|event| event.event_id.clone()).collect();
    ids.sort_unstable();
    let all = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), all, "no event is published twice");
    told
}

fn outermost(events: &[RunEvent]) -> Vec<RunEventType> {
    events.iter().filter(|event| event.depth == 0 && event.path.is_empty()).map(|event| event.kind).collect()
}

/// Messages in the run's events, with their authors.
fn spoken(events: &[RunEvent]) -> Vec<(String, String)> {
    let said = events.iter().filter_map(|event| event.snapshot.as_ref());
    said.map(|said| (said.role.clone(), said.content.clone())).collect()
}

async fn a_run_waits_and_the_answer_continues_it(backend: Backend) {
    let (engine, done) = with(backend, steps()).await;
    let turn = engine.say("s1", "m-1", "流程").await;
    assert_eq!(turn.outcome, Outcome::Flow);
    let question = last(&engine).await;
    assert_eq!((question.text.as_str(), &question.metadata["flow"]), ("哪个？", &json!("steps")));
    let before = run(&engine).await;
    assert_eq!((before.status, before.ended_at, before.output.as_deref()), (RunStatus::Waiting, None, None));
    assert_eq!((before.usage.stages, before.usage.model_calls), (2, 1));
    assert_eq!(waiting(&engine).await.unwrap().run_id.as_ref(), Some(&before.run_id));
    let shown = commands::run_details::details(&engine.store, &engine.flows, &before.run_id).await.unwrap();
    let stages: Vec<_> = shown.timeline.iter().map(|stage| (stage.path.as_str(), stage.status)).collect();
    assert_eq!(stages, [("first", StageStatus::Completed), ("which", StageStatus::Running)]);
    assert_eq!(shown.run.status, RunStatus::Waiting, "so the running stage waits");
    let events = told(&engine).await;
    assert_eq!(outermost(&events), [RunEventType::RunStarted], "a waiting run has not ended");
    let asking = events.last().unwrap();
    assert_eq!((asking.kind, asking.stage_id.as_deref()), (RunEventType::StepCompleted, Some("which")));
    assert_eq!(asking.data.as_ref().unwrap()["awaits"], "answer");
    let listed = RunQuery { status: Some(RunStatus::Waiting), ..RunQuery::default() };
    assert_eq!(engine.store.runs(listed).await.unwrap().len(), 1);
    let refused =
        commands::runs::resume_run(engine.queue.as_ref(), engine.store.as_ref(), &before.run_id).await.unwrap_err();
    assert_eq!(refused.code, "run_of_turn");

    let turn = engine.say("s1", "m-2", "甲").await;
    assert_eq!(turn.outcome, Outcome::Flow);
    assert_eq!(last_of(&engine, ReplyKind::Final).await, "b(a(流程) 哪个=甲)");
    let after = run(&engine).await;
    assert_eq!((&after.run_id, after.status, &after.turn_id), (&before.run_id, RunStatus::Completed, &before.turn_id));
    assert_eq!((after.usage.stages, after.usage.model_calls, after.started_at), (3, 2, before.started_at));
    assert_eq!(done.all(), ["before 哪个"]);
    let all = told(&engine).await;
    assert_eq!(all[..events.len()], events[..], "the run continues its events");
    assert_eq!(outermost(&all), [RunEventType::RunStarted, RunEventType::RunCompleted]);
    let said = [("assistant", "a(流程)"), ("assistant", "哪个？"), ("user", "甲"), ("assistant", "b(a(流程) 哪个=甲)")];
    assert_eq!(spoken(&all), said.map(|(who, what)| (who.to_owned(), what.to_owned())));
    let agents: Vec<_> = engine.model.asked().into_iter().filter(|asked| asked.schema.is_empty()).collect();
    assert_eq!(agents.len(), 2, "no agent is asked twice");

    // A new run from a later stage reuses the answer.
    let again = NewRun { from_run: Some(after.run_id), from_stage: Some("third".into()), ..NewRun::default() };
    let again = commands::runs::start_run(engine.queue.as_ref(), engine.store.as_ref(), again).await.unwrap();
    eventually(DEADLINE, "the repeated run has ended", || async {
        let run = engine.store.run(&again.run_id).await.unwrap()?;
        (run.output.as_deref() == Some("b(a(流程) 哪个=甲)")).then_some(())
    })
    .await;
    assert_eq!(done.all().len(), 1);
}

async fn a_run_that_is_left_ends_cancelled_and_tells_it_once(backend: Backend) {
    let (engine, _) = with(backend, steps()).await;
    engine.say("s1", "m-1", "流程").await;
    engine.say("s1", "m-2", "取消").await;
    let run = run(&engine).await;
    assert_eq!((run.status, run.ended_at.is_some()), (RunStatus::Cancelled, true));
    assert!(run.error.unwrap().cause.starts_with("left: "));
    assert_eq!(outermost(&told(&engine).await), [RunEventType::RunStarted, RunEventType::RunFailed]);
    assert!(waiting(&engine).await.is_none());
}

async fn a_run_that_is_cancelled_leaves_the_session_free(backend: Backend) {
    let (engine, _) = with(backend, steps()).await;
    for (at, command) in [None, Some(Command::Release)].into_iter().enumerate() {
        engine.say("s1", &format!("a-{at}"), "流程").await;
        let waits = RunQuery { status: Some(RunStatus::Waiting), ..RunQuery::default() };
        let run_id = engine.store.runs(waits).await.unwrap().remove(0).run_id;
        match command {
            None => {
                let by = Some("op".into());
                commands::runs::cancel_run(engine.queue.as_ref(), engine.store.as_ref(), &run_id, None, by)
                    .await
                    .unwrap();
            }
            Some(command) => {
                let order = json!({"type": "control", "session_id": "s1", "job_id": "c-1", "command": command});
                engine.publish_job("s1", order).await;
            }
        }
        let run = eventually(DEADLINE, "the run is cancelled", || async {
            engine.store.run(&run_id).await.unwrap().filter(|run| run.status == RunStatus::Cancelled)
        });
        assert!(run.await.error.unwrap().cause.starts_with("operator"));
        engine.say("s1", &format!("b-{at}"), "甲").await;
        assert_eq!(last_of(&engine, ReplyKind::Response).await, "说：甲");
    }
    let ends = told(&engine).await.iter().filter(|event| event.kind == RunEventType::RunFailed).count();
    assert_eq!(ends, 2);
}

async fn questions_side_by_side_are_asked_one_after_the_other(backend: Backend) {
    let branches = json!([stage("one", "asks", "一"), stage("other", "a", "{query}"), stage("two", "asks", "二")]);
    let both = json!({"id": "both", "type": "parallel", "branches": branches});
    let pipeline = json!({"id": "steps", "stages": [{"id": "all", "runnable": both, "input": "{query}"}]});
    let (engine, done) = with(backend, pipeline).await;
    engine.say("s1", "m-1", "流程").await;
    let first = last_of(&engine, ReplyKind::Final).await;
    let (first, second) = if first == "一？" { ("一", "二") } else { ("二", "一") };
    assert!(
        told(&engine).await.iter().any(|event| {
            event.kind == RunEventType::BranchCompleted && event.branch_id.as_deref() == Some("other")
        }),
        "a branch in parallel with a question completes"
    );
    engine.say("s1", "m-2", "甲").await;
    assert_eq!(last_of(&engine, ReplyKind::Final).await, format!("{second}？"));
    engine.say("s1", "m-3", "乙").await;
    let whole = last_of(&engine, ReplyKind::Final).await;
    assert!(whole.contains(&format!("{first}=甲")) && whole.contains(&format!("{second}=乙")), "{whole}");
    let mut done = done.all();
    done.sort();
    assert_eq!(done, ["before 一", "before 二"]);
    assert_eq!(run(&engine).await.status, RunStatus::Completed);
    assert_eq!(outermost(&told(&engine).await), [RunEventType::RunStarted, RunEventType::RunCompleted]);
}

async fn a_run_of_its_own_has_nobody_to_ask(backend: Backend) {
    let (engine, _) = with(backend, steps()).await;
    let new = NewRun::new("steps", "做");
    let run_id = commands::runs::start_run(engine.queue.as_ref(), engine.store.as_ref(), new).await.unwrap().run_id;
    let run = eventually(DEADLINE, "the run has ended", || async {
        engine.store.run(&run_id).await.unwrap().filter(|run| run.status.has_ended())
    })
    .await;
    let error = run.error.unwrap();
    assert_eq!((run.status, error.path.as_str()), (RunStatus::Failed, "which"));
    assert!(error.cause.contains("belongs to no conversation"), "{}", error.cause);
}

async fn the_time_of_a_stage_is_not_the_user_s(backend: Backend) {
    // The question waits while the other branch works longer than the stage's timeout.
    let mut quick = stage("which", "asks", "哪个");
    quick["timeout"] = duration::format(LIMIT).into();
    let branches = json!([quick, stage("other", "slow", "{query}")]);
    let workflow = json!({"id": "steps", "type": "parallel", "branches": branches});
    let (engine, _) = with(backend, workflow).await;
    engine.say("s1", "m-1", "流程").await;
    assert_eq!(last_of(&engine, ReplyKind::Final).await, "哪个？");
    engine.say("s1", "m-2", "甲").await;
    assert_eq!(last_of(&engine, ReplyKind::Final).await, "[which]:\n哪个=甲\n\n[other]:\ndone");
}
