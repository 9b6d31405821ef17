//! Worker processes on NATS and MongoDB that are killed between the end of a run in a lane of its own and its notice.

use super::background::{noticed, notices, run, start};
use super::plans::{report, statuses_of};
use super::*;
use crate::support::engine::DEADLINE;
use crate::support::interceptor::{Fate, way_to_address};
use crate::support::process::Process;
use crate::support::{backend, eventually};
use base::config::Settings;
use decisions::world::WorkflowStatus;
use engine::workflow::orchestration::event::RunEventType;
use lab::invariants::run_events;
use std::sync::Mutex;

/// The worker that is killed when it sends a notice.
type Victim = Arc<Mutex<Option<Process>>>;

/// The settings with a way to NATS on which the victim is killed when it sends a notice, which then has this fate.
async fn deadly(settings: &Settings, victim: &Victim, fate: Fate) -> Settings {
    let victim = Arc::clone(victim);
    let look = move |_: &str, message: &mut [u8]| {
        let is_notice = message.windows(7).any(|part| part == b"resume-");
        let worker = if is_notice { victim.lock().unwrap().take() } else { None };
        worker.map_or(Fate::Passes, |worker| {
            worker.kill();
            fate
        })
    };
    let mut settings = settings.clone();
    settings.nats.url = way_to_address(&settings.nats.url, look).await;
    settings
}

/// An engine whose only worker, a process, has ended a run and was killed when it sent the notice.
async fn killed_at_the_notice(fate: Fate) -> Engine {
    let engine = Engine::watching(backend::cluster().await, ScriptedModel::start(|_| Answer::Hang).await).await;
    let answers = json!([answer(&[report()]), answer(&[start(true)]), answer(&[respond("不客气")])]);
    let answers = answers.to_string().replace("{api}", &engine.api.base_url);
    engine.model.script(with_ids(serde_json::from_str(&answers).unwrap()));
    engine.api.script(|_, _| (200, json!({"rows": [1]})));
    engine.apply(coordinator()).await;
    let victim = Victim::default();
    let settings = deadly(&engine.settings, &victim, fate).await;
    let dir = tempfile::tempdir().unwrap();
    *victim.lock().unwrap() = Some(Process::start(dir.path(), &settings, &["worker"]));
    engine.publish("s1", "m-1", "执行").await;
    eventually(DEADLINE, "the worker is killed", || async { victim.lock().unwrap().is_none() }).await;
    assert_eq!(run(&engine).await.status, RunStatus::Completed, "the end is stored before the notice is sent");
    assert!(notices(&engine).await.is_empty());
    engine
}

/// True if the lane of the session has a message that no turn has handled.
async fn has_work(engine: &Engine, session_id: &str) -> bool {
    let last = engine.session(session_id).await.last_seq;
    engine.queue.next_in_lane(session_id, last, 0).await.unwrap().is_some()
}

/// Another process ends the turn of the killed one.
async fn one_notice_follows(engine: &Engine) {
    let dir = tempfile::tempdir().unwrap();
    let _worker = Process::start(dir.path(), &engine.settings, &["worker"]);
    let notice = noticed(engine).await;
    let ended = run(engine).await;
    assert_eq!((&notice.metadata["run_id"], &notice.metadata["status"]), (&json!(ended.run_id), &json!("completed")));
    eventually(DEADLINE, "the run's lane is at rest", || async {
        let lane = engine.session(&ended.run_id).await;
        lane.lease.is_none() && lane.turn.is_none() && !has_work(engine, &ended.run_id).await
    })
    .await;
    // Every message that was sent before has its turn first.
    engine.say("s1", "m-2", "谢谢").await;
    assert_eq!(notices(engine).await.len(), 1);
    let told = engine.session("s1").await.history.iter().filter(|entry| entry.turn_id.starts_with("resume-")).count();
    assert_eq!(told, 1);
    assert_eq!((engine.api.calls("/sales").len(), engine.api.calls("/send").len()), (1, 1));
    let events = run_events(engine.queue.as_ref(), "s1").await.unwrap();
    assert_eq!(events.iter().filter(|event| event.kind == RunEventType::RunCompleted).count(), 1);
    assert_eq!(statuses_of(engine, "s1").await, [WorkflowStatus::Completed]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_killed_before_the_notice_of_a_run_is_followed_by_one_that_sends_it_once() {
    let engine = killed_at_the_notice(Fate::GetsLost).await;
    assert!(!has_work(&engine, "s1").await, "no notice is on its way");
    one_notice_follows(&engine).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_killed_after_the_notice_of_a_run_is_followed_by_one_that_sends_no_other() {
    let engine = killed_at_the_notice(Fate::Passes).await;
    eventually(DEADLINE, "the notice is on its way", || async { has_work(&engine, "s1").await }).await;
    let lane = engine.session(&run(&engine).await.run_id).await;
    assert!(lane.turn.is_some(), "the turn of the run has not ended: {lane:?}");
    one_notice_follows(&engine).await;
}
