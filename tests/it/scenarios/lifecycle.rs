//! Scenario S-12 and the other ends of a turn: limits, cancellation, held handoffs, merged messages, dead letters.

use super::{acts, answer, engine, on_both_backends, sales_with};
use crate::conformance::kit;
use crate::support::engine::{Backend, DEADLINE, Engine, statuses};
use crate::support::eventually;
use crate::support::script::{Answer, ScriptedModel, action, decision, plan};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use storage::store::records::{Acquire, Record};
use tokio::sync::Semaphore;
use types::cause::Cause::{self, Invalid, UnknownAgent};
use types::event::ReplyKind::{Apology, Response};
use types::outcome::Outcome;
use types::session::Role;
use types::session::Status::{self, Cancelled, Processing, Ready, Transferred, Typing};

on_both_backends!(
    s12_prose_three_times_cancels_with_one_apology_and_the_next_message_is_answered,
    invalid_decision_is_corrected_with_its_error,
    iterations_are_limited,
    three_idle_decisions_cancel,
    phase_one_is_the_first_iteration,
    a_refused_action_leaves_a_step,
    a_refused_profile_is_told_to_the_model,
    repeated_silent_action_with_a_response_ends_typing,
    a_replay_that_does_not_match_cancels_with_its_reason,
    repeated_silent_action_ends_the_turn,
    unavailable_model_cancels_the_turn,
    held_handoff_forwards_until_released,
    held_handoff_times_out,
    failed_handoff_cancels_and_tells_the_user,
    operator_cancels_and_closes,
    merge_makes_one_turn_of_what_arrived_meanwhile,
    queue_makes_a_turn_of_each,
    bad_jobs_are_dead_lettered_and_the_lane_goes_on,
);

async fn s12_prose_three_times_cancels_with_one_apology_and_the_next_message_is_answered(backend: Backend) {
    let engine = engine(backend, answer("您好"), vec![]).await;
    engine.say("s1", "m-1", "你好").await;
    engine.model.script(|_| Answer::Content("好的，我来看看。".into()));
    let turn = engine.say("s1", "m-2", "查一下").await;

    assert_eq!(statuses(&turn), [Processing, Cancelled]);
    assert_eq!(engine.model.asked().len(), 1 + 3, "one call and two corrections");
    let session = engine.session("s1").await;
    assert!(session.status_reason.as_deref().unwrap().starts_with("invalid_decision"));
    let apologies = engine.said("s1").await.into_iter().filter(|(kind, _)| *kind == Apology).count();
    assert_eq!(apologies, 1);

    engine.model.script(|_| Answer::json(&answer("您好！")));
    let next = engine.say("s1", "m-3", "你好").await;
    assert_eq!(statuses(&next), [Processing, Typing, Ready]);
    assert_eq!(engine.session("s1").await.status_reason, None);
    assert_eq!(engine.model.asked().len(), 5, "the cancelled job is not redelivered");
}

async fn invalid_decision_is_corrected_with_its_error(backend: Backend) {
    let rest = vec![decision("acknowledged", Value::Null, json!("x")), answer("好的")];
    let engine = engine(backend, answer("您好"), rest).await;
    engine.say("s1", "m-1", "你好").await;
    let turn = engine.say("s1", "m-2", "在吗").await;
    assert_eq!(turn.outcome, Outcome::Answered);
    assert!(engine.model.asked()[2].user.contains("acknowledged"), "the model gets the error");
}

async fn iterations_are_limited(backend: Backend) {
    let engine = engine(backend, answer("您好"), vec![acts("processing", "TOOL", "now", &json!({}))]).await;
    engine.apply(sales_with(&json!({"max_iterations": 4}))).await;
    engine.say("s1", "m-1", "你好").await;
    let turn = engine.say("s1", "m-2", "几点了").await;
    assert_eq!(turn.outcome, Outcome::Cancelled);
    assert!(turn.reason.unwrap().starts_with("iteration_limit"));
    assert_eq!(engine.model.asked().len(), 1 + 4);
    assert_eq!(engine.said("s1").await.last().unwrap().0, Apology);
}

