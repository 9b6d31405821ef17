//! JSON nested deeper than stores and parsers accept: it neither stops a turn nor damages a session.

use crate::scenarios::{acts, answer, on_both_backends, sales};
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::eventually;
use crate::support::script::{ScriptedModel, plan};
use serde_json::{Value, json};
use types::cause::Cause;
use types::event::ReplyKind;

on_both_backends! {
    a_deep_answer_of_an_api_is_kept_as_a_text,
    a_deep_job_goes_to_the_dead_letters_and_the_session_goes_on,
    a_deep_decision_is_asked_for_again,
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!("deep"), |inner, _| json!([inner]))
}

async fn engine(backend: Backend, answers: Vec<Value>) -> Engine {
    let engine = Engine::start(backend, ScriptedModel::answering(answers).await, 1).await;
    engine.apply(sales()).await;
    engine
}

async fn a_deep_answer_of_an_api_is_kept_as_a_text(backend: Backend) {
    let call = || acts("processing", "TOOL", "eta", &json!({"order_id": "A1"}));
    let engine = engine(backend, vec![plan(Value::Null, &call()), call(), answer("好的")]).await;
    let calls = std::sync::atomic::AtomicUsize::new(0);
    engine.api.script(move |_, _| {
        // First the deepest value that is kept as it is, then the deepest that a JSON parser accepts.
        let levels = [types::depth::MAX_DEPTH, 126][calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst).min(1)];
        (200, nested(levels))
    });
    engine.say("s1", "m-1", "几天到").await;
    assert_eq!(engine.said("s1").await.last().unwrap(), &(ReplyKind::Response, "好的".to_owned()));
    let steps = engine.store.steps("s1", "m-1").await.unwrap();
    let results: Vec<&Value> =
        steps.iter().filter(|step| step.kind == "tool").map(|step| &step.output["result"]).collect();
    assert_eq!(results, [&nested(types::depth::MAX_DEPTH), &Value::from(nested(126).to_string())]);
}

async fn a_deep_job_goes_to_the_dead_letters_and_the_session_goes_on(backend: Backend) {
    let engine = engine(backend, vec![plan(Value::Null, &answer("好的")), answer("在")]).await;
    let job = |id: &str, levels: usize| {
        json!({"type": "user_message", "session_id": "s1", "agent_id": "sales", "job_id": id, "text": "hi",
               "metadata": {"a": nested(levels)}, "attachments": [{"type": "image", "url": "x", "more": nested(levels)}]})
    };
    engine.publish_job("s1", job("m-1", 100)).await;
    engine.publish_job("s1", job("m-2", types::depth::MAX_DEPTH)).await;
    engine.turn("s1", "m-2").await;
    let letters = eventually(DEADLINE, "the deep job is dead-lettered", || async {
        Some(engine.dead_letters().await).filter(|letters| !letters.is_empty())
    })
    .await;
    assert_eq!(letters.iter().map(|(cause, _)| *cause).collect::<Vec<_>>(), [Cause::Invalid]);
    engine.say("s1", "m-3", "在吗").await;
    assert_eq!(engine.session("s1").await.history.len(), 5, "two messages, a greeting, two replies");
}

async fn a_deep_decision_is_asked_for_again(backend: Backend) {
    let deep = acts("processing", "SYSTEM", "update_profile", &json!({"a": nested(110)}));
    let engine = engine(backend, vec![plan(Value::Null, &deep), plan(Value::Null, &answer("好的"))]).await;
    engine.say("s1", "m-1", "换号码了").await;
    assert_eq!(engine.said("s1").await.last().unwrap(), &(ReplyKind::Response, "好的".to_owned()));
    assert!(engine.session("s1").await.profile.is_empty());
}
