//! Streamed texts from other sources than the agents of a workflow: flows registered in Rust, and agents that reply
//! from knowledge.

use super::{agent, chunks, eventually, show, speaker, speaking, streams};
use crate::scenarios::{answer, on_both_backends, sales};
use crate::support::backend;
use crate::support::engine::{Backend, Engine};
use crate::support::model_stream::Stream;
use crate::support::process::Process;
use crate::support::script::{Answer, ScriptedModel, plan};
use base::clock;
use definitions::knowledge::source::{Origin, Source};
use definitions::workflow::definition::WorkflowRecord;
use engine::workflow::{FlowContext, FlowError};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Semaphore;
use types::event::ReplyKind;
use types::outcome::Outcome;
use types::texts::Texts;

on_both_backends!(
    a_flow_in_rust_says_its_text_while_it_is_made,
    a_flow_in_rust_is_a_stage_that_speaks,
    what_a_flow_says_and_does_not_answer_is_replaced,
    a_reply_from_knowledge_is_said_while_it_is_written,
);

async fn tell(context: FlowContext) -> Result<String, FlowError> {
    context.say("tale", "讲一段", &context.input).await
}

async fn with_flow(backend: Backend, held: &Arc<Semaphore>) -> Engine {
    let held = Arc::clone(held);
    let model = speaker(move |_, _| Answer::Stream(Stream::of(["\n从前", "有个", "和尚"]).gated(&held))).await;
    speaking(backend, model).await
}

async fn begins(engine: &Engine) {
    eventually("it begins", || async { !chunks(engine).await.is_empty() }).await;
}

/// Checks that there is one text, that its chunks are its beginning, and that there is no other reply.
async fn is_told(engine: &Engine, kind: ReplyKind, text: &str) {
    let said = streams(&chunks(engine).await);
    let [(stream_id, pieces, None)] = &said[..] else { panic!("{said:?}") };
    let replies = engine.replies("s1").await;
    let whole = replies.last().unwrap();
    assert_eq!((whole.kind, whole.text.trim(), whole.stream_id.as_ref()), (kind, text, Some(stream_id)));
    assert_eq!(pieces, text);
    let (mut texts, mut display) = (Texts::default(), Vec::new());
    replies.iter().for_each(|reply| show(&mut texts, &mut display, reply));
    assert_eq!(display, [text]);
}

async fn a_flow_in_rust_says_its_text_while_it_is_made(backend: Backend) {
    let gate = Arc::new(Semaphore::new(1));
    let mut engine = with_flow(backend, &gate).await;
    engine.flows = engine.flows.clone().with("speak", tell);
    engine.start_worker();
    engine.publish("s1", "m-1", "讲故事").await;
    begins(&engine).await;
    let first = chunks(&engine).await.remove(0);
    assert_eq!((first.text.as_str(), first.channel.as_str(), first.turn_id.as_str()), ("从前", "web", "m-1"));
    assert!(first.reply_id.starts_with("s1/m-1/0/speak/chunk/"), "{first:?}");
    gate.add_permits(100);
    assert_eq!(engine.turn("s1", "m-1").await.outcome, Outcome::Flow);
    is_told(&engine, ReplyKind::Final, "从前有个和尚").await;
    let steps = engine.store.steps("s1", "m-1").await.unwrap();
    let step = steps.iter().find(|step| step.key == "0/speak/tale").unwrap();
    assert_eq!((step.kind.as_str(), &step.output), ("model", &json!("\n从前有个和尚")));
}

async fn a_flow_in_rust_is_a_stage_that_speaks(backend: Backend) {
    let gate = Arc::new(Semaphore::new(1));
    let mut engine = with_flow(backend, &gate).await;
    engine.flows = engine.flows.clone().with("tell", tell);
    let workflow = json!({"id": "speak", "stages": [{"id": "say", "runnable": "tell", "input": "{query}"}]});
    engine.store.put_workflow(WorkflowRecord::from_document(workflow, clock::now()).unwrap()).await.unwrap();
    engine.start_worker();
    engine.publish("s1", "m-1", "讲故事").await;
    begins(&engine).await;
    gate.add_permits(100);
    assert_eq!(engine.turn("s1", "m-1").await.outcome, Outcome::Flow);
    is_told(&engine, ReplyKind::Final, "从前有个和尚").await;
}

