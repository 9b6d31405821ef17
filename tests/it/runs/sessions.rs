//! Runs and conversations: runs that know their session, and workflows as the flow of a turn.

use super::*;
use crate::conformance::kit;
use crate::scenarios::{acts, answer, on_both_backends, sales_with};
use crate::support::backend::{cluster_with_short_lanes, embedded_with_short_lanes};
use crate::support::designed_panic::designed_panic;
use crate::support::model_stream::Stream;
use crate::support::script::plan;
use engine::workflow::FlowContext;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use storage::queue::{Publish, QueueError};
use storage::store::records::Acquire;
use tokio::sync::Semaphore;
use types::event::{Reply, ReplyKind};
use types::job::Command;
use types::outcome::Outcome;
use types::run::{RunQuery, RunStatus};
use types::session::Entry;

on_both_backends!(
    a_run_of_a_session_knows_its_conversation,
    runs_of_a_session_are_a_part_of_its_history,
    a_run_of_a_session_that_has_no_agent_yet_is_remembered,
    a_run_reads_also_runs_that_its_session_has_not_taken_in_yet,
    a_flow_action_runs_a_workflow_within_the_turn,
    a_flow_says_its_output_while_it_is_made,
    a_workflow_that_fails_is_for_the_agent_to_tell,
    a_workflow_is_cancelled_with_its_turn,
    a_flow_that_no_worker_has_is_reported_as_such,
    a_panic_beside_a_workflow_ends_its_run,
);

/// Decides by the script, and answers for task agents by name.
fn decides(asked: &Asked) -> Answer {
    match asked.schema.as_str() {
        "" => echo(asked),
        _ if asked.user.contains("流程") && !asked.system.contains("\"ok\"") => {
            decided(asked, acts("processing", "FLOW", "steps", &json!({"input": "做"})))
        }
        _ => decided(asked, answer("好的")),
    }
}

fn decided(asked: &Asked, decision: Value) -> Answer {
    Answer::json(&if asked.schema == "plan_and_decision" { plan(json!("您好"), &decision) } else { decision })
}

