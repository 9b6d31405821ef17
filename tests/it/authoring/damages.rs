//! The invariants of dialogues hold after a dialogue, and report violations.

use super::*;
use lab::invariants::{self, AcceptedMessage, Evidence};
use storage::store::authoring::{SaveAuthoring, Saved};
use types::authoring::Speaker;
use types::event::{EventType, OutEvent};

on_both_backends!(
    a_lost_and_a_doubled_message_are_found,
    a_document_that_the_dialogue_has_not_published_is_found,
    a_second_last_event_is_found,
);

/// A dialogue of two messages that has published a workflow.
async fn completed(backend: Backend) -> Engine {
    let engine = started(backend, answers::script).await;
    say(&engine, "m-1", "每天汇总").await;
    say(&engine, "m-2", "八点").await;
    // The last events are published after the commit.
    eventually(DEADLINE, "the dialogue is at rest", || async { violations(&engine).await.is_empty() }).await;
    assert_eq!(violations(&engine).await, [""; 0]);
    engine
}

async fn violations(engine: &Engine) -> Vec<String> {
    let sent = [("m-1", "每天汇总"), ("m-2", "八点")].into_iter().zip(1..).map(|((job_id, text), seq)| {
        let job = json!({"type": "user_message", "session_id": "s1", "job_id": job_id, "text": text, "channel": "web"});
        AcceptedMessage { session_id: "s1".into(), seq, payload: job.to_string().into() }
    });
    let evidence = Evidence { sent: sent.collect(), ..Evidence::default() };
    invariants::check(engine.queue.as_ref(), engine.store.as_ref(), &evidence).await.unwrap()
}

/// Changes the stored state. Returns the violations that the invariants then report.
async fn damaged(engine: &Engine, damage: impl FnOnce(&mut StoredState)) -> Vec<String> {
    let mut damaged = state(engine).await;
    damage(&mut damaged);
    let save = SaveAuthoring { state: damaged, epoch: None };
    assert!(matches!(engine.store.save_authoring(save).await.unwrap(), Saved::Saved(_)));
    violations(engine).await
}

async fn a_lost_and_a_doubled_message_are_found(backend: Backend) {
    let engine = completed(backend).await;
    let whole = state(&engine).await.state.conversations;
    let by_user = whole.iter().position(|entry| entry.role == Speaker::User).unwrap();
    let lost = damaged(&engine, |stored| drop(stored.state.conversations.remove(by_user))).await;
    assert!(lost.len() == 1 && lost[0].contains("has the user's messages [\"八点\"]"), "{lost:?}");
    let doubled = damaged(&engine, |stored| {
        stored.state.conversations = whole.clone();
        stored.state.conversations.insert(by_user, whole[by_user].clone());
    });
    let doubled = doubled.await;
    assert!(doubled.len() == 1 && doubled[0].contains("[\"每天汇总\", \"每天汇总\", \"八点\"]"), "{doubled:?}");
    assert_eq!(damaged(&engine, |stored| stored.state.conversations = whole).await, [""; 0]);
}

async fn a_document_that_the_dialogue_has_not_published_is_found(backend: Backend) {
    let engine = completed(backend).await;
    let found = damaged(&engine, |stored| stored.published.as_mut().unwrap().hash = "f00".into()).await;
    assert!(found.len() == 1 && found[0].contains("has published f00"), "{found:?}");
}

async fn a_second_last_event_is_found(backend: Backend) {
    let engine = completed(backend).await;
    let mut last = told(&engine, "m-2").await.pop().unwrap();
    last.seq += 1;
    let event = OutEvent {
        channel: "web".into(),
        session_id: "s1".into(),
        event_type: EventType::Authoring,
        msg_id: None,
        payload: json!(last).to_string().into(),
    };
    engine.queue.emit([event].into()).await.unwrap();
    let found = violations(&engine).await;
    assert!(found.len() == 1 && found[0].contains("turn m-2 has the last events"), "{found:?}");
}
