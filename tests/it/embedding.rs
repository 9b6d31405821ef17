//! The engine as a library: the examples, and behaviour that they do not show.

#[path = "../../examples/embedding/agent_test.rs"]
mod agent_test;
#[path = "../../examples/embedding/flow.rs"]
mod flow;
#[path = "../../examples/embedding/tool.rs"]
mod tool;
#[path = "../../examples/embedding/web.rs"]
mod web;

use crate::support::engine::DEADLINE;
use crate::support::servers::cluster;
use crate::support::{background, eventually};
use commands::messages::NewMessage;
use engine::action::function::NoParams;
use engine::model::offline::Offline;
use engine::workflow::FlowContext;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use turnwheel::testing::{self, Script, act, end, hand_off, plain, say, stream, unavailable};
use turnwheel::{Engine, EngineBuilder, EngineError};
use types::event::ReplyKind;
use types::job::Command;
use types::outcome::Outcome;
use types::session::Status;
use types::texts::Shown;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_examples_say_what_they_promise() {
    let greeting = "Hello, this is Robin from the bookshop.";
    assert_eq!(
        tool::run().await.unwrap(),
        [
            greeting,
            "三体 is in 上海.",
            "It arrives in 3 days.",
            "Sorry, I cannot look that up. Please check the order number."
        ]
    );
    let said = flow::run().await.unwrap();
    assert_eq!(said[..2], [greeting, "Shall I pay 12.90 euros for B1001 back to you?"]);
    assert!(said[2].starts_with("12.90 euros are on their way to you"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_within_a_web_server_serves_both_and_ends_with_it() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let (ended, end) = oneshot::channel();
    background(async move {
        let served = web::serve(listener, async { stopped.await.unwrap_or_default() }).await;
        let _ = ended.send(served.map_err(|error| error.to_string()));
    });
    let client = base::http_client::builder().no_proxy().build().unwrap();
    let asked = client.post(format!("{base}/chat")).json(&json!({"session": "s1", "text": "Where is B1001?"}));
    let said: Vec<String> = asked.send().await.unwrap().json().await.unwrap();
    assert_eq!(said[1], "The Dispossessed is in Leipzig.");
    let session = client.get(format!("{base}/api/v1/sessions/s1")).send().await.unwrap();
    assert_eq!(session.json::<Value>().await.unwrap()["agent_id"], "shop");
    let mut events = client.get(format!("{base}/api/v1/sessions/s1/events")).send().await.unwrap();
    stop.send(()).unwrap();
    while events.chunk().await.unwrap().is_some() {}
    tokio::time::timeout(DEADLINE, end).await.unwrap().unwrap().unwrap();
}

/// An agent whose only tool is registered in Rust.
const CLERK: &str = "
id: clerk
sop: Count.
double_text: merge
handoff: {mode: hold}
tools: [{id: count}]
rules:
  - when: {result_of: count}
    decide: {next_status: typing, response: 'It is {result}.'}
  - when: {contains: human}
    decide: {next_status: transferred, response: One moment.}
  - when: {always: true}
    decide: {next_status: processing, action: {type: TOOL, target: count, params: {}}}";

/// The same engine on both backends.
async fn on_both() -> [EngineBuilder; 2] {
    [Engine::in_memory(), Engine::builder(cluster().await.settings())]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_answered_once_and_the_answer_is_found_again() {
    for engine in on_both().await {
        let engine = engine.tool("count", async |_: NoParams| Ok::<_, String>(7)).agent(CLERK).start().await.unwrap();
        let message = NewMessage { job_id: Some("m-1".into()), ..NewMessage::new("s1", "clerk", "How many?") };
        let answer = engine.ask(message.clone()).await.unwrap();
        assert_eq!((answer.texts(), answer.turn.outcome), (vec!["It is 7."], Outcome::Answered));
        assert_eq!(engine.ask(message).await.unwrap(), answer, "the same message starts no second turn");
        assert_eq!(engine.answer("s1", "m-1").await.unwrap(), answer);

        let handed = engine.ask(NewMessage::new("s1", "clerk", "A human, please")).await.unwrap();
        assert_eq!(handed.of_kind(ReplyKind::Handoff), Some("One moment."));
        let forwarded = engine.ask(NewMessage::new("s1", "clerk", "Are you there?")).await.unwrap();
        assert_eq!((forwarded.texts().len(), forwarded.turn.outcome), (0, Outcome::Transferred));
        engine.control("s1", Command::Release).await.unwrap();
        assert_eq!(engine.ask(NewMessage::new("s1", "clerk", "And now?")).await.unwrap().text(), "It is 7.");
        assert!(engine.stop().await);
    }
}

/// A tool that reports its start, and returns once it gets a permit.
fn held_up(
    begun: &Arc<Notify>,
    go_on: &Arc<Notify>,
    answer: u32,
) -> impl Fn(NoParams) -> BoxFuture<'static, Result<u32, String>> + Send + Sync + 'static {
    let (begun, go_on) = (Arc::clone(begun), Arc::clone(go_on));
    move |_| {
        let (begun, go_on) = (Arc::clone(&begun), Arc::clone(&go_on));
        async move {
            begun.notify_one();
            go_on.notified().await;
            Ok(answer)
        }
        .boxed()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_was_merged_into_another_has_that_one_s_answer() {
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let count = held_up(&begun, &go_on, 1);
    let engine = Engine::in_memory().tool("count", count).agent(CLERK).start().await.unwrap();
    let send = async |job: &str| {
        let message = NewMessage { job_id: Some(job.into()), ..NewMessage::new("s1", "clerk", job) };
        engine.send(message).await.unwrap();
    };
    send("m-1").await;
    begun.notified().await;
    send("m-2").await;
    send("m-3").await;
    go_on.notify_one();
    begun.notified().await;
    go_on.notify_one();
    let (second, third) = (engine.answer("s1", "m-2").await.unwrap(), engine.answer("s1", "m-3").await.unwrap());
    assert_eq!(second.turn.turn_id, "m-2");
    assert_eq!(third, second);
    assert_eq!(third.texts(), ["It is 1."]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_runs_only_the_parts_that_it_starts() {
    let settings = cluster().await.settings();
    let front = Engine::builder(settings.clone()).configure(|settings| settings.gateway.listen.set_port(0));
    let front = front.model("own", Offline::new()).open().await.unwrap();
    let address = front.start_gateway().await.unwrap();
    let clerk = CLERK.replace("id: clerk", "id: clerk\nmodel: own");
    let worker = Engine::builder(settings).tool("count", async |_: NoParams| Ok::<_, String>(3));
    let worker = worker.model("own", Offline::new()).agent(&clerk).open().await.unwrap();
    let client = base::http_client::builder().no_proxy().build().unwrap();
    let models = client.get(format!("http://{address}/api/v1/models")).send().await.unwrap();
    let models: Value = models.json().await.unwrap();
    assert_eq!(models["agents"][0]["provider"], "rust", "{models}");
    let sent = front.send(NewMessage::new("s1", "clerk", "How many?")).await.unwrap();
    assert!(front.session("s1").await.unwrap().is_none(), "no worker has taken the message");
    worker.start_worker().unwrap();
    assert_eq!(front.answer("s1", &sent.job_id).await.unwrap().text(), "It is 3.");
    assert!(worker.stop().await && front.stop().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_lets_the_turn_in_hand_come_to_its_end_and_a_file_keeps_it() {
    let dir = tempfile::tempdir().unwrap();
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let count = held_up(&begun, &go_on, 9);
    let engine = Engine::embedded(dir.path()).tool("count", count).agent(CLERK).start().await.unwrap();
    let sent = engine.send(NewMessage::new("s1", "clerk", "How many?")).await.unwrap();
    begun.notified().await;
    let engine = Arc::new(engine);
    let stopping = Arc::clone(&engine);
    let (ended, end) = oneshot::channel();
    background(async move { ended.send(stopping.stop().await).unwrap() });
    engine.stopping().await;
    go_on.notify_one();
    assert!(tokio::time::timeout(DEADLINE, end).await.unwrap().unwrap(), "all parts have ended");
    drop(engine);
    let again =
        eventually(DEADLINE, "the file is free again", || async { Engine::embedded(dir.path()).open().await.ok() })
            .await;
    assert_eq!(again.answer("s1", &sent.job_id).await.unwrap().text(), "It is 9.");
}

#[tokio::test]
async fn what_cannot_work_is_told_when_the_engine_is_opened() {
    let why = |opened: Result<Engine, EngineError>| opened.err().unwrap().to_string();
    let number = Engine::in_memory().tool("count", async |_: u32| Ok::<_, String>(1)).open().await;
    let number = why(number);
    assert!(number.contains("`count`") && number.contains("integer") && number.contains("NoParams"), "{number}");
    let unknown = why(Engine::in_memory().agent("{id: a, sop: x, model: gtp}").open().await);
    assert!(unknown.contains("no model `gtp`") && unknown.contains("[models.gtp]"), "{unknown}");
    let flow = why(Engine::in_memory().agent("{id: a, sop: x, flows: [refnd]}").open().await);
    assert!(flow.contains("no flow `refnd`"), "{flow}");
    let missing = why(Engine::in_memory().agents("no/such/agent.yaml").open().await);
    assert!(missing.contains("no/such/agent.yaml"), "{missing}");

    let engine = Engine::in_memory().agent(CLERK).open().await.unwrap();
    let warned = engine.apply(definitions::agent::load::text("a.yaml".as_ref(), CLERK).unwrap()).await.unwrap();
    assert!(!warned.changed && warned.warnings[0].to_string().contains("registered in Rust"), "{warned:?}");
    let nobody = engine.ask(NewMessage::new("s1", "nobody", "hello")).await.unwrap_err().to_string();
    assert!(nobody.contains("no agent `nobody`") && nobody.contains("apply"), "{nobody}");
    let engine = Engine::in_memory().agent(CLERK).patience(Duration::from_millis(10)).open().await.unwrap();
    let overdue = engine.ask(NewMessage::new("s1", "clerk", "hello")).await.unwrap_err();
    assert!(matches!(overdue, EngineError::Overdue { .. }) && overdue.to_string().contains("worker"), "{overdue}");
}

/// The panic message of a failing test.
async fn failure(test: impl Future<Output = testing::TestEngine>) -> String {
    let Err(panic) = AssertUnwindSafe(test).catch_unwind().await else { panic!("the test did not fail") };
    panic.downcast_ref::<String>().cloned().unwrap_or_else(|| (*panic.downcast_ref::<&str>().unwrap()).to_owned())
}

const PLAIN: &str = "{id: a, greeting: 您好, sop: 回答。, timers: [{name: later, delay: 30m, message: 还在吗}]}";

#[tokio::test]
async fn a_script_at_its_end_fails_the_test_with_the_question() {
    let model = Script::answers(["第一句"]);
    let mut engine = testing::TestEngine::builder().agent(PLAIN).model(&model).start().await;
    assert_eq!(engine.say("s1", "在吗").await.texts(), ["您好", "第一句"]);
    let told = failure(async {
        engine.say("s1", "还在吗").await;
        engine
    });
    let told = told.await;
    for part in ["还在吗", "has 1 answers", "request 2", "decision"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let strict = Script::by(|asked| {
        assert_eq!(asked.message, "另一句");
        "好"
    });
    let mut engine = testing::TestEngine::builder().agent(PLAIN).model(&strict).start().await;
    let told = failure(async {
        engine.say("s1", "在吗").await;
        engine
    });
    assert!(told.await.contains("另一句"), "an assertion within the script fails the test");
    let nobody = Box::pin(failure(testing::TestEngine::builder().start())).await;
    assert!(nobody.contains("agent_file"), "{nobody}");
}

#[tokio::test]
async fn a_timer_that_has_fired_already_is_answered_once() {
    let soon = Duration::from_millis(1);
    let model = Script::by(|_| "好");
    let mut engine = testing::TestEngine::builder().agent(PLAIN).model(&model).timers_after(soon).start().await;
    engine.say("s1", "在吗").await;
    eventually(DEADLINE, "it has fired", || async { engine.session("s1").await.timers.is_empty() }).await;
    assert!(!engine.timer("s1", "later").await.texts().is_empty());
    let told = failure(async {
        engine.timer("s1", "later").await;
        engine
    });
    assert!(told.await.contains("no timer `later`"));
}

#[tokio::test]
async fn a_long_timer_is_not_waited_for_and_one_that_is_not_armed_is_named() {
    let mut engine = testing::TestEngine::builder().agent(PLAIN).model(&Script::by(|_| "好")).start().await;
    engine.say("s1", "在吗").await;
    let told = failure(async {
        engine.timer("s1", "later").await;
        engine
    });
    let told = told.await;
    assert!(told.contains("`later`") && told.contains("timers_after"), "{told}");
    let mut engine = testing::TestEngine::builder().agent(PLAIN).model(&Script::by(|_| end())).start().await;
    engine.say("s1", "在吗").await;
    let told = failure(async {
        engine.timer("s1", "sooner").await;
        engine
    });
    let told = told.await;
    assert!(told.contains("no timer `sooner`") && told.contains("later"), "{told}");
}

#[tokio::test]
async fn a_scripted_model_may_err_be_away_or_hand_over() {
    let model = Script::answers([plain("nonsense"), say("mended"), unavailable("HTTP 503"), hand_off("One moment.")]);
    let mut engine = testing::TestEngine::builder().agent("{id: a, sop: Answer.}").model(&model).start().await;
    assert_eq!(engine.say("s1", "hello").await.text(), "mended");
    assert!(model.asked()[1].index == 1 && model.asked()[1].schema == "plan_and_decision");
    let away = engine.say("s1", "hello?").await;
    assert_eq!(away.turn.outcome, Outcome::Cancelled);
    assert!(away.of_kind(ReplyKind::Apology).is_some(), "{away:?}");
    assert!(away.turn.reason.unwrap().contains("HTTP 503"));
    assert_eq!(engine.say("s1", "a human!").await.of_kind(ReplyKind::Handoff), Some("One moment."));
    assert_eq!(engine.session("s1").await.workflow_state.status, Status::Ready);
}

#[tokio::test]
async fn a_function_stands_in_for_an_address_and_a_secret_for_the_environment() {
    let agent = "
id: a
sop: x
skills: [{id: look_up, http: {url: 'https://api.example.com/{id}', headers: {Authorization: 'Bearer ${TOKEN}'}}, params: {type: object, properties: {id: {type: string}}}}]";
    let model = Script::by(|asked| match &asked.last_action {
        Some((_, result)) => say(format!("{}", result["result"])),
        None => act("SKILL", "look_up", json!({"id": "7"})),
    });
    let look_up = async |params: serde_json::Map<String, Value>| Ok::<_, String>(params["id"].clone());
    let builder = testing::TestEngine::builder().agent(agent).secrets([("TOKEN", "t0ken-t0ken")]);
    let mut engine = builder.skill("look_up", look_up).model(&model).start().await;
    let answer = engine.say("s1", "hello").await;
    assert_eq!(answer.text(), "\"7\"");
    let steps = engine.steps(&answer).await;
    let acted = steps.iter().find(|step| step.kind == "skill").unwrap();
    assert_eq!((acted.target.as_str(), acted.ok), ("look_up", true));
}

#[tokio::test]
async fn a_caller_hears_a_text_while_it_is_made() {
    let model = Script::answers([act("FLOW", "tell", json!({})), stream(["Once ", "upon ", "a time."])]);
    let tell = async |context: FlowContext| context.say("tale", "Tell.", &context.input).await;
    let builder = testing::TestEngine::builder().agent("{id: a, sop: Tell., flows: [tell]}").flow("tell", tell);
    let engine = builder.model(&model).start().await;
    let (mut shown, mut begun) = (String::new(), 0);
    let message = NewMessage { job_id: Some("m-1".into()), ..NewMessage::new("s1", "a", "A tale, please") };
    let answer = engine.engine().ask_listening(message, |reply, what| match what {
        Shown::Begins { .. } => {
            begun += 1;
            shown.clone_from(&reply.text);
        }
        Shown::GoesOn => shown.push_str(&reply.text),
        Shown::Whole { known, .. } => {
            assert!(begun == 1 && known > 0 && known == shown.len(), "{reply:?}");
            shown.push_str(&reply.text[known..]);
        }
        Shown::Nothing => {}
    });
    assert_eq!(answer.await.unwrap().texts(), ["Once upon a time."], "the answer has only whole texts");
    assert_eq!(shown, "Once upon a time.");
}
