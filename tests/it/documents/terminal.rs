//! The commands for versions: notes, conditions, drafts, going back, and messages that name a version.

use super::{report_text, shop_text};
use crate::commands::Folder;
use crate::support::engine::DEADLINE;
use crate::support::eventually;
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_are_listed_tried_applied_and_gone_back_to() {
    let folder = Folder::embedded();
    folder.write("turnwheel.toml", "");
    let _dev = folder.dev().await;
    let apply = async |text: &str, more: &[&str]| {
        folder.write("shop.yaml", text);
        folder.run(&[&["agents", "apply", "shop.yaml", "--json"], more].concat(), "").await
    };
    let first = apply(&shop_text("第一版", "一"), &["--note", "the first"]).await;
    assert_eq!(first.code, 0, "{first:?}");
    let first = first.json()["files"][0]["hash"].as_str().unwrap().to_owned();
    let yaml = folder.run(&["agents", "show", "shop", "--yaml"], "").await;
    assert_eq!(yaml.out, shop_text("第一版", "一"), "the text with its comment: {yaml:?}");
    let second = apply(&shop_text("第二版", "二"), &["--if-match", &first]).await;
    assert_eq!((second.code, &second.json()["files"][0]["changed"]), (0, &json!(true)), "{second:?}");
    let lost = apply(&shop_text("第三版", "三"), &["--if-match", &first]).await;
    assert!(lost.code == 1 && lost.err.contains("current version") && lost.err.contains("merge"), "{lost:?}");
    let draft = apply(&shop_text("草稿", "草稿"), &["--draft", "--note", "to try"]).await;
    assert_eq!((draft.code, &draft.json()["files"][0]["draft"]), (0, &json!(true)), "{draft:?}");
    let draft = draft.json()["files"][0]["hash"].as_str().unwrap().to_owned();

    let send = async |session: &str, version: &[&str]| {
        let args = ["send", "--session", session, "--agent", "shop", "--wait", "--json", "你好"];
        folder.run(&[&args[..], version].concat(), "").await
    };
    let tried = send("s1", &["--agent-version", &draft]).await;
    assert!(tried.code == 0 && tried.out.contains("草稿"), "{tried:?}");
    let usual = send("s2", &[]).await;
    assert!(usual.code == 0 && usual.out.contains("二") && !usual.out.contains("草稿"), "{usual:?}");
    let chat = folder.run(&["chat", "--agent", "shop", "--agent-version", &draft], "你好\n").await;
    assert!(chat.code == 0 && chat.out.contains("草稿"), "{chat:?}");
    let unknown = send("s3", &["--agent-version", "0123"]).await;
    assert!(unknown.code == 1 && unknown.err.contains("has no version `0123`"), "{unknown:?}");

    let listed = folder.run(&["agents", "versions", "shop"], "").await;
    for part in [first.as_str(), &draft, "the first", "to try", "draft", "current"] {
        assert!(listed.out.contains(part), "{part}: {listed:?}");
    }
    let one = folder.run(&["agents", "versions", "shop", &first[..8]], "").await;
    assert_eq!(one.out, shop_text("第一版", "一"), "{one:?}");
    for hash in [&draft, &first] {
        let applied = folder.run(&["agents", "apply", "shop", "--version", &hash[..8], "--json"], "").await;
        assert_eq!((applied.code, &applied.json()["changed"]), (0, &json!(true)), "{applied:?}");
        let shown = folder.run(&["agents", "show", "shop", "--json"], "").await;
        assert_eq!(&shown.json()["hash"], hash, "{shown:?}");
    }
    let two = folder.run(&["agents", "apply", "shop.yaml", "other.yaml", "--if-match", &first], "").await;
    assert!(two.code == 1 && two.err.contains("one file"), "{two:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_has_the_same_commands() {
    let folder = Folder::embedded();
    folder.write("turnwheel.toml", "");
    let _dev = folder.dev().await;
    let mut hashes = Vec::new();
    for (what, more) in [("一", &["--note", "the first"][..]), ("二", &[]), ("草稿", &["--draft"])] {
        folder.write("report.yaml", &report_text(what));
        let applied = folder.run(&[&["workflows", "apply", "report.yaml", "--json"], more].concat(), "").await;
        assert_eq!(applied.code, 0, "{applied:?}");
        hashes.push(applied.json()["files"][0]["hash"].as_str().unwrap().to_owned());
    }
    let listed = folder.run(&["workflows", "versions", "report", "--json"], "").await.json();
    let listed: Vec<_> = listed["versions"].as_array().unwrap().iter().map(|version| version["hash"].clone()).collect();
    assert_eq!(listed, hashes.iter().rev().map(|hash| json!(hash)).collect::<Vec<_>>());
    let back = folder.run(&["workflows", "apply", "report", "--version", &hashes[0]], "").await;
    assert!(back.code == 0 && back.out.contains("applied"), "{back:?}");
    eventually(DEADLINE, "the first version is applied", || async {
        let shown = folder.run(&["workflows", "show", "report", "--json"], "").await.json();
        (shown["hash"] == hashes[0]).then_some(())
    })
    .await;
    let one = folder.run(&["workflows", "versions", "report", &hashes[1]], "").await;
    assert_eq!(one.out, report_text("二"), "{one:?}");
}
