//! Commands of operators: cancelling turns, cancelling timers, replaying dead letters.

use super::{acts, answer, engine, on_both_backends, sales, sales_with};
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::script::{Answer, ScriptedModel, plan};
use crate::support::{api, backend, eventually};
use commands::operator::OperatorCommand;
use commands::sessions::has_jobs;
use serde_json::{Value, json};
use types::cause::Cause;
use types::event::Event;
use types::event::ReplyKind::{Apology, Response};
use types::job::Command;
use types::outcome::Outcome;
use types::session::Session;
use types::session::Status::{self, Cancelled, Ready};
use types::timestamp::Timestamp;

on_both_backends!(
    cancellation_reaches_a_running_model_call_at_once,
    cancellation_reaches_a_running_action_and_what_waits_before_it,
    cancellation_that_a_channel_publishes_reaches_a_running_turn,
    timers_are_cancelled_by_name_or_all,
    letter_of_an_unknown_agent_is_answered_once_it_is_known,
    letter_of_a_cancelled_turn_is_a_turn_of_its_own,
    letter_that_would_only_come_back_is_refused,
    a_session_shows_that_jobs_wait_while_no_worker_runs,
);

fn order(command: Command) -> OperatorCommand {
    OperatorCommand { command, name: None, reason: Some("错单".into()), by: Some("li".into()) }
}

async fn command(engine: &Engine, session_id: &str, order: OperatorCommand) -> String {
    commands::operator::command(engine.queue.as_ref(), engine.store.as_ref(), session_id, order).await.unwrap().job_id
}

/// Checks that the published statuses of a session form one chain.
async fn statuses_are_one_chain(engine: &Engine, session_id: &str) {
    let mut status = Ready;
    for event in engine.events(session_id).await {
        if let Event::Status(event) = event {
            assert_eq!(event.previous, status, "no transition is missing: {event:?}");
            status = event.status;
        }
    }
    assert_eq!(engine.session(session_id).await.workflow_state.status, status);
}

async fn apologies(engine: &Engine, session_id: &str) -> usize {
    engine.said(session_id).await.into_iter().filter(|(kind, _)| *kind == Apology).count()
}

/// An engine that has greeted in `s1`, and whose model blocks when the message is `慢`.
async fn hanging(backend: Backend) -> Engine {
    let engine = engine(backend, answer("您好"), vec![]).await;
    engine.say("s1", "m-1", "你好").await;
    engine.model.script(|asked| match asked.user.as_str() {
        "慢" => Answer::Hang,
        "查" if asked.system.contains("shipped") => Answer::json(&answer("已发货")),
        "查" => Answer::json(&acts("processing", "SKILL", "query_order", &json!({"order_id": "A1"}))),
        _ => Answer::json(&answer("好的")),
    });
    engine
}

async fn model_is_asked(engine: &Engine, text: &str) {
    eventually(DEADLINE, "the model is asked", || async {
        engine.model.asked().iter().any(|asked| asked.user == text)
    })
    .await;
}

async fn is_cancelled(engine: &Engine, turn_id: &str) {
    let turn = engine.turn("s1", turn_id).await;
    assert_eq!((turn.outcome, turn.reason.as_deref()), (Outcome::Cancelled, Some("operator: li: 错单")), "{turn:?}");
    assert_eq!(turn.attempts, 1);
    assert_eq!(turn.statuses.last().unwrap().status, Cancelled);
}

async fn cancellation_reaches_a_running_model_call_at_once(backend: Backend) {
    let engine = hanging(backend).await;
    engine.publish("s1", "m-2", "慢").await;
    model_is_asked(&engine, "慢").await;
    let job_id = command(&engine, "s1", order(Command::Cancel)).await;
    // The model's own timeout is longer than this wait.
    is_cancelled(&engine, "m-2").await;
    assert_eq!(engine.turn("s1", &job_id).await.outcome, Outcome::Noop, "the command has nothing left to do");
    assert_eq!(engine.session("s1").await.status_reason.as_deref(), Some("operator: li: 错单"));
    assert_eq!(apologies(&engine, "s1").await, 1);
    let next = engine.say("s1", "m-3", "在吗").await;
    assert_eq!(next.outcome, Outcome::Answered);
    statuses_are_one_chain(&engine, "s1").await;
    assert!(engine.dead_letters().await.is_empty());
}