async fn what_a_flow_says_and_does_not_answer_is_replaced(backend: Backend) {
    let mut engine = with_flow(backend, &Arc::new(Semaphore::new(100))).await;
    engine.flows = engine.flows.clone().with("speak", async |context: FlowContext| {
        let length = tell(context).await?.trim().chars().count();
        Ok::<_, FlowError>(format!("一共{length}个字"))
    });
    engine.start_worker();
    engine.say("s1", "m-1", "讲故事").await;
    let said = streams(&chunks(&engine).await);
    let whole = engine.replies("s1").await.pop().unwrap();
    assert_eq!((whole.kind, whole.text.as_str(), whole.stream_id), (ReplyKind::Final, "一共6个字", None));
    assert_eq!(whole.supersedes.as_ref(), Some(&said[0].0));
}

async fn a_reply_from_knowledge_is_said_while_it_is_written(backend: Backend) {
    let gate = Arc::new(Semaphore::new(1));
    let held = Arc::clone(&gate);
    let model = ScriptedModel::start(move |asked| match asked.schema.as_str() {
        "plan_and_decision" => Answer::json(&plan(Value::Null, &answer("我帮您看看"))),
        "decision" => Answer::json(&answer("我帮您看看")),
        _ => Answer::Stream(Stream::of(["七天内", "可以退货。", "\n"]).gated(&held)),
    })
    .await;
    let engine = Engine::watching(backend, model).await;
    let mut agent = sales();
    agent.as_object_mut().unwrap().remove("greeting");
    engine.apply(agent).await;
    let text = "签收后七天内可以无理由退货。";
    let source = Source::new("sales", "returns.md", text, Origin::Added, clock::now()).unwrap();
    engine.store.put_knowledge(source).await.unwrap();
    engine.start_worker();
    engine.publish("s1", "m-1", "怎么退货？").await;
    begins(&engine).await;
    let decided = engine.store.steps("s1", "m-1").await.unwrap();
    assert!(decided.iter().any(|step| step.key == "0/knowledge"), "the knowledge step is durable: {decided:?}");
    assert!(decided.iter().any(|step| step.key == "0/decide"), "{decided:?}");
    gate.add_permits(100);
    assert_eq!(engine.turn("s1", "m-1").await.outcome, Outcome::Answered);
    is_told(&engine, ReplyKind::Final, "七天内可以退货。").await;
    let whole = engine.replies("s1").await.pop().unwrap();
    assert_eq!((whole.reply_id.as_str(), &whole.metadata["sources"]), ("s1/m-1/0/respond", &json!(["returns.md"])));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_from_knowledge_is_said_anew_when_its_worker_was_killed() {
    let model = ScriptedModel::start(|asked| match asked.schema.as_str() {
        "plan_and_decision" => Answer::json(&plan(Value::Null, &answer("我帮您看看"))),
        _ if asked.index == 1 => Answer::Stream(Stream::unfinished(["七天", "以内"]).stalled()),
        _ => Answer::Stream(Stream::of(["可以的，", "七天内。"])),
    })
    .await;
    let engine = Engine::watching(backend::cluster().await, model).await;
    engine.apply(agent()).await;
    let text = "签收后七天内可以无理由退货。";
    let source = Source::new("sales", "returns.md", text, Origin::Added, clock::now()).unwrap();
    engine.store.put_knowledge(source).await.unwrap();
    let (first_dir, second_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = Process::start(first_dir.path(), &engine.settings, &["worker"]);
    engine.publish("s1", "m-1", "怎么退货？").await;
    begins(&engine).await;
    first.kill();
    let _second = Process::start(second_dir.path(), &engine.settings, &["worker"]);
    engine.turn("s1", "m-1").await;
    let said = streams(&chunks(&engine).await);
    let [(old, ..), (new, text, Some(replaced))] = &said[..] else { panic!("{said:?}") };
    assert_eq!((text.as_str(), replaced), ("可以的，七天内。", old));
    let whole = engine.replies("s1").await.pop().unwrap();
    assert_eq!((whole.text.as_str(), whole.stream_id.as_ref()), ("可以的，七天内。", Some(new)));
}