async fn with_agent(backend: Backend, model: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Engine {
    let engine = engine(backend, model).await;
    engine.apply(sales_with(&json!({"flows": ["steps"]}))).await;
    engine.start_worker();
    engine
}

async fn a_run_of_a_session_knows_its_conversation(backend: Backend) {
    let engine = with_agent(backend, decides).await;
    let route = |word: &str| json!({"condition": format!("{{query}} contains '{word}'"), "stage": {"id": word, "runnable": "a", "input": "{query}"}});
    let default = json!({"id": "other", "runnable": "b", "input": "{query}"});
    register(&engine, json!({"id": "router", "type": "conditional", "routes": [route("代码")], "default": default}))
        .await;
    engine.say("s1", "m-1", "写代码吗").await;
    let new = NewRun { session_id: Some("s1".into()), channel: Some("web".into()), ..NewRun::new("router", "你好") };
    let run_id = start(&engine, new).await;
    let run = ended(&engine, &run_id).await;
    let output = run.output.unwrap();
    assert!(output.starts_with("b(用户: 写代码吗\n助手: "), "conditions get only the request: {output}");
    assert!(output.ends_with("\n\n当前请求: 你好)"), "{output}");
    assert_eq!((run.origin_session.as_deref(), run.lane.as_str()), (Some("s1"), run_id.as_str()));
    let events = told(&engine, "s1", &run_id).await;
    assert_eq!(
        outermost(&events),
        [RunEventType::RunStarted, RunEventType::RunCompleted],
        "the events are on the session's stream"
    );
    assert!(told(&engine, &run_id, &run_id).await.is_empty());
    let of_session = RunQuery { origin_session: Some("s1".into()), ..RunQuery::default() };
    assert_eq!(engine.store.runs(of_session).await.unwrap().len(), 1);
}

/// Waits until the session's history has `count` entries. Returns them as lines.
async fn remembered(engine: &Engine, session_id: &str, count: usize) -> Vec<String> {
    eventually(DEADLINE, &format!("the history has {count} entries"), || async {
        let session = engine.store.session(session_id).await.unwrap()?;
        let line = |entry: &Entry| format!("{:?} {}", entry.role, entry.text);
        (session.history.len() >= count).then(|| session.history.iter().map(line).collect())
    })
    .await
}

async fn runs_of_a_session_are_a_part_of_its_history(backend: Backend) {
    let engine = with_agent(backend, decides).await;
    register(&engine, json!({"id": "one", "stages": [{"id": "s", "runnable": "a", "input": "{query}"}]})).await;
    engine.say("s1", "m-1", "在吗").await;
    let before = engine.session("s1").await;
    let of_session = |query: &str| NewRun { session_id: Some("s1".into()), ..NewRun::new("one", query) };
    let first = start(&engine, of_session("查一下问题")).await;
    ended(&engine, &first).await;
    // A follow-up run knows the first one immediately, even if the session's lane has not processed its notice.
    let second = ended(&engine, &start(&engine, of_session("支付服务")).await).await;
    let output = second.output.unwrap();
    assert!(output.contains("用户: 查一下问题\n助手: a(") && output.ends_with("当前请求: 支付服务)"), "{output}");
    assert_eq!(output.matches("用户: 查一下问题").count(), 1, "{output}");
    let history = remembered(&engine, "s1", before.history.len() + 4).await;
    let said = history.iter().filter(|line| line.starts_with("User")).map(String::as_str).collect::<Vec<_>>();
    assert_eq!(said, ["User 在吗", "User 查一下问题", "User 支付服务"], "each message once and in order");
    assert!(history[before.history.len() + 1].starts_with("Assistant a("), "{history:?}");
    let session = engine.session("s1").await;
    assert_eq!(session.workflow_state, before.workflow_state);
    assert!(session.has_handled(&format!("resume-{first}")), "{:?}", session.recent_jobs);
    assert_eq!(engine.said("s1").await.len(), before.history.len() - 1, "a run publishes no replies");
    // A turn of the conversation knows the runs, too. A run without output adds nothing.
    engine.model.script(|asked| match asked.schema.as_str() {
        "" => Answer::status(418, "scripted"),
        _ => decided(asked, answer("好的")),
    });
    let failed = ended(&engine, &start(&engine, of_session("坏的")).await).await;
    assert_eq!(failed.status, RunStatus::Failed);
    engine.say("s1", "m-2", "然后呢").await;
    let prompt = engine.model.asked().pop().unwrap();
    assert!(prompt.system.contains("支付服务") || prompt.user.contains("支付服务"), "{prompt:?}");
    assert!(!engine.session("s1").await.history.iter().any(|entry| entry.text == "坏的"));
    assert_eq!(engine.dead_letters().await, []);
}

async fn a_run_of_a_session_that_has_no_agent_yet_is_remembered(backend: Backend) {
    let engine = with_agent(backend, decides).await;
    register(&engine, json!({"id": "one", "stages": [{"id": "s", "runnable": "a", "input": "{query}"}]})).await;
    let new =
        NewRun { session_id: Some("s2".into()), user_id: Some("u1".into()), ..NewRun::new("one", "查一下问题") };
    ended(&engine, &start(&engine, new).await).await;
    assert_eq!(remembered(&engine, "s2", 2).await, ["User 查一下问题", "Assistant a(查一下问题)"]);
    let session = engine.session("s2").await;
    assert_eq!((session.agent_id.as_str(), session.user_id.as_str()), ("", "u1"));
    // Operators can close the session, and its first message names its agent, which then greets.
    let order = operator::OperatorCommand { command: Command::Close, name: None, reason: None, by: None };
    operator::command(engine.queue.as_ref(), engine.store.as_ref(), "s2", order).await.unwrap();
    eventually(DEADLINE, "it is closed", || async { engine.session("s2").await.closed_at.is_some() }).await;
    engine.say("s2", "m-1", "在吗").await;
    let session = engine.session("s2").await;
    assert_eq!((session.agent_id.as_str(), session.closed_at), ("sales", None));
    assert_eq!(engine.said("s2").await[0].0, ReplyKind::Greeting);
    assert_eq!(engine.dead_letters().await, []);
}

async fn a_flow_action_runs_a_workflow_within_the_turn(backend: Backend) {
    let engine = with_agent(backend, decides).await;
    let turn = engine.say("s1", "m-1", "走流程").await;
    assert_eq!(turn.outcome, Outcome::Flow);
    let said = engine.said("s1").await;
    assert_eq!(said.last().unwrap(), &(ReplyKind::Final, "c(b(a(做)))".to_owned()));
    let runs = engine.store.runs(RunQuery::default()).await.unwrap();
    let [run] = &runs[..] else { panic!("{runs:?}") };
    assert_eq!((run.status, run.output.as_deref()), (RunStatus::Completed, Some("c(b(a(做)))")));
    assert_eq!((run.lane.as_str(), run.turn_id.as_str(), run.prefix.as_str()), ("s1", "m-1", "0/steps"));
    let events = told(&engine, "s1", &run.run_id).await;
    assert_once(&events);
    assert_eq!(outermost(&events), [RunEventType::RunStarted, RunEventType::RunCompleted]);
    let steps = engine.store.steps("s1", "m-1").await.unwrap();
    assert!(steps.iter().any(|step| step.key.starts_with("0/steps/first/")), "the steps belong to the turn");
    // The run can be repeated as a run in its own lane.
    let from = NewRun { from_run: Some(run.run_id.clone()), from_stage: Some("third".into()), ..NewRun::default() };
    let again = ended(&engine, &start(&engine, from).await).await;
    assert_eq!(again.output.as_deref(), Some("c(b(a(做)))"), "{:?}", again.error);
    let plain: Vec<_> = engine.model.asked().into_iter().filter(|asked| asked.schema.is_empty()).collect();
    assert_eq!(plain.iter().map(|asked| asked.system.as_str()).collect::<Vec<_>>(), ["a", "b", "c", "c"]);
}

async fn a_flow_says_its_output_while_it_is_made(backend: Backend) {
    let gate = Arc::new(Semaphore::new(1));
    let held = Arc::clone(&gate);
    let model = move |asked: &Asked| match asked.system.as_str() {
        "b" => Answer::Stream(Stream::of(["不", "说"])),
        "c" => Answer::Stream(Stream::of(["先说", "后说"]).gated(&held)),
        _ => decides(asked),
    };
    let engine = with_agent(backend, model).await;
    engine.publish("s1", "m-1", "走流程").await;
    let chunks = || async {
        let replies = engine.replies("s1").await.into_iter();
        replies.filter(|reply| reply.kind == ReplyKind::Chunk).collect::<Vec<_>>()
    };
    let first =
        eventually(DEADLINE, "the first chunk is published", || async { chunks().await.into_iter().next() }).await;
    assert_eq!((first.text.as_str(), first.seq, first.turn_id.as_str()), ("先说", 0, "m-1"));
    gate.add_permits(100);
    assert_eq!(engine.turn("s1", "m-1").await.outcome, Outcome::Flow);
    let (said, chunks) = (engine.replies("s1").await, chunks().await);
    let whole = said.last().unwrap();
    assert_eq!((whole.kind, whole.text.as_str()), (ReplyKind::Final, "先说后说"));
    assert!(whole.stream_id.is_some() && chunks.iter().all(|chunk| chunk.stream_id == whole.stream_id), "{said:?}");
    assert!(chunks.iter().map(|chunk| chunk.seq).eq(0..chunks.len() as u64), "{chunks:?}");
    assert_eq!(
        chunks.iter().map(|chunk| chunk.text.as_str()).collect::<String>(),
        whole.text,
        "only this stage is streamed"
    );
    let addressed = |chunk: &Reply| (&chunk.agent_id, &chunk.channel) == (&whole.agent_id, &whole.channel);
    assert!(chunks.iter().all(|chunk| addressed(chunk) && chunk.reply_id.starts_with("s1/m-1/0/steps/chunk/")));
    let history = engine.session("s1").await.history;
    assert_eq!(
        history.iter().filter(|entry| entry.text.contains("先说")).count(),
        1,
        "the history has the whole text once"
    );
}

async fn a_workflow_that_fails_is_for_the_agent_to_tell(backend: Backend) {
    let model = |asked: &Asked| match asked.system.as_str() {
        "b" => Answer::status(418, "scripted"),
        _ => decides(asked),
    };
    let engine = with_agent(backend, model).await;
    let turn = engine.say("s1", "m-1", "走流程").await;
    assert_eq!(turn.outcome, Outcome::Answered);
    assert_eq!(engine.said("s1").await.last().unwrap().1, "好的");
    let told_agent = engine.model.asked().last().unwrap().system.clone();
    assert!(told_agent.contains("flow `steps`: second"), "{told_agent}");
    let run = engine.store.runs(RunQuery::default()).await.unwrap().remove(0);
    assert_eq!((run.status, run.error.unwrap().path.as_str()), (RunStatus::Failed, "second"));
    let events = told(&engine, "s1", &run.run_id).await;
    assert_eq!(outermost(&events), [RunEventType::RunStarted, RunEventType::RunFailed]);
    let (queue, store) = (engine.queue.as_ref(), engine.store.as_ref());
    assert_eq!(run_commands::resume_run(queue, store, &run.run_id).await.unwrap_err().code, "run_of_turn");
}

async fn a_workflow_is_cancelled_with_its_turn(backend: Backend) {
    let hangs = |asked: &Asked| if asked.system == "b" { Answer::Hang } else { decides(asked) };
    let engine = with_agent(backend, hangs).await;
    engine.publish("s1", "m-1", "走流程").await;
    is_asked(&engine, "b").await;
    let run = engine.store.runs(RunQuery::default()).await.unwrap().remove(0);
    assert_eq!(run.status, RunStatus::Running);
    let (queue, store) = (engine.queue.as_ref(), engine.store.as_ref());
    run_commands::cancel_run(queue, store, &run.run_id, None, Some("op".into())).await.unwrap();
    assert_eq!(engine.turn("s1", "m-1").await.outcome, Outcome::Cancelled);
    let run = ended(&engine, &run.run_id).await;
    assert_eq!((run.status, run.error.unwrap().cause.as_str()), (RunStatus::Cancelled, "operator: op"));
    let events = told(&engine, "s1", &run.run_id).await;
    assert_eq!(outermost(&events), [RunEventType::RunStarted, RunEventType::RunFailed]);
}

async fn a_flow_that_no_worker_has_is_reported_as_such(backend: Backend) {
    let model = |asked: &Asked| match asked.system.contains("\"ok\"") {
        true => decided(asked, answer("好的")),
        false => decided(asked, acts("processing", "FLOW", "lost", &json!({}))),
    };
    let engine = engine(backend, model).await;
    engine.apply(sales_with(&json!({"flows": ["lost"]}))).await;
    engine.start_worker();
    assert_eq!(engine.say("s1", "m-1", "走流程").await.outcome, Outcome::Answered);
    let steps = engine.store.steps("s1", "m-1").await.unwrap();
    let flow = steps.iter().find(|step| step.key == "0/flow").unwrap_or_else(|| panic!("{steps:?}"));
    let error = flow.output["error"].as_str().unwrap();
    for part in ["no flow `lost` is registered on this worker", "register it in the program of every worker", "`flows`"]
    {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(engine.model.asked().last().unwrap().system.contains("no flow `lost`"), "the model reads the error");
    assert!(engine.store.runs(RunQuery::default()).await.unwrap().is_empty());
}

async fn a_panic_beside_a_workflow_ends_its_run(backend: Backend) {
    let panics = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&panics);
    let mut engine = engine(backend, decides).await;
    engine.flows = engine.flows.clone().with("panics", move |_: FlowContext| {
        let panics = Arc::clone(&asked);
        async move {
            if panics.load(Ordering::SeqCst) {
                designed_panic();
            }
            Ok::<_, String>("done".to_owned())
        }
    });
    let stages = json!([
        {"id": "first", "runnable": "a", "input": "{query}"},
        {"id": "second", "runnable": "panics", "input": "{first}"},
    ]);
    register(&engine, json!({"id": "steps", "stages": stages})).await;
    engine.apply(sales_with(&json!({"flows": ["steps"]}))).await;
    engine.start_worker();
    assert_eq!(engine.say("s1", "m-1", "走流程").await.outcome, Outcome::Cancelled);
    let run = engine.store.runs(RunQuery::default()).await.unwrap().remove(0);
    assert_eq!(run.status, RunStatus::Failed);
    assert!(run.error.unwrap().cause.starts_with("panic: "));
    // The same in a lane of its own.
    let run = ended(&engine, &start(&engine, NewRun::new("steps", "问")).await).await;
    assert_eq!(run.status, RunStatus::Failed);
    panics.store(false, Ordering::SeqCst);
    resume(&engine, &run.run_id).await;
    eventually(DEADLINE, "it continues", || async {
        ended(&engine, &run.run_id).await.output.as_deref() == Some("done")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_session_has_a_full_lane_waits_for_room_in_the_embedded_file() {
    a_run_waits_for_room(embedded_with_short_lanes().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_session_has_a_full_lane_waits_for_room_on_the_cluster() {
    a_run_waits_for_room(cluster_with_short_lanes().await).await;
}

/// The lane holds one message in addition to the reserve for commands.
async fn a_run_waits_for_room(backend: Backend) {
    let engine = engine(backend, decides).await;
    engine.apply(sales_with(&json!({}))).await;
    register(&engine, json!({"id": "one", "stages": [{"id": "s", "runnable": "a", "input": "{query}"}]})).await;
    // The lane is full, and another worker holds its lease.
    let stream = engine.queue.stream().await.unwrap().created_at;
    let held = engine.store.acquire(Acquire { stream, ..kit::acquire("s1", 1, "other") }).await.unwrap();
    let held = kit::granted(held);
    let wake = json!({"type": "wake", "session_id": "s1"}).to_string();
    let fill = || Publish { session_id: "s1".into(), msg_id: None, payload: wake.clone().into() };
    let full = loop {
        if let Err(problem) = engine.queue.publish(fill()).await {
            break problem;
        }
    };
    assert!(matches!(full, QueueError::Full(_)), "{full}");
    engine.start_worker();
    let run_id = start(&engine, NewRun { session_id: Some("s1".into()), ..NewRun::new("one", "查一下") }).await;
    eventually(DEADLINE, "the run has its output and is released", || async {
        let lane = engine.store.session(&run_id).await.unwrap()?;
        (lane.turn.is_some() && lane.lease.is_none() && !asked(&engine).is_empty()).then_some(())
    })
    .await;
    assert_eq!(run_of(&engine, &run_id).await.status, RunStatus::Running);
    assert!(engine.store.release("s1", held.session.epoch, false).await.unwrap());
    let run = ended(&engine, &run_id).await;
    assert_eq!((run.status, run.output.as_deref()), (RunStatus::Completed, Some("a(查一下)")));
    assert_eq!(remembered(&engine, "s1", 2).await, ["User 查一下", "Assistant a(查一下)"]);
    assert_eq!(
        engine.store.turn(&run_id, &run_id).await.unwrap().unwrap().attempts,
        1,
        "waiting does not count as an attempt"
    );
    assert_eq!(asked(&engine), ["a"], "no stage runs again");
    assert_once(&told(&engine, "s1", &run_id).await);
}

async fn a_run_reads_also_runs_that_its_session_has_not_taken_in_yet(backend: Backend) {
    let engine = engine(backend, echo).await;
    // Another worker holds the session's lane, in which the notice of the first run waits.
    kit::grant(&engine.store, "s1", 1).await;
    engine.start_worker();
    let of_session = |query: &str| NewRun { session_id: Some("s1".into()), ..NewRun::new("steps", query) };
    for query in ["一", "二"] {
        ended(&engine, &start(&engine, of_session(query)).await).await;
    }
    let read = engine.model.asked().into_iter().rfind(|asked| asked.system == "a").unwrap().user;
    assert!(read.contains("用户: 一\n助手: c(b(a(一)))") && read.ends_with("当前请求: 二"), "{read}");
    assert!(engine.session("s1").await.history.is_empty());
}