async fn cancellation_reaches_a_running_action_and_what_waits_before_it(backend: Backend) {
    let engine = hanging(backend).await;
    engine.api.script(|_, _| api::Answer::Hang);
    engine.publish("s1", "m-2", "查").await;
    eventually(DEADLINE, "the action runs", || async { engine.api.calls("/orders").len() == 1 }).await;
    engine.publish("s1", "m-3", "查").await;
    command(&engine, "s1", order(Command::Cancel)).await;
    engine.publish("s1", "m-4", "在吗").await;
    let last = engine.turn("s1", "m-4").await;
    assert_eq!(last.outcome, Outcome::Answered, "a message after the command is answered");
    is_cancelled(&engine, "m-2").await;
    is_cancelled(&engine, "m-3").await;
    assert_eq!(engine.api.calls("/orders").len(), 1, "no further action begins");
    assert_eq!(engine.said("s1").await.into_iter().filter(|(kind, _)| *kind == Response).count(), 2);
    statuses_are_one_chain(&engine, "s1").await;
}

async fn cancellation_that_a_channel_publishes_reaches_a_running_turn(backend: Backend) {
    let engine = hanging(backend).await;
    // On a cluster the command may wake either worker.
    engine.start_worker();
    engine.publish("s1", "m-2", "慢").await;
    model_is_asked(&engine, "慢").await;
    let job = json!({"type": "control", "session_id": "s1", "job_id": "c-1", "command": "cancel", "by": "li",
                     "reason": "错单"});
    engine.publish_job("s1", job).await;
    is_cancelled(&engine, "m-2").await;
    assert_eq!(engine.turn("s1", "c-1").await.outcome, Outcome::Noop);
}

async fn timers_are_cancelled_by_name_or_all(backend: Backend) {
    let engine = engine(backend, answer("您好"), vec![answer("在的")]).await;
    let timer = |name: &str| json!({"name": name, "delay": "1h", "message": "还在吗？"});
    engine.apply(sales_with(&json!({"timers": [timer("follow_up"), timer("回访"), timer("survey")]}))).await;
    for session_id in ["s1", "s2"] {
        engine.say(session_id, "m-1", "你好").await;
    }
    let names = async |session_id: &str| -> Vec<String> {
        engine.session(session_id).await.timers.into_iter().map(|timer| timer.name).collect()
    };
    let named = |name: &str| OperatorCommand { name: Some(name.into()), ..order(Command::CancelTimers) };
    let job_id = command(&engine, "s1", named("回访")).await;
    assert_eq!(engine.turn("s1", &job_id).await.outcome, Outcome::Silent);
    assert_eq!(names("s1").await, ["follow_up", "survey"]);
    let job_id = command(&engine, "s1", named("回访")).await;
    assert_eq!(engine.turn("s1", &job_id).await.outcome, Outcome::Noop, "the timer is cancelled already");
    let job_id = command(&engine, "s1", order(Command::CancelTimers)).await;
    assert_eq!(engine.turn("s1", &job_id).await.outcome, Outcome::Silent);
    assert!(names("s1").await.is_empty());
    assert_eq!(names("s2").await.len(), 3, "other sessions keep their timers");
    assert_eq!(engine.session("s1").await.workflow_state.status, Ready);
}

/// A command that found nothing to do was not sent, although a message waited.
async fn a_session_shows_that_jobs_wait_while_no_worker_runs(backend: Backend) {
    let model = ScriptedModel::answering(vec![plan(json!("您好"), &answer("您好"))]).await;
    let engine = Engine::watching(backend, model).await;
    engine.apply(sales()).await;
    let worker = engine.start_worker();
    engine.say("s1", "m-1", "你好").await;
    let waits = async |session: &Session| has_jobs(engine.queue.as_ref(), session).await.unwrap();
    let known = engine.session("s1").await;
    eventually(DEADLINE, "the lane is empty", || async { !waits(&known).await }).await;
    worker.cancel();
    engine.publish("s1", "m-2", "在吗").await;
    let session = engine.session("s1").await;
    assert!(session.pending_seq <= session.last_seq, "no worker has taken the message: {session:?}");
    assert!(waits(&session).await);
    let of_former = Session { stream: Some(Timestamp::from_millis(1)), last_seq: 1_000, ..session };
    assert!(waits(&of_former).await, "the session's sequence belongs to another stream");
}

