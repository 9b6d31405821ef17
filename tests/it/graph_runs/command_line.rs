//! `turnwheel workflows run --input`, `runs answer` and `runs show --mermaid` as a user types them, with a process that is
//! killed while the run waits.

use crate::commands::Folder;
use crate::support::engine::DEADLINE;
use crate::support::eventually;
use serde_json::json;

const RELEASE: &str = "\
type: graph
id: release
name: 发布
global_config: {inputs: [{name: what, type: string, required: true}], output: '${input.what}：${approve.output.answer}'}
nodes:
  - {node_id: approve, type: ASK, name: 批准, config: {question: '发布 ${what} 吗？', choices: ['Yes, go on', 'No']}}
  - {node_id: pause, type: WAIT, name: 等, config: {seconds: 4}}
  - {node_id: end, type: END, name: 止}
edges: [{source: approve, target: pause}, {source: pause, target: end}]
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_of_a_graph_is_started_answered_and_shown_from_the_command_line() {
    let folder = Folder::embedded();
    folder.write("turnwheel.toml", "");
    folder.write("workflows/release.yaml", RELEASE);
    folder.write("input.json", "{\"what\": \"v2\"}");
    let dev = folder.dev().await;
    let refused = folder.run(&["workflows", "run", "release", "--input", "{\"wat\": 1}"], "").await;
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("`input.what` is missing") && refused.err.contains("`input.wat`"), "{refused:?}");
    let args = ["workflows", "run", "release", "--input", "@input.json", "--run-id", "r1", "--detach"];
    let started = folder.run(&args, "").await;
    assert_eq!((started.code, started.out.as_str()), (0, "r1\n"), "{started:?}");
    let has_status = async |status: &str| {
        let shown = folder.run(&["runs", "show", "r1", "--json"], "").await;
        shown.code == 0 && shown.json()["status"] == status
    };
    eventually(DEADLINE, "the run waits", || has_status("waiting")).await;
    let shown = folder.run(&["runs", "show", "r1"], "").await;
    for part in ["waiting", "QUESTION OF", "approve", "发布 v2 吗？", "Yes, go on, No", "pending"] {
        assert!(shown.out.contains(part), "{part}: {}", shown.out);
    }
    let mermaid = folder.run(&["runs", "show", "r1", "--mermaid"], "").await;
    assert!(mermaid.out.starts_with("flowchart TD\n"), "{mermaid:?}");
    for part in ["class n2 running", "class n3,n4 pending"] {
        assert!(mermaid.out.contains(part), "{part}: {}", mermaid.out);
    }
    let empty = folder.run(&["runs", "answer", "r1", " "], "").await;
    assert!(empty.code == 1 && empty.err.contains("text is empty"), "{empty:?}");
    // The process is killed twice: before the answer, and during the wait.
    drop(dev);
    let dev = folder.dev().await;
    let answered = folder.run(&["runs", "answer", "r1", "yes", "go", "on", "--by", "li", "--json"], "").await;
    let expected = json!({"run_id": "r1", "workflow_id": "release", "node": "approve", "question": "发布 v2 吗？"});
    assert_eq!((answered.code, answered.json()), (0, expected), "{answered:?}");
    eventually(DEADLINE, "the wait has begun", || async {
        let shown = folder.run(&["runs", "show", "r1", "--json"], "").await.json();
        shown["status"] == "waiting" && shown["graph"][0]["status"] == "completed"
    })
    .await;
    drop(dev);
    let _dev = folder.dev().await;
    eventually(DEADLINE, "the run has ended", || has_status("completed")).await;
    let shown = folder.run(&["runs", "show", "r1", "--json"], "").await.json();
    assert_eq!(shown["output"], "v2：Yes, go on", "{shown:#}");
    let late = folder.run(&["runs", "answer", "r1", "no"], "").await;
    assert!(late.code == 1 && late.err.contains("has no open question"), "{late:?}");
    let from_stdin = ["workflows", "run", "release", "--input", "-", "--run-id", "r2", "--detach"];
    let started = folder.run(&from_stdin, "{\"what\": \"v3\"}").await;
    assert_eq!(started.code, 0, "{started:?}");
    let answered = folder.run(&["runs", "cancel", "r2"], "").await;
    assert_eq!(answered.code, 0, "{answered:?}");
}
