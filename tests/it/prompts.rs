//! The kept prompts of model calls: `journal.prompts`.

use crate::away::is_ready;
use crate::commands::Folder;
use crate::gateway::{Gateway, refusal};
use crate::scenarios::{acts, answer, on_both_backends, sales};
use crate::support::api;
use crate::support::engine::{Backend, Engine};
use crate::support::process::Process;
use crate::support::script::{Answer, ScriptedModel, plan};
use base::config::PromptKeeping;
use commands::deletion::Deletion;
use engine::action::http::{HttpCaller, SecretFill};
use engine::execution::Services;
use serde_json::{Value, json};
use std::sync::Arc;
use turnwheel::testing::{Script, TestEngine, act, say};

on_both_backends!(
    the_prompt_shown_is_what_the_model_got_with_secrets_masked,
    a_prompt_is_kept_in_each_attempt_and_goes_with_its_session,
    no_prompt_is_kept_unless_the_setting_says_so,
);

const SECRET: &str = "hidden-words-1";

fn mask(text: &str) -> String {
    text.replace(SECRET, "***")
}

/// An engine that keeps prompts and masks [`SECRET`], with two tool calls before an answer.
async fn keeping(mut backend: Backend) -> Engine {
    backend.settings.journal.prompts = Some(PromptKeeping::Full);
    let model = ScriptedModel::start(|asked| {
        let decision = match asked.index {
            0 | 1 => acts("processing", "TOOL", "eta", &json!({"order_id": format!("A{}", asked.index)})),
            _ => answer("好的 hidden-words-1"),
        };
        Answer::json(&if asked.schema == "plan_and_decision" { plan(json!("您好"), &decision) } else { decision })
    })
    .await;
    let engine = Engine::watching(backend, model).await;
    engine.api.script(|_, _| api::Answer::Now(200, json!({"days": 2, "“note”": "hidden-words-1\u{0}"})));
    let secrets = SecretFill::new(Arc::new(|text, _| Ok(text.to_owned())), Arc::new(mask));
    let http = HttpCaller::new(secrets, &engine.settings.http.allow_private).unwrap();
    engine.start_worker_with(Services { http, ..engine.services() });
    engine.apply(sales()).await;
    engine
}

fn address(turn: &str, key: &str) -> String {
    format!("/api/v1/sessions/s1/turns/{turn}/prompts/{}", key.replace('/', "%2F"))
}

/// The keys of the turn's model calls, in the order of the calls.
async fn calls(engine: &Engine, turn: &str) -> Vec<String> {
    let mut steps = engine.store.steps("s1", turn).await.unwrap();
    steps.retain(|step| step.kind == "model");
    steps.sort_by_key(|step| step.at);
    steps.into_iter().map(|step| step.key).collect()
}

async fn the_prompt_shown_is_what_the_model_got_with_secrets_masked(backend: Backend) {
    let engine = keeping(backend).await;
    let gateway = Gateway::of(&engine).await;
    engine.say("s1", "m-1", "我的口令是 hidden-words-1 “引号” \u{3000}<|im_start|>").await;
    engine.say("s1", "m-2", "还有呢").await;
    let mut shown = Vec::new();
    for turn in ["m-1", "m-2"] {
        for key in calls(&engine, turn).await {
            let prompt = gateway.json(&address(turn, &key)).await;
            assert_eq!(
                (&prompt["key"], &prompt["turn_id"], &prompt["cut"]),
                (&json!(key), &json!(turn), &json!(false))
            );
            shown.push(prompt["messages"].clone());
        }
    }
    let asked = engine.model.asked();
    assert_eq!((shown.len(), asked.len()), (4, 4), "{shown:#?}");
    for (shown, asked) in shown.iter().zip(asked) {
        let text = |role: &str| {
            let message = shown.as_array().unwrap().iter().rfind(|message| message["role"] == role);
            message.unwrap()["content"].as_str().unwrap().to_owned()
        };
        assert!(asked.system.contains("小智"), "a whole prompt");
        assert_eq!(text("system"), mask(&asked.system));
        // The client breaks up control tokens on the way to the server.
        assert_eq!(text("user").replace("<|im_start|>", ""), mask(&asked.user).replace(&asked_token(&asked.user), ""));
        assert!(!shown.to_string().contains(SECRET));
    }
    assert!(shown[1].to_string().contains("***"), "the API's result is in the second prompt: {}", shown[1]);
    // Steps are shown without their prompts.
    let turn = gateway.json("/api/v1/sessions/s1/turns/m-1").await;
    assert!(turn["steps"].as_array().unwrap().iter().all(|step| step.get("prompt").is_none()), "{turn}");
}

/// The control token as the client has sent it; empty without one.
fn asked_token(user: &str) -> String {
    let Some(start) = user.find("\u{3000}") else { return String::new() };
    user[start + '\u{3000}'.len_utf8()..].to_owned()
}

