//! Rules of all paths: limits, corrections, and failures as results.

use super::{DynamicScript, Ran, SUMMARY, accepts, counts, plan, review, run, run_of, run_with, three_steps};
use crate::run_streams::stage;
use crate::scenarios::on_both_backends;
use crate::support::backend;
use crate::support::engine::Backend;
use crate::support::script::{Answer, Asked};
use definitions::workflow::read;
use serde_json::{Value, json};

on_both_backends!(
    later_groups_see_what_earlier_ones_found,
    a_newer_result_replaces_the_older_one,
    a_sub_agent_that_fails_is_a_result,
    an_activation_limit_ends_with_what_there_is,
);

/// A model with this response at one stage, and the script's responses elsewhere.
fn at(
    wanted: &'static str,
    answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    script: DynamicScript,
) -> impl Fn(&Asked) -> Answer + Send + Sync + 'static {
    move |asked| if stage(asked) == wanted { answer(asked) } else { script.answer(asked) }
}

/// The shipped workflow with changed fields, as `own`.
fn own(fields: &Value) -> Value {
    let shipped = read::builtin().into_iter().filter_map(|(_, workflow)| workflow.ok());
    let mut document =
        shipped.map(|workflow| workflow.document).find(|document| document["id"] == "dynamic_ops").unwrap();
    document["id"] = json!("own");
    for (name, value) in fields.as_object().unwrap() {
        document[name] = value.clone();
    }
    document
}

async fn own_run(backend: Backend, script: DynamicScript, fields: &Value) -> Ran {
    run_of(backend, move |asked| script.answer(asked), "own", Some(own(fields))).await
}

async fn later_groups_see_what_earlier_ones_found(backend: Backend) {
    let ran = run(backend, DynamicScript::new(three_steps())).await;
    assert_eq!(ran.given("orchestrator/servicenow"), "P1工单", "the first group gets only its question");
    let later = ran.given("orchestrator/log_analytics");
    assert!(later.starts_with("错误日志\n\n<results>\n## servicenow: P1工单\nservicenow 的结果"), "{later}");
    assert!(later.contains("service_health 的结果"), "{later}");
}

async fn a_newer_result_replaces_the_older_one(backend: Backend) {
    let script = DynamicScript {
        review: review(&["日志"]),
        replan: accepts(&[(1, "servicenow", "P1工单"), (1, "servicenow", "P2工单")]),
        ..DynamicScript::new(plan(&[(1, "servicenow", "P1工单")]))
    };
    let ran = run_with(backend, at("orchestrator[2]/servicenow", |_| Answer::Content("新的".into()), script)).await;
    let summary = ran.given("streaming_summary");
    assert!(summary.contains("## servicenow: P1工单\n新的\n\n## servicenow: P2工单\nservicenow-2 的结果"), "{summary}");
    assert_eq!(summary.matches("P1工单\n").count(), 1, "{summary}");
    assert!(ran.given("orchestrator[2]/servicenow").contains("servicenow 的结果"), "the earlier result is given");
}

async fn a_sub_agent_that_fails_is_a_result(backend: Backend) {
    let fails = at("orchestrator/servicenow", |_| Answer::status(418, "scripted"), DynamicScript::new(three_steps()));
    let ran = run_with(backend, fails).await;
    assert_eq!(ran.output(), SUMMARY);
    let failed = ran.output_of("orchestrator/servicenow");
    assert!(failed["error"].as_str().unwrap().contains("418") && failed["data"]["output"] == "", "{failed}");
    let (review, next) = (ran.given("review_executor/review"), ran.given("orchestrator/log_analytics"));
    for given in [&review, &next] {
        assert!(given.contains("## servicenow: P1工单\nerror: ") && given.contains("418"), "{given}");
    }
}

