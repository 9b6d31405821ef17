//! Two versions side by side: the older one leaves the jobs and documents of the newer one to it. A process of the newer
//! version is this program with a raised format, which it stamps on all that it writes.

use crate::commands::Folder;
use crate::gateway::Gateway;
use crate::metrics::Metrics;
use crate::scenarios::{acts, answer, engine, on_both_backends, sales};
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::process::Process;
use crate::support::script::{Answer, ScriptedModel, plan};
use crate::support::{backend, eventually};
use ::cluster::mongo::schema::SCHEMA;
use serde_json::{Value, json};
use std::path::Path;
use storage::store::StoreError;
use storage::store::records::SessionQuery;
use types::cause::Cause;
use types::format;
use types::outcome::Outcome;

on_both_backends!(job_of_a_newer_version_waits_for_it_and_costs_no_attempt,);

/// The format of the newer version.
const NEWER: u32 = 2;
const SESSIONS: usize = 6;
/// The log message of a worker that leaves a job.
const LEFT: &str = "left to a worker of a newer version";

async fn job_of_a_newer_version_waits_for_it_and_costs_no_attempt(mut backend: Backend) {
    backend.settings.worker.max_attempts = 1;
    let engine = engine(backend, answer("一"), vec![answer("二"), answer("三"), answer("四")]).await;
    let gateway = Gateway::of(&engine).await;
    let left = || async { Metrics::of(&gateway).await.value("turnwheel_newer_total") };
    let before = left().await;
    let message = |job_id: &str, text: &str| json!({"type": "user_message", "session_id": "s1", "agent_id": "sales", "job_id": job_id, "text": text});
    let mut newer = message("m-1", "你好");
    newer["format"] = json!(NEWER);
    engine.publish_job("s1", newer).await;
    engine.publish_job("s1", message("m-2", "在吗")).await;
    let newer_type = json!({"type": "later", "format": NEWER, "session_id": "s2", "job_id": "m-1"});
    engine.publish_job("s2", newer_type).await;
    eventually(DEADLINE, "both lanes are visited", || async { left().await >= before + 4.0 }).await;
    // Others are answered, and what no version knows is invalid as ever.
    engine.say("s3", "m-1", "你好").await;
    engine.publish_job("s4", json!({"type": "later", "session_id": "s4", "job_id": "m-1"})).await;
    let letters = eventually(DEADLINE, "the job without a stamp is a dead letter", || async {
        Some(engine.dead_letters().await).filter(|letters| !letters.is_empty())
    });
    assert_eq!(letters.await, [(Cause::Invalid, Some("m-1".to_owned()))]);
    assert!(engine.store.session("s2").await.unwrap().is_none(), "the lane is not taken");
    // The later message has woken the lane, too, and waits behind the first one.
    let waiting = engine.store.session("s1").await.unwrap();
    assert!(waiting.is_none_or(|session| session.last_seq == 0 && session.recent_jobs.is_empty()));

    format::pretend(NEWER);
    for job_id in ["m-1", "m-2"] {
        let turn = engine.turn("s1", job_id).await;
        assert_eq!((turn.outcome, turn.attempts), (Outcome::Answered, 1));
    }
    assert_eq!(engine.said("s1").await.len(), 3, "a greeting and two answers");
}

/// Processes of both versions on one cluster.
struct Versions {
    engine: Engine,
    older: Folder,
    newer: tempfile::TempDir,
    round: usize,
}

impl Versions {
    async fn begin() -> Self {
        let model = ScriptedModel::start(|asked| {
            let decided = answer(&format!("{}：好的", asked.user));
            match asked.schema.as_str() {
                "plan_and_decision" => Answer::json(&plan(json!("您好"), &decided)),
                _ => Answer::json(&decided),
            }
        });
        let engine = Engine::watching(backend::cluster().await, model.await).await;
        engine.apply(sales()).await;
        // From now on this test reads what both versions write.
        format::pretend(NEWER);
        let older = Folder::with(engine.settings.clone());
        Self { engine, older, newer: tempfile::tempdir().unwrap(), round: 0 }
    }