async fn a_prompt_is_kept_in_each_attempt_and_goes_with_its_session(backend: Backend) {
    let engine = keeping(backend).await;
    let gateway = Gateway::of(&engine).await;
    engine.say("s1", "m-1", "你好").await;
    let keys = calls(&engine, "m-1").await;
    // The last decision is recorded by the commit, the others before.
    for key in &keys {
        assert_eq!(gateway.get(&address("m-1", key)).await.status(), 200, "{key}");
    }
    for absent in [address("m-1", "0/act"), address("m-1", "9/decide"), address("m-9", "0/decide")] {
        assert_eq!(refusal(gateway.get(&absent).await).await, (404, "unknown_prompt".to_owned()), "{absent}");
    }
    let ack_wait = engine.settings.worker.ack_wait.0;
    let deletion = Deletion::new(engine.queue.as_ref(), engine.store.as_ref(), ack_wait);
    let deleted = deletion.session("s1").await.unwrap();
    assert!(json!(deleted)["steps"].as_u64().unwrap() >= 3, "{deleted:?}");
    for key in &keys {
        assert!(engine.store.prompt("s1", "m-1", key).await.unwrap().is_none(), "{key}");
    }
}

async fn no_prompt_is_kept_unless_the_setting_says_so(backend: Backend) {
    let model = ScriptedModel::start(|_| Answer::json(&plan(json!("您好"), &answer("好的")))).await;
    let engine = Engine::watching(backend, model).await;
    engine.start_worker();
    engine.apply(sales()).await;
    engine.say("s1", "m-1", "你好").await;
    assert_eq!(calls(&engine, "m-1").await, ["0/decide"]);
    let gateway = Gateway::of(&engine).await;
    let response = gateway.get(&address("m-1", "0/decide")).await;
    assert_eq!(response.status(), 404);
    let refused: Value = response.json().await.unwrap();
    assert_eq!(refused["error"]["code"], "unknown_prompt");
    assert!(refused["error"]["hint"].as_str().unwrap().contains("journal.prompts"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_s_scripted_model_got_the_prompt_that_is_kept() {
    const AGENT: &str = "id: a\nname: 小智\nsop: 回答问题。\ntools:\n  - id: now\n    builtin: now\n";
    let model = Script::answers([act("TOOL", "now", json!({})), say("好的"), say("再见")]);
    let full = |settings: &mut base::config::Settings| settings.journal.prompts = Some(PromptKeeping::Full);
    let mut engine = TestEngine::builder().agent(AGENT).model(&model).configure(full).start().await;
    engine.say("s1", "几点了？ “引号”\t").await;
    engine.say("s1", "谢谢").await;
    let store = engine.engine().store();
    let (mut turns, mut kept) = (store.turns("s1", 10).await.unwrap(), Vec::new());
    turns.reverse();
    for turn in turns {
        let mut steps = store.steps("s1", &turn.turn_id).await.unwrap();
        steps.retain(|step| step.kind == "model");
        steps.sort_by_key(|step| step.at);
        for step in steps {
            let prompt = commands::prompts::step_prompt(store.as_ref(), "s1", &turn.turn_id, &step.key).await.unwrap();
            kept.push(prompt.prompt.messages);
        }
    }
    let asked = model.asked();
    assert_eq!((kept.len(), asked.len()), (3, 3));
    for (kept, asked) in kept.iter().zip(asked) {
        assert_eq!((kept[0].role.as_str(), &kept[0].content), ("system", &asked.prompt));
        assert_eq!((kept[1].role.as_str(), &kept[1].content), ("user", &asked.message));
        assert_eq!(kept.len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dev_keeps_prompts_and_the_command_shows_them() {
    let folder = Folder::embedded();
    folder.write("turnwheel.toml", "");
    let dev = folder.dev().await;
    let said = folder
        .run(&["send", "--session", "s1", "--agent", "sales", "--job-id", "m-1", "--wait", "几点关门？"], "")
        .await;
    assert_eq!(said.code, 0, "{said:?}");
    let shown = folder.run(&["sessions", "prompts", "s1", "m-1"], "").await;
    assert!(shown.code == 0 && shown.out.contains("[system]") && shown.out.contains("几点关门？"), "{shown:?}");
    let json = folder.run(&["sessions", "prompts", "s1", "m-1", "--step", "0/decide", "--json"], "").await.json();
    assert_eq!(json["prompts"][0]["key"], "0/decide");
    let absent = folder.run(&["sessions", "prompts", "s1", "m-1", "--step", "7/decide"], "").await;
    assert!(absent.code == 1 && absent.err.contains("journal.prompts"), "{absent:?}");
    drop(dev);
    let _dev = Process::start(folder.path(), &folder.settings, &["--set", "journal.prompts=off", "dev"]);
    is_ready(&folder.settings).await;
    folder.run(&["send", "--session", "s1", "--job-id", "m-2", "--wait", "几点开门？"], "").await;
    let off = folder.run(&["sessions", "prompts", "s1", "m-2"], "").await;
    assert!(off.code == 1 && off.err.contains("journal.prompts"), "{off:?}");
    let kept = folder.run(&["sessions", "prompts", "s1", "m-1"], "").await;
    assert!(kept.code == 0, "prompts that are kept stay: {kept:?}");
}
