//! Agents with `mode: coordinator`: their decisions are judged, reported and carried out one at a time.

mod background;
mod crashes;
mod given_up;
mod killed;
mod large;
mod plans;
mod recoveries;
mod sales_plan;
mod tasks;

use crate::scenarios::{acts, on_both_backends, sales_with};
use crate::support::engine::{Backend, Engine};
use crate::support::script::{Answer, Asked, ScriptedModel};
use ::commands::session_decisions::session_decisions;
use definitions::workflow::session_plan::SessionPlan;
use engine::action::http::{HttpCaller, SecretFill};
use engine::execution::Services;
use futures::{StreamExt, future};
use sandbox::Sandbox;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use storage::queue::{From, StreamEvent};
use types::event::{Event, EventType, ReplyKind};
use types::outcome::Outcome;
use types::run::{RunQuery, RunStatus};
use types::session::Status;

on_both_backends!(
    s23_a_reply_is_judged_and_sent_with_its_intent,
    s25_an_invalid_decision_goes_back_with_its_errors,
    three_rejections_in_a_row_end_in_an_apology,
    an_answer_that_cannot_be_read_ends_in_an_apology,
    a_thought_is_on_no_stream_and_leads_on,
    thoughts_without_progress_end_the_turn,
    a_sub_agent_works_before_the_reply,
    s25_a_task_of_a_sub_agent_is_checked_and_has_a_run_of_its_own,
    a_reply_that_was_written_before_a_result_is_superseded,
    a_sub_agent_that_fails_or_takes_too_long_is_told_to_the_model,
    secrets_are_masked_in_the_events_of_decisions,
    recorded_decisions_are_listed_and_judged_again,
    a_coordinator_hands_off_like_any_agent,
);

/// A decision in the form of the model's answer.
fn decision(kind: &str, mut payload: Value) -> Value {
    payload["action_type"] = json!(kind);
    json!({"decision_type": kind, "confidence": 0.9, "payload": payload})
}

fn answer(decisions: &[Value]) -> Value {
    json!({"reasoning": "因为", "intent": null, "decisions": decisions, "action": null})
}

fn respond(text: &str) -> Value {
    decision("respond", json!({"response": text, "intent": "simple_query", "confidence": 0.9}))
}

fn spawn(query: &str) -> Value {
    decision("spawn_subagent", json!({"subagent_type": "researcher", "task_payload": {"query": query}}))
}

/// Returns the answers to a coordinator's questions in order, and repeats the last one. Other agents echo.
fn script(answers: Vec<Value>) -> impl Fn(&Asked) -> Answer + Send + Sync + 'static {
    let place = AtomicUsize::new(0);
    move |asked| {
        let next = || answers[place.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1)].clone();
        match asked.schema.as_str() {
            "plan_and_conversation_decision" => Answer::json(&json!({"plan": {"greeting": "您好"}, "answer": next()})),
            "conversation_decision" => Answer::json(&next()),
            _ => Answer::Content(format!("查到了：{}", asked.user)),
        }
    }
}

fn coordinator() -> Value {
    let input = json!({"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]});
    sales_with(&json!({
        "mode": "coordinator", "greeting": null,
        "subagents": [{"type": "researcher", "runnable": "searcher", "description": "查资料", "input": input, "timeout": "30s"}],
    }))
}

/// An engine whose coordinator decides as scripted.
async fn engine(backend: Backend, answers: Vec<Value>) -> Engine {
    let engine = Engine::watching(backend, ScriptedModel::start(script(answers)).await).await;
    engine.apply(json!({"id": "searcher", "model": "default", "system_prompt": "查资料"})).await;
    engine.apply(coordinator()).await;
    engine.start_worker();
    engine
}

/// A script whose further answers depend on the prompt: `{id}` in an answer becomes the id of the session's first plan.
fn with_ids(answers: Vec<Value>) -> impl Fn(&Asked) -> Answer + Send + Sync + 'static {
    let place = AtomicUsize::new(0);
    move |asked| {
        if !asked.schema.ends_with("conversation_decision") {
            return Answer::Content(format!("答：{}", asked.user));
        }
        if asks_about_run(&asked.system) {
            return Answer::json(&answer(&[abort(&asked.system)]));
        }
        let next = answers[place.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1)].to_string();
        let next: Value = serde_json::from_str(&next.replace("{id}", &plan_id(&asked.system))).unwrap();
        match asked.schema.as_str() {
            "conversation_decision" => Answer::json(&next),
            _ => Answer::json(&json!({"plan": {"greeting": "您好"}, "answer": next})),
        }
    }
}

