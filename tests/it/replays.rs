//! Replaying many dead letters.

use crate::commands::Folder;
use crate::scenarios::{answer, engine, on_both_backends, sales_with};
use crate::support::backend::cluster;
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::eventually;
use crate::support::process::toml;
use crate::support::script::{Answer, Asked, ScriptedModel, plan};
use commands::dead_letters::{LetterFilter, ReplayedLetters, replay_many};
use serde_json::{Value, json};
use storage::queue::{DeadLetter, Publish, Queue};
use types::cause::Cause;
use types::outcome::Outcome;

on_both_backends!(
    each_letter_is_replayed_once_and_an_interrupted_replay_goes_on,
    letters_are_selected_by_cause_and_by_agent,
    a_letter_that_would_fail_again_or_has_no_room_stays,
    letters_that_die_again_are_not_replayed_endlessly,
);

/// A reply in the form that is asked for.
fn replies(asked: &Asked, text: &str) -> Answer {
    let decided = answer(text);
    Answer::json(&if asked.schema == "plan_and_decision" { plan(Value::Null, &decided) } else { decided })
}

/// Stores the letter of a user's message to a session of its own.
async fn bury(queue: &dyn Queue, session_id: &str, cause: Cause, job: Value) {
    let letter = DeadLetter {
        cause,
        reason: "a test".into(),
        subject: format!("tw.jobs.{session_id}"),
        attempts: 1,
        job_id: job["job_id"].as_str().map(str::to_owned),
        msg_id: format!("{session_id}/{cause:?}"),
        payload: serde_json::to_vec(&job).unwrap().into(),
        cut_from: None,
    };
    queue.publish_dead_letter(letter).await.unwrap();
}

fn message(session_id: &str, agent_id: Option<&str>) -> Value {
    json!({"type": "user_message", "session_id": session_id, "agent_id": agent_id, "job_id": "m-1", "text": "你好"})
}

async fn page(engine: &Engine, filter: LetterFilter) -> ReplayedLetters {
    replay_many(engine.queue.as_ref(), engine.store.as_ref(), filter).await.unwrap()
}

/// Replays page by page, as the command does.
async fn all(engine: &Engine, mut filter: LetterFilter) -> ReplayedLetters {
    let mut all = ReplayedLetters::default();
    while !all.complete {
        let done = page(engine, filter.clone()).await;
        (filter.after, filter.until) = (Some(done.after), Some(done.until));
        all.replayed.extend(done.replayed);
        all.refused.extend(done.refused);
        all.complete = done.complete;
    }
    all
}

async fn left(engine: &Engine) -> Vec<String> {
    let letters = engine.queue.dead_letters(0, 1_000).await.unwrap();
    letters.iter().map(|kept| kept.letter.subject.rsplit('.').next().unwrap().to_owned()).collect()
}

async fn each_letter_is_replayed_once_and_an_interrupted_replay_goes_on(backend: Backend) {
    let engine = engine(backend, answer("请讲"), vec![]).await;
    engine.model.script(|asked| replies(asked, "请讲"));
    for number in 0..7 {
        bury(
            engine.queue.as_ref(),
            &format!("s{number}"),
            Cause::Attempts,
            message(&format!("s{number}"), Some("sales")),
        )
        .await;
    }
    // As a command that is killed after its second page.
    let first = page(&engine, LetterFilter { limit: Some(2), ..LetterFilter::default() }).await;
    assert_eq!((first.replayed.len(), first.complete, first.until - first.after), (2, false, 5), "{first:?}");
    let of =
        LetterFilter { after: Some(first.after), until: Some(first.until), limit: Some(2), ..LetterFilter::default() };
    assert_eq!(page(&engine, of.clone()).await.replayed.len(), 2);
    assert_eq!(
        page(&engine, of).await.replayed.len(),
        2,
        "the same page again: its letters are gone, so it is the next"
    );

    let rest = all(&engine, LetterFilter { limit: Some(2), ..LetterFilter::default() }).await;
    assert_eq!((rest.replayed.len(), rest.refused.len()), (1, 0), "{rest:?}");
    assert!(left(&engine).await.is_empty());
    for number in 0..7 {
        let session = format!("s{number}");
        let turns = eventually(DEADLINE, "the job is a turn", || async {
            let turns = engine.store.turns(&session, 10).await.unwrap();
            (!turns.is_empty()).then_some(turns)
        })
        .await;
        assert_eq!(turns.len(), 1, "{turns:?}");
        assert!(turns[0].turn_id.starts_with("m-1-replay-"), "{turns:?}");
    }
    let nothing = page(&engine, LetterFilter::default()).await;
    assert!(nothing.complete && nothing.replayed.is_empty() && nothing.refused.is_empty(), "{nothing:?}");
}

