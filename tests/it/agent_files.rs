//! `agents test`, `agents diff` and `agents replay`: a file is tried before it is applied.

use crate::commands::Folder;
use serde_json::{Value, json};

/// An agent of the offline model that looks orders up with a function of the program.
fn shop(tool: &str, url: &str) -> String {
    json!({
        "id": "shop", "model": "offline", "sop": "Say what time it is.", "greeting": "Welcome",
        "tools": [
            {"id": "now", "builtin": "now", "description": "the time"},
            {"id": "eta", "description": "when an order arrives", "http": {"method": "GET", "url": url}},
        ],
        "rules": [
            {"when": {"result_of": tool}, "decide": {"next_status": "typing", "response": "it says {result}"}},
            {"when": {"contains": ["time"]}, "decide":
                {"next_status": "processing", "action": {"type": "TOOL", "target": tool, "params": {}}}},
            {"when": {"always": true}, "decide": {"next_status": "typing", "response": "Ask for the time"}},
        ],
    })
    .to_string()
}

fn folder() -> Folder {
    let folder = Folder::embedded();
    folder.write("turnwheel.toml", "");
    folder
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_tried_with_tests_and_the_exit_status_tells_the_result() {
    let folder = folder();
    folder.write("shop.json", &shop("eta", "http://127.0.0.1:9/eta"));
    let test = |answers: Value, expect: Value| json!({"tests": [{"name": "time", "turns": [{"say": "what time?", "expect": expect}], "answers": answers}]});
    let run = async |tests: Value, more: &[&str]| {
        folder.write("tests.json", &tests.to_string());
        folder.run(&[&["agents", "test", "shop.json", "--tests", "tests.json"], more].concat(), "").await
    };
    let passed = run(test(json!({"eta": "noon"}), json!({"calls": ["eta"], "reply_contains": "noon"})), &[]).await;
    assert_eq!((passed.code, passed.out.trim()), (0, "passed   time\n1 passed, 0 failed, 0 not run"), "{passed:?}");
    let failed = run(test(json!({}), json!({"calls": ["now"]})), &["--json"]).await;
    assert_eq!((failed.code, &failed.json()["failed"]), (1, &json!(1)), "{failed:?}");
    let test_of = |failed: &Value| failed["tests"][0].clone();
    assert_eq!(test_of(&failed.json())["what"], "calls");
    assert!(test_of(&failed.json())["unanswered"][0].as_str().unwrap().contains("`eta`"), "{failed:?}");
    let unusable = run(json!({"tests": [{"name": "time", "turns": [{"says": "x"}]}]}), &[]).await;
    assert!(
        unusable.code == 1 && unusable.err.contains("turns[0]") && unusable.err.contains("tests.json"),
        "{unusable:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_compared_with_another_file_and_with_the_stored_agent() {
    let folder = folder();
    folder.write("agents/shop.json", &shop("now", "http://127.0.0.1:9/eta"));
    folder.write("new.json", &shop("now", "https://api.example.com/eta"));
    let files = folder.run(&["agents", "diff", "new.json", "--against", "agents/shop.json", "--json"], "").await;
    assert_eq!((files.code, &files.json()["new_hosts"]), (0, &json!(["api.example.com"])), "{files:?}");
    assert_eq!(files.json()["changes"][0]["concern"], "host");
    let _dev = folder.dev().await;
    let stored = folder.run(&["agents", "diff", "new.json"], "").await;
    assert!(stored.code == 0 && stored.out.contains("api.example.com"), "{stored:?}");
    let same = folder.run(&["agents", "diff", "agents/shop.json", "--json"], "").await;
    assert_eq!(same.json()["changes"], json!([]), "{same:?}");
    let unknown = folder.run(&["agents", "diff", "new.json", "--against", "nobody"], "").await;
    assert!(unknown.code == 1 && unknown.err.contains("neither an agent nor a file `nobody`"), "{unknown:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_turns_are_replayed_against_a_file_and_the_first_other_action_is_named() {
    let folder = folder();
    folder.write("agents/shop.json", &shop("now", "http://127.0.0.1:9/eta"));
    folder.write("other.json", &shop("eta", "http://127.0.0.1:9/eta"));
    folder.write("words.json", &shop("now", "http://127.0.0.1:9/eta").replace("Ask for the time", "Ask me"));
    let dev = folder.dev().await;
    let none = folder.run(&["agents", "replay", "agents/shop.json"], "").await;
    assert!(none.code == 1 && none.err.contains("no recorded turns"), "{none:?}");
    let said = folder.run(&["chat", "--agent", "shop", "--session", "s1"], "hello\nwhat time is it?\n").await;
    assert_eq!(said.code, 0, "{said:?}");
    let replay = async |file: &str| folder.run(&["agents", "replay", file, "--json"], "").await;
    let same = replay("agents/shop.json").await;
    assert_eq!((same.code, &same.json()["same"]), (0, &json!(2)), "the recorded result of the call is used: {same:?}");
    let words = replay("words.json").await;
    assert_eq!((words.code, &words.json()["same"], &words.json()["reply_differs"]), (0, &json!(1), &json!(1)));
    let other = replay("other.json").await;
    assert_eq!((other.code, &other.json()["same"], &other.json()["diverged"]), (1, &json!(1), &json!(1)), "{other:?}");
    let turn = &other.json()["turns"][0];
    assert_eq!((&turn["said"], &turn["outcome"]), (&json!("what time is it?"), &json!("diverged")), "newest first");
    assert_eq!(
        (&turn["first"]["iteration"], &turn["first"]["was"]["target"], &turn["first"]["now"]["target"]),
        (&json!(0), &json!("now"), &json!("eta"))
    );
    let text = folder.run(&["agents", "replay", "other.json", "--session", "s1", "--turns", "1"], "").await;
    assert!(text.out.contains("no call of `eta`") && text.out.contains("1 diverged"), "{text:?}");
    drop(dev);
}
