//! A draft that is published while its dialogue goes on.

use super::*;
use commands::authoring::artifact::{self, PublishRequest, PublishedDraft};
use commands::authoring::{Author, Dialogue, load};
use commands::error::CommandError;
use engine::authoring::Workbench;
use tokio::sync::Semaphore;
use types::authoring::Stage;

on_both_backends!(
    a_draft_that_is_published_during_a_turn_is_remembered_after_it,
    a_publication_that_no_state_could_remember_succeeds_and_does_not_block_the_next_one,
);

/// An engine whose dialogue s1 has a draft that nobody has published, and in whose next turn the model waits for
/// `gate`; with the dialogue as it is before that turn.
async fn in_a_turn(backend: Backend, gate: &Arc<Semaphore>) -> (Engine, Dialogue) {
    let mut engine = Engine::watching(backend, ScriptedModel::start(answers::script).await).await;
    engine.rehearsal = Some(Arc::new(Passing));
    create_with(engine.store.as_ref(), "s1", json!({"preferences": {"publish": "manual"}})).await;
    engine.start_worker();
    say(&engine, "m-1", "八点汇总").await;
    assert_eq!(state(&engine).await.draft.unwrap().ok, Some(true));
    let author = Author::User("u1".into());
    let before = load(engine.store.as_ref(), &author, "s1").await.unwrap();
    let open = Arc::clone(gate);
    engine.model.script(move |asked| match asked.schema.as_str() {
        "authoring_workflow_generation" => answers::renamed("每周汇总").gated(&open),
        _ => answers::script(asked).gated(&open),
    });
    publish(&engine, "m-2", "改成每周一九点").await;
    eventually(DEADLINE, "the turn has begun", || async { engine.session("s1").await.turn.is_some() }).await;
    (engine, before)
}

async fn put_into_use(bench: &Workbench, dialogue: Dialogue) -> Result<PublishedDraft, CommandError> {
    let request = PublishRequest { hash: dialogue.state.draft.clone().unwrap().hash, force: false };
    artifact::publish(bench, &Author::User("u1".into()), dialogue, &request).await
}

async fn a_draft_that_is_published_during_a_turn_is_remembered_after_it(backend: Backend) {
    let gate = Arc::new(Semaphore::new(0));
    let (engine, before) = in_a_turn(backend, &gate).await;
    let bench = Workbench::clone(&engine.services().workbench);
    let opens = async {
        eventually(DEADLINE, "the workflow is in use", || async {
            engine.store.workflow("id-s1").await.unwrap().is_some()
        })
        .await;
        gate.add_permits(100);
    };
    let (published, ()) = tokio::join!(put_into_use(&bench, before), opens);
    let hash = published.unwrap().hash;
    engine.turn("s1", "m-2").await;
    let stored = state(&engine).await;
    assert_eq!((stored.published.unwrap().hash, stored.turns), (hash.clone(), 2));
    assert_eq!(stored.state.stage, Stage::Completed, "what the turn has changed stays");
    assert_ne!(stored.draft.unwrap().hash, hash);
}

async fn a_publication_that_no_state_could_remember_succeeds_and_does_not_block_the_next_one(backend: Backend) {
    let gate = Arc::new(Semaphore::new(0));
    let (engine, before) = in_a_turn(backend, &gate).await;
    let clock = base::clock::Clock::movable();
    let bench = Workbench { clock: clock.clone(), ..Workbench::clone(&engine.services().workbench) };
    let ends = async {
        eventually(DEADLINE, "the workflow is in use", || async {
            engine.store.workflow("id-s1").await.unwrap().is_some()
        })
        .await;
        // Until the publication no longer waits.
        loop {
            clock.advance(Duration::from_secs(1));
            tokio::task::yield_now().await;
        }
    };
    let published =
        tokio::select! { published = put_into_use(&bench, before) => published, () = ends => unreachable!() };
    assert!(published.unwrap().changed);
    gate.add_permits(100);
    engine.turn("s1", "m-2").await;
    assert_eq!(state(&engine).await.published, None);
    let now = load(engine.store.as_ref(), &Author::User("u1".into()), "s1").await.unwrap();
    let next = put_into_use(&bench, now).await.unwrap();
    assert!(next.changed);
    assert_eq!(state(&engine).await.published.unwrap().hash, next.hash);
}