async fn letters_are_selected_by_cause_and_by_agent(backend: Backend) {
    let engine = engine(backend, answer("请讲"), vec![]).await;
    engine.model.script(|asked| replies(asked, "请讲"));
    engine.apply(sales_with(&json!({"id": "helper"}))).await;
    engine.say("known", "m-0", "你好").await;
    let queue = engine.queue.as_ref();
    bury(queue, "a", Cause::UnknownAgent, message("a", Some("helper"))).await;
    bury(queue, "b", Cause::Attempts, message("b", Some("helper"))).await;
    bury(queue, "c", Cause::UnknownAgent, message("c", Some("sales"))).await;
    bury(queue, "known", Cause::Attempts, message("known", None)).await;

    let of = |cause, agent: Option<&str>| LetterFilter {
        cause,
        agent_id: agent.map(str::to_owned),
        ..LetterFilter::default()
    };
    let both = all(&engine, of(Some(Cause::UnknownAgent), Some("helper"))).await;
    assert_eq!(both.replayed.iter().map(|letter| &*letter.session_id).collect::<Vec<_>>(), ["a"]);
    assert_eq!(left(&engine).await, ["b", "c", "known"]);
    let of_session = all(&engine, of(Some(Cause::Attempts), Some("sales"))).await;
    assert_eq!(
        of_session.replayed.iter().map(|letter| &*letter.session_id).collect::<Vec<_>>(),
        ["known"],
        "by the session's agent"
    );
    assert_eq!(all(&engine, of(None, Some("helper"))).await.replayed.len(), 1);
    assert_eq!(all(&engine, of(Some(Cause::UnknownAgent), None)).await.replayed.len(), 1);
    assert!(left(&engine).await.is_empty());
}

async fn a_letter_that_would_fail_again_or_has_no_room_stays(backend: Backend) {
    let engine = Engine::watching(backend, ScriptedModel::start(|asked| replies(asked, "好")).await).await;
    engine.apply(sales_with(&json!({}))).await;
    let queue = engine.queue.as_ref();
    bury(queue, "bad", Cause::Invalid, json!({"type": "dance", "session_id": "bad"})).await;
    bury(queue, "nobody", Cause::UnknownAgent, message("nobody", Some("missing"))).await;
    bury(queue, "full", Cause::Attempts, message("full", Some("sales"))).await;
    bury(queue, "fits", Cause::Attempts, message("fits", Some("sales"))).await;
    // No worker runs, so lanes stay as they are.
    for number in 0..2_000 {
        let job = json!({"type": "user_message", "session_id": "full", "agent_id": "sales", "job_id": format!("w-{number}"), "text": "x"});
        let publish = Publish { session_id: "full".into(), msg_id: None, payload: job.to_string().into() };
        if queue.publish_message(publish).await.is_err() {
            break;
        }
    }
    let done = all(&engine, LetterFilter::default()).await;
    let codes: Vec<(&str, &str)> = done.refused.iter().map(|one| (&*one.session_id, &*one.code)).collect();
    assert_eq!(codes, [("bad", "unfit_letter"), ("nobody", "unknown_agent"), ("full", "queue_full")], "{done:?}");
    assert!(done.refused.iter().all(|one| !one.reason.is_empty()));
    assert_eq!(done.replayed.iter().map(|one| &*one.session_id).collect::<Vec<_>>(), ["fits"]);
    assert_eq!(left(&engine).await, ["bad", "nobody", "full"]);
    let wrong =
        replay_many(queue, engine.store.as_ref(), LetterFilter { limit: Some(0), ..LetterFilter::default() }).await;
    assert_eq!(wrong.unwrap_err().code, "invalid_request");
}

