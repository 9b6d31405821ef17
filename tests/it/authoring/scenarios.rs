//! S-20 to S-22 over HTTP, with the rehearsal of the program.

use super::*;
use crate::gateway::{Gateway, data, refusal};
use crate::run_streams::RunEvents;
use crate::support::backend::cluster;
use crate::support::engine::quick;
use crate::support::process::Process;
use base::config::Environment;
use definitions::workflow::definition::WorkflowRecord;
use futures::StreamExt;
use reqwest::Response;
use sse_stream::SseStream;
use tokio::sync::Semaphore;
use turnwheel::rehearsal::Rehearsal;

on_both_backends!(
    s20_a_wish_becomes_a_workflow_that_runs,
    s21_a_gap_is_closed_by_an_alternative_and_a_failed_check_by_a_correction,
    s22_a_copy_leaves_its_source_as_it_is,
);

const WISH: &str = "每当Gmail收到邮件就转发到Slack";

async fn system(backend: Backend, script: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> (Engine, Gateway) {
    let mut engine = Engine::watching(backend, ScriptedModel::start(script).await).await;
    engine.rehearsal = Some(Arc::new(Rehearsal::new(&engine.settings, &Environment::default())));
    engine.start_worker();
    let gateway = Gateway::of(&engine).await;
    (engine, gateway)
}

async fn begin(gateway: &Gateway, body: Value) -> String {
    let begun = gateway.post("/api/v1/session", &body).await;
    assert_eq!(begun.status(), 200);
    begun.json::<Value>().await.unwrap()["session_id"].as_str().unwrap().to_owned()
}

/// The events of a turn, as `POST /chat/stream` sends them.
async fn chat(gateway: &Gateway, session_id: &str, text: &str, message_id: &str) -> Vec<Value> {
    let body = json!({"session_id": session_id, "user_message": text, "message_id": message_id});
    events(gateway.post("/api/v1/chat/stream", &body).await).await
}

async fn events(response: Response) -> Vec<Value> {
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let events = SseStream::from_bytes_stream(response.bytes_stream());
    let read =
        events.filter_map(async |event| event.ok().filter(|event| event.data.is_some()).map(|event| data(&event)));
    let read: Vec<Value> = tokio::time::timeout(DEADLINE, read.collect()).await.expect("the stream ends");
    let finals = read.iter().filter(|event| event["is_final"] == json!(true)).count();
    assert!(finals == 1 && read.last().unwrap()["is_final"] == json!(true), "{read:#?}");
    read
}

/// The types of the events, of a status its stage; without pieces of texts.
fn kinds(events: &[Value]) -> Vec<&str> {
    let whole = events.iter().filter(|event| event["type"] != "message" || event["content"].is_object());
    let kind = |event: &'_ Value| match event["type"].as_str().unwrap() {
        "status" => event["content"]["new_stage"].as_str().unwrap().to_owned(),
        kind => kind.to_owned(),
    };
    let kinds: Vec<String> = whole.map(kind).collect();
    kinds.into_iter().map(|kind| &*kind.leak()).collect()
}

fn of_kind<'a>(events: &'a [Value], kind: &str) -> &'a Value {
    events.iter().find(|event| event["type"] == kind && (kind != "message" || event["content"].is_object())).unwrap()
}

fn question(id: &str, text: &str, category: &str) -> Value {
    json!({"id": id, "question": text, "category": category, "is_required": true, "options": []})
}

fn clarification(questions: &[Value]) -> Answer {
    let (reply, ready) = if questions.is_empty() { ("明白了。", true) } else { ("请补充：", false) };
    Answer::json(
        &json!({"reply": reply, "intent_summary": WISH, "collected_info": [], "questions": questions, "ready": ready}),
    )
}

fn negotiation(agreed: bool, questions: &[Value]) -> Answer {
    let requirements = ["收到邮件时转发标题"];
    Answer::json(&json!({"reply": "需求如下。", "collected_info": [], "requirements": requirements,
        "questions": questions, "agreed": agreed, "reopen": false}))
}

fn capabilities(named: &[(&str, Option<&str>)]) -> Answer {
    let one = |(need, by): &(&str, Option<&str>)| json!({"need": need, "required": true, "provided_by": by});
    Answer::json(&json!({"capabilities": named.iter().map(one).collect::<Vec<_>>(), "reopen": false}))
}

