//! Faults in a turn of a dialogue, and the continuation of the dialogue.

use super::*;
use commands::authoring::Author;
use commands::authoring::chat::{self, ChatMessage};
use storage::store::authoring::{SaveAuthoring, Saved};
use types::authoring::{Publish, Stage};
use types::outcome::Outcome;
use types::session::Status;

on_both_backends!(
    an_answer_that_cannot_be_used_three_times_is_an_error_and_the_next_message_goes_on,
    a_stage_over_its_time_ends_the_turn,
    a_model_that_is_away_is_an_error_of_the_dialogue,
    a_spent_budget_is_an_error_of_the_dialogue,
    refused_messages_count_as_no_turn,
    a_state_that_another_program_changes_stands,
    a_missing_state_is_rebuilt_from_the_history,
    settings_of_a_dialogue_without_a_state_leave_it_its_history,
    a_worker_that_stops_repeats_only_the_call_under_way,
    a_turn_that_fails_for_good_ends_with_an_error,
);

async fn an_answer_that_cannot_be_used_three_times_is_an_error_and_the_next_message_goes_on(backend: Backend) {
    let engine = started(backend, |_| Answer::Content("当然可以！".into())).await;
    let turn = say(&engine, "m-1", "八点汇总").await;
    assert_eq!((turn.outcome, turn.reason.as_deref()), (Outcome::Answered, Some("invalid_answer")));
    let events = told(&engine, "m-1").await;
    assert_eq!(whole(&events), ["clarification", "error", "invalid_answer"]);
    ends_once(&events);
    assert_eq!(asked(&engine).len(), 3);
    let stored = state(&engine).await;
    assert_eq!((stored.state.stage, stored.resume_stage), (Stage::Error, Some(Stage::Clarification)));
    assert_eq!(engine.session("s1").await.workflow_state.status, Status::Ready);
    engine.model.script(answers::script);
    say(&engine, "m-2", "再试").await;
    assert_eq!(whole(&told(&engine, "m-2").await), ["clarification", "message"]);
}

async fn a_stage_over_its_time_ends_the_turn(backend: Backend) {
    let engine = watching(backend, |asked| match asked.schema.as_str() {
        "authoring_negotiation" => Answer::Hang,
        _ => answers::script(asked),
    })
    .await;
    create_with(engine.store.as_ref(), "s2", json!({"timeout_seconds": 1})).await;
    engine.start_worker();
    let job = json!({"type": "user_message", "session_id": "s2", "job_id": "m-1", "text": "八点汇总"});
    engine.publish_job("s2", job).await;
    let turn = engine.turn("s2", "m-1").await;
    assert_eq!((turn.outcome, turn.reason.as_deref()), (Outcome::Answered, Some("timeout")));
    let stored = engine.store.authoring("s2").await.unwrap().unwrap().state;
    assert_eq!((stored.state.stage, stored.resume_stage), (Stage::Negotiation, None), "finished stages are kept");
    let steps = engine.store.steps("s2", "m-1").await.unwrap();
    let failed: Vec<_> = steps.iter().filter(|step| !step.ok).map(|step| step.key.as_str()).collect();
    assert_eq!(failed, ["author@3/negotiation/model/0"], "a repeated turn takes the same way");
}

async fn a_model_that_is_away_is_an_error_of_the_dialogue(backend: Backend) {
    let engine = started(backend, |_| Answer::Status(400, Vec::new(), "{}".into())).await;
    let turn = say(&engine, "m-1", "八点汇总").await;
    assert_eq!(turn.reason.as_deref(), Some("model_unavailable"));
    let last = json!(told(&engine, "m-1").await.last());
    assert_eq!((&last["content"]["is_recoverable"], &last["is_final"]), (&json!(true), &json!(true)));
    assert_eq!(engine.said("s1").await, [], "an error is no reply");
}

async fn a_spent_budget_is_an_error_of_the_dialogue(backend: Backend) {
    let engine = watching(backend, answers::script).await;
    engine.apply(json!({"id": "authoring", "model": "default", "system_prompt": "…", "budget": {"turn": 1}})).await;
    engine.start_worker();
    let turn = say(&engine, "m-1", "八点汇总").await;
    assert_eq!(turn.reason.as_deref(), Some("token_budget"));
    assert_eq!(asked(&engine), ["clarification"], "the budget of the applied agent counts");
    assert_eq!(state(&engine).await.resume_stage, Some(Stage::Negotiation));
}

async fn refused_messages_count_as_no_turn(backend: Backend) {
    let engine = started(backend, answers::script).await;
    publish(&engine, "m-1", " 　\n").await;
    eventually(DEADLINE, "a message without words is refused", || async { !engine.dead_letters().await.is_empty() })
        .await;
    let large = say(&engine, "m-2", &"长".repeat(22_000)).await;
    assert_eq!(large.reason.as_deref(), Some("message_too_large"));
    let events = told(&engine, "m-2").await;
    assert_eq!(whole(&events), ["clarification", "message_too_large"]);
    ends_once(&events);
    let stored = state(&engine).await;
    assert_eq!((stored.turns, stored.state.conversations.len(), asked(&engine).len()), (0, 0, 0));
}