async fn letters_that_die_again_are_not_replayed_endlessly(mut backend: Backend) {
    backend.settings.worker.max_attempts = 1;
    let model = ScriptedModel::start(|asked| replies(asked, "好的")).await;
    let engine = Engine::watching(backend, model).await;
    engine.apply(sales_with(&json!({"greeting": null}))).await;
    for session in ["s1", "s2", "s3"] {
        bury(engine.queue.as_ref(), session, Cause::Attempts, message(session, Some("sales"))).await;
    }
    let mut filter = LetterFilter { limit: Some(1), ..LetterFilter::default() };
    let first = page(&engine, filter.clone()).await;
    assert_eq!((first.replayed.len(), first.until), (1, 3));
    // The replayed job dies immediately.
    engine.attempt_dies("s1").await;
    let worker = engine.start_worker();
    eventually(DEADLINE, "the job is a dead letter again", || async { left(&engine).await.contains(&"s1".to_owned()) })
        .await;
    (filter.after, filter.until) = (Some(first.after), Some(first.until));
    let rest = all(&engine, filter).await;
    assert_eq!(rest.replayed.iter().map(|one| &*one.session_id).collect::<Vec<_>>(), ["s2", "s3"]);
    assert_eq!(left(&engine).await, ["s1"]);
    let again = all(&engine, LetterFilter::default()).await;
    assert_eq!(engine.turn("s1", &again.replayed[0].job_id).await.outcome, Outcome::Answered);
    worker.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_replays_page_by_page_and_names_what_it_refuses() {
    let model = ScriptedModel::start(|asked| replies(asked, "好的")).await;
    let engine = Engine::watching(cluster().await, model).await;
    engine.apply(sales_with(&json!({}))).await;
    let folder = Folder::with(engine.settings.clone());
    folder.write("turnwheel.toml", &toml(&folder.settings));
    for number in 0..120 {
        let (session, agent) = (format!("s{number}"), if number == 110 { "missing" } else { "sales" });
        bury(engine.queue.as_ref(), &session, Cause::UnknownAgent, message(&session, Some(agent))).await;
    }
    let none = folder.run(&["dead", "replay", "--cause", "attempts"], "").await;
    assert!(none.code == 0 && none.out.contains("replayed 0, refused 0"), "{none:?}");
    let done = folder.run(&["dead", "replay", "--all"], "").await;
    assert!(done.code == 1 && done.out.contains("replayed 119, refused 1"), "{done:?}");
    assert!(done.out.contains("refused 111 of session `s110`: there is no agent `missing`"), "{done:?}");
    assert!(done.err.contains("letter 100 of 120"), "{done:?}");
    assert_eq!(engine.queue.backlog().await.unwrap().jobs, 119);
    let again = folder.run(&["dead", "replay", "--agent", "missing", "--json"], "").await.json();
    assert_eq!((&again["refused"][0]["code"], &again["complete"]), (&json!("unknown_agent"), &json!(true)));

    for wrong in [&["dead", "replay"][..], &["dead", "replay", "7", "--all"], &["dead", "replay", "--cause", "boredom"]]
    {
        assert_eq!(folder.run(wrong, "").await.code, 2, "{wrong:?}");
    }
}
