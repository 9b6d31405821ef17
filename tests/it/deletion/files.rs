//! Deletion as an operator sees it: by the commands of a running `dev`, down to the bytes of its files and its log.

use super::search::WORD;
use crate::commands::Folder;
use crate::support::engine::DEADLINE;
use crate::support::process::Process;
use crate::support::script::ScriptedModel;
use crate::support::servers::free_port;
use crate::support::{engine, eventually};
use base::config::{Backend, Settings};
use serde_json::{Value, json};
use std::path::Path;

/// The files in a folder and below that hold the word.
fn holding(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(holding(&path));
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        found.extend(bytes.windows(WORD.len()).any(|part| part == WORD.as_bytes()).then(|| path.display().to_string()));
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_of_dev_no_file_and_no_log_holds_the_words_of_a_deleted_user() {
    let model = ScriptedModel::start(|asked| super::replies(asked, WORD)).await;
    let mut settings = engine::with_model(Settings { backend: Backend::Embedded, ..Settings::default() }, &model);
    settings.gateway.listen = ([127, 0, 0, 1], free_port()).into();
    let folder = Folder::with(settings);
    folder.write("agents/sales.json", &crate::scenarios::sales().to_string().replace("{api}", "http://127.0.0.1:9"));
    let dev = folder.dev().await;
    let sent = folder.run(&["send", "--session", "s1", "--agent", "sales", "--user", "u1", "--wait", WORD], "").await;
    assert_eq!(sent.code, 0, "{sent:?}");
    let data = folder.path().join("data");
    assert!(!holding(&data).is_empty(), "the search finds what is there");

    let told = folder.run(&["users", "delete", "u1"], "").await;
    assert_eq!(told.code, 0, "{told:?}");
    assert!(told.out.starts_with("deleted the data of user `u1`: 1 session, "), "{told:?}");
    let again = folder.run(&["users", "delete", "u1"], "").await;
    assert!(again.code == 1 && again.err.contains("there is no data of user `u1`"), "{again:?}");
    dev.kill();
    let dev = folder.dev().await;
    assert_eq!(holding(folder.path()), [""; 0]);
    let agents = folder.run(&["agents", "list", "--json"], "").await.out;
    assert_eq!(serde_json::from_str::<Value>(&agents).unwrap()["agents"][0]["agent_id"], "sales", "the rest is there");
    std::fs::remove_file(folder.path().join("agents/sales.json")).unwrap();
    folder.write(
        "agents/other.json",
        &crate::scenarios::sales_with(&json!({"id": "other"})).to_string().replace("{api}", "http://127.0.0.1:9"),
    );
    let tells = || async {
        Process::log(folder.path()).contains("agent sales: the store has it, and agents_dir has no file of it")
    };
    eventually(DEADLINE, "dev tells of the agent without a file", tells).await;
    let told = folder.run(&["agents", "delete", "sales"], "").await;
    let words = "deleted agent `sales`: versions 1, knowledge sources 0, cached plans ";
    assert!(told.code == 0 && told.out.starts_with(words), "{told:?}");
    drop(dev);
}
