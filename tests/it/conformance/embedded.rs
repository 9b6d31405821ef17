//! Runs all cases on the embedded backend, in memory and on a file, and checks the durability of the file.

use super::kit::*;
use super::runs::{lane_of_run, run};
use super::{queue_suite, session_plans, store_suite};
use crate::support::eventually;
use base::clock;
use base::config::Settings;
use base::tasks::Tasks;
use embedded::queue::{EmbeddedQueue, MAX_PAYLOAD};
use embedded::store::{EmbeddedFile, EmbeddedStore, FILE_NAME};
use futures::StreamExt;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::{DeadLetter, From, Publish, Published, Queue, QueueError};
use storage::store::*;
use tempfile::TempDir;
use types::cause::Cause;
use types::duration::Text;
use types::event::{EventType, OutEvent};
use types::run::{RunRecord, RunStatus};
use types::session::{Role, Session, Status};
use types::step::StepRecord;

mod store_in_memory {
    super::store_suite!(super::store_in_memory_opened);
}

mod store_on_a_file {
    super::store_suite!(super::store_on_a_file_opened);
}

mod queue_in_memory {
    super::queue_suite!(super::queue_in_memory_opened);
}

mod queue_on_a_file {
    super::queue_suite!(super::queue_on_a_file_opened);
}

fn file_in(folder: &Path) -> Arc<EmbeddedFile> {
    EmbeddedFile::open(&folder.join(FILE_NAME)).unwrap()
}

fn store_in(folder: &Path) -> Arc<dyn Store> {
    EmbeddedStore::new(file_in(folder), &settings(Settings::default())).unwrap()
}

async fn store_in_memory_opened() -> (Arc<dyn Store>, ()) {
    (EmbeddedStore::new(EmbeddedFile::in_memory().unwrap(), &settings(Settings::default())).unwrap(), ())
}

async fn store_on_a_file_opened() -> (Arc<dyn Store>, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (store_in(folder.path()), folder)
}

async fn queue_in_memory_opened() -> (Arc<dyn Queue>, Tasks) {
    let tasks = Tasks::new();
    (open_queue(EmbeddedFile::in_memory().unwrap(), &tasks).await, tasks)
}

async fn queue_on_a_file_opened() -> (Arc<dyn Queue>, (TempDir, Tasks)) {
    let (folder, tasks) = (tempfile::tempdir().unwrap(), Tasks::new());
    (open_queue(file_in(folder.path()), &tasks).await, (folder, tasks))
}

async fn open_queue(file: Arc<EmbeddedFile>, tasks: &Tasks) -> Arc<EmbeddedQueue> {
    EmbeddedQueue::new(file, &settings(Settings::default()), tasks).await.unwrap()
}

