//! Commands that queue work print its id to stdout and its effect in words to stderr.

use crate::commands::{Ended, Folder};
use crate::scenarios::{acts, answer, sales_with};
use crate::support::api::{self, Api};
use crate::support::engine::{DEADLINE, scripted};
use crate::support::eventually;
use crate::support::process::toml;
use crate::support::script::{Answer, ScriptedModel, plan};
use regex::Regex;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// A folder with an agent that follows offline rules.
fn folder() -> Folder {
    let folder = Folder::embedded();
    let rules = json!([{"when": {"always": true}, "decide": {"next_status": "typing", "response": "好的"}}]);
    let timer = json!({"name": "follow_up", "delay": "1h", "message": "还需要帮助吗？"});
    let agent = json!({"id": "timed", "model": "offline", "sop": "回答", "rules": rules, "timers": [timer]});
    folder.write("agents/timed.json", &agent.to_string());
    folder
}

/// The words on stderr, without the line that names the gateway.
fn words(ended: &Ended) -> String {
    let lines: Vec<&str> = ended.err.lines().filter(|line| !line.starts_with("using the dev server")).collect();
    lines.join("\n")
}

/// Runs a command that queues something, and returns its id. Stderr must be one line with the id and these words.
async fn queued(folder: &Folder, args: &[&str], expected: &[&str]) -> String {
    let ended = folder.run(args, "").await;
    assert_eq!(ended.code, 0, "{args:?}: {ended:?}");
    let id = ended.out.trim_end().to_owned();
    assert!(!id.is_empty() && !id.contains([' ', '\n']), "stdout has the id alone: {args:?}: {ended:?}");
    let words = words(&ended);
    assert!(!words.contains('\n') && words.contains(&format!("`{id}`")), "{args:?}: {ended:?}");
    for part in expected {
        assert!(words.contains(part), "{part}: {args:?}: {ended:?}");
    }
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_or_command_is_named_on_stdout_and_explained_on_stderr() {
    let folder = folder();
    let _dev = folder.dev().await;
    let send = ["send", "--session", "s1", "--agent", "timed", "--job-id", "m-1"];
    let show = "`turnwheel sessions show s1` shows";
    let id = queued(&folder, &[&send[..], &["你好"]].concat(), &["queued message", "session `s1`", show]).await;
    assert_eq!(id, "m-1");
    let waited = folder.run(&["send", "--session", "s1", "--job-id", "m-2", "--wait", "在吗"], "").await;
    let lines: Vec<&str> = waited.out.lines().collect();
    assert!(lines.first() == Some(&"m-2") && waited.out.contains("好的"), "the id, then the replies: {waited:?}");
    assert!(words(&waited).contains("queued message `m-2`") && words(&waited).contains("waiting up to"), "{waited:?}");
    let silent = folder.run(&[&send[..], &["--json", "你好"]].concat(), "").await;
    assert_eq!((silent.json(), words(&silent)), (json!({"job_id": "m-1", "session_id": "s1"}), String::new()));

    let cancel = ["timers", "cancel", "--session", "s1", "--name", "follow_up"];
    queued(&folder, &cancel, &["it cancels the timer `follow_up` of session `s1`", show]).await;
    queued(&folder, &["sessions", "close", "s1", "--by", "li"], &["it closes session `s1`", show]).await;
    eventually(DEADLINE, "it is closed", || async {
        let shown = folder.run(&["sessions", "show", "s1", "--json"], "").await;
        shown.json()["closed_at"].is_string()
    })
    .await;
    let nothing = folder.run(&["sessions", "close", "s1"], "").await;
    assert_eq!((nothing.code, nothing.out.as_str()), (0, ""), "{nothing:?}");
    assert!(words(&nothing).starts_with("nothing to close: s1 is closed since"), "{nothing:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_named_on_stdout_and_explained_on_stderr() {
    let folder = folder();
    let _dev = folder.dev().await;
    let run = ["workflows", "run", "smart_router", "你好", "--detach", "--run-id", "r1"];
    let watch = "`turnwheel runs show r1 --watch` follows it";
    let id = queued(&folder, &run, &["queued run `r1` of workflow `smart_router`", watch]).await;
    assert_eq!(id, "r1");
    eventually(DEADLINE, "the run is completed", || async {
        folder.run(&["runs", "show", "r1", "--json"], "").await.json()["status"] == "completed"
    })
    .await;
    let restart = ["runs", "restart", "r1", "--from", "general"];
    let again = queued(&folder, &restart, &["which repeats run `r1` from `general` on"]).await;
    assert_ne!(again, "r1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applying_workflows_lists_the_stored_ones_once() {
    let folder = folder();
    let _dev = folder.dev().await;
    let stage = |runnable: &str| json!([{"id": "a", "runnable": runnable, "input": "{query}"}]);
    for (id, runnable) in [("one", "general_agent"), ("two", "one"), ("three", "two")] {
        folder.write(&format!("more/{id}.json"), &json!({"id": id, "stages": stage(runnable)}).to_string());
    }
    let client = base::http_client::builder().no_proxy().build().unwrap();
    let metrics = format!("http://{}/metrics", folder.settings.gateway.listen);
    let listed = async || {
        let text = client.get(&metrics).send().await.unwrap().text().await.unwrap();
        let count =
            Regex::new(r#"requests_total\{method="GET",route="/api/v1/workflows",status="200"\} (\d+)"#).unwrap();
        count.captures(&text).map_or(0, |count| count[1].parse::<u32>().unwrap())
    };
    for (path, changed) in [("more/one.json", 1), ("more", 2), ("more/three.json", 0)] {
        let before = listed().await;
        let applied = folder.run(&["workflows", "apply", path], "").await;
        assert_eq!((applied.code, applied.out.matches(" applied ").count()), (0, changed), "{applied:?}");
        assert_eq!(listed().await - before, 1, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_was_merged_into_another_prints_the_replies_to_both() {
    let mut folder = Folder::embedded();
    let (api, gate) = (Api::start().await, Arc::new(Semaphore::new(0)));
    let held = Arc::clone(&gate);
    api.script(move |_, _| api::Answer::Gated(Arc::clone(&held), 200, json!({"state": "shipped"})));
    let model = ScriptedModel::start(|asked| {
        let decided = match asked.user.as_str() {
            "查订单" if !asked.system.contains("shipped") => {
                acts("processing", "SKILL", "query_order", &json!({"order_id": "A1"}))
            }
            _ => answer("好的"),
        };
        Answer::json(&if asked.schema == "plan_and_decision" { plan(json!("您好"), &decided) } else { decided })
    });
    let model = model.await;
    folder.settings.models.insert("default".into(), scripted(&model));
    folder.write("turnwheel.toml", &toml(&folder.settings));
    let agent = sales_with(&json!({"double_text": "merge"})).to_string();
    folder.write("agents/sales.json", &agent.replace("{api}", &api.base_url));
    let _dev = folder.dev().await;
    let send = async |job_id: &str, args: &[&str]| {
        let send = ["send", "--session", "s1", "--agent", "sales", "--job-id", job_id];
        let sent = folder.run(&[&send[..], args].concat(), "").await;
        assert_eq!(sent.code, 0, "{sent:?}");
        sent
    };
    send("m-1", &["查订单"]).await;
    eventually(DEADLINE, "the order is looked up", || async { !api.calls("/orders").is_empty() }).await;
    send("m-2", &["在吗"]).await;
    send("m-3", &["还在吗"]).await;
    gate.add_permits(1);
    let waited = send("m-3", &["--wait", "还在吗"]).await;
    assert_eq!(waited.out.lines().collect::<Vec<_>>().len(), 2, "the id and one reply: {waited:?}");
    assert!(waited.out.starts_with("m-3\n") && waited.out.contains("好的"), "{waited:?}");
    let again = send("m-3", &["--wait", "--json", "还在吗"]).await.json();
    let replies = again["replies"].as_array().unwrap();
    assert_eq!((replies.len(), &replies[0]["turn_id"], &again["job_id"]), (1, &json!("m-2"), &json!("m-3")), "{again}");
}
