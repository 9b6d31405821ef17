//! Task agents with a model and tools over real HTTP.

mod bench;
mod reasoning;

use crate::scenarios::on_both_backends;
use crate::support::engine::{Backend, DEADLINE};
use crate::support::eventually;
use crate::support::model_server::{Answer, PLAIN};
use crate::support::model_stream::Stream;
use bench::{Bench, messages, of_agent, streams};
use engine::workflow::orchestration::event::RunEventType::{
    RunCompleted, RunFailed, RunStarted, StepCompleted, StepDelta,
};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use turnwheel::testing::{Script, act, call, say, stream};
use types::step::TokenUsage;

on_both_backends!(a_model_and_its_tools_come_to_an_answer, what_a_killed_worker_has_done_is_not_done_again);

fn clerk() -> Value {
    let order = json!({"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]});
    json!({
        "id": "clerk", "system_prompt": "查询订单 {order_id}。", "max_iterations": 4,
        "tools": [
            {"id": "query_order", "description": "订单在哪", "params": order,
             "http": {"method": "POST", "url": "{api}/orders", "retries": 0}},
            {"id": "count"},
        ]
    })
}

async fn with_count(backend: Backend) -> Bench {
    let mut bench = Bench::of(backend, clerk()).await;
    bench.tools = bench.tools.with("count", |_: engine::action::function::NoParams| async { Ok::<_, String>(7) });
    bench
}

fn two_calls() -> Answer {
    let calls = [("query_order", r#"{"order_id":"A1"}"#), ("count", "")];
    Answer::Calls(calls.map(|(name, arguments)| (name.to_owned(), arguments.to_owned())).to_vec())
}

async fn a_model_and_its_tools_come_to_an_answer(backend: Backend) {
    let bench = with_count(backend).await;
    bench.api.script(|_, _| (200, json!({"status": "已发货"})));
    bench.server.push(PLAIN, [two_calls(), Answer::Stream(Stream::of(["已", "发", "货。"]))]);
    let (end, events) = bench.run("A1 到哪了？").await;
    assert_eq!(end.outcome.unwrap(), "已发货。");
    assert_eq!((end.usage.model_calls, end.usage.tokens), (2, 36));

    let calls = bench.server.calls();
    let said = |at: usize| calls[at].body["messages"].as_array().unwrap().clone();
    let opening = [
        json!({"role": "system", "content": "查询订单 {order_id}。"}),
        json!({"role": "user", "content": "A1 到哪了？"}),
    ];
    assert_eq!(said(0), opening, "no template is applied to the prompt");
    assert_eq!((calls[0].tools(), calls[0].schema()), (vec!["query_order", "count"], PLAIN));
    assert_eq!(calls[0].header("idempotency-key"), "r1/r1/work/0/model");
    let read = |message: &Value| -> (String, Value) {
        let result: Value = serde_json::from_str(message["content"].as_str().unwrap()).unwrap();
        (message["tool_call_id"].as_str().unwrap().to_owned(), result["result"].clone())
    };
    let results: Vec<_> = said(1)[3..].iter().map(read).collect();
    assert_eq!(results, [("call-0-0".into(), json!({"status": "已发货"})), ("call-0-1".into(), json!(7))]);
    assert_eq!(bench.api.calls("/orders")[0].idempotency_key, "r1/r1/work/0/tool[1]");

    let own = of_agent(&events);
    let kinds: Vec<_> = own.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [RunStarted, StepCompleted, StepCompleted, StepCompleted, StepCompleted, RunCompleted]);
    assert_eq!(own[5].data.as_ref().unwrap()["output"], "已发货。");
    let told: Vec<_> = own[1..5].iter().map(|event| event.step_id.as_deref().unwrap()).collect();
    assert_eq!(told, ["r1/work/0/model", "r1/work/0/tool[1]", "r1/work/0/tool[2]", "r1/work/1/model"]);
    let roles: Vec<_> = messages(&events).into_iter().map(|(role, _)| role).collect();
    assert_eq!(roles, ["assistant", "tool", "tool", "assistant"]);
    let wanted = own[1].snapshot.as_ref().unwrap().tool_calls.as_ref().unwrap();
    assert_eq!((wanted.len(), &wanted[0]["function"]["name"]), (2, &json!("query_order")));
    assert!(own[4].snapshot.as_ref().unwrap().tool_calls.is_none());
    assert!(own.iter().all(|event| event.run_id == own[0].run_id && event.run_id != "r1" && event.root_run_id == "r1"));
    assert_eq!(streams(&events).into_iter().map(|(_, text)| text).collect::<Vec<_>>(), ["已发货。"]);

    let steps = bench.steps().await;
    let recorded: Vec<_> =
        steps.iter().map(|step| (step.key.as_str(), step.kind.as_str(), step.target.as_str())).collect();
    assert_eq!(
        recorded,
        [
            ("work/0/model", "model", "default"),
            ("work/0/tool[1]", "tool", "query_order"),
            ("work/0/tool[2]", "tool", "count"),
            ("work/1/model", "model", "default"),
        ]
    );
    let answer = &steps[3];
    assert_eq!((answer.model.as_deref(), answer.attempts), (Some("streamed-1"), Some(1)));
    assert_eq!(answer.tokens, Some(TokenUsage { prompt: 11, completion: 7 }));

    let (again, repeated) = bench.run("A1 到哪了？").await;
    assert_eq!(
        (again.outcome.unwrap(), again.usage),
        ("已发货。".to_owned(), end.usage),
        "a replay has the same result"
    );
    assert_eq!(
        (bench.server.calls().len(), bench.api.calls("/orders").len()),
        (2, 1),
        "a replay calls neither model nor API"
    );
    let ids = |events: &[engine::workflow::orchestration::event::RunEvent]| -> Vec<String> {
        events.iter().filter(|event| event.kind != StepDelta).map(|event| event.event_id.clone()).collect()
    };
    assert_eq!(ids(&repeated), ids(&events));
    assert!(streams(&repeated).is_empty());
}

async fn what_a_killed_worker_has_done_is_not_done_again(backend: Backend) {
    let bench = with_count(backend).await;
    let gate = Arc::new(Semaphore::new(2));
    let stalled = Answer::Stream(Stream::of(["one ", "answer", "."]).gated(&gate));
    bench.server.push(PLAIN, [two_calls(), stalled, Answer::Stream(Stream::of(["another ", "answer"]))]);
    let shown = eventually(DEADLINE, "half of the response is published", || async {
        streams(&bench.told()).iter().any(|(_, text)| text == "one answer")
    });
    bench.run_until("A1?", shown).await;
    let (end, events) = bench.run("A1?").await;
    assert_eq!(end.outcome.unwrap(), "another answer");
    assert_eq!(bench.api.calls("/orders").len(), 1, "the tool's result is recorded");
    let calls = bench.server.calls();
    assert_eq!(calls.len(), 3, "only the unrecorded response is requested again");
    assert_eq!(calls[1].header("idempotency-key"), calls[2].header("idempotency-key"));
    let streams = streams(&events);
    assert_eq!(streams.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>(), ["one answer", "another answer"]);
    let pieces: Vec<_> = events.iter().filter(|event| event.kind == StepDelta).collect();
    let ids: HashSet<_> = pieces.iter().map(|event| event.event_id.as_str()).collect();
    assert_eq!(ids.len(), pieces.len(), "no chunk of the second response counts as a repeat");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_goes_wrong_with_a_tool_is_told_to_the_model() {
    let bench = Bench::embedded(clerk()).await;
    bench.api.script(|_, _| (500, json!({"error": "维护中"})));
    let wrong = [
        ("query_order", r#"{"order_id":"A1"}"#, "HTTP 500"),
        ("query_order", "{}", "order_id"),
        ("query_order", "{\"order", "the arguments are not a JSON object"),
        ("count", "", "no function is registered"),
        ("cancel_order", "{}", "there is no tool `cancel_order`; the tools are: query_order, count"),
    ];
    let calls = wrong.map(|(name, arguments, _)| (name.to_owned(), arguments.to_owned()));
    bench.server.push(PLAIN, [Answer::Calls(calls.to_vec()), Answer::Content("抱歉。".into())]);
    let (end, events) = bench.run("A1?").await;
    assert_eq!(end.outcome.unwrap(), "抱歉。");
    let told = messages(&events);
    for ((_, _, part), (role, content)) in wrong.into_iter().zip(&told[1..]) {
        let result: Value = serde_json::from_str(content).unwrap();
        assert!(*role == "tool" && result["ok"] == false, "{content}");
        assert!(result["error"].as_str().unwrap().contains(part), "{part}: {content}");
    }
    assert!(streams(&events).is_empty(), "a response in one piece has no chunks");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_only_calls_tools_comes_to_an_end() {
    let bench = Bench::embedded(clerk()).await;
    bench.server.script(|_| Some(Answer::call("query_order", &json!({"order_id": "A1"}))));
    let (end, events) = bench.run("A1?").await;
    let failure = end.outcome.unwrap_err();
    assert_eq!(failure.path, "work");
    assert!(
        failure.cause.contains("`clerk` has no answer after 4 rounds") && failure.cause.contains("`max_iterations`")
    );
    assert_eq!((bench.server.calls().len(), bench.api.calls("/orders").len()), (4, 4));
    let last = of_agent(&events).last().map(|event| (event.kind, event.error.clone().unwrap()));
    assert_eq!(last, Some((RunFailed, failure.cause)));
    assert_eq!(events.last().unwrap().kind, RunFailed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_of_the_run_ends_the_conversation() {
    let mut bench = Bench::embedded(clerk()).await;
    bench.limits.max_model_calls = Some(2);
    bench.server.script(|_| Some(Answer::call("query_order", &json!({"order_id": "A1"}))));
    let failure = bench.run("A1?").await.0.outcome.unwrap_err();
    assert!(failure.cause.contains("max_model_calls"), "{failure}");
    assert_eq!(bench.server.calls().len(), 2);
    let mut bench = Bench::embedded(clerk()).await;
    bench.limits.max_tokens = Some(20);
    bench.server.script(|_| Some(Answer::call("query_order", &json!({"order_id": "A1"}))));
    for _ in 0..2 {
        let failure = bench.run("A1?").await.0.outcome.unwrap_err();
        assert!(failure.cause.contains("max_tokens"), "{failure}");
        assert_eq!((bench.server.calls().len(), bench.api.calls("/orders").len()), (2, 1), "a replay counts the same");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_does_not_answer_fails_the_stage() {
    let bench = Bench::embedded(clerk()).await;
    bench.server.script(|_| Some(Answer::status(503, "down")));
    let (end, events) = bench.run("A1?").await;
    assert!(end.outcome.unwrap_err().cause.contains("unavailable after 2 attempts: HTTP 503: down"));
    let kinds: Vec<_> = of_agent(&events).iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [RunStarted, RunFailed]);
    let mut unknown = clerk();
    unknown["model"] = json!("gtp");
    let failure = Bench::embedded(unknown).await.run("A1?").await.0.outcome.unwrap_err();
    assert!(failure.cause.contains("[models.gtp]"), "{failure}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pieces_of_an_answer_that_broke_off_are_replaced() {
    let bench = Bench::embedded(clerk()).await;
    let gate = Arc::new(Semaphore::new(2));
    // The connection breaks after the pieces have arrived.
    let broken = Stream::unfinished(["one ", "half", "?"]).gated(&gate).closed();
    bench.server.push(PLAIN, [Answer::Stream(broken), Answer::Stream(Stream::of(["the ", "whole"]))]);
    let breaks = async {
        eventually(DEADLINE, "a delta is published", || async { !streams(&bench.told()).is_empty() }).await;
        gate.add_permits(10);
    };
    let ((end, events), ()) = tokio::join!(bench.run("A1?"), breaks);
    assert_eq!(end.outcome.unwrap(), "the whole");
    let streams = streams(&events);
    let (first, last) = (&streams[0], streams.last().unwrap());
    assert!(first.1.starts_with("one half") && last.1 == "the whole" && first.0 != last.0, "{streams:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_stream_is_told_in_few_pieces() {
    let bench = Bench::embedded(clerk()).await;
    let words: Vec<String> = (0..300).map(|number| format!("{number} ")).collect();
    let stream = Stream::of(words.iter().map(String::as_str)).slow_by(Duration::from_millis(1));
    bench.server.push(PLAIN, [Answer::Stream(stream)]);
    let begun = std::time::Instant::now();
    let (end, events) = bench.run("count").await;
    let most = begun.elapsed().as_secs_f64() * 20.0 + 2.0;
    let told = events.iter().filter(|event| event.kind == StepDelta).count();
    assert!((1.0..=most).contains(&(told as f64)), "{told} chunks, at most {most}");
    assert_eq!(streams(&events)[0].1, end.outcome.unwrap().trim_end(), "the stream has the whole text");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_offline_model_serves_by_the_rules_of_the_agent() {
    let mut agent = clerk();
    agent["model"] = json!("offline");
    agent["rules"] = json!([
        {"when": {"result_of": "query_order"}, "decide": {"response": "订单{result.status}{error}"}},
        {"when": {"matches": "(?<order_id>A\\d)"}, "decide":
            {"action": {"type": "TOOL", "target": "query_order", "params": {"order_id": "{order_id}"}}}},
    ]);
    let bench = Bench::embedded(agent).await;
    bench.api.script(|_, _| (200, json!({"status": "已发货"})));
    let (end, events) = bench.run("A1 到哪了").await;
    assert_eq!(end.outcome.unwrap(), "订单已发货");
    assert_eq!(bench.api.calls("/orders")[0].body, json!({"order_id": "A1"}));
    assert_eq!(streams(&events).last().unwrap().1, "订单已发货");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_s_script_plays_the_model_of_a_task_agent() {
    let mut bench = with_count(crate::support::backend::embedded().await).await;
    let script = Script::answers([
        call([("count", json!({})), ("query_order", json!({"order_id": "A1"}))]),
        act("TOOL", "count", json!({})),
        stream(["in ", "pieces"]),
        say("whole"),
    ]);
    bench.models = bench.models.with("default", Arc::new(script.clone()));
    let (end, events) = bench.run("A1?").await;
    assert_eq!(end.outcome.unwrap(), "in pieces");
    assert_eq!(streams(&events)[0].1, "in pieces");
    let asked = script.asked();
    assert_eq!((asked.len(), script.left()), (3, 1));
    assert_eq!((asked[0].agent_id.as_str(), asked[0].schema.as_str(), asked[0].message.as_str()), ("clerk", "", "A1?"));
    assert_eq!(asked[0].tools, ["query_order", "count"]);
    assert_eq!(asked[2].last_action, Some(("count".into(), json!({"ok": true, "result": 7}))));
}
