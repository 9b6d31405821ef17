//! Backups of systems that are at work, and their restoration elsewhere. By all invariants of `chaos` the restored
//! system is as consistent as the first one, and it continues: waiting messages are answered, timers fire, new messages are
//! answered.

mod commands;

use crate::crash::seen;
use crate::scenarios::{acts, answer, sales_with};
use crate::support::backend::cluster_of;
use crate::support::engine::{Backend, DEADLINE, Engine, quick};
use crate::support::eventually;
use crate::support::script::{Answer, Asked, ScriptedModel, plan};
use crate::support::servers::{Server, cluster, private};
use async_nats::jetstream;
use base::clock;
use base::config::{self, Settings};
use base::tasks::Tasks;
use embedded::queue::EmbeddedQueue;
use embedded::store::{EmbeddedFile, EmbeddedStore};
use lab::invariants::{self, AcceptedMessage, Evidence, SeenCall};
use serde_json::{Value, json};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use storage::backup::Archive;
use storage::queue::Publish;
use tempfile::TempDir;
use types::event::ReplyKind;
use types::job::Job;
use types::timestamp::Timestamp;

const SESSIONS: usize = 8;
/// The most jobs that wait.
const BACKLOG: u64 = 24;
/// The most messages of a session, so that it remembers all of them.
const ROUNDS: usize = 90;
const BACKUPS: usize = 3;
/// How long all of them may take.
const BACKUPS_DEADLINE: Duration = Duration::from_secs(300);

/// Every other message leads to an action first.
async fn model() -> ScriptedModel {
    ScriptedModel::start(|asked: &Asked| {
        let decided = match asked.user.as_str() {
            text if text.starts_with('查') && !asked.system.contains("shipped") => {
                acts("processing", "SKILL", "query_order", &json!({"order_id": text.replace(' ', "-")}))
            }
            text => answer(&format!("{text}：好的")),
        };
        Answer::json(&if asked.schema == "plan_and_decision" { plan(json!("您好"), &decided) } else { decided })
    })
    .await
}

/// A system under load.
struct Source {
    engine: Engine,
    sent: Mutex<Vec<AcceptedMessage>>,
    ended: Mutex<Instant>,
}

impl Source {
    async fn start(backend: Backend) -> Self {
        let engine = Engine::start(backend, model().await, 2).await;
        engine.api.script(|_, _| (200, json!({"status": "shipped"})));
        let timers = json!([{"name": "follow_up", "delay": "1s", "message": "还在吗？"}]);
        engine.apply(sales_with(&json!({ "timers": timers }))).await;
        Self { engine, sent: Mutex::default(), ended: Mutex::new(Instant::now()) }
    }

    /// Publishes messages to all sessions until `taken` backups are made.
    async fn load(&self, taken: &AtomicUsize) {
        let mut round = 0;
        while taken.load(Ordering::SeqCst) < BACKUPS {
            if round == ROUNDS {
                let made = || async { taken.load(Ordering::SeqCst) == BACKUPS };
                return eventually(BACKUPS_DEADLINE, "the backups are made", made).await;
            }
            for number in 0..SESSIONS {
                let text = if number % 2 == 0 { format!("查 {number} {round}") } else { format!("第{round}句") };
                let message = said(&self.engine, &format!("会话-{number}"), &format!("m-{round}"), &text).await;
                self.sent.lock().unwrap().push(message);
            }
            round += 1;
            eventually(DEADLINE, "the workers keep up", || async {
                self.engine.queue.backlog().await.is_ok_and(|backlog| backlog.jobs < BACKLOG)
            })
            .await;
        }
    }

    fn count(&self) -> usize {
        self.sent.lock().unwrap().len()
    }

    /// Waits until jobs are waiting, so that a backup has something to lose.
    async fn is_busy(&self, at_least: usize) {
        eventually(DEADLINE, "jobs are waiting", || async {
            self.count() >= at_least && self.engine.queue.backlog().await.is_ok_and(|backlog| backlog.jobs > 2)
        })
        .await;
    }
}