async fn three_idle_decisions_cancel(backend: Backend) {
    let engine = engine(backend, answer("您好"), vec![decision("processing", Value::Null, Value::Null)]).await;
    engine.say("s1", "m-1", "你好").await;
    let turn = engine.say("s1", "m-2", "嗯").await;
    assert!(turn.reason.unwrap().starts_with("no_progress"));
    let asked = engine.model.asked();
    assert_eq!(asked.len(), 1 + 3);
    let hint = "brought the turn no further";
    let hinted: Vec<bool> = asked[1..].iter().map(|asked| asked.system.contains(hint)).collect();
    assert_eq!(hinted, [false, true, true], "the model gets a hint");
    let apologies = engine.said("s1").await.into_iter().filter(|(kind, _)| *kind == Apology).count();
    assert_eq!(apologies, 1);
}

async fn phase_one_is_the_first_iteration(backend: Backend) {
    let act = acts("processing", "TOOL", "now", &json!({}));
    let engine = engine(backend, act.clone(), vec![act]).await;
    engine.apply(sales_with(&json!({"max_iterations": 3}))).await;
    let turn = engine.say("s1", "m-1", "几点了").await;
    assert!(turn.reason.unwrap().starts_with("iteration_limit"));
    let schemas: Vec<String> = engine.model.asked().into_iter().map(|asked| asked.schema).collect();
    assert_eq!(schemas, ["plan_and_decision", "decision", "decision"]);
    assert_eq!((turn.actions.len(), turn.tokens), (3, 3 * 18));
}

async fn a_refused_action_leaves_a_step(backend: Backend) {
    let rest = vec![
        acts("processing", "FLOW", "not_mine", &json!({})),
        acts("processing", "TOOL", "send_email", &json!({})),
        answer("我没办法发邮件"),
    ];
    let engine = engine(backend, answer("您好"), rest).await;
    engine.say("s1", "m-1", "你好").await;
    let turn = engine.say("s1", "m-2", "发邮件").await;
    assert_eq!((turn.outcome, turn.actions), (Outcome::Answered, vec!["not_mine".to_owned(), "send_email".to_owned()]));
    let steps = engine.store.steps("s1", "m-2").await.unwrap();
    for (key, kind, target) in [("0/flow", "flow", "not_mine"), ("1/act", "tool", "send_email")] {
        let step = steps.iter().find(|step| step.key == key).unwrap_or_else(|| panic!("{key}: {steps:?}"));
        assert_eq!((step.kind.as_str(), step.target.as_str(), step.ok), (kind, target, false));
        assert!(step.output["error"].as_str().unwrap().contains(&format!("there is no {kind} `{target}`")), "{step:?}");
    }
}

async fn a_refused_profile_is_told_to_the_model(backend: Backend) {
    let large = json!({"note": "长".repeat(30_000)});
    let engine = engine(backend, acts("processing", "SYSTEM", "update_profile", &large), vec![answer("记不下")]).await;
    engine.say("s1", "m-1", "记一下").await;
    let asked = &engine.model.asked()[1].system;
    assert!(
        asked.contains("update_profile: {") && asked.contains("more than 65536"),
        "the refusal is among the results"
    );
    let steps = engine.store.steps("s1", "m-1").await.unwrap();
    assert!(!steps.iter().find(|step| step.kind == "system").unwrap().ok);
    assert!(engine.session("s1").await.profile.is_empty());
}

async fn repeated_silent_action_ends_the_turn(backend: Backend) {
    let update = acts("processing", "SYSTEM", "update_profile", &json!({"phone": "1"}));
    let engine = engine(backend, answer("您好"), vec![update]).await;
    engine.say("s1", "m-1", "你好").await;
    let turn = engine.say("s1", "m-2", "换号码了").await;
    assert_eq!(statuses(&turn), [Processing, Ready]);
    assert_eq!(engine.model.asked().len(), 1 + 2);
}

async fn repeated_silent_action_with_a_response_ends_typing(backend: Backend) {
    let update = action("SYSTEM", "update_profile", &json!({"phone": "1"}));
    let engine = engine(backend, answer("您好"), vec![decision("processing", update, json!("记下了"))]).await;
    engine.say("s1", "m-1", "你好").await;
    let turn = engine.say("s1", "m-2", "换号码了").await;
    assert_eq!(statuses(&turn), [Processing, Typing, Ready]);
    assert_eq!((turn.outcome, engine.model.asked().len()), (Outcome::Answered, 1 + 2));
}

