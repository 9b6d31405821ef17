//! ASK nodes of runs in a lane of their own: a person answers over HTTP, on the command line or through the engine.

use super::*;
use crate::scenarios::on_both_backends;
use commands::run_answers::{AnsweredRun, NewAnswer, answer_run};
use commands::runs::{cancel_run, rerun_from, resume_run};
use serde_json::Map;

on_both_backends!(
    a_run_asks_and_goes_on_with_the_answer,
    what_is_no_answer_is_refused,
    the_same_answer_twice_is_one_answer,
    of_several_questions_the_first_is_answered_first,
    a_question_is_answered_while_other_nodes_run,
    a_question_without_an_answer_fails_its_node,
    a_cancelled_question_is_asked_again_after_a_resume,
    a_restart_asks_again_from_the_node,
    a_loop_asks_for_each_item,
);

fn ask(id: &str, question: &str) -> Value {
    node(id, "ASK", json!({"question": question, "choices": ["Yes, go on", "取消"]}))
}

/// A question, and a call with its answer.
fn approval() -> Value {
    graph(
        json!([ask("approve", "发布 ${input.what} 吗？"), call("publish", "publish", "${approve.output.answer}")]),
        &[("approve", "publish")],
    )
}

async fn waits(engine: &Engine, run_id: &str) -> RunRecord {
    at_rest(engine, run_id, |status| status == RunStatus::Waiting).await
}

async fn answer(engine: &Engine, run_id: &str, text: &str) -> Result<AnsweredRun, CommandError> {
    answer_run(engine.queue.as_ref(), engine.store.as_ref(), run_id, NewAnswer::new(text)).await
}

fn said(engine: &Engine) -> Vec<Value> {
    engine.api.calls("/publish").into_iter().map(|call| call.body["x"].clone()).collect()
}

async fn a_run_asks_and_goes_on_with_the_answer(backend: Backend) {
    let engine = engine(backend).await;
    register(&engine, approval()).await;
    let gateway = Gateway::of(&engine).await;
    let run_id = start(&engine, NewRun { run_id: Some("r1".into()), ..with_input(json!({"what": "v2"})) }).await;
    waits(&engine, &run_id).await;
    let events = told(&engine, &run_id).await;
    let question = events.iter().find(|event| event.snapshot.is_some()).unwrap();
    assert_eq!(
        (question.stage_id.as_deref(), question.event_id.as_str()),
        (Some("approve"), "r1/approve/ask[1]/question/step_completed")
    );
    assert_eq!(question.snapshot.as_ref().unwrap().content, "发布 v2 吗？");
    let data = question.data.clone().unwrap_or_else(Map::new);
    assert_eq!((&data["awaits"], &data["choices"]), (&json!("answer"), &json!(["Yes, go on", "取消"])));
    let shown = gateway.json("/api/v1/runs/r1").await;
    assert_eq!(shown["status"], "waiting");
    let open = &shown["questions"][0];
    assert_eq!((&open["node"], &open["question"]), (&json!("approve"), &json!("发布 v2 吗？")), "{shown}");
    let answered = gateway.post("/api/v1/runs/r1/answer", &json!({"text": " yes go on! ", "by": "li"})).await;
    assert_eq!(answered.status(), 202);
    let answered: Value = answered.json().await.unwrap();
    let expected = json!({"run_id": "r1", "workflow_id": "g", "node": "approve", "question": "发布 v2 吗？"});
    assert_eq!(answered, expected);
    let run = ended(&engine, &run_id).await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.error);
    assert_eq!(said(&engine), ["Yes, go on"], "a text that says a choice is that choice");
    let events = told(&engine, &run_id).await;
    let ids: Vec<_> = events.iter().map(|event| event.event_id.as_str()).collect();
    let expected = [
        "r1/run_started",
        "r1/approve/stage_started",
        "r1/approve/ask[1]/question/step_completed",
        "r1/approve/ask[1]/step_completed",
        "r1/approve/stage_completed",
        "r1/publish/stage_started",
        "r1/publish/stage_completed",
        "r1/run_completed",
    ];
    assert_eq!(ids, expected);
    assert_eq!(gateway.json("/api/v1/runs/r1").await.get("questions"), None);
}