/// True for the question of a run whose node has failed.
fn asks_about_run(prompt: &str) -> bool {
    prompt.contains("You coordinate a workflow that runs now.")
}

/// The decision that ends a run whose node has failed.
fn abort(prompt: &str) -> Value {
    let failures = prompt.split("<failures>").nth(1).unwrap();
    let node = failures.split("\"node_id\": \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    let payload = json!({"workflow_id": plan_id(prompt), "failed_node_id": node, "failure_reason": "没有办法",
        "recovery_plan": {"action": "ABORT"}, "execution_context": {}});
    decision("error_recovery", payload)
}

/// The id of the first plan in a prompt; empty without one.
fn plan_id(prompt: &str) -> String {
    let ids = prompt.match_indices('w').filter_map(|(at, _)| prompt.get(at..at + 33));
    let mut ids = ids.filter(|id| id[1..].chars().all(|digit| digit.is_ascii_hexdigit()));
    ids.next().unwrap_or_default().to_owned()
}

/// An engine whose coordinator decides as scripted by [`with_ids`]. `{api}` in an answer is the address of the API.
async fn engine_with_ids(backend: Backend, answers: Vec<Value>) -> Engine {
    let engine = Engine::watching(backend, ScriptedModel::start(|_| Answer::Hang).await).await;
    let answers = json!(answers).to_string().replace("{api}", &engine.api.base_url);
    engine.model.script(with_ids(serde_json::from_str(&answers).unwrap()));
    engine.apply(coordinator()).await;
    engine.start_worker();
    engine
}

/// The plans of the session, the last used first.
async fn plans_of(engine: &Engine, session_id: &str) -> Vec<SessionPlan> {
    engine.store.plans_of(session_id).await.unwrap()
}

/// The events of decisions, in order.
async fn decisions(engine: &Engine, session_id: &str) -> Vec<Value> {
    let events = engine.events(session_id).await;
    let decisions = events.into_iter().filter_map(|event| match event {
        Event::Decision(decision) => Some(decision),
        _ => None,
    });
    decisions.collect()
}

/// The types of the decision events, with the type of the decision.
async fn told(engine: &Engine, session_id: &str) -> Vec<String> {
    let events = decisions(engine, session_id).await;
    let name =
        |event: &Value| format!("{} {}", event["type"].as_str().unwrap(), event["decision_type"].as_str().unwrap());
    events.iter().map(name).collect()
}

/// The prompts of the conversation's questions.
fn prompts(engine: &Engine) -> Vec<String> {
    let asked = engine.model.asked();
    asked
        .into_iter()
        .filter(|asked| asked.schema.ends_with("conversation_decision") && !asks_about_run(&asked.system))
        .map(|asked| asked.system)
        .collect()
}

async fn s23_a_reply_is_judged_and_sent_with_its_intent(backend: Backend) {
    let greeting = decision("respond", json!({"response": "您好！", "intent": "greeting", "confidence": 1.5}));
    let engine = engine(backend, vec![answer(&[greeting]), answer(&[respond("不客气")])]).await;
    let turn = engine.say("s1", "m-1", "你好").await;
    assert_eq!(turn.outcome, Outcome::Answered);
    let statuses: Vec<Status> = turn.statuses.iter().map(|at| at.status).collect();
    assert_eq!(statuses, [Status::Acknowledged, Status::Processing, Status::Typing, Status::Ready]);
    let reply = engine.replies("s1").await.pop().unwrap();
    assert_eq!((reply.kind, reply.text.as_str()), (ReplyKind::Response, "您好！"));
    assert_eq!((&reply.metadata["intent"], &reply.metadata["confidence"]), (&json!("greeting"), &json!(1.0)));
    let events = decisions(&engine, "s1").await;
    assert_eq!(told(&engine, "s1").await, ["decision_made respond", "decision_validated respond"]);
    assert_eq!(events[0]["decision_id"], events[1]["decision_id"]);
    assert_eq!((&events[0]["turn_id"], &events[0]["schema_version"]), (&json!("m-1"), &json!(1)));
    assert_eq!(
        events[1]["corrections"],
        json!([{"path": "confidence", "from": 1.5, "to": 1.0, "rule": "range"}]),
        "{events:?}"
    );
    engine.say("s1", "m-2", "谢谢").await;
    assert_eq!(prompts(&engine).len(), 2, "one question for each turn");
}

