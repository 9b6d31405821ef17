//! A server that is unreachable during a turn of a dialogue: the turn continues when the server is back.

use super::*;
use crate::away::{is_ready, is_unready_for};
use crate::support::backend::cluster_of;
use crate::support::engine::quick;
use crate::support::process::Process;
use crate::support::servers::{ClusterHandles, Server, free_port, private};
use tokio::sync::Semaphore;
use types::authoring::Stage;

/// Stops a server while the model writes the document. The model answers before the server is back.
async fn goes_on_after(handles: &ClusterHandles, server: &Server, part: &str) {
    let mut settings = quick(handles.settings());
    settings.gateway.listen = ([127, 0, 0, 1], free_port()).into();
    let (gate, held) = (Arc::new(Semaphore::new(100)), Arc::new(Semaphore::new(0)));
    let closed = Arc::clone(&held);
    let engine = watching(cluster_of(settings).await, move |asked| match asked.schema.as_str() {
        // A stage of the document, in its rehearsal.
        "" => Answer::Content("汇总".into()),
        "authoring_workflow_generation" => answers::script(asked).gated(&closed),
        _ => answers::script(asked).gated(&gate),
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let _process = Process::start(folder.path(), &engine.settings, &["all"]);
    is_ready(&engine.settings).await;
    publish(&engine, "m-1", "八点汇总").await;
    is_asked(&engine, "workflow_generation").await;
    server.kill();
    is_unready_for(&engine.settings, part).await;
    held.add_permits(100);
    server.restart();
    is_ready(&engine.settings).await;
    let turn = engine.turn("s1", "m-1").await;
    assert_eq!((turn.attempts, turn.reason.as_deref()), (1, None), "the outage is no failure of the turn");
    let events = told(&engine, "m-1").await;
    ends_once(&events);
    assert_eq!(whole(&events)[1..], LEADS_TO_A_DOCUMENT[1..], "every event once, in order");
    assert_eq!(state(&engine).await.state.stage, Stage::Completed);
    let mut asked = asked(&engine);
    asked.retain(|schema| !schema.is_empty());
    // The answer that comes during the outage is lost if the server stays away for longer than a write waits.
    let (recorded, under_way) = asked.split_at(3);
    assert_eq!(recorded, ["clarification", "negotiation", "gap_analysis"], "the recorded answers count");
    assert!(under_way.iter().all(|schema| schema == "workflow_generation"), "{under_way:?}");
    assert_eq!(engine.dead_letters().await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_away_in_a_dialogue_only_delays_it() {
    let (_nats, mongod, handles) = private().await;
    Box::pin(goes_on_after(&handles, &mongod, "store")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_away_in_a_dialogue_only_delays_it() {
    let (nats, _mongod, handles) = private().await;
    Box::pin(goes_on_after(&handles, &nats, "queue")).await;
}
