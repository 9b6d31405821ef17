//! The five paths of a run: the order of the nodes, the number of calls, and the events.

use super::{DynamicScript, QUESTION, Ran, SUMMARY, accepts, counts, plan, review, run, run_with, three_steps};
use crate::run_streams::masked;
use crate::scenarios::{acts, answer, on_both_backends, sales_with};
use crate::support::engine::{Backend, Engine};
use crate::support::script::{Answer, Asked, ScriptedModel, plan as planned};
use serde_json::{Value, json};
use types::event::ReplyKind;
use types::outcome::Outcome;

on_both_backends!(
    s17_happy_path_reviews_once_and_streams_the_answer,
    s17_in_a_session_the_answer_comes_in_chunks_and_one_final,
    s18_retry_path_is_streamed_without_a_second_review,
    s18_replan_refused_streams_what_there_is,
    s19_reject_path_ends_with_the_reason,
    s19_clarify_path_ends_with_the_question,
);

/// The events outside of branches. Events of concurrent branches have no fixed order.
fn in_order(ran: &Ran) -> String {
    let events: Vec<Value> = ran.events.iter().filter(|event| event["branch_id"].is_null()).cloned().collect();
    masked(&events)
}

async fn s17_happy_path_reviews_once_and_streams_the_answer(backend: Backend) {
    let ran = run(backend, DynamicScript::new(three_steps())).await;
    assert_eq!(ran.nodes(), ["store_query", "triage", "orchestrator", "review_executor"]);
    assert_eq!(ran.calls(), counts(&[("triage_plan", 1), ("sub-agent", 3), ("review", 1), ("summary", 1)]));
    assert_eq!(ran.output(), SUMMARY);
    assert_eq!(ran.streamed()["review_executor"], SUMMARY);
    let (review, summary) = (ran.given("review_executor/review"), ran.given("review_executor/summary"));
    for given in [&review, &summary] {
        assert!(
            given.contains(QUESTION) && given.contains("## log_analytics: 错误日志\nlog_analytics 的结果"),
            "{given}"
        );
    }
    let at = |kind: &str, branch: &str| {
        let found = ran.events.iter().position(|event| event["type"] == kind && event["branch_id"] == branch);
        found.unwrap_or_else(|| panic!("{kind} {branch}"))
    };
    let first = ["servicenow", "service_health"];
    let begun = first.map(|branch| at("branch_started", branch)).into_iter().max().unwrap();
    let ended = first.map(|branch| at("branch_completed", branch));
    assert!(begun < ended.into_iter().min().unwrap(), "steps with equal numbers run concurrently");
    assert!(ended.into_iter().max().unwrap() < at("branch_started", "log_analytics"), "groups run in order");
    insta::assert_snapshot!("s17_happy_path", in_order(&ran));
}

async fn s17_in_a_session_the_answer_comes_in_chunks_and_one_final(backend: Backend) {
    let script = DynamicScript::new(three_steps());
    let model = move |asked: &Asked| match asked.schema.as_str() {
        "plan_and_decision" => {
            let flow = acts("processing", "FLOW", "dynamic_ops", &json!({}));
            Answer::json(&planned(json!("您好"), &flow))
        }
        "decision" => Answer::json(&answer("好的")),
        _ => script.answer(asked),
    };
    let engine = Engine::start(backend, ScriptedModel::start(model).await, 1).await;
    engine.apply(sales_with(&json!({"flows": ["dynamic_ops"]}))).await;
    assert_eq!(engine.say("s1", "m-1", QUESTION).await.outcome, Outcome::Flow);
    let said: Vec<_> =
        engine.replies("s1").await.into_iter().filter(|reply| reply.kind != ReplyKind::Greeting).collect();
    let (whole, chunks) = said.split_last().unwrap();
    assert_eq!((whole.kind, whole.text.as_str()), (ReplyKind::Final, SUMMARY));
    assert!(!chunks.is_empty() && chunks.iter().all(|chunk| chunk.kind == ReplyKind::Chunk), "{chunks:?}");
    assert!(chunks.iter().map(|chunk| chunk.seq).eq(0..chunks.len() as u64), "{chunks:?}");
    assert!(chunks.iter().all(|chunk| chunk.stream_id == whole.stream_id && chunk.stream_id.is_some()));
    assert_eq!(
        chunks.iter().map(|chunk| chunk.text.as_str()).collect::<String>(),
        SUMMARY,
        "only the summary is streamed"
    );
}

