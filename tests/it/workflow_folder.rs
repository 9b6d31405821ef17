//! The files of `workflows_dir` when a process starts: valid files are registered despite invalid ones, and on a
//! cluster no file replaces a workflow in the store.

use crate::commands::Folder;
use crate::scenarios::on_both_backends;
use crate::support::engine::Backend;
use crate::support::eventually;
use crate::support::process::Process;
use crate::support::servers::{cluster, free_port};
use ::cluster::mongo::MongoStore;
use base::clock;
use base::config::Settings;
use base::tasks::Tasks;
use definitions::agent::AgentRecord;
use definitions::agent::validate::KnownNames;
use definitions::workflow::definition::WorkflowRecord;
use engine::run::{self, Registered};
use serde_json::{Value, json};
use std::path::Path;
use storage::store::Store;

on_both_backends!(bad_files_do_not_stop_good_ones, a_process_that_starts_replaces_nothing_that_is_registered,);

/// A workflow file with a stage that runs `runnable`.
fn file(id: &str, runnable: &str, input: &str) -> String {
    format!("id: {id}\nstages:\n  - {{id: s, runnable: {runnable}, input: '{input}'}}\n")
}

async fn apply_agent(store: &dyn Store) {
    let agent = AgentRecord::from_document(json!({"id": "writer", "system_prompt": "x"}), clock::now()).unwrap();
    store.put_agent(agent).await.unwrap();
}

async fn start(settings: &Settings, folder: &Path, store: &dyn Store, registered: Registered) {
    let settings = Settings { workflows_dir: folder.to_owned(), ..settings.clone() };
    run::register_folder(&settings, store, Vec::new(), &KnownNames::default(), registered).await;
}

/// Ids of the registered workflows.
async fn ids(store: &dyn Store) -> Vec<String> {
    store.workflows().await.unwrap().good.iter().map(|workflow| workflow.id().to_owned()).collect()
}

async fn input(store: &dyn Store, id: &str) -> Value {
    store.workflow(id).await.unwrap().unwrap().document["stages"][0]["input"].clone()
}

async fn bad_files_do_not_stop_good_ones(backend: Backend) {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    apply_agent(backend.store.as_ref()).await;
    write("good.yaml", &file("good", "writer", "{query}"));
    write("names_good.yaml", &file("names_good", "good", "{query}"));
    write("no_yaml.yaml", "id: [\n");
    write("bad.yaml", &file("bad", "nobody", "{query}"));
    write("names_bad.yaml", &file("names_bad", "bad", "{query}"));
    write("names_names_bad.yaml", &file("names_names_bad", "names_bad", "{query}"));
    for registered in [Registered::Stays, Registered::IsReplaced] {
        start(&backend.settings, folder.path(), backend.store.as_ref(), registered).await;
        assert_eq!(ids(backend.store.as_ref()).await, ["good", "names_good"]);
    }
}

async fn a_process_that_starts_replaces_nothing_that_is_registered(backend: Backend) {
    let folder = tempfile::tempdir().unwrap();
    let store = backend.store.as_ref();
    let write = |id: &str, text: &str| std::fs::write(folder.path().join(format!("{id}.yaml")), text).unwrap();
    apply_agent(store).await;
    write("w", &file("w", "writer", "v1"));
    start(&backend.settings, folder.path(), store, Registered::Stays).await;
    assert_eq!(input(store, "w").await, "v1");
    // An operator puts v2. Then a process with the older file restarts, and one with a newer file.
    let document = json!({"id": "w", "stages": [{"id": "s", "runnable": "writer", "input": "v2"}]});
    store.put_workflow(WorkflowRecord::from_document(document, clock::now()).unwrap()).await.unwrap();
    for version in ["v1", "v3"] {
        write("w", &file("w", "writer", version));
        write("new", &file("new", "writer", version));
        start(&backend.settings, folder.path(), store, Registered::Stays).await;
        assert_eq!((input(store, "w").await, input(store, "new").await), (json!("v2"), json!("v1")), "{version}");
    }
    // `dev` replaces registered workflows by its files.
    start(&backend.settings, folder.path(), store, Registered::IsReplaced).await;
    assert_eq!(input(store, "w").await, "v3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_role_that_knows_workflows_registers_its_files() {
    for role in ["worker", "gateway"] {
        let mut settings = cluster().await.settings();
        settings.gateway.listen = ([127, 0, 0, 1], free_port()).into();
        let folder = Folder::with(settings);
        folder.write("workflows/good.yaml", &file("good", "general_agent", "{query}"));
        folder.write("workflows/bad.yaml", &file("bad", "nobody", "{query}"));
        let _process = Process::start(folder.path(), &folder.settings, &[role]);
        let store = MongoStore::connect(&folder.settings, &Tasks::new()).await.unwrap();
        let what = format!("the {role} registers its files");
        eventually(crate::support::engine::DEADLINE, &what, || async { ids(&store).await == ["good"] }).await;
    }
}