async fn a_replay_that_does_not_match_cancels_with_its_reason(backend: Backend) {
    let engine = Engine::watching(backend, ScriptedModel::answering(vec![answer("好的")]).await).await;
    engine.apply(sales_with(&json!({}))).await;
    engine.publish("s1", "m-1", "你好").await;
    let taken = engine.queue.pull(1, DEADLINE).await.unwrap().remove(0);
    // An attempt whose worker died, and whose first recorded decision belongs to another input.
    let wish = kit::acquire("s1", taken.message.seq, "dead");
    let begun = Acquire { lease: Duration::ZERO, stream: taken.message.stream, ..wish };
    let epoch = kit::granted(engine.store.acquire(begun).await.unwrap()).session.epoch;
    let step = kit::step("0/decide", json!("{}"));
    let record = Record { session_id: "s1".into(), epoch, turn_id: "m-1".into(), steps: vec![step], status: None };
    engine.store.record(record).await.unwrap();
    engine.queue.nak(&taken.token, Duration::ZERO).await.unwrap();
    engine.start_worker();
    let turn = engine.turn("s1", "m-1").await;
    assert_eq!(turn.statuses.last().unwrap().status, Cancelled);
    assert!(turn.reason.unwrap().starts_with("replay: "));
    assert_eq!(engine.dead_letters().await, [(Cause::Replay, Some("m-1".to_owned()))]);
    assert_eq!(engine.said("s1").await.last().unwrap().0, Apology);
    assert!(engine.session("s1").await.status_reason.unwrap().starts_with("replay: "));
}

async fn unavailable_model_cancels_the_turn(backend: Backend) {
    let engine = engine(backend, answer("您好"), vec![]).await;
    engine.say("s1", "m-1", "你好").await;
    engine.model.script(|_| Answer::status(503, "scripted"));
    let turn = engine.say("s1", "m-2", "在吗").await;
    assert!(turn.reason.unwrap().starts_with("model_unavailable"));
    assert_eq!(engine.said("s1").await.last().unwrap().0, Apology);
}

/// A session that a human has taken over, with this `handoff` configuration.
async fn held(backend: Backend, handoff: Value) -> Engine {
    let first = decision("transferred", action("SYSTEM", "handoff", &json!({})), json!("正在为您转接"));
    let engine = engine(backend, first, vec![answer("我是小智，我回来了")]).await;
    engine.apply(sales_with(&json!({"handoff": handoff}))).await;
    let turn = engine.say("s1", "m-1", "转人工").await;
    assert_eq!(turn.statuses.last().unwrap().status, Transferred);
    engine
}

async fn status_becomes(engine: &Engine, status: Status) {
    eventually(DEADLINE, &format!("the status becomes {status}"), || async {
        (engine.session("s1").await.workflow_state.status == status).then_some(())
    })
    .await;
}

async fn held_handoff_forwards_until_released(backend: Backend) {
    let engine = held(backend, json!({"http": {"method": "POST", "url": "{api}/desk"}})).await;
    let said = engine.said("s1").await.len();
    let turn = engine.say("s1", "m-2", "有人吗").await;
    assert_eq!(turn.outcome, Outcome::Transferred);
    assert!(turn.statuses.is_empty(), "the status does not change");
    assert_eq!(engine.said("s1").await.len(), said, "the agent is silent");
    let desk = engine.api.calls("/desk");
    assert_eq!(desk.len(), 2);
    assert_eq!(desk[1].body["event"], "message");
    assert_eq!(desk[1].body["text"], "有人吗");
    assert_eq!(desk[1].body["job_id"], "m-2");

    engine.publish_job("s1", json!({"type": "control", "session_id": "s1", "command": "release", "by": "op"})).await;
    status_becomes(&engine, Ready).await;
    engine.say("s1", "m-3", "谢谢").await;
    assert_eq!(engine.said("s1").await.last().unwrap(), &(Response, "我是小智，我回来了".into()));
    assert!(engine.session("s1").await.history.iter().any(|entry| entry.role == Role::User && entry.text == "有人吗"));
}

async fn held_handoff_times_out(backend: Backend) {
    let engine = held(backend, json!({"mode": "hold", "timeout": "1s"})).await;
    status_becomes(&engine, Ready).await;
    let session = engine.session("s1").await;
    assert!(session.handoff.is_none() && session.timers.is_empty());
}

async fn failed_handoff_cancels_and_tells_the_user(backend: Backend) {
    let first = decision("transferred", Value::Null, json!("正在为您转接"));
    let engine = engine(backend, first, vec![]).await;
    engine.api.script(|_, _| (403, json!({})));
    let turn = engine.say("s1", "m-1", "转人工").await;
    assert_eq!(turn.statuses.last().unwrap().status, Cancelled);
    assert!(turn.reason.unwrap().starts_with("handoff_failed"));
    assert_eq!(engine.said("s1").await.last().unwrap().0, Apology);
}