async fn s18_retry_path_is_streamed_without_a_second_review(backend: Backend) {
    let script = DynamicScript {
        review: review(&["日志原因"]),
        replan: accepts(&[(1, "log_analytics", "支付的错误日志")]),
        ..DynamicScript::new(plan(&[(1, "servicenow", "P1工单")]))
    };
    let ran = run(backend, script).await;
    let nodes = ["store_query", "triage", "orchestrator", "review_executor"];
    assert_eq!(ran.nodes()[..4], nodes);
    assert_eq!(ran.nodes()[4..], ["triage[2]", "orchestrator[2]", "streaming_summary"]);
    let calls = [("triage_plan", 1), ("triage_replan", 1), ("sub-agent", 2), ("review", 1), ("summary", 1)];
    assert_eq!(ran.calls(), counts(&calls));
    assert_eq!((ran.output(), ran.streamed()["streaming_summary"].as_str()), (SUMMARY, SUMMARY));
    assert!(ran.given("triage[2]").contains("日志原因"), "the second plan gets the review");
    let summary = ran.given("streaming_summary");
    for part in [QUESTION, "## servicenow: P1工单\nservicenow 的结果", "## log_analytics: 支付的错误日志\n"]
    {
        assert!(summary.contains(part), "{part}: {summary}");
    }
    insta::assert_snapshot!("s18_retry_path", masked(&ran.events));
}

async fn s18_replan_refused_streams_what_there_is(backend: Backend) {
    let script = DynamicScript {
        review: review(&["日志原因"]),
        ..DynamicScript::new(plan(&[(1, "servicenow", "P1工单")]))
    };
    let ran = run(backend, script).await;
    let nodes = ["store_query", "triage", "orchestrator", "review_executor", "triage[2]", "streaming_summary"];
    assert_eq!(ran.nodes(), nodes);
    let calls = [("triage_plan", 1), ("triage_replan", 1), ("sub-agent", 1), ("review", 1), ("summary", 1)];
    assert_eq!(ran.calls(), counts(&calls));
    assert_eq!((ran.output(), ran.streamed()["streaming_summary"].as_str()), (SUMMARY, SUMMARY));
    assert!(ran.given("streaming_summary").contains("servicenow 的结果"));
    insta::assert_snapshot!("s18_replan_refused", masked(&ran.events));
}

async fn s19_reject_path_ends_with_the_reason(backend: Backend) {
    let ran = run(backend, DynamicScript::new(json!({"action": "reject", "reject_reason": "我只处理运维问题"}))).await;
    assert_eq!(ran.nodes(), ["store_query", "triage", "reject_query"]);
    assert_eq!((ran.calls(), ran.output()), (counts(&[("triage_plan", 1)]), "我只处理运维问题"));
    insta::assert_snapshot!("s19_reject_path", masked(&ran.events));
}

async fn s19_clarify_path_ends_with_the_question(backend: Backend) {
    let asks = json!({"action": "clarify", "plan_reason": "哪个服务？"});
    let ran = run_with(backend, move |_| Answer::json(&asks)).await;
    assert_eq!(ran.nodes(), ["store_query", "triage", "clarify_executor"]);
    assert_eq!((ran.calls(), ran.output()), (counts(&[("triage_plan", 1)]), "哪个服务？"));
    insta::assert_snapshot!("s19_clarify_path", masked(&ran.events));
}