async fn a_state_that_another_program_changes_stands(backend: Backend) {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let open = Arc::clone(&gate);
    let engine = started(backend, move |asked| answers::script(asked).gated(&open)).await;
    publish(&engine, "m-1", "八点汇总").await;
    is_asked(&engine, "clarification").await;
    let mut theirs = state(&engine).await;
    theirs.state.stage = Stage::Negotiation;
    theirs.state.intent_summary = "别的".into();
    theirs.turn = None;
    let epoch = engine.session("s1").await.epoch;
    let save = SaveAuthoring { state: theirs, epoch: Some(epoch) };
    assert!(matches!(engine.store.save_authoring(save).await.unwrap(), Saved::Saved(_)));
    gate.add_permits(100);
    let turn = engine.turn("s1", "m-1").await;
    assert_eq!(turn.reason.as_deref(), Some("state_conflict"));
    let events = told(&engine, "m-1").await;
    assert_eq!(whole(&events), ["clarification", "state_conflict"]);
    ends_once(&events);
    let stored = state(&engine).await;
    assert_eq!((stored.state.stage, stored.state.intent_summary.as_str()), (Stage::Negotiation, "别的"));
    assert_eq!(engine.session("s1").await.history[0].text, "八点汇总", "the message is not lost");
    say(&engine, "m-2", "八点汇总").await;
    assert_eq!(whole(&told(&engine, "m-2").await)[0], "negotiation");
}

async fn a_missing_state_is_rebuilt_from_the_history(backend: Backend) {
    let engine = started(backend, answers::script).await;
    say(&engine, "m-1", "每天汇总").await;
    // Deletes the records of the session, and keeps the session itself.
    engine.store.erase_records("s1").await.unwrap();
    assert!(engine.store.authoring("s1").await.unwrap().is_none());
    say(&engine, "m-2", "每天").await;
    assert_eq!(whole(&told(&engine, "m-2").await), ["clarification", "message"]);
    let stored = state(&engine).await;
    let texts: Vec<_> = stored.state.conversations.iter().map(|entry| entry.text.as_str()).collect();
    assert_eq!(texts, ["每天汇总", "每天几点汇总？", "每天", "每天几点汇总？"]);
    assert_eq!((stored.turns, stored.total_entries, stored.state.user_id.as_str()), (2, 4, "u1"));
    assert!(stored.repaired_at.is_some());
}

async fn settings_of_a_dialogue_without_a_state_leave_it_its_history(backend: Backend) {
    let engine = started(backend, answers::script).await;
    say(&engine, "m-1", "每天汇总").await;
    engine.store.erase_records("s1").await.unwrap();
    let config = ConfigRequest { max_turns: Some(9), ..ConfigRequest::default() };
    let message = ChatMessage {
        session_id: "s1".into(),
        user_message: "每天".into(),
        message_id: Some("m-2".into()),
        config: Some(config),
    };
    let checked = chat::check(engine.store.as_ref(), &Author::User("u1".into()), message).await.unwrap();
    let stored = state(&engine).await;
    assert_eq!((stored.config.max_turns, stored.publish), (9, Publish::Manual));
    assert!(!stored.id.is_empty());
    checked.send(engine.queue.as_ref()).await.unwrap();
    engine.turn("s1", "m-2").await;
    let stored = state(&engine).await;
    let texts: Vec<_> = stored.state.conversations.iter().map(|entry| entry.text.as_str()).collect();
    assert_eq!(texts, ["每天汇总", "每天几点汇总？", "每天", "每天几点汇总？"]);
    assert_eq!((stored.turns, stored.publish), (2, Publish::Manual));
}

async fn a_worker_that_stops_repeats_only_the_call_under_way(mut backend: Backend) {
    backend.settings.worker.drain_timeout = types::duration::Text(Duration::from_millis(50));
    let (gate, held) = (Arc::new(tokio::sync::Semaphore::new(0)), Arc::new(tokio::sync::Semaphore::new(100)));
    let open = Arc::clone(&gate);
    let engine = watching(backend, move |asked| {
        let gate = if asked.schema == "authoring_gap_analysis" { &open } else { &held };
        answers::script(asked).gated(gate)
    })
    .await;
    let first = engine.start_worker();
    publish(&engine, "m-1", "八点汇总").await;
    is_asked(&engine, "gap_analysis").await;
    first.cancel();
    gate.add_permits(100);
    engine.start_worker();
    engine.turn("s1", "m-1").await;
    let counted = |schema: &str| asked(&engine).iter().filter(|asked| *asked == schema).count();
    assert_eq!((counted("clarification"), counted("negotiation"), counted("workflow_generation")), (1, 1, 1));
    assert!(counted("gap_analysis") <= 2);
    let events = told(&engine, "m-1").await;
    ends_once(&events);
    assert_eq!(whole(&events).last().unwrap(), "message");
    assert_eq!(state(&engine).await.state.stage, Stage::Completed);
}

async fn a_turn_that_fails_for_good_ends_with_an_error(mut backend: Backend) {
    backend.settings.worker.max_attempts = 1;
    let engine = watching(backend, answers::script).await;
    publish(&engine, "m-1", "八点汇总").await;
    engine.attempt_dies("s1").await;
    engine.start_worker();
    let turn = engine.turn("s1", "m-1").await;
    assert_eq!(turn.outcome, Outcome::Cancelled);
    let events = told(&engine, "m-1").await;
    assert_eq!(whole(&events), ["clarification", "error", "internal"]);
    ends_once(&events);
    assert_eq!(state(&engine).await.resume_stage, Some(Stage::Clarification));
    assert_eq!(json!(events.last())["content"]["is_recoverable"], false);
    assert_eq!(engine.said("s1").await, [], "no apology");
    say(&engine, "m-2", "每天汇总").await;
    assert_eq!(whole(&told(&engine, "m-2").await), ["clarification", "message"]);
}