/// Publishes a message.
async fn said(engine: &Engine, session_id: &str, job_id: &str, text: &str) -> AcceptedMessage {
    let job = json!({"type": "user_message", "session_id": session_id, "agent_id": "sales", "job_id": job_id, "text": text,
                     "user_id": "u1", "channel": "web"});
    let payload: bytes::Bytes = serde_json::to_vec(&job).unwrap().into();
    let publish = Publish { session_id: session_id.into(), msg_id: None, payload: payload.clone() };
    let seq = engine.queue.publish(publish).await.unwrap().seq;
    AcceptedMessage { session_id: session_id.into(), seq, payload }
}

fn job_id(sent: &AcceptedMessage) -> String {
    serde_json::from_slice::<Job>(&sent.payload).unwrap().job_id
}

/// Waits until all of these are answered and all timers have fired.
async fn rests(engine: &Engine, sent: &[AcceptedMessage], what: &str) {
    let rest = || async {
        invariants::at_rest(engine.queue.as_ref(), engine.store.as_ref(), sent).await.is_ok_and(|rest| rest)
    };
    eventually(DEADLINE, &format!("{what} is at rest"), rest).await;
}

/// Checks all invariants.
async fn is_consistent(engine: &Engine, evidence: Evidence, what: &str) {
    let found = invariants::check(engine.queue.as_ref(), engine.store.as_ref(), &evidence).await.unwrap();
    assert_eq!(found, [""; 0], "{what}");
}

impl Source {
    /// Waits until all is answered, and checks the first system.
    async fn ends(&self) -> Vec<AcceptedMessage> {
        let sent = self.sent.lock().unwrap().clone();
        rests(&self.engine, &sent, "the first system").await;
        let api = self.engine.api.calls("/orders").iter().map(seen::called).collect();
        let model = self.engine.model.asked().iter().map(seen::asked).collect();
        let evidence = Evidence { sent: sent.clone(), api, model, ..Evidence::default() };
        is_consistent(&self.engine, evidence, "the first system").await;
        *self.ended.lock().unwrap() = Instant::now();
        sent
    }

    /// A restored system answers every message that was accepted before its backup began, may know messages that were
    /// accepted meanwhile, and answers new ones.
    async fn goes_on(&self, backend: Backend, taken: &Taken, sent: &[AcceptedMessage]) {
        let (ended, what) = (clock::now(), taken.file.display().to_string());
        let engine = Engine::start(backend, model().await, 2).await;
        let mut new = Vec::new();
        for number in 0..SESSIONS {
            new.push(said(&engine, &format!("会话-{number}"), "new", "新的问题").await);
        }
        for AcceptedMessage { session_id, .. } in &new {
            // It may share a turn with messages that waited.
            eventually(DEADLINE, &format!("{what}: the new message of {session_id} is processed"), || async {
                engine.store.session(session_id).await.unwrap().is_some_and(|session| session.has_handled("new"))
            })
            .await;
        }
        let mut known = sent[..taken.before].to_vec();
        for sent in &sent[taken.before..taken.after] {
            let session = engine.session(&sent.session_id).await;
            known.extend(session.has_handled(&job_id(sent)).then(|| sent.clone()));
        }
        known.extend(new);
        rests(&engine, &known, &what).await;
        let api = self.calls_of(&engine, taken.started_at, ended).await;
        // The last calls before the backup may be repeated, as after a crash.
        let evidence = Evidence { sent: known, api, outlived: true, ..Evidence::default() };
        is_consistent(&engine, evidence, &what).await;
        for number in 0..SESSIONS {
            let texts = engine.said(&format!("会话-{number}")).await;
            assert!(texts.iter().any(|(_, text)| text.ends_with("新的问题：好的")), "{what}: {texts:?}");
            assert_eq!(texts.last().unwrap().0, ReplyKind::Timer, "{what}: {texts:?}");
        }
        assert_eq!(engine.dead_letters().await, [], "{what}");
    }