async fn what_is_no_answer_is_refused(backend: Backend) {
    let engine = Engine::watching(backend, ScriptedModel::start(echo).await).await;
    register(&engine, approval()).await;
    let gateway = Gateway::of(&engine).await;
    let refused = async |run: &str, body: Value| {
        let answered = gateway.post(&format!("/api/v1/runs/{run}/answer"), &body).await;
        let status = answered.status().as_u16();
        (status, answered.json::<Value>().await.unwrap()["error"]["code"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(refused("nobody", json!({"text": "好"})).await, (404, "unknown_run".into()));
    let run_id = start(&engine, with_input(json!({"what": "v2"}))).await;
    assert_eq!(refused(&run_id, json!({"text": "好"})).await, (409, "not_waiting".into()), "before the question");
    engine.start_worker();
    waits(&engine, &run_id).await;
    assert_eq!(refused(&run_id, json!({"text": " \n"})).await, (400, "empty_answer".into()));
    assert_eq!(refused(&run_id, json!({})).await, (400, "invalid_json".into()));
    assert_eq!(refused(&run_id, json!({"text": "好", "node": "publish"})).await, (409, "not_waiting".into()));
    answer(&engine, &run_id, "好").await.unwrap();
    ended(&engine, &run_id).await;
    assert_eq!(refused(&run_id, json!({"text": "好"})).await, (409, "not_waiting".into()), "after the end");
}

async fn the_same_answer_twice_is_one_answer(backend: Backend) {
    let engine = Engine::watching(backend, ScriptedModel::start(echo).await).await;
    register(&engine, graph(json!([ask("q1", "一？"), ask("q2", "二？")]), &[("q1", "q2")])).await;
    let stop = engine.start_worker();
    let run_id = start(&engine, NewRun::new("g", "")).await;
    waits(&engine, &run_id).await;
    stop.cancel();
    let first = answer(&engine, &run_id, "甲").await.unwrap();
    assert_eq!(answer(&engine, &run_id, "甲").await.unwrap(), first, "a repeat is no answer to another question");
    assert_eq!(answer(&engine, &run_id, "乙").await.unwrap_err().code, "not_waiting", "the first answer counts");
    engine.start_worker();
    eventually(DEADLINE, "the second question is asked", || async {
        answer(&engine, &run_id, "丙").await.is_ok_and(|answered| answered.node == "q2")
    })
    .await;
    let run = ended(&engine, &run_id).await;
    assert_eq!((run.status, run.output.as_deref()), (RunStatus::Completed, Some("{\"answer\":\"丙\"}")));
    let steps = engine.store.steps(&run_id, &run.turn_id).await.unwrap();
    let answers: Vec<_> = steps.iter().filter(|step| step.kind == "ask").map(|step| step.output.clone()).collect();
    assert_eq!(answers, ["甲", "丙"]);
}

async fn of_several_questions_the_first_is_answered_first(backend: Backend) {
    let engine = engine(backend).await;
    let slow = node("before", "WAIT", json!({"seconds": 0.3}));
    let nodes = json!([
        slow,
        ask("late", "晚？"),
        ask("early", "早？"),
        node("end", "END", json!({"output": "${early.output.answer}${late.output.answer}"}))
    ]);
    register(&engine, graph(nodes, &[("before", "late"), ("late", "end"), ("early", "end")])).await;
    let run_id = start(&engine, NewRun::new("g", "")).await;
    waits(&engine, &run_id).await;
    let gateway = Gateway::of(&engine).await;
    let shown = gateway.json(&format!("/api/v1/runs/{run_id}")).await;
    let nodes: Vec<_> = shown["questions"].as_array().unwrap().iter().map(|open| open["node"].clone()).collect();
    assert_eq!(nodes, ["early", "late"], "in the order in which they were asked");
    assert_eq!(answer(&engine, &run_id, "1").await.unwrap().node, "early");
    eventually(DEADLINE, "the other question is answered", || async {
        let named = NewAnswer { node: Some("late".into()), ..NewAnswer::new("2") };
        answer_run(engine.queue.as_ref(), engine.store.as_ref(), &run_id, named).await.is_ok()
    })
    .await;
    assert_eq!(ended(&engine, &run_id).await.output.as_deref(), Some("12"));
}

async fn a_question_is_answered_while_other_nodes_run(backend: Backend) {
    let engine = engine(backend).await;
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let held = std::sync::Arc::clone(&gate);
    engine.api.script(move |_, _| crate::support::api::Answer::Gated(held.clone(), 200, json!({})));
    let nodes = json!([node("s", "START", json!({})), call("slow", "slow", "1"), ask("approve", "好吗？")]);
    register(&engine, graph(nodes, &[("s", "slow"), ("s", "approve")])).await;
    let run_id = start(&engine, NewRun::new("g", "")).await;
    eventually(DEADLINE, "the question is answered before the run waits", || async {
        answer(&engine, &run_id, "好").await.is_ok()
    })
    .await;
    assert_eq!(run_of(&engine, &run_id).await.status, RunStatus::Running);
    gate.add_permits(1);
    let run = ended(&engine, &run_id).await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.error);
    assert_eq!(engine.api.calls("/slow").len(), 1);
}

async fn a_question_without_an_answer_fails_its_node(backend: Backend) {
    let engine = engine(backend).await;
    let mut once = ask("approve", "好吗？");
    once["config"]["timeout"] = json!(1);
    once["retry_config"] = json!({"max_retries": 1, "retry_delay": 0});
    register(&engine, graph(json!([once]), &[])).await;
    let run = ended(&engine, &start(&engine, NewRun::new("g", "")).await).await;
    let failure = run.error.unwrap();
    assert_eq!((failure.path.as_str(), failure.attempts), ("approve", 2));
    assert!(failure.cause.starts_with("TIMEOUT: nobody answered"), "{failure:?}");
    let asked = told(&engine, &run.run_id).await.into_iter().filter(|event| event.snapshot.is_some()).count();
    assert_eq!(asked, 2, "each attempt asks");
}

async fn a_cancelled_question_is_asked_again_after_a_resume(backend: Backend) {
    let engine = engine(backend).await;
    register(&engine, approval()).await;
    let run_id = start(&engine, with_input(json!({"what": "v2"}))).await;
    waits(&engine, &run_id).await;
    let (queue, store) = (engine.queue.as_ref(), engine.store.as_ref());
    cancel_run(queue, store, &run_id, None, None).await.unwrap();
    assert_eq!(ended(&engine, &run_id).await.status, RunStatus::Cancelled);
    assert_eq!(answer(&engine, &run_id, "好").await.unwrap_err().code, "not_waiting");
    resume_run(queue, store, &run_id).await.unwrap();
    waits(&engine, &run_id).await;
    answer(&engine, &run_id, "好").await.unwrap();
    assert_eq!(ended(&engine, &run_id).await.status, RunStatus::Completed);
    assert_eq!(said(&engine), ["好"]);
}

async fn a_restart_asks_again_from_the_node(backend: Backend) {
    let engine = engine(backend).await;
    register(&engine, approval()).await;
    let first = start(&engine, with_input(json!({"what": "v2"}))).await;
    waits(&engine, &first).await;
    answer(&engine, &first, "好").await.unwrap();
    ended(&engine, &first).await;
    let (queue, store) = (engine.queue.as_ref(), engine.store.as_ref());
    let second = rerun_from(queue, store, &first, "publish".into()).await.unwrap().run_id;
    assert_eq!(ended(&engine, &second).await.status, RunStatus::Completed, "the answer is kept");
    let third = rerun_from(queue, store, &first, "approve".into()).await.unwrap().run_id;
    waits(&engine, &third).await;
    answer(&engine, &third, "不").await.unwrap();
    ended(&engine, &third).await;
    assert_eq!(said(&engine), ["好", "好", "不"]);
}

async fn a_loop_asks_for_each_item(backend: Backend) {
    let engine = engine(backend).await;
    let each = node(
        "each",
        "LOOP",
        json!({"items": ["a", "b", "c"], "max_concurrency": 3, "body": {"nodes": [ask("q", "${loop.item}？")]}}),
    );
    register(&engine, graph(json!([each]), &[])).await;
    let run_id = start(&engine, NewRun::new("g", "")).await;
    for (item, text) in [("each[2]/q", "2"), ("each[1]/q", "1"), ("each[3]/q", "3")] {
        eventually(DEADLINE, &format!("{item} is answered"), || async {
            let named = NewAnswer { node: Some(item.into()), ..NewAnswer::new(text) };
            answer_run(engine.queue.as_ref(), engine.store.as_ref(), &run_id, named).await.is_ok()
        })
        .await;
    }
    let run = ended(&engine, &run_id).await;
    let output: Value = serde_json::from_str(run.output.as_deref().unwrap()).unwrap();
    assert_eq!(output["outputs"], json!([{"answer": "1"}, {"answer": "2"}, {"answer": "3"}]));
}