    fn older(&self, role: &str) -> Process {
        Process::start(self.older.path(), &self.engine.settings, &[role])
    }

    fn newer(&self, role: &str) -> Process {
        let format = NEWER.to_string();
        let env = [(format::TEST_VARIABLE, format.as_str())];
        Process::start_with(self.newer.path(), &self.engine.settings, &[role], &env)
    }

    /// Every user of these sessions writes once.
    async fn talk(&mut self, group: &str) {
        for number in 0..SESSIONS {
            let (session_id, job_id) = (format!("{group}-{number}"), format!("m-{}", self.round));
            self.engine.publish(&session_id, &job_id, &format!("{number} {}", self.round)).await;
        }
        self.round += 1;
    }

    /// Waits until the messages of this round are answered.
    async fn answered(&self, group: &str, round: usize) {
        for number in 0..SESSIONS {
            self.engine.turn(&format!("{group}-{number}"), &format!("m-{round}")).await;
        }
    }

    /// Waits until a worker of this folder has begun.
    async fn begun(&self, folder: &Path, count: usize) {
        let begun = || std::future::ready(Process::log(folder).matches("worker started").count() >= count);
        eventually(DEADLINE, "the worker has begun", begun).await;
    }

    async fn stop(&self, mut process: Process) {
        process.signal("TERM");
        eventually(DEADLINE, "the process has ended", || std::future::ready(process.ended())).await;
    }

    fn left(&self) -> usize {
        Process::log(self.older.path()).matches(LEFT).count()
    }

    async fn session_format(&self, session_id: &str) -> Option<i64> {
        let settings = &self.engine.settings.mongodb;
        let client = mongodb::Client::with_uri_str(&settings.uri).await.unwrap();
        let sessions = client.database(&settings.database).collection::<bson::Document>("sessions");
        let found = sessions.find_one(bson::doc! {"_id": session_id}).await.unwrap().unwrap();
        found.get_i64("format").ok()
    }