async fn s25_an_invalid_decision_goes_back_with_its_errors(backend: Backend) {
    let blank = decision("respond", json!({"response": " ", "intent": "chitchat", "confidence": 0.5}));
    let engine = engine(backend, vec![answer(&[blank]), answer(&[respond("好的")])]).await;
    engine.say("s1", "m-1", "你好").await;
    let expected =
        ["decision_made respond", "decision_rejected respond", "decision_made respond", "decision_validated respond"];
    assert_eq!(told(&engine, "s1").await, expected);
    let rejected = decisions(&engine, "s1").await.remove(1);
    assert_eq!((&rejected["attempt"], &rejected["reason"]), (&json!(1), &json!("invalid")));
    let errors: Vec<&str> =
        rejected["errors"].as_array().unwrap().iter().map(|error| error.as_str().unwrap()).collect();
    assert!(errors.iter().any(|error| error.contains("`response`")), "{errors:?}");
    assert!(errors.iter().any(|error| error.contains("`intent`")), "{errors:?}");
    let second = &prompts(&engine)[1];
    assert!(errors.iter().all(|error| second.contains(error)), "{second}");
    let said: Vec<String> = engine.said("s1").await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(said, ["您好", "好的"]);
}

async fn three_rejections_in_a_row_end_in_an_apology(backend: Backend) {
    let blank = answer(&[decision("respond", json!({"response": ""}))]);
    let engine = engine(backend, vec![blank.clone(), blank.clone(), blank, answer(&[respond("在的")])]).await;
    let turn = engine.say("s1", "m-1", "你好").await;
    assert_eq!((turn.outcome, turn.statuses.last().unwrap().status), (Outcome::Answered, Status::Ready));
    assert!(turn.reason.as_deref().unwrap().starts_with("decision_rejected: "), "{turn:?}");
    let kinds: Vec<ReplyKind> = engine.said("s1").await.into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [ReplyKind::Greeting, ReplyKind::Apology]);
    let attempts: Vec<Value> = decisions(&engine, "s1").await.iter().map(|event| event["attempt"].clone()).collect();
    assert_eq!(attempts.into_iter().filter(|attempt| !attempt.is_null()).collect::<Vec<_>>(), [1, 2, 3]);
    let next = engine.say("s1", "m-2", "在吗").await;
    assert_eq!((next.outcome, next.reason), (Outcome::Answered, None));
}

async fn an_answer_that_cannot_be_read_ends_in_an_apology(backend: Backend) {
    let engine = engine(backend, vec![answer(&[respond("您好")]), json!({"decisions": "none"})]).await;
    engine.say("s1", "m-1", "你好").await;
    let turn = engine.say("s1", "m-2", "在吗").await;
    assert_eq!((turn.outcome, turn.statuses.last().unwrap().status), (Outcome::Answered, Status::Ready));
    assert!(turn.reason.as_deref().unwrap().starts_with("decision_rejected: "), "{turn:?}");
    assert_eq!(prompts(&engine).len(), 4, "two corrections are asked for");
}

async fn a_thought_is_on_no_stream_and_leads_on(backend: Backend) {
    let thought = decision("continue", json!({"thought": "先看订单", "next_step": "再看库存", "progress": 0.5}));
    let engine = engine(backend, vec![answer(&[thought]), answer(&[respond("好的")])]).await;
    engine.say("s1", "m-1", "你好").await;
    assert_eq!(told(&engine, "s1").await, ["decision_made respond", "decision_validated respond"]);
    let second = &prompts(&engine)[1];
    assert!(second.contains("先看订单") && second.contains("再看库存"), "{second}");
}

async fn thoughts_without_progress_end_the_turn(backend: Backend) {
    let thought = |progress: f64| answer(&[decision("continue", json!({"thought": "想", "progress": progress}))]);
    let engine = engine(backend, vec![thought(0.1), thought(0.2), thought(0.3), thought(0.3)]).await;
    let turn = engine.say("s1", "m-1", "你好").await;
    assert!(turn.reason.as_deref().unwrap().starts_with("no_progress"), "{turn:?}");
    assert_eq!(prompts(&engine).len(), 6, "three with more progress, and three without");
}