    /// The calls of the restored system, and those of the first one that belong to turns of the restored one. A turn
    /// that the first system began after the backup is another one, if the restored one has called under its key.
    async fn calls_of(&self, restored: &Engine, backup: Timestamp, ended: Timestamp) -> Vec<SeenCall> {
        let all: Vec<SeenCall> = self.engine.api.calls("/orders").iter().map(seen::called).collect();
        let mut kept = Vec::new();
        for call in &all {
            let is_first = call.at < ended && call.began < self.ended();
            let again = || all.iter().any(|other| other.key == call.key && other.at >= ended);
            let counts = match is_first {
                true => call.at <= backup || !again(),
                false => call.at >= ended,
            };
            let mut parts = call.key.splitn(3, '/');
            let (session_id, turn_id) = (parts.next().unwrap(), parts.next().unwrap());
            if counts && restored.store.turn(session_id, turn_id).await.unwrap().is_some() {
                kept.push(call.clone());
            }
        }
        kept
    }

    /// When the first system had nothing left to do.
    fn ended(&self) -> Instant {
        *self.ended.lock().unwrap()
    }
}

/// A backup, with the number of messages that were sent when it began, and when it was complete.
struct Taken {
    file: PathBuf,
    started_at: Timestamp,
    before: usize,
    after: usize,
}