    /// The finding of the older version's doctor at this place.
    async fn finding(&self, place: &str) -> Option<Value> {
        let ended = self.older.run(&["doctor", "--json"], "").await;
        let report: Value = serde_json::from_str(&ended.out).unwrap();
        report["findings"].as_array().unwrap().iter().find(|finding| finding["where"] == place).cloned()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upgrade_and_rollback_under_load_lose_and_repeat_nothing() {
    let mut versions = Versions::begin().await;
    let _scheduler = versions.older("scheduler");
    let older = versions.older("worker");
    versions.begun(versions.older.path(), 1).await;
    versions.talk("会话").await;
    versions.answered("会话", 0).await;

    // Side by side, until the older worker has met a session of the newer one.
    versions.talk("会话").await;
    let newer = versions.newer("worker");
    versions.begun(versions.newer.path(), 1).await;
    while versions.left() == 0 {
        versions.talk("会话").await;
        versions.answered("会话", versions.round - 1).await;
    }
    // The upgrade ends while every user waits.
    versions.talk("会话").await;
    versions.stop(older).await;
    versions.talk("会话").await;
    versions.answered("会话", versions.round - 1).await;
    assert_eq!(versions.session_format("会话-0").await, Some(i64::from(NEWER)));

    // The rollback: the older version answers new users, and leaves the others.
    let older = versions.older("worker");
    versions.begun(versions.older.path(), 2).await;
    versions.talk("会话").await;
    versions.stop(newer).await;
    let waiting = versions.round;
    versions.talk("会话").await;
    let fresh = versions.round;
    versions.talk("新").await;
    versions.answered("新", fresh).await;
    let waits = eventually(DEADLINE, "the doctor says that jobs wait", || async {
        versions.finding("newer jobs").await.filter(|finding| finding["level"] == "problem")
    });
    assert!(waits.await["remedy"].as_str().unwrap().contains("newer version again"));
    assert_eq!(versions.finding("newer sessions").await.unwrap()["level"], "advice");
    for number in 0..SESSIONS {
        let session = versions.engine.session(&format!("会话-{number}")).await;
        assert!(!session.has_handled(&format!("m-{waiting}")) && session.lease.is_none(), "{session:?}");
    }

    // A worker of the newer version comes back.
    let _newer = versions.newer("worker");
    versions.answered("会话", waiting).await;
    for number in 0..SESSIONS {
        let session_id = format!("会话-{number}");
        let said: Vec<String> = versions.engine.said(&session_id).await.into_iter().map(|(_, text)| text).collect();
        let answers = (0..=waiting).map(|round| format!("{number} {round}：好的"));
        assert_eq!(
            said,
            ["您好，我是小智".to_owned()].into_iter().chain(answers).collect::<Vec<_>>(),
            "each once, in order"
        );
        for round in 0..=waiting {
            assert_eq!(versions.engine.turn(&session_id, &format!("m-{round}")).await.attempts, 1);
        }
    }
    assert!(versions.engine.dead_letters().await.is_empty());
    drop(older);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turn_that_a_newer_version_has_begun_is_continued_by_it() {
    let model = ScriptedModel::start(|asked| match asked.schema.as_str() {
        "plan_and_decision" => Answer::json(&plan(json!("您好"), &answer("好的"))),
        _ if asked.system.contains("shipped") => Answer::Hang,
        _ => Answer::json(&acts("processing", "SKILL", "query_order", &json!({"order_id": "1"}))),
    });
    let mut backend = backend::cluster().await;
    backend.settings.worker.max_attempts = 2;
    let mut versions = Versions { engine: Engine::watching(backend, model.await).await, ..Versions::begin().await };
    versions.older = Folder::with(versions.engine.settings.clone());
    format::pretend(format::FORMAT);
    versions.engine.apply(sales()).await;
    format::pretend(NEWER);
    versions.engine.api.script(|_, _| (200, json!({"status": "shipped"})));
    let newer = versions.newer("worker");
    versions.engine.say("s1", "m-1", "你好").await;
    versions.engine.publish("s1", "m-2", "在吗").await;
    eventually(DEADLINE, "the turn is begun", || async { versions.engine.model.asked().len() == 3 }).await;
    newer.kill();

    // The session itself is one that the older version could read; only the turn's steps are not.
    let client = mongodb::Client::with_uri_str(&versions.engine.settings.mongodb.uri).await.unwrap();
    let database = client.database(&versions.engine.settings.mongodb.database);
    let sessions = database.collection::<bson::Document>("sessions");
    let unstamp = bson::doc! {"$unset": {"format": "", "fence": ""}};
    sessions.update_one(bson::doc! {"_id": "s1"}, unstamp).await.unwrap();
    let steps = database.collection::<bson::Document>("steps");
    let begun = steps.find_one(bson::doc! {"turn_id": "m-2"}).await.unwrap();
    assert!(begun.is_some_and(|step| step.get_i64("format").is_ok_and(|format| format == i64::from(NEWER))));
    let _older = versions.older("worker");
    eventually(DEADLINE, "the older worker has tried it", || std::future::ready(versions.left() >= 3)).await;
    assert!(versions.engine.dead_letters().await.is_empty());

    versions.engine.model.script(|_| Answer::json(&answer("在的")));
    let _newer = versions.newer("worker");
    let turn = versions.engine.turn("s1", "m-2").await;
    assert_eq!(turn.outcome, Outcome::Answered);
    assert!(versions.engine.dead_letters().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_of_a_newer_version_are_named_as_such() {
    let Backend { settings, store, .. } = backend::cluster().await;
    let client = mongodb::Client::with_uri_str(&settings.mongodb.uri).await.unwrap();
    let database = client.database(&settings.mongodb.database);
    let documents = [("sessions", "s1"), ("turns", "s1/m-1"), ("steps", "s1/m-1/plan"), ("workflow_runs", "r1")];
    for (collection, id) in documents {
        let newer = bson::doc! {"_id": id, "format": 7, "kind": "later", "timers": [{"due_at": bson::DateTime::now()}]};
        database.collection(collection).insert_one(newer).await.unwrap();
    }
    assert!(newer(&store.session("s1").await));
    assert!(newer(&store.turn("s1", "m-1").await));
    assert!(newer(&store.steps("s1", "m-1").await));
    assert!(newer(&store.run("r1").await));
    // A listing shows the others, and the timers wait for a newer scheduler.
    assert!(store.sessions(SessionQuery { limit: 10, ..SessionQuery::default() }).await.unwrap().is_empty());
    let due = store.due_timers(std::time::Duration::from_secs(60), 10).await.unwrap();
    assert!(due.timers.is_empty());
}

/// Whether a read says that the document has the newer format 7.
fn newer<T>(read: &Result<T, StoreError>) -> bool {
    matches!(read, Err(StoreError::Newer { source, .. }) if source.found == 7)
}

/// Sets the recorded schema of the database.
async fn set_schema(database: &mongodb::Database, version: i64, minimum: i64) {
    let record = bson::doc! {"$set": {"version": version, "minimum": minimum, "by": "9.9.9"}};
    let meta = database.collection::<bson::Document>("meta");
    meta.update_one(bson::doc! {"_id": "schema"}, record).upsert(true).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schema_of_the_database_is_migrated_or_tolerated_or_refused_with_the_remedy() {
    let backend = backend::cluster().await;
    let folder = Folder::with(backend.settings.clone());
    let client = mongodb::Client::with_uri_str(&backend.settings.mongodb.uri).await.unwrap();
    let database = client.database(&backend.settings.mongodb.database);
    let meta = database.collection::<bson::Document>("meta");
    // The first process that starts writes the settings file.
    drop(Process::start(folder.path(), &backend.settings, &["config"]));
    let version = || async {
        let found = meta.find_one(bson::doc! {"_id": "schema"}).await.unwrap();
        found.and_then(|found| found.get_i64("version").ok())
    };
    assert_eq!(version().await, Some(SCHEMA), "recorded at the first start");

    // A database of a version that recorded none.
    meta.delete_one(bson::doc! {"_id": "schema"}).await.unwrap();
    database.collection::<bson::Document>("sessions").drop_index("format_1").await.unwrap();
    let checked = folder.run(&["migrate", "--check"], "").await;
    assert_eq!((checked.code, version().await), (1, None), "{checked:?}");
    assert!(checked.out.contains("schema 1") && checked.out.contains("indexes"), "{checked:?}");
    for _ in 0..2 {
        let migrated = folder.run(&["migrate"], "").await;
        assert_eq!((migrated.code, version().await), (0, Some(SCHEMA)), "{migrated:?}");
    }
    assert_eq!(folder.run(&["migrate", "--check"], "").await.code, 0);
    let indexes = database.collection::<bson::Document>("sessions").list_index_names().await.unwrap();
    assert!(indexes.iter().any(|name| name == "format_1"), "{indexes:?}");

    // A newer one that this version can use.
    set_schema(&database, SCHEMA + 1, SCHEMA).await;
    let listed = folder.run(&["sessions", "list"], "").await;
    assert_eq!((listed.code, version().await), (0, Some(SCHEMA + 1)), "{listed:?}");
    let doctor = folder.run(&["doctor"], "").await;
    assert!(doctor.out.contains("9.9.9") && doctor.out.contains("finish the upgrade"), "{doctor:?}");

    // A newer one that it cannot use.
    set_schema(&database, SCHEMA + 1, SCHEMA + 1).await;
    for args in [&["worker"][..], &["migrate"], &["sessions", "list"], &["doctor"]] {
        let refused = folder.run(args, "").await;
        let told = format!("{}{}", refused.out, refused.err);
        assert_eq!(refused.code, 1, "{args:?}: {told}");
        assert!(told.contains("9.9.9") && told.contains("newer version of Turnwheel"), "{args:?}: {told}");
    }
    assert_eq!(version().await, Some(SCHEMA + 1));
}