async fn an_activation_limit_ends_with_what_there_is(backend: Backend) {
    let script = DynamicScript {
        review: review(&["日志"]),
        replan: accepts(&[(1, "log_analytics", "x")]),
        ..DynamicScript::new(plan(&[(1, "servicenow", "P1工单")]))
    };
    let ran = own_run(backend, script, &json!({"max_iterations": 5})).await;
    let nodes = ["store_query", "triage", "orchestrator", "review_executor", "triage[2]", "streaming_summary"];
    assert_eq!(ran.nodes(), nodes, "the sixth node would be the orchestrator");
    assert_eq!(ran.output(), format!("{SUMMARY}\n\n（已达到 5 个节点的上限，以上是目前的结果，可能不完整。）"));
    assert!(ran.given("streaming_summary").contains("<note>"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_before_any_result_says_so_without_asking_anybody() {
    let ran =
        own_run(backend::embedded().await, DynamicScript::new(three_steps()), &json!({"max_iterations": 2})).await;
    assert_eq!(ran.nodes(), ["store_query", "triage", "streaming_summary"]);
    assert_eq!(ran.calls(), counts(&[("triage_plan", 1)]));
    assert!(ran.output().contains("还没有结果"), "{}", ran.output());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_longest_way_fits_the_limit() {
    let script = DynamicScript {
        review: review(&["日志"]),
        replan: accepts(&[(1, "log_analytics", "x")]),
        ..DynamicScript::new(plan(&[(1, "servicenow", "P1工单")]))
    };
    let ran = own_run(backend::embedded().await, script, &json!({"max_iterations": 7})).await;
    assert_eq!((ran.nodes().len(), ran.output()), (7, SUMMARY));
}

/// A model with these two plans.
fn plans(first: Value, second: Value) -> impl Fn(&Asked) -> Answer + Send + Sync + 'static {
    move |asked| match (asked.schema.as_str(), asked.index) {
        ("triage_plan", 0) => Answer::json(&first),
        ("triage_plan", _) => Answer::json(&second),
        _ => DynamicScript::new(Value::Null).answer(asked),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_that_cannot_be_used_is_corrected_once() {
    let unknown = plan(&[(1, "cmdb", "x")]);
    let ran = run_with(backend::embedded().await, plans(unknown, three_steps())).await;
    assert_eq!(ran.output(), SUMMARY);
    assert_eq!(ran.calls()["triage_plan"], 2);
    let asked = ran.engine.model.asked();
    let correction = &asked.iter().find(|asked| asked.index == 1).unwrap().user;
    assert!(correction.contains("there is no `cmdb`; known are `servicenow`"), "{correction}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_that_stays_unusable_rejects_the_question() {
    for (bad, part) in [(plan(&[]), "`plan` is empty"), (plan(&[(1, "cmdb", "x")]), "`cmdb`"), (json!([1]), "a list")] {
        let ran = run(backend::embedded().await, DynamicScript::new(bad)).await;
        assert_eq!(ran.nodes(), ["store_query", "triage", "reject_query"]);
        assert_eq!(ran.calls(), counts(&[("triage_plan", 2)]));
        assert!(ran.output().contains("没能为这个请求制定计划") && ran.output().contains(part), "{}", ran.output());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_agent_whose_model_does_not_answer_fails_the_run() {
    let fails = at("triage", |_| Answer::status(418, "scripted"), DynamicScript::new(three_steps()));
    let ran = run_with(backend::embedded().await, fails).await;
    assert_eq!(ran.last()["type"], "run_failed");
    assert!(ran.last()["error"].as_str().unwrap().starts_with("triage: "), "{}", ran.last());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_that_nobody_can_judge_are_told() {
    let scripted = || DynamicScript::new(plan(&[(1, "servicenow", "x")]));
    let words = at("review_executor/review", |_| Answer::Content("看起来不错".into()), scripted());
    let ran = run_with(backend::embedded().await, words).await;
    assert_eq!((ran.output(), ran.calls()["review"]), (SUMMARY, 2), "one correction of the review");
    let fails = at("review_executor/review", |_| Answer::status(418, "scripted"), scripted());
    let ran = run_with(backend::embedded().await, fails).await;
    assert_eq!((ran.output(), ran.calls()["review"]), (SUMMARY, 1));
    assert_eq!(ran.nodes().last(), Some(&"review_executor"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replan_that_cannot_be_used_leaves_the_results_as_they_are() {
    let unknown = json!({"accept_review": true, "new_plan": [{"step": 1, "agent": "cmdb", "question": "x"}]});
    let script = DynamicScript {
        review: review(&["日志"]),
        replan: unknown,
        ..DynamicScript::new(plan(&[(1, "servicenow", "x")]))
    };
    let ran = run(backend::embedded().await, script).await;
    assert_eq!((ran.output(), ran.calls()["triage_replan"]), (SUMMARY, 2));
    assert_eq!(ran.nodes()[4..], ["triage[2]", "streaming_summary"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_role_asks_its_own_model() {
    use crate::support::engine::scripted;
    use crate::support::script::ScriptedModel;
    let fast = ScriptedModel::start(|_| Answer::json(&review(&[]))).await;
    let mut backend = backend::embedded().await;
    backend.settings.models.insert("fast".into(), scripted(&fast));
    let role = json!({"agent": "ops_review_agent", "model": "fast"});
    let ran = own_run(backend, DynamicScript::new(three_steps()), &json!({"review": role})).await;
    assert_eq!((ran.output(), fast.asked().len()), (SUMMARY, 1));
    assert_eq!(ran.calls(), counts(&[("triage_plan", 1), ("sub-agent", 3), ("summary", 1)]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dynamic_workflow_is_a_stage_like_any_other_and_its_agents_may_be_workflows() {
    let within = json!({"type": "pipeline", "id": "within", "stages": [{"id": "look", "runnable": "servicenow_agent", "input": "看：{query}"}]});
    let agents = json!([{"name": "servicenow", "runnable": within, "description": "工单"}]);
    let dynamic = own(&json!({"agents": agents}));
    let document = json!({"id": "outer", "stages": [{"id": "ops", "runnable": dynamic, "input": "{query}"}]});
    let script = DynamicScript::new(plan(&[(1, "servicenow", "P1工单")]));
    let ran = run_of(backend::embedded().await, move |asked| script.answer(asked), "outer", Some(document)).await;
    assert_eq!(ran.output(), SUMMARY);
    assert_eq!(ran.given("ops/orchestrator/servicenow/look"), "看：P1工单");
    assert_eq!(ran.nodes()[..3], ["ops", "ops/store_query", "ops/triage"]);
    assert_eq!(ran.streamed()["ops/review_executor"], SUMMARY);
}