/// A graph that writes a sentence and posts it.
fn graph(url: &str, kind: &str) -> Answer {
    let nodes = json!([
        {"node_id": "title", "type": kind, "name": "标题", "config": {"prompt": "写出邮件的标题"}},
        {"node_id": "post", "type": "HTTP", "name": "转发", "config": {"url": url, "method": "POST", "body": {"text": "${title.output.text}"}}},
    ]);
    let edges = json!([{"source": "title", "target": "post"}]);
    let workflow = json!({"type": "graph", "name": "转发邮件", "nodes": nodes, "edges": edges});
    let tests = json!([{"name": "转发一封", "input": "邮件", "answers": {"post": {"status": "已转发"}},
        "expect": {"output_contains": ["已转发"]}}]);
    Answer::json(&json!({"reply": "写好了。", "workflow": workflow, "agent": null, "tests": tests, "reopen": false}))
}

/// An agent with the tool `gmail` and the skill `slack`.
async fn apply_mail(engine: &Engine) {
    let call = |path: &str| json!({"method": "GET", "url": format!("{}{path}", engine.api.base_url)});
    let agent = json!({"id": "mail", "name": "邮件", "sop": "处理邮件",
        "tools": [{"id": "gmail", "description": "读取 Gmail 的邮件", "http": call("/gmail")}],
        "skills": [{"id": "slack", "description": "发送 Slack 消息", "http": call("/slack")}]});
    engine.apply(agent).await;
}

async fn s20_a_wish_becomes_a_workflow_that_runs(backend: Backend) {
    let (engine, gateway) = system(backend, |_| Answer::Broken).await;
    apply_mail(&engine).await;
    let url = format!("{}/hook", engine.api.base_url);
    engine.api.script(|_, _| (200, json!({"status": "已转发"})));
    engine.model.script(move |asked| match asked.schema.as_str() {
        "authoring_clarification" if asked.user.contains(WISH) => clarification(&[
            question("when", "哪些邮件？", "trigger"),
            question("box", "哪个邮箱？", "input"),
            question("channel", "哪个频道？", "output"),
        ]),
        "authoring_clarification" => clarification(&[]),
        // After the first agreement, a further question is open.
        "authoring_negotiation" if asked.user.contains("所有邮件") => {
            negotiation(false, &[question("what", "转发标题还是全文？", "logic")])
        }
        "authoring_negotiation" => negotiation(true, &[]),
        "authoring_gap_analysis" => {
            capabilities(&[("读取 Gmail", Some("tool.mail.gmail")), ("发送 Slack", Some("skill.mail.slack"))])
        }
        "authoring_workflow_generation" => graph(&url, "LLM"),
        "" => Answer::Content("周会改期".into()),
        other => panic!("an unexpected question: `{other}`"),
    });
    let session_id = begin(&gateway, json!({"action": "create"})).await;

    let first = chat(&gateway, &session_id, WISH, "m-1").await;
    assert_eq!(kinds(&first), ["clarification", "message"]);
    let asked = of_kind(&first, "message")["content"]["questions"].as_array().unwrap();
    let categories: Vec<&str> = asked.iter().map(|question| question["category"].as_str().unwrap()).collect();
    assert_eq!(categories, ["trigger", "input", "output"]);

    let second = chat(&gateway, &session_id, "所有邮件，support 邮箱，发到 #mail", "m-2").await;
    assert_eq!(kinds(&second), ["clarification", "message", "negotiation", "clarification", "message"]);
    let third = chat(&gateway, &session_id, "标题", "m-3").await;
    assert_eq!(kinds(&third), LEADS_TO_A_DOCUMENT, "{third:#?}");
    let debugged = &of_kind(&third, "workflow_debugging")["data"];
    assert_eq!((&debugged["ok"], &debugged["tests"]["passed"]), (&json!(true), &json!(2)), "{debugged}");
    assert_eq!(of_kind(&third, "workflow_draft")["data"]["definition"]["nodes"][0]["node_id"], "title");
    let last = third.last().unwrap();
    assert_eq!(last["delta"], last["content"]["text"]);
    assert!(engine.api.calls("/hook").is_empty(), "a rehearsal calls nothing");

    let status = gateway.json(&format!("/api/v1/workflow/{session_id}/status")).await;
    assert_eq!((&status["stage"], &status["has_workflow"]), (&json!("completed"), &json!(true)));
    assert_eq!(status["workflow_data"]["nodes"].as_array().unwrap().len(), 2);
    let workflow_id = status["workflow_id"].as_str().unwrap();
    assert_eq!(last["workflow_id"], workflow_id);
    let run = gateway.post(&format!("/api/v1/workflows/{workflow_id}/run"), &json!({"query": "邮件"})).await;
    let ran: Vec<Value> = RunEvents::of(run).rest().await.iter().map(data).collect();
    let end = ran.last().unwrap();
    assert_eq!((&end["type"], &end["depth"]), (&json!("run_completed"), &json!(0)), "{end}");
    assert_eq!(engine.api.calls("/hook").len(), 1);

    let shown = gateway.json(&format!("/api/v1/session/{session_id}")).await;
    assert_eq!((&shown["conversation_turns"], &shown["published"]["forced"]), (&json!(3), &json!(false)));
    let history = gateway.json(&format!("/api/v1/chat/history/{session_id}")).await;
    assert_eq!((&history["total_turns"], &history["current_stage"]), (&json!(3), &json!("completed")));
    assert!(history["conversations"][0]["timestamp"].as_i64().unwrap() > 1_000_000_000_000);
}

