//! `error_recovery` in a conversation: a new run continues a failed one.

use super::plans::{execute, http, node, plan, statuses_of};
use super::*;
use decisions::world::WorkflowStatus;
use types::run::RunRecord;

on_both_backends!(
    s25_a_failed_run_goes_on_from_its_node_with_the_changes,
    a_skipped_node_is_not_called_again,
    an_aborted_recovery_runs_nothing,
    a_recovery_without_a_failed_run_is_told_to_the_model,
    a_recovery_interrupts_the_decisions_behind_it,
);

/// Two calls, of which the second needs the first.
fn report() -> Value {
    let send = http("/down", &json!({"n": "${node_1.output.status}"}));
    plan(&[node("node_1", "HTTP", &http("/sales", &json!({}))), node("node_2", "HTTP", &send)], &[("node_1", "node_2")])
}

#[allow(clippy::needless_pass_by_value, reason = "as a test writes it")]
fn recovery(recovery_plan: Value) -> Value {
    decision(
        "error_recovery",
        json!({
            "workflow_id": "{id}", "failed_node_id": "node_2", "failure_reason": "HTTP 404", "error_code": "HTTP_404",
            "recovery_plan": recovery_plan, "execution_context": {},
        }),
    )
}

async fn runs(engine: &Engine) -> Vec<RunRecord> {
    engine.store.runs(RunQuery { origin_session: Some("s1".into()), ..RunQuery::default() }).await.unwrap()
}

async fn with_failed_run(backend: Backend, then: Vec<Value>) -> Engine {
    let mut answers = vec![answer(&[report()]), answer(&[execute(json!({}))])];
    answers.extend(then);
    let engine = engine_with_ids(backend, answers).await;
    engine.api.script(|path, _| if path == "/down" { (404, json!({})) } else { (200, json!({})) });
    engine
}

async fn s25_a_failed_run_goes_on_from_its_node_with_the_changes(backend: Backend) {
    let changes = json!({"action": "RETRY", "max_attempts": 3, "delay": 0.1, "modifications": {"config.url": "{api}/spare", "config.timeout": 60}});
    let engine = with_failed_run(backend, vec![answer(&[recovery(changes)]), answer(&[respond("好了")])]).await;
    engine.say("s1", "m-1", "做报告").await;
    let runs = runs(&engine).await;
    let (recovered, failed) = (
        runs.iter().find(|run| run.from_run.is_some()).unwrap(),
        runs.iter().find(|run| run.from_run.is_none()).unwrap(),
    );
    assert_eq!((runs.len(), recovered.status, failed.status), (2, RunStatus::Completed, RunStatus::Failed));
    assert_eq!((recovered.from_run.as_ref(), recovered.from_stage.as_deref()), (Some(&failed.run_id), Some("node_2")));
    assert_eq!(engine.api.calls("/sales").len(), 1, "the node before keeps its result");
    assert_eq!(engine.api.calls("/spare")[0].body, json!({"n": 200}));
    assert_eq!(statuses_of(&engine, "s1").await, [WorkflowStatus::Completed]);
    let last = prompts(&engine).pop().unwrap();
    assert!(last.contains("error_recovery: {\"ok\":true"), "{last}");
    let plan = &plans_of(&engine, "s1").await[0];
    assert!(!plan.workflow.document.to_string().contains("/spare"), "the changes are those of one run");
}

async fn a_skipped_node_is_not_called_again(backend: Backend) {
    let engine =
        with_failed_run(backend, vec![answer(&[recovery(json!({"action": "SKIP"}))]), answer(&[respond("跳过了")])])
            .await;
    engine.say("s1", "m-1", "做报告").await;
    let recovered = runs(&engine).await.into_iter().find(|run| run.from_run.is_some()).unwrap();
    assert_eq!(recovered.status, RunStatus::Completed, "{recovered:?}");
    assert_eq!((engine.api.calls("/sales").len(), engine.api.calls("/down").len()), (1, 1));
    assert_eq!(statuses_of(&engine, "s1").await, [WorkflowStatus::Completed]);
}

async fn an_aborted_recovery_runs_nothing(backend: Backend) {
    let engine =
        with_failed_run(backend, vec![answer(&[recovery(json!({"action": "ABORT"}))]), answer(&[respond("算了")])])
            .await;
    engine.say("s1", "m-1", "做报告").await;
    assert_eq!((runs(&engine).await.len(), engine.api.calls("/").len()), (1, 2));
    assert_eq!(statuses_of(&engine, "s1").await, [WorkflowStatus::Failed]);
}

async fn a_recovery_without_a_failed_run_is_told_to_the_model(backend: Backend) {
    let answers = vec![
        answer(&[report()]),
        answer(&[recovery(json!({"action": "MODIFY", "modifications": {"config.timeout": 5}}))]),
        answer(&[respond("没有")]),
    ];
    let engine = engine_with_ids(backend, answers).await;
    engine.say("s1", "m-1", "做报告").await;
    let last = prompts(&engine).pop().unwrap();
    assert!(last.contains("the session has no failed run"), "{last}");
}

async fn a_recovery_interrupts_the_decisions_behind_it(backend: Backend) {
    let again = recovery(json!({"action": "MODIFY", "modifications": {"config.url": "{api}/spare"}}));
    let engine = with_failed_run(backend, vec![answer(&[spawn("报价"), again]), answer(&[respond("好了")])]).await;
    engine.say("s1", "m-1", "做报告").await;
    let rejected =
        decisions(&engine, "s1").await.into_iter().find(|event| event["type"] == "decision_rejected").unwrap();
    assert_eq!((&rejected["decision_type"], &rejected["reason"]), (&json!("spawn_subagent"), &json!("interrupted")));
    assert_eq!(engine.api.calls("/spare").len(), 1);
}