async fn a_sub_agent_works_before_the_reply(backend: Backend) {
    let engine = engine(backend, vec![answer(&[spawn("报价")]), answer(&[respond("查好了")])]).await;
    let turn = engine.say("s1", "m-1", "查报价").await;
    assert_eq!((turn.outcome, &turn.actions[..]), (Outcome::Answered, &["researcher".to_owned()][..]));
    let second = &prompts(&engine)[1];
    assert!(second.contains("\"ok\":true") && second.contains("查到了"), "{second}");
    let task = engine.model.asked().into_iter().find(|asked| asked.system == "查资料").unwrap();
    assert!(task.user.contains(r#"{"task":{"query":"报价"}}"#), "{}", task.user);
    let stream = engine.queue.events("s1", From::After(0)).await.unwrap();
    let types =
        stream.map(|event| event.unwrap()).take_while(|event| future::ready(event.event_type != EventType::Run));
    let before: Vec<_> = types.collect().await;
    let verdict = |event: &StreamEvent| {
        let decoded = Event::decode(event.event_type, &event.payload).unwrap();
        matches!(decoded, Event::Decision(decision) if decision["type"] == "decision_validated")
    };
    assert!(before.iter().any(verdict), "the verdict is published before anything begins");
}

async fn s25_a_task_of_a_sub_agent_is_checked_and_has_a_run_of_its_own(backend: Backend) {
    let with = |fields: Value| {
        let mut payload = json!({"subagent_type": "researcher", "task_payload": {"query": "论文"}});
        payload.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        answer(&[decision("spawn_subagent", payload)])
    };
    let answers = vec![
        with(json!({"task_payload": {"query": 7}})),
        with(json!({"subagent_type": "wizard"})),
        with(json!({"priority": 11, "context_snapshot": {"goal": "综述"}})),
        answer(&[respond("找到了")]),
    ];
    let engine = engine(backend, answers).await;
    engine.say("s1", "m-1", "帮我搜索最新的机器学习论文").await;
    let events = decisions(&engine, "s1").await;
    let errors: Vec<String> = events.iter().filter_map(|event| Some(event.get("errors")?.to_string())).collect();
    assert!(errors[0].contains("task_payload.query") && errors[1].contains("`researcher`"), "{errors:?}");
    let corrections = events.iter().find_map(|event| event.get("corrections")).unwrap();
    assert_eq!((&corrections[0]["path"], &corrections[0]["to"]), (&json!("priority"), &json!(10)));
    let query = RunQuery { origin_session: Some("s1".into()), ..RunQuery::default() };
    let runs = engine.store.runs(query).await.unwrap();
    let [run] = &runs[..] else { panic!("{runs:?}") };
    assert_eq!((run.workflow_id.as_str(), run.prefix.as_str()), ("searcher", "2/researcher"));
    assert_eq!(
        (run.status, run.query.as_str()),
        (RunStatus::Completed, r#"{"context":{"goal":"综述"},"task":{"query":"论文"}}"#)
    );
    assert!(run.output.as_ref().is_some_and(|output| output.contains("查到了")), "{run:?}");
}

async fn a_reply_that_was_written_before_a_result_is_superseded(backend: Backend) {
    let engine = engine(backend, vec![answer(&[respond("猜的"), spawn("报价")]), answer(&[respond("查好了")])]).await;
    engine.say("s1", "m-1", "查报价").await;
    let said: Vec<String> = engine.said("s1").await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(said, ["您好", "查好了"]);
    let expected = [
        "decision_made spawn_subagent",
        "decision_validated spawn_subagent",
        "decision_made respond",
        "decision_rejected respond",
        "decision_made respond",
        "decision_validated respond",
    ];
    assert_eq!(told(&engine, "s1").await, expected);
    assert_eq!(decisions(&engine, "s1").await[3]["reason"], "superseded");
}

async fn a_sub_agent_that_fails_or_takes_too_long_is_told_to_the_model(backend: Backend) {
    let mut short = spawn("报价");
    short["payload"]["timeout"] = json!(0.2);
    let answers = vec![answer(&[short]), answer(&[respond("没查到")])];
    let engine = engine(backend, answers.clone()).await;
    let scripted = script(answers);
    engine.model.script(move |asked| if asked.system == "查资料" { Answer::Hang } else { scripted(asked) });
    let turn = engine.say("s1", "m-1", "查报价").await;
    assert_eq!(turn.outcome, Outcome::Answered);
    let second = &prompts(&engine)[1];
    assert!(second.contains("\"ok\":false"), "{second}");
    let problem = "sub-agent `researcher`: the task took longer than 200ms; give a longer `timeout`";
    assert!(second.contains(problem) && !second.contains("limits.timeout"), "{second}");
}

async fn secrets_are_masked_in_the_events_of_decisions(backend: Backend) {
    let unknown = decision("respond", json!({"response": "x", "intent": "s3cret", "confidence": 0.9}));
    let answers = vec![answer(&[unknown]), answer(&[respond("口令是 s3cret")])];
    let engine = Engine::watching(backend, ScriptedModel::start(script(answers)).await).await;
    engine.apply(coordinator()).await;
    let mask = |text: &str| text.replace("s3cret", "***");
    let secrets = SecretFill::new(Arc::new(|text: &str, _: &str| Ok(text.to_owned())), Arc::new(mask));
    engine.start_worker_with(Services { http: HttpCaller::new(secrets, &[]).unwrap(), ..engine.services() });
    engine.say("s1", "m-1", "你好").await;
    let events = decisions(&engine, "s1").await;
    assert_eq!(events.len(), 4);
    for event in events {
        assert!(!event.to_string().contains("s3cret"), "{event}");
    }
}

async fn recorded_decisions_are_listed_and_judged_again(backend: Backend) {
    let vague = decision("respond", json!({"response": "嗯", "intent": "none", "confidence": 0.9}));
    let sure = decision("respond", json!({"response": "找到了", "intent": "simple_query", "confidence": 1.5}));
    let answers = vec![answer(&[vague]), answer(&[respond("早了"), spawn("报价")]), answer(&[sure])];
    let engine = engine(backend, answers).await;
    engine.say("s1", "m-1", "查报价").await;
    let sandbox = Sandbox::off();
    let listed = async |engine: &Engine, replay| {
        let listed =
            session_decisions(engine.store.as_ref(), &engine.settings, &[], &sandbox, "s1", 50, replay).await.unwrap();
        listed.into_iter().map(|decision| json!(decision)).collect::<Vec<_>>()
    };
    let all = listed(&engine, false).await;
    let short = |one: &Value| {
        [&one["decision_id"], &one["decision_type"], &one["outcome"]].map(|text| text.as_str().unwrap().to_owned())
    };
    let expected = [
        ["m-1/0", "respond", "rejected"],
        ["m-1/1", "spawn_subagent", "valid"],
        ["m-1/2", "respond", "superseded"],
        ["m-1/3", "respond", "valid"],
    ];
    assert_eq!(all.iter().map(short).collect::<Vec<_>>(), expected);
    let events = decisions(&engine, "s1").await;
    for one in &all {
        let made = events.iter().find(|event| event["decision_id"] == one["decision_id"]).unwrap();
        assert_eq!((&made["payload"], &one["now"]), (&one["payload"], &Value::Null));
    }
    assert!(all[0]["errors"][0].as_str().unwrap().starts_with("`intent`"), "{}", all[0]);
    assert_eq!((&all[3]["corrected"]["confidence"], &all[3]["corrections"][0]["from"]), (&json!(1.0), &json!(1.5)));
    let now = |all: &[Value]| all.iter().map(|one| one["now"]["is_valid"].as_bool()).collect::<Vec<_>>();
    assert_eq!(now(&listed(&engine, true).await), [Some(false), Some(true), None, Some(true)]);
    // Without its sub-agent, the agent's decision is not valid any longer.
    let mut changed = coordinator();
    changed["subagents"] = json!([]);
    engine.apply(changed).await;
    assert_eq!(now(&listed(&engine, true).await), [Some(false), Some(false), None, Some(true)]);
}

async fn a_coordinator_hands_off_like_any_agent(backend: Backend) {
    let hands_off = acts("processing", "SYSTEM", "handoff", &json!({"summary": "要人工"}));
    let mut first = answer(&[]);
    first["action"] = hands_off["action"].clone();
    let engine = engine(backend, vec![first]).await;
    let turn = engine.say("s1", "m-1", "转人工").await;
    assert_eq!(turn.outcome, Outcome::Transferred);
    assert_eq!(engine.api.calls("/desk").len(), 1);
}

/// Shared by the tests of interrupted turns.
fn counted(answers: Vec<Value>) -> (Arc<AtomicUsize>, impl Fn(&Asked) -> Answer + Send + Sync + 'static) {
    let (count, scripted) = (Arc::new(AtomicUsize::new(0)), script(answers));
    let counter = Arc::clone(&count);
    let answer = move |asked: &Asked| {
        counter.fetch_add(1, Ordering::SeqCst);
        scripted(asked)
    };
    (count, answer)
}