async fn s21_a_gap_is_closed_by_an_alternative_and_a_failed_check_by_a_correction(backend: Backend) {
    let (engine, gateway) = system(backend, |_| Answer::Broken).await;
    let url = format!("{}/hook", engine.api.base_url);
    engine.model.script(move |asked| match asked.schema.as_str() {
        "authoring_clarification" => clarification(&[]),
        "authoring_negotiation" => negotiation(true, &[]),
        "authoring_gap_analysis" if asked.system.contains("公众号") || asked.user.contains('2') => {
            capabilities(&[("发布文章", Some("node.HTTP"))])
        }
        "authoring_gap_analysis" => capabilities(&[("微信朋友圈发布", None)]),
        "authoring_alternative_generation" => {
            let one = |id: &str, title: &str, complexity: &str| {
                json!({"id": id, "title": title, "description": title, "approach": "调用接口", "trade_offs": ["不是朋友圈"],
                    "complexity": complexity, "resolves": "微信朋友圈发布"})
            };
            let offered = [one("a", "发到微博", "simple"), one("b", "发到公众号", "medium")];
            Answer::json(&json!({"reply": "请选择：", "alternatives": offered}))
        }
        "authoring_workflow_generation" if asked.system.contains("WEATHER") => graph(&url, "LLM"),
        "authoring_workflow_generation" => graph(&url, "WEATHER"),
        "authoring_debug" => {
            Answer::json(&json!({"diagnosis": "没有这种节点", "changes": ["改用 LLM"], "give_up": false, "reopen": false}))
        }
        "" => Answer::Content("好文章".into()),
        other => panic!("an unexpected question: `{other}`"),
    });
    let session_id = begin(&gateway, json!({"action": "create"})).await;
    let first = chat(&gateway, &session_id, "把文章发到微信朋友圈", "m-1").await;
    let expected =
        ["clarification", "message", "negotiation", "message", "gap_analysis", "alternative_generation", "message"];
    assert_eq!(kinds(&first), expected);
    let options = &first.last().unwrap()["content"];
    assert_eq!(options["message_type"], "options");
    for alternative in options["alternatives"].as_array().unwrap() {
        assert!(
            ["id", "title", "description", "approach"].iter().all(|name| alternative[name].is_string()),
            "{alternative}"
        );
        assert!(alternative["trade_offs"].is_array());
        assert!(["simple", "medium", "complex"].contains(&alternative["complexity"].as_str().unwrap()));
    }
    let state = engine.store.authoring(&session_id).await.unwrap().unwrap().state;
    assert_eq!(state.state.gaps, ["微信朋友圈发布"]);

    let second = chat(&gateway, &session_id, "2", "m-2").await;
    let stages = kinds(&second);
    assert_eq!(stages[..2], ["alternative_generation", "negotiation"], "{second:#?}");
    let reports: Vec<bool> = second
        .iter()
        .filter(|event| event["type"] == "workflow_debugging")
        .map(|event| event["data"]["ok"].as_bool().unwrap())
        .collect();
    assert_eq!(reports, [false, true], "{second:#?}");
    assert_eq!(stages.last(), Some(&"message"));
    let status = gateway.json(&format!("/api/v1/workflow/{session_id}/status")).await;
    assert_eq!((&status["stage"], &status["debug_loop_count"]), (&json!("completed"), &json!(1)));
    let state = engine.store.authoring(&session_id).await.unwrap().unwrap().state;
    let info = &state.state.clarification_context.collected_info;
    assert!(info["alternative:微信朋友圈发布"].contains("公众号"), "{info:?}");
}

/// The document that [`answers`] makes, under another id.
async fn register(engine: &Engine, id: &str) -> String {
    let node = json!({"node_id": "sum", "type": "LLM", "name": "汇总", "config": {"prompt": "汇总"}});
    let document = json!({"type": "graph", "id": id, "name": "汇总", "nodes": [node], "edges": []});
    let workflow = WorkflowRecord::from_document(document, Timestamp::from_millis(0)).unwrap();
    let hash = workflow.hash.clone();
    engine.store.put_workflow(workflow).await.unwrap();
    hash
}