async fn operator_cancels_and_closes(backend: Backend) {
    let engine = engine(backend, answer("您好"), vec![answer("在的")]).await;
    engine.apply(sales_with(&json!({"timers": [{"name": "follow_up", "delay": "1h", "message": "还在吗？"}]}))).await;
    engine.say("s1", "m-1", "你好").await;
    engine
        .publish_job(
            "s1",
            json!({"type": "control", "session_id": "s1", "job_id": "c-1", "command": "cancel", "by": "op"}),
        )
        .await;
    let turn = engine.turn("s1", "c-1").await;
    assert_eq!(turn.reason.as_deref(), Some("operator: op"));
    let session = engine.session("s1").await;
    assert_eq!(session.workflow_state.status, Cancelled);
    assert!(session.timers.is_empty());

    engine.say("s1", "m-2", "在吗").await;
    engine.publish_job("s1", json!({"type": "control", "session_id": "s1", "job_id": "c-2", "command": "close"})).await;
    engine.turn("s1", "c-2").await;
    let session = engine.session("s1").await;
    assert!(session.closed_at.is_some() && session.timers.is_empty());
}

/// Sends one message, and two more while its turn waits for the model.
async fn double_text(backend: Backend, mode: &str) -> Engine {
    let engine = engine(backend, answer("您好"), vec![]).await;
    engine.apply(sales_with(&json!({"double_text": mode}))).await;
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    engine.model.script(move |asked| match asked.index {
        0 => Answer::json(&plan(Value::Null, &answer("一"))).gated(&held),
        _ => Answer::json(&answer("二")),
    });
    engine.publish("s1", "m-1", "第一").await;
    eventually(DEADLINE, "the first turn asks the model", || async {
        (!engine.model.asked().is_empty()).then_some(())
    })
    .await;
    engine.publish("s1", "m-2", "第二").await;
    engine.publish("s1", "m-3", "第三").await;
    gate.add_permits(1);
    engine
}

async fn merge_makes_one_turn_of_what_arrived_meanwhile(backend: Backend) {
    let engine = double_text(backend, "merge").await;
    engine.turn("s1", "m-2").await;
    let session = engine.session("s1").await;
    assert!(session.has_handled("m-3"));
    assert_eq!(engine.model.asked().len(), 2);
    assert_eq!(engine.model.asked()[1].user, "第二\n第三");
    assert!(engine.store.turn("s1", "m-3").await.unwrap().is_none(), "one turn, under the first id");
    let texts: Vec<_> = session.history.iter().filter(|e| e.role == Role::User).map(|e| e.text.clone()).collect();
    assert_eq!(texts, ["第一", "第二", "第三"]);
}

async fn queue_makes_a_turn_of_each(backend: Backend) {
    let engine = double_text(backend, "queue").await;
    engine.turn("s1", "m-3").await;
    let asked: Vec<_> = engine.model.asked().into_iter().map(|asked| asked.user).collect();
    assert_eq!(asked, ["第一", "第二", "第三"]);
}

async fn bad_jobs_are_dead_lettered_and_the_lane_goes_on(backend: Backend) {
    let engine = engine(backend, answer("您好"), vec![answer("好的")]).await;
    engine.say("s1", "m-1", "你好").await;
    for job in [
        json!("not a job"),
        json!({"type": "user_message", "session_id": "s1", "agent_id": "sales"}),
        json!({"type": "user_message", "session_id": "other", "agent_id": "sales", "text": "x"}),
        json!({"type": "user_message", "session_id": "s1", "agent_id": "nobody", "text": "x"}),
        json!({"type": "user_message", "session_id": "s1", "agent_id": "a.b", "text": "x"}),
        json!({"type": "dance", "session_id": "s1"}),
    ] {
        engine.publish_job("s1", job).await;
    }
    let turn = engine.say("s1", "m-2", "还在吗").await;
    assert_eq!(turn.outcome, Outcome::Answered);
    assert_eq!(engine.session("s1").await.workflow_state.status, Ready);
    // A lane whose only job is invalid leaves no session.
    engine.publish_job("s9", json!({"type": "user_message", "session_id": "s9", "text": "x"})).await;
    engine.say("s2", "m-1", "你好").await;
    assert!(engine.store.session("s9").await.unwrap().is_none());
    let causes: Vec<Cause> = engine.dead_letters().await.into_iter().map(|(cause, _)| cause).collect();
    assert_eq!(causes, [Invalid, Invalid, Invalid, UnknownAgent, Invalid, Invalid, Invalid]);
}
