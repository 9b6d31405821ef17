//! `apply` and the doctor check files against the models, flows and settings of the running workers.

use crate::commands::{Ended, Folder};
use crate::scenarios::on_both_backends;
use crate::support::engine::{Backend, DEADLINE};
use crate::support::process::Process;
use crate::support::{backend, eventually};
use ::cluster::mongo::MongoStore;
use base::clock;
use base::tasks::Tasks;
use definitions::agent::AgentRecord;
use serde_json::{Value, json};
use std::sync::Arc;
use storage::store::{Process as Running, Store};
use turnwheel::Engine;

on_both_backends!(a_process_is_listed_until_it_departs);

async fn a_process_is_listed_until_it_departs(backend: Backend) {
    let process = |id: &str, roles: &[&str]| Running {
        process_id: id.into(),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        version: "1.2.3".into(),
        models: vec!["default".into(), "写作".into()],
        allow_private: vec!["10.0.0.0/8".into()],
        ..Running::default()
    };
    let ids = async || -> Vec<String> {
        backend.store.processes().await.unwrap().into_iter().map(|process| process.process_id).collect()
    };
    assert!(ids().await.is_empty());
    backend.store.announce(process("p1", &["worker"])).await.unwrap();
    backend.store.announce(process("p2", &["gateway"])).await.unwrap();
    backend.store.announce(process("p1", &["worker", "gateway"])).await.unwrap();
    let listed = backend.store.processes().await.unwrap();
    assert_eq!(listed.len(), 2);
    assert!(listed.contains(&process("p1", &["worker", "gateway"])), "{listed:?}");
    backend.store.depart("p1").await.unwrap();
    assert_eq!(ids().await, ["p2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_announces_its_roles_and_takes_them_back() {
    let engine = Engine::in_memory().open().await.unwrap();
    engine.start_worker().unwrap();
    engine.start_scheduler();
    let store = Arc::clone(engine.store());
    let roles = eventually(DEADLINE, "both roles are announced", || async {
        let processes = store.processes().await.unwrap();
        processes.first().map(|process| process.roles.clone()).filter(|roles| roles.len() == 2)
    })
    .await;
    assert_eq!(roles, ["worker", "scheduler"]);
    assert!(engine.stop().await);
    assert!(store.processes().await.unwrap().is_empty(), "the engine has removed its announcement");
}

fn agent(fields: &Value) -> String {
    let rules = json!([{"when": {"always": true}, "decide": {"next_status": "typing", "response": "好的"}}]);
    let mut agent = json!({"id": "hotel", "name": "小智", "model": "offline", "sop": "回答", "rules": rules});
    for (name, value) in fields.as_object().unwrap() {
        agent[name] = value.clone();
    }
    agent.to_string()
}

fn tale(id: &str) -> String {
    json!({"id": id, "type": "pipeline", "stages": [{"id": "answer", "runnable": "code_agent", "input": "{query}"}]})
        .to_string()
}

/// The author's folder, whose settings have a model and a workflow of their own, and a running worker of the same
/// cluster that has neither.
async fn author_and_worker() -> (Folder, Folder, Process) {
    let mut settings = backend::cluster().await.settings;
    settings.http.allow_private.clear();
    let (author, workers) = (Folder::with(settings.clone()), Folder::with(settings));
    let file = crate::support::process::toml(&author.settings).replace("allow_private = [\"*\"]", "allow_private = []");
    workers.write("turnwheel.toml", &file);
    author.write("turnwheel.toml", &format!("{file}[models.writer]\nprovider = \"offline\"\n"));
    author.write("workflows/tale.json", &tale("tale"));
    let mut command = workers.command(&["all", "--set", "gateway.listen=127.0.0.1:0"]);
    let worker = Process::of(&mut command);
    eventually(DEADLINE, "the worker is announced", || async {
        doctor(&author).await.iter().any(|line| line.contains("workers: 1 run"))
    })
    .await;
    (author, workers, worker)
}

async fn applied(author: &Folder, fields: &Value) -> Ended {
    author.write("hotel.json", &agent(fields));
    author.run(&["agents", "apply", "hotel.json"], "").await
}

async fn doctor(folder: &Folder) -> Vec<String> {
    let ended = folder.run(&["doctor"], "").await;
    ended.out.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_is_refused_whose_task_agents_the_workers_cannot_run() {
    let (author, _workers, _worker) = author_and_worker().await;
    // The agent was applied while the workers still had the model.
    let scribe = json!({"id": "scribe", "model": "writer", "system_prompt": "写"});
    let store = MongoStore::connect(&author.settings, &Tasks::new()).await.unwrap();
    store.put_agent(AgentRecord::from_document(scribe, clock::now()).unwrap()).await.unwrap();
    author.write("story.json", &tale("story").replace("code_agent", "scribe"));
    let refused = author.run(&["workflows", "apply", "story.json"], "").await;
    assert_eq!(refused.code, 1, "{refused:?}");
    for part in ["stages[0].runnable", "the task agent `scribe` cannot run", "there is no model `writer`"] {
        assert!(refused.out.contains(part), "{part}: {refused:?}");
    }
    // Another task agent in the store that cannot run does not affect this file.
    assert_eq!(author.run(&["workflows", "apply"], "").await.code, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_and_workflows_are_checked_against_what_the_workers_have() {
    let (author, workers, worker) = author_and_worker().await;
    let model = applied(&author, &json!({"model": "writer"})).await;
    assert!(model.code == 1 && model.out.contains("there is no model `writer`"), "{model:?}");
    assert!(model.err.contains("the running worker instead of the local settings"), "{model:?}");
    let flow = applied(&author, &json!({"flows": ["tale"]})).await;
    assert!(flow.code == 1 && flow.out.contains("there is no flow `tale`"), "{flow:?}");
    let stored = author.run(&["workflows", "apply", "--json"], "").await;
    assert_eq!((stored.code, &stored.json()["files"][0]["workflow_id"]), (0, &json!("tale")), "{stored:?}");
    let flow = applied(&author, &json!({"flows": ["tale"]})).await;
    assert_eq!(flow.code, 0, "the workflow is in the store now: {flow:?}");
    // The workers' folder does not have this file, and the doctor there does not miss it.
    for folder in [&author, &workers] {
        let lines = doctor(folder).await;
        assert!(!lines.iter().any(|line| line.starts_with("problem ")), "{lines:#?}");
    }
    let named = json!({"id": "two", "type": "pipeline",
        "stages": [{"id": "answer", "runnable": "code_agent", "input": "{query}", "model": "writer"}]});
    author.write("two.json", &named.to_string());
    let refused = author.run(&["workflows", "apply", "two.json"], "").await;
    assert!(refused.code == 1 && refused.out.contains("there is no model `writer`"), "{refused:?}");

    let skill = |url: &str| json!({"skills": [{"id": "q", "description": "查", "params": {"type": "object"}, "http": {"url": url}}]});
    for url in ["http://127.0.0.1:8090/x", "http://localhost:8090/x", "http://10.1.2.3/x"] {
        let warned = applied(&author, &skill(url)).await;
        assert!(warned.code == 0 && warned.err.contains("http.allow_private"), "{url}: {warned:?}");
    }
    assert!(doctor(&author).await.iter().any(|line| line.contains("is a private address")), "the doctor warns as well");
    let public = applied(&author, &skill("https://api.example.com/x")).await;
    assert!(public.code == 0 && !public.err.contains("allow_private"), "{public:?}");

    worker.signal("TERM");
    eventually(DEADLINE, "the worker has departed", || async {
        let applied = applied(&author, &json!({"model": "writer"})).await;
        applied.code == 0 && applied.err.contains("no worker is running: checked against the local settings")
    })
    .await;
}