async fn s22_a_copy_leaves_its_source_as_it_is(backend: Backend) {
    let (engine, gateway) = system(backend, |asked| match asked.schema.as_str() {
        "" => Answer::Content("汇总".into()),
        _ => answers::script(asked),
    })
    .await;
    let hash = register(&engine, "W1").await;
    let refused = refusal(gateway.post("/api/v1/session", &json!({"action": "edit"})).await).await;
    assert_eq!(refused, (400, "workflow_id_required".to_owned()));
    let copy = begin(&gateway, json!({"action": "copy", "workflow_id": "W1"})).await;
    let copied = chat(&gateway, &copy, "八点汇总", "m-1").await;
    assert_eq!(kinds(&copied).last(), Some(&"message"), "{copied:#?}");
    let status = gateway.json(&format!("/api/v1/workflow/{copy}/status")).await;
    assert_eq!(status["stage"], "completed");
    assert_ne!(status["workflow_id"], "W1");
    assert_eq!(engine.store.workflow("W1").await.unwrap().unwrap().hash, hash);

    let edit = begin(&gateway, json!({"action": "edit", "workflow_id": "W1"})).await;
    chat(&gateway, &edit, "八点汇总", "m-1").await;
    let status = gateway.json(&format!("/api/v1/workflow/{edit}/status")).await;
    assert_eq!((&status["stage"], &status["workflow_id"]), (&json!("completed"), &json!("W1")));
    let edited = engine.store.workflow("W1").await.unwrap().unwrap();
    assert_ne!(edited.hash, hash);
    assert!(engine.store.workflow_version("W1", &hash).await.unwrap().is_some(), "the old version is kept");
    let diff = gateway.json(&format!("/api/v1/workflow/{edit}/diff")).await;
    assert_eq!((&diff["base_hash"], &diff["hash"]), (&json!(hash), &json!(edited.hash)));
    let history = gateway.json(&format!("/api/v1/sessions/{edit}")).await;
    assert_eq!(history["source_workflow_id"], Value::Null, "only the store has it");
}

/// Worker and gateway are killed while the model answers. The client sends the message again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s22_killed_processes_lose_no_word_and_repeat_only_the_call_under_way() {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let model = ScriptedModel::start(move |asked| match asked.schema.as_str() {
        "" => Answer::Content("汇总".into()),
        "authoring_gap_analysis" => answers::script(asked).gated(&held),
        _ => answers::script(asked),
    })
    .await;
    let mut backend = cluster().await;
    backend.settings = quick(backend.settings);
    let engine = Engine::watching(backend, model).await;
    let folder = tempfile::tempdir().unwrap();
    let start = |role: &str| Process::start(folder.path(), &engine.settings, &[role]);
    let (worker, gateway) = (start("worker"), Gateway::of(&engine).await);
    let session_id = begin(&gateway, json!({"action": "create", "session_id": "s1"})).await;
    let asked_first = chat(&gateway, &session_id, "每天汇总", "m-1").await;
    assert_eq!(kinds(&asked_first), ["clarification", "message"]);

    let body = json!({"session_id": "s1", "user_message": "八点", "message_id": "m-2"});
    let mut cut = gateway.post("/api/v1/chat/stream", &body).await;
    assert!(cut.chunk().await.unwrap().is_some(), "the turn has begun");
    is_asked(&engine, "gap_analysis").await;
    worker.kill();
    gateway.stop();
    drop(cut);
    gate.add_permits(100);
    let _worker = start("worker");
    let gateway = Gateway::of(&engine).await;
    let events = events(gateway.post("/api/v1/chat/stream", &body).await).await;
    assert_eq!(kinds(&events).last(), Some(&"message"), "{events:#?}");
    let status = gateway.json("/api/v1/workflow/s1/status").await;
    assert_eq!(status["stage"], "completed", "{}", Process::log(folder.path()));
    let history = gateway.json("/api/v1/chat/history/s1").await;
    let said = history["conversations"].as_array().unwrap().iter().filter(|said| said["role"] == "user").count();
    assert_eq!((said, &history["total_turns"]), (2, &json!(2)));
    let counted = |schema: &str| asked(&engine).iter().filter(|asked| *asked == schema).count();
    assert_eq!((counted("clarification"), counted("negotiation"), counted("workflow_generation")), (2, 1, 1));
    assert!(counted("gap_analysis") <= 2);
    // A repeat of the message belongs to the same turn.
    let again = chat(&gateway, "s1", "八点", "m-2").await;
    assert_eq!(again.last(), events.last());
}