async fn open_file(path: &Path) -> Backend {
    let settings = quick(Settings { backend: config::Backend::Embedded, ..Settings::default() });
    let file = EmbeddedFile::open(path).unwrap();
    Backend {
        queue: EmbeddedQueue::new(Arc::clone(&file), &settings, &Tasks::new()).await.unwrap(),
        store: EmbeddedStore::new(file, &settings).unwrap(),
        settings,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_embedded_system_goes_on_from_its_backup() {
    let folder = tempfile::tempdir().unwrap();
    let source = Source::start(open_file(&folder.path().join("first.redb")).await).await;
    let (taken, mut backups) = (AtomicUsize::new(0), Vec::new());
    let backup = async {
        for number in 1..=BACKUPS {
            source.is_busy(number * 4 * SESSIONS).await;
            let (before, file) = (source.count(), folder.path().join(format!("{number}.tar")));
            let copy = source.engine.store.copy_file().await.unwrap().unwrap();
            let (manifest, _) = copy.save(File::create(&file).unwrap(), &file).unwrap();
            backups.push(Taken { file, started_at: manifest.started_at, before, after: source.count() });
            taken.fetch_add(1, Ordering::SeqCst);
        }
    };
    tokio::join!(source.load(&taken), backup);
    let sent = source.ends().await;
    for (number, taken) in backups.iter().enumerate() {
        let path = folder.path().join(format!("restored-{number}")).join("turnwheel.redb");
        embedded::backup::restore(&Archive::open(&taken.file).unwrap(), &path, false).unwrap();
        source.goes_on(open_file(&path).await, taken, &sent).await;
    }
}

/// Other servers for the namespace of the first ones.
async fn elsewhere(namespace: &str) -> (Server, Server, Settings) {
    let (nats, mongod, handles) = private().await;
    let mut settings = quick(handles.settings());
    namespace.clone_into(&mut settings.namespace);
    (nats, mongod, settings)
}

fn silent(_: String) {}

/// The last sequence of the stream of events.
async fn last_event(settings: &Settings) -> u64 {
    let context = jetstream::new(async_nats::connect(&settings.nats.url).await.unwrap());
    let stream = context.get_stream(format!("{}_OUT", settings.namespace.to_uppercase())).await.unwrap();
    stream.cached_info().state.last_sequence
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_cluster_goes_on_from_its_backup_on_other_servers() {
    let folder: TempDir = tempfile::tempdir().unwrap();
    let settings = quick(cluster().await.settings());
    let source = Source::start(cluster_of(settings.clone()).await).await;
    let (taken, mut backups) = (AtomicUsize::new(0), Vec::new());
    let backup = async {
        for number in 1..=BACKUPS {
            source.is_busy(number * 4 * SESSIONS).await;
            let (before, file) = (source.count(), folder.path().join(format!("{number}.tar")));
            let target = File::create(&file).unwrap();
            let (manifest, _) = cluster::backup::save(&settings, target, &file, &silent).await.unwrap();
            backups.push(Taken { file, started_at: manifest.started_at, before, after: source.count() });
            taken.fetch_add(1, Ordering::SeqCst);
        }
    };
    tokio::join!(source.load(&taken), backup);
    let sent = source.ends().await;
    let mut open_jobs = 0;
    for taken in &backups {
        let archive = Archive::open(&taken.file).unwrap();
        let (_nats, _mongod, elsewhere) = elsewhere(&settings.namespace).await;
        let restored = cluster::backup::restore(&elsewhere, &archive, false, &Tasks::new(), &silent).await;
        open_jobs += restored.unwrap().open_jobs;
        source.goes_on(cluster_of(elsewhere).await, taken, &sent).await;
    }
    assert!(open_jobs > 0, "no backup had a job that waited");
}

/// A session that has been in use for long does not remember all of its jobs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_a_session_has_forgotten_is_not_answered_again() {
    let settings = quick(cluster().await.settings());
    let engine = Engine::start(cluster_of(settings.clone()).await, model().await, 1).await;
    engine.apply(sales_with(&json!({"greeting": null, "timers": []}))).await;
    for number in 0..101 {
        said(&engine, "s1", &format!("m-{number}"), "一").await;
    }
    engine.turn("s1", "m-100").await;
    let turns = engine.store.turns("s1", 500).await.unwrap().len();
    assert!(!engine.session("s1").await.has_handled("m-0"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("b.tar");
    cluster::backup::save(&settings, File::create(&file).unwrap(), &file, &silent).await.unwrap();
    let (_nats, _mongod, elsewhere) = elsewhere(&settings.namespace).await;
    let archive = Archive::open(&file).unwrap();
    let restored = cluster::backup::restore(&elsewhere, &archive, false, &Tasks::new(), &silent).await.unwrap();
    assert_eq!(restored.open_jobs, 0);
    assert_eq!(last_event(&elsewhere).await, last_event(&settings).await, "a reader continues at its sequence");
    let restored = Engine::start(cluster_of(elsewhere).await, model().await, 1).await;
    restored.say("s1", "new", "二").await;
    assert_eq!(restored.store.turns("s1", 500).await.unwrap().len(), turns + 1);
    assert_eq!(restored.session("s1").await.history.last().unwrap().text, "二：好的");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restoration_touches_nothing_that_is_in_use() {
    let settings = quick(cluster().await.settings());
    let engine = Engine::start(cluster_of(settings.clone()).await, model().await, 1).await;
    engine.apply(sales_with(&json!({"timers": []}))).await;
    engine.say("s1", "m-1", "你好").await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("b.tar");
    cluster::backup::save(&settings, File::create(&file).unwrap(), &file, &silent).await.unwrap();
    let archive = Archive::open(&file).unwrap();
    let refused = |settings: Settings, force: bool| {
        let archive = &archive;
        async move {
            let refused = cluster::backup::restore(&settings, archive, force, &Tasks::new(), &silent).await;
            refused.unwrap_err().to_string()
        }
    };
    let problem = refused(settings.clone(), false).await;
    assert!(problem.contains("are not empty: ") && problem.contains("`sessions`"), "{problem}");
    let process = json!({"process_id": "p1", "roles": ["worker"], "version": "1", "models": [], "flows": [],
                         "functions": [], "secrets": [], "allow_private": [], "connectors": [],
                         "started_at": clock::now()});
    engine.store.announce(serde_json::from_value(process).unwrap()).await.unwrap();
    let problem = refused(settings.clone(), true).await;
    assert!(problem.contains("1 processes run on the database"), "{problem}");
    let problem = refused(Settings { namespace: "other".into(), ..settings }, false).await;
    assert!(problem.contains("namespace = `other`"), "{problem}");
    let embedded = embedded::backup::restore(&archive, &folder.path().join("turnwheel.redb"), false);
    assert!(embedded.unwrap_err().to_string().contains("backup of the cluster backend"));
    assert_eq!(engine.said("s1").await.len(), 2, "nothing is lost");
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}
