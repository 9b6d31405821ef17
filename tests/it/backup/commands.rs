//! The commands as an operator types them.

use super::text;
use crate::commands::{Ended, Folder};
use crate::support::servers::{cluster, free_port};
use crate::support::{engine::DEADLINE, eventually};
use base::config::Backend;

/// A command that must succeed.
async fn done(folder: &Folder, args: &[&str]) -> Ended {
    let ended = folder.run(args, "").await;
    assert_eq!(ended.code, 0, "{args:?}: {ended:?}");
    ended
}

/// A command that must fail, with an error and a hint.
async fn refused(folder: &Folder, args: &[&str], error: &str, hint: &str) {
    let ended = folder.run(args, "").await;
    assert!(ended.code == 1 && ended.err.contains(error) && ended.err.contains(hint), "{args:?}: {ended:?}");
}

async fn says(folder: &Folder, text: &str, answer: &str) {
    let chat = folder.run(&["chat", "--agent", "sales", "--session", "s1"], &format!("{text}\n")).await;
    assert!(chat.out.contains(answer), "{chat:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dev_is_backed_up_while_it_runs_and_when_it_does_not() {
    let folder = Folder::embedded();
    folder.write("turnwheel.toml", "");
    refused(&folder, &["backup", "b.tar"], "there is nothing to back up", "data_dir").await;
    let dev = folder.dev().await;
    says(&folder, "几点关门？", "18:00").await;
    let told = done(&folder, &["backup", "b.tar"]).await;
    assert!(told.out.contains("backed up the embedded file to b.tar") && told.err.contains("dev server"), "{told:?}");
    refused(&folder, &["backup", "b.tar"], "b.tar exists already", "--force").await;
    done(&folder, &["backup", "b.tar", "--force"]).await;
    refused(&folder, &["restore", "b.tar"], "a dev server is running", "stop it").await;
    let audit = done(&folder, &["audit", "--json"]).await.json();
    let entries = audit["entries"].as_array().unwrap();
    assert!(entries.iter().any(|entry| text(entry, "action") == "create_backup"), "{audit}");
    says(&folder, "后来的话", "").await;
    drop(dev);
    let checked = done(&folder, &["restore", "b.tar", "--check", "--json"]).await.json();
    assert_eq!((text(&checked, "backend").as_str(), &checked["bytes"].as_u64().is_some()), ("embedded", &true));
    refused(&folder, &["restore", "b.tar"], "turnwheel.redb exists already", "--force").await;
    done(&folder, &["backup", "later.tar"]).await;
    let told = done(&folder, &["restore", "b.tar", "--force"]).await;
    assert!(told.out.contains("as it was at") && told.out.contains("turnwheel.redb.before-restore"), "{told:?}");
    let dev = folder.dev().await;
    let shown = done(&folder, &["sessions", "show", "s1"]).await.out;
    assert!(shown.contains("几点关门？") && !shown.contains("后来的话"), "{shown}");
    says(&folder, "几点关门？", "18:00").await;
    drop(dev);
    // Elsewhere, from the backup that was made without a process.
    let other = Folder::embedded();
    std::fs::copy(folder.path().join("later.tar"), other.path().join("later.tar")).unwrap();
    other.write("turnwheel.toml", "");
    done(&other, &["restore", "later.tar"]).await;
    let _dev = other.dev().await;
    let shown = done(&other, &["sessions", "show", "s1"]).await.out;
    assert!(shown.contains("后来的话"), "{shown}");
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("incomplete")), "{names:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_backed_up_and_restored_by_the_commands() {
    let mut settings = cluster().await.settings();
    settings.backend = Backend::Cluster;
    settings.gateway.listen = ([127, 0, 0, 1], free_port()).into();
    let folder = Folder::with(settings.clone());
    let all = crate::support::process::Process::start(folder.path(), &settings, &["all"]);
    let sales = crate::scenarios::sales().to_string().replace("{api}", "http://127.0.0.1:9");
    folder.write("agents/sales.json", &sales);
    done(&folder, &["agents", "apply", "agents"]).await;
    done(&folder, &["send", "--session", "s1", "--agent", "sales", "你好"]).await;
    let told = done(&folder, &["backup", "b.tar"]).await;
    assert!(told.out.contains("backed up the cluster") && told.err.contains("sessions:"), "{told:?}");
    refused(&folder, &["restore", "b.tar", "--force"], "processes run on the database", "stop all workers").await;
    let actions = done(&folder, &["audit", "--json"]).await.json();
    assert!(actions["entries"].as_array().unwrap().iter().any(|entry| text(entry, "action") == "create_backup"));
    all.signal("TERM");
    eventually(DEADLINE, "no process is announced", || async {
        !folder.run(&["restore", "b.tar"], "").await.err.contains("processes run")
    })
    .await;
    refused(&folder, &["restore", "b.tar"], "are not empty", "--force").await;
    let told = done(&folder, &["restore", "b.tar", "--force"]).await;
    assert!(told.out.contains("restored the database"), "{told:?}");
    let shown = done(&folder, &["sessions", "list"]).await.out;
    assert!(shown.contains("s1"), "{shown}");
}
