//! SIGKILL during a streamed text: of the worker that writes it, of the gateway that serves the reader, and of `dev`,
//! which is both.

use super::{StreamReader, agent, chunks, chunks_of, eventually, speak, speaker, speaking, streams, told_streams};
use crate::commands::Folder;
use crate::gateway::Gateway;
use crate::support::backend;
use crate::support::engine::scripted;
use crate::support::model_stream::Stream;
use crate::support::process::{Process, toml};
use crate::support::script::{Answer, ScriptedModel};
use crate::support::servers::free_port;
use base::clock;
use definitions::workflow::definition::WorkflowRecord;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::Semaphore;
use types::event::ReplyKind;
use types::outcome::Outcome;

/// A model whose stream breaks in the middle the first time.
async fn half_then_whole() -> ScriptedModel {
    speaker(|asked_before, _| match asked_before {
        0 => Answer::Stream(Stream::unfinished(["从前有", "座山"]).stalled()),
        _ => Answer::Stream(Stream::of(["从前", "有个", "和尚"])),
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_worker_has_said_stays_until_another_text_takes_its_place() {
    let engine = speaking(backend::cluster().await, half_then_whole().await).await;
    let gateway = Gateway::of(&engine).await;
    let worker = |dir: &tempfile::TempDir| Process::start(dir.path(), &engine.settings, &["worker"]);
    let (first_dir, second_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = worker(&first_dir);
    engine.publish("s1", "m-1", "讲故事").await;
    let mut reader = StreamReader::of(&gateway.base);
    reader.until("half of the text is published", |reader| reader.texts.open() == Some("从前有座山")).await;
    first.kill();
    assert_eq!(reader.display, ["从前有座山"]);
    let _second = worker(&second_dir);
    reader.until_final().await;
    assert_eq!(engine.turn("s1", "m-1").await.outcome, Outcome::Flow);

    assert_eq!(reader.display, ["从前有个和尚"], "the reader shows one text");
    reader.assert_each_once();
    let said = streams(&chunks(&engine).await);
    let [(old, half, None), (new, whole, Some(replaced))] = &said[..] else { panic!("{said:?}") };
    assert_eq!((half.as_str(), whole.as_str(), replaced), ("从前有座山", "从前有个和尚", old));
    let replies = engine.replies("s1").await;
    let ends: Vec<_> = replies.iter().filter(|reply| reply.kind == ReplyKind::Final).collect();
    let [end] = &ends[..] else { panic!("{replies:?}") };
    assert_eq!((end.text.as_str(), end.stream_id.as_ref(), &end.supersedes), ("从前有个和尚", Some(new), &None));
    assert_eq!(
        told_streams(&engine).await,
        [(old.clone(), None), (new.clone(), Some(old.clone()))],
        "the run's events have the same streams"
    );

    let mut late = StreamReader::of(&gateway.base);
    late.until_final().await;
    assert_eq!(late.replies, reader.replies, "the first text can still be read");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_that_is_whole_when_its_worker_dies_is_not_said_again() {
    // The response is recorded, and the next call blocks.
    let model = speaker(|asked_before, asked| match (asked_before, asked.user.as_str()) {
        (0, _) => Answer::Stream(Stream::of(["从前有", "座山"])),
        (1, _) => Answer::Hang,
        _ => Answer::Content("好".into()),
    })
    .await;
    let engine = speaking(backend::cluster().await, model).await;
    let stages = json!([
        {"id": "say", "runnable": "speaker", "input": "{query}"},
        {"id": "again", "runnable": "speaker", "input": "{say}", "condition": "{say} contains '山'"},
    ]);
    let workflow = json!({"id": "speak", "stages": stages});
    let workflow = WorkflowRecord::from_document(workflow, clock::now());
    engine.store.put_workflow(workflow.unwrap()).await.unwrap();
    let (first_dir, second_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = Process::start(first_dir.path(), &engine.settings, &["worker"]);
    engine.publish("s1", "m-1", "讲故事").await;
    eventually("the second stage is asked", || async {
        engine.model.asked().iter().filter(|asked| asked.schema.is_empty()).count() == 2
    })
    .await;
    // The second stage is asked while the pieces of the first one are still under way.
    eventually("the first text is published", || async { !told_streams(&engine).await.is_empty() }).await;
    first.kill();
    let _second = Process::start(second_dir.path(), &engine.settings, &["worker"]);
    assert_eq!(engine.turn("s1", "m-1").await.outcome, Outcome::Flow);
    let told = told_streams(&engine).await;
    assert!(told.len() == 1 && told[0].1.is_none(), "the first stage is streamed once: {told:?}");
    assert_eq!(engine.said("s1").await.last().unwrap(), &(ReplyKind::Final, "好".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_goes_on_in_mid_sentence_when_its_gateway_was_killed() {
    let gate = Arc::new(Semaphore::new(2));
    let held = Arc::clone(&gate);
    let model =
        speaker(move |_, _| Answer::Stream(Stream::of(["一", "二", "三", "四", "五", "六"]).gated(&held))).await;
    let mut backend = backend::cluster().await;
    backend.settings.gateway.listen = ([127, 0, 0, 1], free_port()).into();
    let engine = speaking(backend, model).await;
    engine.start_worker();
    let dir = tempfile::tempdir().unwrap();
    let gateway = || Process::start(dir.path(), &engine.settings, &["gateway"]);
    let mut reader = StreamReader::of(&format!("http://{}", engine.settings.gateway.listen));
    let first = gateway();
    engine.publish("s1", "m-1", "数一数").await;
    reader.until("it has begun", |reader| reader.texts.open() == Some("一二")).await;
    first.kill();
    // Streamed while no gateway serves readers.
    gate.add_permits(2);
    eventually("it continues", || async {
        streams(&chunks(&engine).await).iter().any(|(_, text, _)| text == "一二三四")
    })
    .await;
    let second = gateway();
    reader.until("the reader has caught up", |reader| reader.texts.open() == Some("一二三四")).await;
    second.kill();
    gate.add_permits(100);
    let _third = gateway();
    reader.until_final().await;
    reader.assert_each_once();
    let said = streams(&chunks_of(&reader.replies));
    assert!(said.len() == 1 && said[0].1 == "一二三四五六", "{said:?}");
    assert_eq!(reader.display, ["一二三四五六"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dev_killed_in_mid_sentence_says_it_anew() {
    let mut folder = Folder::embedded();
    let model = half_then_whole().await;
    folder.settings.models.insert("default".into(), scripted(&model));
    folder.write("turnwheel.toml", &toml(&folder.settings));
    folder.write("agents/sales.json", &agent().to_string().replace("{api}", "http://127.0.0.1:9"));
    folder.write("agents/speaker.json", &json!({"id": "speaker", "system_prompt": "讲一段"}).to_string());
    folder.write("workflows/speak.json", &speak().to_string());
    let dev = folder.dev().await;
    let base = format!("http://{}", folder.settings.gateway.listen);
    let sent = folder.run(&["send", "--session", "s1", "--agent", "sales", "讲故事"], "").await;
    assert_eq!(sent.code, 0, "{sent:?}");
    let mut reader = StreamReader::of(&base);
    reader.until("half of the text is published", |reader| reader.texts.open() == Some("从前有座山")).await;
    dev.kill();
    let _dev = folder.dev().await;
    reader.until_final().await;
    reader.assert_each_once();
    assert_eq!(reader.display, ["从前有个和尚"]);
    let said = streams(&chunks_of(&reader.replies));
    let [(old, ..), (new, _, Some(replaced))] = &said[..] else { panic!("{said:?}") };
    assert_eq!((replaced, reader.last().unwrap().stream_id.as_ref()), (old, Some(new)));
}