async fn letter_of_an_unknown_agent_is_answered_once_it_is_known(backend: Backend) {
    let engine = engine(backend, answer("您好"), vec![]).await;
    let job =
        json!({"type": "user_message", "session_id": "新", "agent_id": "helper", "job_id": "m-1", "text": "你好"});
    engine.publish_job("新", job).await;
    eventually(DEADLINE, "the job is dead-lettered", || async { !engine.dead_letters().await.is_empty() }).await;
    let (queue, store) = (engine.queue.as_ref(), engine.store.as_ref());
    let refused = commands::dead_letters::replay(queue, store, "m-1").await.unwrap_err();
    assert_eq!(refused.code, "unknown_agent");
    assert_eq!(
        commands::dead_letters::newest(queue, 10).await.unwrap().len(),
        1,
        "a refused replay keeps the dead letter"
    );
    engine.apply(sales_with(&json!({"id": "helper"}))).await;
    let replayed = commands::dead_letters::replay(queue, store, "m-1").await.unwrap();
    assert_eq!(replayed.job_id, format!("m-1-replay-{}", replayed.seq));
    assert_eq!(engine.turn("新", &replayed.job_id).await.outcome, Outcome::Answered);
    assert!(commands::dead_letters::newest(queue, 10).await.unwrap().is_empty(), "a replay removes the dead letter");
    assert_eq!(commands::dead_letters::replay(queue, store, "m-1").await.unwrap_err().code, "unknown_letter");
}

/// A turn that was dead-lettered after its first worker died: `m-1` in `s1`.
async fn given_up(mut backend: Backend) -> Engine {
    backend.settings.worker.max_attempts = 1;
    let model = ScriptedModel::start(|asked| {
        let reply = answer("好的");
        Answer::json(&if asked.schema == "plan_and_decision" { plan(Value::Null, &reply) } else { reply })
    });
    let engine = Engine::watching(backend, model.await).await;
    engine.apply(sales_with(&json!({"greeting": null}))).await;
    engine.publish("s1", "m-1", "你好").await;
    engine.attempt_dies("s1").await;
    engine.start_worker();
    let turn = engine.turn("s1", "m-1").await;
    assert!(turn.reason.unwrap().starts_with("attempts"));
    engine
}

async fn letter_of_a_cancelled_turn_is_a_turn_of_its_own(backend: Backend) {
    let engine = given_up(backend).await;
    let (queue, store) = (engine.queue.as_ref(), engine.store.as_ref());
    let letter = commands::dead_letters::newest(queue, 10).await.unwrap().remove(0);
    assert_eq!((letter.cause, letter.session_id.as_str(), letter.attempts), (Cause::Attempts, "s1", 1));
    let replayed = commands::dead_letters::replay(queue, store, &letter.seq.to_string()).await.unwrap();
    let turn = engine.turn("s1", &replayed.job_id).await;
    assert_eq!(turn.outcome, Outcome::Answered, "although its id is known: {turn:?}");
    let session = engine.session("s1").await;
    assert_eq!((session.workflow_state.status, &session.status_reason), (Ready, &None));
    assert!(session.has_handled("m-1") && session.has_handled("m-1-replay-1"), "{:?}", session.recent_jobs);
    statuses_are_one_chain(&engine, "s1").await;
    assert_eq!(apologies(&engine, "s1").await, 1);
    assert!(commands::dead_letters::newest(queue, 10).await.unwrap().is_empty());
}

async fn letter_that_would_only_come_back_is_refused(backend: Backend) {
    let engine = given_up(backend).await;
    let (queue, store) = (engine.queue.as_ref(), engine.store.as_ref());
    engine.publish_job("s1", json!({"type": "dance", "session_id": "s1"})).await;
    eventually(DEADLINE, "the job is dead-lettered", || async { engine.dead_letters().await.len() == 2 }).await;
    let refused = commands::dead_letters::replay(queue, store, "2").await.unwrap_err();
    assert!(refused.code == "unfit_letter" && refused.message.contains("would fail again"), "{refused:?}");
    let newest: Vec<u64> =
        commands::dead_letters::newest(queue, 1).await.unwrap().into_iter().map(|letter| letter.seq).collect();
    assert_eq!(newest, [2], "the newest comes first");
    let first = commands::dead_letters::find(queue, "m-1").await.unwrap();
    assert_eq!(first.seq, 1);
    let shown = commands::dead_letters::DeadLetterDetails::from(&first);
    assert_eq!((shown.payload["text"].as_str(), shown.subject.ends_with(".jobs.s1")), (Some("你好"), true));
    let status = engine.session("s1").await.workflow_state.status;
    assert_eq!(status, Status::Cancelled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancellation_whose_hint_is_no_command_ends_no_turn() {
    let engine = hanging(backend::embedded().await).await;
    engine.publish("s1", "m-2", "慢").await;
    model_is_asked(&engine, "慢").await;
    let seq = engine.queue.next_in_lane("s1", 0, 0).await.unwrap().unwrap().seq;
    for seq in [0, seq, seq + 1, u64::MAX] {
        let hint = storage::queue::CancelHint { session_id: "s1".into(), seq, deleted: false };
        engine.queue.hint_cancel(hint).await.unwrap();
    }
    // A valid hint behind the invalid ones is the first that counts, with its own reason.
    command(&engine, "s1", order(Command::Cancel)).await;
    is_cancelled(&engine, "m-2").await;
}
