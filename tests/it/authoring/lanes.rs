//! Which jobs reach a dialogue, and how operators and time end it.

use super::*;
use crate::gateway::Gateway;
use types::authoring::Stage;
use types::cause::Cause;
use types::duration::Text;
use types::outcome::Outcome;
use types::session::Status;

on_both_backends!(
    a_message_for_another_agent_becomes_a_dead_letter,
    a_message_that_names_the_agent_is_a_turn_of_the_dialogue,
    the_id_of_a_message_may_have_dots,
    a_cancelled_turn_says_so_and_the_dialogue_goes_on,
    a_dialogue_can_be_closed_and_its_next_message_opens_it,
    a_dialogue_that_nobody_continues_expires,
);

async fn a_message_for_another_agent_becomes_a_dead_letter(backend: Backend) {
    let engine = started(backend, answers::script).await;
    engine.apply(crate::scenarios::sales()).await;
    for (job_id, agent_id) in [("m-1", "sales"), ("m-2", "nobody")] {
        let job =
            json!({"type": "user_message", "session_id": "s1", "job_id": job_id, "agent_id": agent_id, "text": "你好"});
        engine.publish_job("s1", job).await;
    }
    eventually(DEADLINE, "both are dead letters", || async { engine.dead_letters().await.len() == 2 }).await;
    let letters = engine.queue.dead_letters(0, 10).await.unwrap();
    assert!(letters.iter().all(|kept| kept.letter.cause == Cause::Invalid), "{letters:?}");
    assert!(letters[0].letter.reason.contains("/api/v1/chat/stream"), "{}", letters[0].letter.reason);
    assert_eq!(say(&engine, "m-3", "每天汇总").await.outcome, Outcome::Answered);
    assert_eq!(asked(&engine), ["clarification"]);
}

async fn a_message_that_names_the_agent_is_a_turn_of_the_dialogue(backend: Backend) {
    let engine = started(backend, answers::script).await;
    let job = json!({"type": "user_message", "session_id": "s1", "job_id": "m-1", "agent_id": "authoring", "text": "每天汇总"});
    engine.publish_job("s1", job).await;
    engine.turn("s1", "m-1").await;
    assert_eq!(whole(&told(&engine, "m-1").await), ["clarification", "message"]);
}

async fn the_id_of_a_message_may_have_dots(backend: Backend) {
    let engine = started(backend, answers::script).await;
    let gateway = Gateway::of(&engine).await;
    let url = format!("{}/api/v1/chat/stream", gateway.base);
    let message = json!({"session_id": "s1", "user_message": "每天汇总", "message_id": "1699999999.000100"});
    let response = gateway.client.post(&url).json(&message).send().await.unwrap();
    assert_eq!(response.status(), 200, "{:?}", response.text().await);
    engine.turn("s1", "1699999999.000100").await;
    let message = json!({"session_id": "s1", "user_message": "每天汇总"});
    let response = gateway.client.post(&url).header("idempotency-key", "a.b").json(&message).send().await.unwrap();
    assert_eq!(response.status(), 200, "{:?}", response.text().await);
    engine.turn("s1", "a.b").await;
}

async fn a_cancelled_turn_says_so_and_the_dialogue_goes_on(backend: Backend) {
    let engine = started(backend, |asked| match asked.schema.as_str() {
        "authoring_negotiation" => Answer::Hang,
        _ => answers::script(asked),
    })
    .await;
    publish(&engine, "m-1", "八点汇总").await;
    is_asked(&engine, "negotiation").await;
    let cancel = json!({"type": "control", "session_id": "s1", "command": "cancel", "job_id": "c-1", "by": "li"});
    engine.publish_job("s1", cancel).await;
    let turn = engine.turn("s1", "m-1").await;
    assert_eq!(turn.outcome, Outcome::Cancelled);
    let events = told(&engine, "m-1").await;
    assert_eq!(whole(&events), ["clarification", "message", "negotiation", "cancelled"]);
    ends_once(&events);
    assert_eq!(json!(events.last())["content"]["is_recoverable"], true);
    let said = engine.said("s1").await;
    assert!(said.iter().all(|(kind, _)| *kind == types::event::ReplyKind::Response), "no apology: {said:?}");
    let session = engine.session("s1").await;
    assert_eq!(session.workflow_state.status, Status::Cancelled);
    assert_eq!(session.history.len(), 2, "the message, and what was said before the cancellation");
    assert_eq!(state(&engine).await.state.stage, Stage::Negotiation, "the state is the one last saved");
    engine.model.script(answers::script);
    say(&engine, "m-2", "继续").await;
    assert_eq!(state(&engine).await.state.stage, Stage::Completed);
}

async fn a_dialogue_can_be_closed_and_its_next_message_opens_it(backend: Backend) {
    let engine = started(backend, answers::script).await;
    let close = json!({"type": "control", "session_id": "s1", "command": "close", "job_id": "c-1"});
    engine.publish_job("s1", close).await;
    engine.turn("s1", "c-1").await;
    assert!(engine.session("s1").await.closed_at.is_some());
    say(&engine, "m-1", "每天汇总").await;
    assert!(engine.session("s1").await.closed_at.is_none());
    assert_eq!(whole(&told(&engine, "m-1").await), ["clarification", "message"]);
}

async fn a_dialogue_that_nobody_continues_expires(mut backend: Backend) {
    backend.settings.retention.authoring = Text(Duration::from_millis(1));
    let engine = started(backend, answers::script).await;
    say(&engine, "m-1", "八点汇总").await;
    // The scheduler closes it first, and deletes it in a later round of its housekeeping.
    let close = json!({"type": "control", "session_id": "s1", "command": "close", "job_id": "c-1"});
    engine.publish_job("s1", close).await;
    engine.turn("s1", "c-1").await;
    engine.start_scheduler();
    eventually(DEADLINE, "the dialogue is gone", || async {
        engine.store.session("s1").await.unwrap().is_none() && engine.store.authoring("s1").await.unwrap().is_none()
    })
    .await;
    assert!(engine.store.workflow("id-s1").await.unwrap().is_some(), "what it has published stays");
}