fn job(session: &str, msg_id: &str) -> Publish {
    Publish { session_id: session.into(), msg_id: Some(msg_id.into()), payload: "{\"text\":\"你好\"}".into() }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_outlive_the_process_and_their_sequences_are_never_used_again() {
    let (folder, tasks) = (tempfile::tempdir().unwrap(), Tasks::new());
    let queue = open_queue(file_in(folder.path()), &tasks).await;
    let mut seqs = Vec::new();
    for n in 1..=3 {
        seqs.push(queue.publish(job("会话", &format!("m-{n}"))).await.unwrap().seq);
    }
    let delivered = queue.pull(10, DEADLINE).await.unwrap();
    assert_eq!(delivered.len(), 3);
    queue.ack(&delivered[0].token).await.unwrap();
    queue.ack(&delivered[2].token).await.unwrap();
    drop(queue);
    let queue = open_queue(file_in(folder.path()), &tasks).await;
    let again = queue.pull(10, DEADLINE).await.unwrap();
    assert_eq!(again.len(), 1, "{again:?}");
    assert_eq!(again[0].message, delivered[1].message, "the redelivery has the same default id");
    let repeat = queue.publish(job("会话", "m-3")).await.unwrap();
    assert_eq!(repeat, Published { seq: seqs[2], duplicate: true }, "the deduplication window survives the restart");
    assert_eq!(queue.publish(job("会话", "m-4")).await.unwrap().seq, seqs[2] + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_and_dead_letters_outlive_the_process() {
    let (folder, tasks) = (tempfile::tempdir().unwrap(), Tasks::new());
    let queue = open_queue(file_in(folder.path()), &tasks).await;
    let event = |n: usize| OutEvent {
        channel: "web".into(),
        session_id: "s".into(),
        event_type: EventType::Reply,
        msg_id: Some(format!("s/m-1/{n}")),
        payload: format!("第{n}").into(),
    };
    queue.emit([event(0), event(1)].into()).await.unwrap();
    let letter = DeadLetter {
        cause: Cause::Attempts,
        reason: "tried 5 times".into(),
        subject: "tw.jobs.s".into(),
        attempts: 5,
        job_id: Some("m-1".into()),
        msg_id: "dead/1".into(),
        payload: "{}".into(),
        cut_from: None,
    };
    queue.publish_dead_letter(letter.clone()).await.unwrap();
    drop(queue);
    let queue = open_queue(file_in(folder.path()), &tasks).await;
    queue.emit([event(1), event(2)].into()).await.unwrap();
    let events: Vec<_> =
        queue.events("s", From::After(0)).await.unwrap().take(3).map(|event| event.unwrap()).collect().await;
    assert_eq!(
        events.iter().map(|event| &event.payload[..]).collect::<Vec<_>>(),
        ["第0", "第1", "第2"].map(str::as_bytes)
    );
    queue.publish_dead_letter(letter.clone()).await.unwrap();
    let letters = queue.dead_letters(0, 10).await.unwrap();
    assert_eq!(letters.len(), 1, "the repeat is dropped");
    assert_eq!(letters[0].letter, letter);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_events_are_deleted_and_readers_go_on_with_the_retained() {
    let tasks = Tasks::new();
    let mut settings = settings(Settings::default());
    settings.retention.out = Text(SHORT);
    let queue = EmbeddedQueue::new(EmbeddedFile::in_memory().unwrap(), &settings, &tasks).await.unwrap();
    let event = OutEvent {
        channel: "web".into(),
        session_id: "s".into(),
        event_type: EventType::Status,
        msg_id: None,
        payload: "{}".into(),
    };
    queue.emit(vec![event.clone(); 3].into()).await.unwrap();
    eventually(DEADLINE, "the old events are gone", || async { queue.prune().await.unwrap() == 3 }).await;
    assert!(!queue.has_session("s").await.unwrap());
    queue.emit([event].into()).await.unwrap();
    let first = queue.events("s", From::After(1)).await.unwrap().next().await.unwrap().unwrap();
    assert_eq!(first.seq, 4, "sequences continue");
}

/// As on the server, where a duplicate window cannot be longer than the retention.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_id_can_be_used_again_after_the_retention_of_events() {
    let (folder, tasks) = (tempfile::tempdir().unwrap(), Tasks::new());
    let mut settings = settings(Settings::default());
    settings.retention.out = Text(SHORT);
    let file = file_in(folder.path());
    let queue = EmbeddedQueue::new(file, &settings, &tasks).await.unwrap();
    let event = || OutEvent {
        channel: "web".into(),
        session_id: "s".into(),
        event_type: EventType::Reply,
        msg_id: Some("s/m-1/0".into()),
        payload: "{}".into(),
    };
    queue.emit([event(), event()].into()).await.unwrap();
    eventually(DEADLINE, "the event has expired", || async { queue.prune().await.unwrap() == 1 }).await;
    queue.emit([event()].into()).await.unwrap();
    assert!(queue.has_session("s").await.unwrap(), "it is stored again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_beyond_the_limit_is_refused_with_both_sizes() {
    let tasks = Tasks::new();
    let queue = open_queue(EmbeddedFile::in_memory().unwrap(), &tasks).await;
    let largest = Publish { payload: vec![b' '; MAX_PAYLOAD].into(), ..job("s", "m-1") };
    queue.publish(largest).await.unwrap();
    let refused = queue.publish(Publish { payload: vec![b' '; MAX_PAYLOAD + 1].into(), ..job("s", "m-2") }).await;
    assert!(matches!(refused, Err(QueueError::TooLarge { bytes, limit: MAX_PAYLOAD }) if bytes == MAX_PAYLOAD + 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_interrupted_by_the_end_of_the_process_is_resumed_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_in(folder.path());
    let told = run_turn(&store, "s", 1, |change| {
        change.history = vec![entry(Role::User, "你好"), entry(Role::Assistant, "您好")];
        change.profile = Some(odd_map());
        change.timers = TimerChange::Replace(vec![timer("t1", LONG)]);
    })
    .await;
    let first = grant(&store, "s", 2).await;
    store.record(record(&first, "m-2", vec![step("0/act", json!("done"))], None)).await.unwrap();
    assert!(store.lead("scheduler", "w1", LONG).await.unwrap());
    drop(store);
    let store = store_in(folder.path());
    assert_eq!(store.session("s").await.unwrap().unwrap().history, told.history);
    assert_eq!(store.steps("s", "m-2").await.unwrap()[0].output, json!("done"));
    assert_eq!(store.due_timers(LONG * 2, 10).await.unwrap().timers.len(), 1);
    let abandoned = store.abandoned_lanes(Duration::ZERO, 10).await.unwrap();
    assert_eq!(abandoned, [AbandonedLane { session_id: "s".into(), epoch: first.session.epoch }]);
    assert!(store.lead("scheduler", "w2", LONG).await.unwrap(), "leadership ends with the process");
    let second = granted(store.acquire(acquire("s", 2, "w2")).await.unwrap());
    assert!(second.resumed, "leases end with the only process of the file");
    assert_eq!((second.session.epoch, second.session.turn.unwrap().attempt), (first.session.epoch + 1, 2));
    assert_eq!(second.session.profile, odd_map());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_lane_is_shown_and_leaves_what_the_last_turn_said_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_in(folder.path());
    let said = vec![event("您好")];
    run_turn(&store, "s", 1, |change| {
        change.outbox = said.clone().into();
        change.history = vec![entry(Role::User, "你好"), entry(Role::Assistant, "您好")];
    })
    .await;
    let taken = grant(&store, "s", 2).await;
    assert_eq!(taken.session.history.len(), 2);
    store.record(record(&taken, "m-2", Vec::new(), Some(Status::Processing))).await.unwrap();
    let held = LeaseKey { session_id: "s".into(), epoch: taken.session.epoch };
    assert!(store.renew(std::slice::from_ref(&held), LONG).await.unwrap().is_empty());
    let shown = store.session("s").await.unwrap().unwrap();
    assert_eq!((shown.epoch, shown.pending_seq, shown.last_seq), (taken.session.epoch, 2, 1));
    assert_eq!((shown.workflow_state.status, shown.outbox.len()), (Status::Processing, said.len()));
    assert_eq!(shown.turn, taken.session.turn);
    assert!(
        store.idle_sessions(Duration::ZERO, 10).await.unwrap().is_empty(),
        "a session with an open lane is not idle"
    );
    drop(store);
    let store = store_in(folder.path());
    let again = granted(store.acquire(acquire("s", 2, "w2")).await.unwrap());
    assert_eq!(again.session.outbox, said, "the next holder publishes the outbox");
    assert_eq!(store.commit(commit(&again, 2, None)).await.unwrap(), Committed::Released);
    let left = store.session("s").await.unwrap().unwrap();
    assert_eq!((left.epoch, left.last_seq, left.lease, left.turn), (taken.session.epoch + 1, 2, None, None));
    let next = run_turn(&store, "s", 3, |change| change.history = vec![entry(Role::User, "再见")]).await;
    assert_eq!((next.epoch, next.history.len()), (left.epoch + 1, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_this_process_has_left_is_granted_as_it_is_stored() {
    let (store, ()) = store_in_memory_opened().await;
    for seq in 1..=60 {
        let taken = grant(&store, "s", seq).await;
        let stored = store.session("s").await.unwrap().unwrap();
        // The outbox of the last turn is read only on demand.
        let without = |session: &Session| Session { outbox: Vec::new(), outbox_unread: false, ..session.clone() };
        assert_eq!(without(&taken.session), without(&stored));
        let change = Change {
            history: vec![entry(Role::User, &format!("{seq}")), entry(Role::Assistant, "好")],
            history_drop: (taken.session.history.len() + 2).saturating_sub(100),
            timers: TimerChange::Replace(vec![timer("t", LONG)]),
            outbox: [event("好")].into(),
            ..change(&taken.session, &format!("m-{seq}"))
        };
        // Every seventh turn has no change.
        let change = (seq % 7 != 0).then_some(change);
        assert_eq!(store.commit(commit(&taken, seq, change)).await.unwrap(), Committed::Released);
    }
    let session = store.session("s").await.unwrap().unwrap();
    assert_eq!((session.history.len(), session.history[99].text.as_str()), (100, "好"));
    assert_eq!(store.due_timers(LONG * 2, 10).await.unwrap().timers.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_turns_are_deleted_with_their_steps() {
    let mut settings = settings(Settings::default());
    settings.retention.turns = Text(SHORT);
    let store: Arc<dyn Store> = EmbeddedStore::new(EmbeddedFile::in_memory().unwrap(), &settings).unwrap();
    let prompted =
        |value: u64| Arc::new(StepRecord { prompt: Some([1, 2].into()), ..(*step("0/act", json!(value))).clone() });
    for seq in 1..=3 {
        run_turn(&store, "s", seq, |change| change.steps = vec![prompted(seq)]).await;
    }
    let later = clock::now().plus(LONG);
    run_turn(&store, "s", 4, |change| {
        change.turn.committed_at = later;
        change.steps = vec![prompted(4)];
    })
    .await;
    eventually(DEADLINE, "the file is closed", || async {
        store.prune().await.unwrap();
        store.turns("s", 10).await.unwrap().len() == 1
    })
    .await;
    assert!(store.steps("s", "m-1").await.unwrap().is_empty());
    assert_eq!(store.steps("s", "m-4").await.unwrap().len(), 1);
    assert_eq!(store.prompt("s", "m-1", "0/act").await.unwrap(), None);
    assert_eq!(store.prompt("s", "m-4", "0/act").await.unwrap(), Some(vec![1, 2]));
    assert_eq!(store.session("s").await.unwrap().unwrap().last_seq, 4, "the session stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lane_of_an_expired_run_is_deleted_unless_it_has_work() {
    let mut settings = settings(Settings::default());
    settings.retention.turns = Text(SHORT);
    let store: Arc<dyn Store> = EmbeddedStore::new(EmbeddedFile::in_memory().unwrap(), &settings).unwrap();
    for (id, seq) in [("ended", 1), ("working", 0)] {
        let taken = lane_of_run(&store, id).await;
        let ended = RunRecord { ended_at: Some(clock::now()), ..run(id, "w", RunStatus::Completed) };
        let change = Change { run: Some(ended), ..change(&taken.session, "m-1") };
        store.commit(commit(&taken, seq, Some(change))).await.unwrap();
    }
    eventually(DEADLINE, "both runs are forgotten", || async {
        store.prune().await.unwrap();
        store.run("ended").await.unwrap().is_none() && store.run("working").await.unwrap().is_none()
    })
    .await;
    assert!(store.session("ended").await.unwrap().is_none());
    assert!(store.session("working").await.unwrap().is_some(), "a job waits in its lane");
    let again = lane_of_run(&store, "ended").await;
    assert_eq!(again.session.last_seq, 0, "the deleted lane starts from scratch");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unused_plan_expires_with_its_versions() {
    let mut settings = settings(Settings::default());
    (settings.retention.turns, settings.retention.idle) = (Text(SHORT), Text(SHORT));
    let store: Arc<dyn Store> = EmbeddedStore::new(EmbeddedFile::in_memory().unwrap(), &settings).unwrap();
    let unused = session_plans::plan("w1", "s1", "一");
    store.put_session_plan(unused.clone(), "planner").await.unwrap();
    eventually(DEADLINE, "the plan is forgotten", || async {
        store.prune().await.unwrap();
        store.plans_of("s1").await.unwrap().is_empty()
    })
    .await;
    assert!(store.workflow("w1").await.unwrap().is_none());
    assert!(store.workflow_version("w1", &unused.hash).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_read_again_is_refused_and_harms_nobody() {
    let (store, ()) = store_in_memory_opened().await;
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let taken = grant(&store, "s", 1).await;
    let refused = store.record(record(&taken, "m-1", vec![step("0/act", deep)], None)).await.unwrap_err();
    assert!(matches!(refused, StoreError::Refused(_)), "{refused}");
    assert!(store.steps("s", "m-1").await.unwrap().is_empty());
    store.record(record(&taken, "m-1", vec![step("0/act", json!(1))], None)).await.unwrap();
    store.ping().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_returned_is_in_the_file_without_an_orderly_end() {
    let (folder, tasks) = (tempfile::tempdir().unwrap(), Tasks::new());
    let file = file_in(folder.path());
    let queue = open_queue(Arc::clone(&file), &tasks).await;
    let store: Arc<dyn Store> = EmbeddedStore::new(file, &settings(Settings::default())).unwrap();
    for seq in 1..=20 {
        let published = queue.publish(job("s", &format!("m-{seq}"))).await.unwrap();
        run_turn(&store, "s", published.seq, |_| ()).await;
    }
    // A copy is the state after a crash, because the writer still has the file open.
    let copy = folder.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    std::fs::copy(folder.path().join(FILE_NAME), copy.join(FILE_NAME)).unwrap();
    let file = file_in(&copy);
    let store = EmbeddedStore::new(Arc::clone(&file), &settings(Settings::default())).unwrap();
    let session = store.session("s").await.unwrap().unwrap();
    assert_eq!((session.last_seq, session.recent_jobs.len()), (20, 20));
    assert_eq!(store.turns("s", 100).await.unwrap().len(), 20);
    let queue = open_queue(file, &tasks).await;
    assert_eq!(queue.pull(100, DEADLINE).await.unwrap().len(), 20, "all jobs are delivered again");
}
