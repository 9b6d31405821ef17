//! `turnwheel workflows` and `turnwheel runs` as a user types them: the real binary, with `dev` and on a cluster.

use crate::commands::Folder;
use crate::support::engine::{DEADLINE, scripted};
use crate::support::eventually;
use crate::support::process::Process;
use crate::support::script::ScriptedModel;
use crate::support::servers::{cluster, free_port};
use base::config::Model;
use serde_json::{Value, json};
use std::process::{Child, Stdio};

/// An agent with offline rules: `plan` quotes the prompt, `slow` calls a slow tool.
const WRITER: &str = "\
id: writer
model: offline
system_prompt: 你写报告
rules:
  - when: {matches: '计划：(?<what>\\S+)'}
    decide: {next_status: typing, response: '三步：{what}'}
  - when: {always: true}
    decide: {next_status: typing, response: '报告完成'}
";

const REPORT: &str = "\
id: report
type: pipeline
description: 先计划，再报告
stages:
  - {id: plan, runnable: writer, input: '计划：{query}'}
  - {id: report, runnable: writer, input: '写成报告：{plan}'}
";

/// A task agent that uses the model of the settings.
const ASKING: &str = "id: asking\nmodel: default\nsystem_prompt: 你提问\n";

fn report_folder() -> Folder {
    let folder = Folder::embedded();
    folder.write("agents/writer.yaml", WRITER);
    folder.write("workflows/report.yaml", REPORT);
    folder
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_user_runs_a_workflow_that_comes_with_dev() {
    let folder = Folder::embedded();
    folder.write("turnwheel.toml", "");
    let _dev = folder.dev().await;
    let listed = folder.run(&["workflows", "list"], "").await;
    for id in ["simple_pipeline", "iterative_research", "parallel_analysis", "smart_router", "research_workflow"] {
        assert!(listed.out.contains(id), "{id}: {listed:?}");
    }
    let tree = folder.run(&["workflows", "show", "research_workflow"], "").await;
    assert!(tree.out.contains("outer_loop") && tree.out.contains("retrieve_agent"), "{tree:?}");
    let mermaid = folder.run(&["workflows", "show", "research_workflow", "--mermaid"], "").await;
    assert!(mermaid.out.starts_with("flowchart TD"), "{mermaid:?}");
    let run = folder.run(&["workflows", "run", "research_workflow", "研究量子计算的最新进展"], "").await;
    assert_eq!(run.code, 0, "{run:?}");
    for part in ["▶ plan", "✓ plan", "↻ outer_loop[1]", "✓ report", "completed in"] {
        assert!(run.err.contains(part), "{part}: {run:?}");
    }
    assert!(!run.out.trim().is_empty() && !run.out.contains('▶'), "only the output is on stdout: {run:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_followed_listed_shown_and_repeated() {
    let folder = report_folder();
    let _dev = folder.dev().await;
    let run = folder.run(&["workflows", "run", "report", "电池", "回收", "--run-id", "r1", "--user", "li.w"], "").await;
    assert_eq!((run.code, run.out.as_str()), (0, "报告完成\n"), "{run:?}");
    assert!(run.err.contains("  │ 三步：电池"), "{run:?}");
    let again = folder
        .run(&["workflows", "run", "report", "电池 回收", "--run-id", "r1", "--user", "li.w", "--json"], "")
        .await;
    let events: Vec<Value> = again.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["run_id"]), (&json!("run_completed"), &json!("r1")), "{again:?}");

    let listed = folder.run(&["runs", "list", "--workflow", "report"], "").await;
    assert!(listed.out.contains("r1") && listed.out.contains("completed"), "{listed:?}");
    let listed = folder.run(&["runs", "list", "--status", "completed", "--json"], "").await.json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1);
    let shown = folder.run(&["runs", "show", "r1"], "").await;
    for part in ["report (hash", "completed", "user      li.w", "2 stages", "报告完成"] {
        assert!(shown.out.contains(part), "{part}: {shown:?}");
    }
    let details = folder.run(&["runs", "show", "r1", "--json"], "").await.json();
    assert_eq!(details["timeline"][1]["input"], "写成报告：三步：电池");

    let restarted = folder.run(&["runs", "restart", "r1", "--from", "report"], "").await;
    assert_eq!(restarted.code, 0, "{restarted:?}");
    let run_id = restarted.out.trim().to_owned();
    eventually(DEADLINE, "the new run is completed", || async {
        folder.run(&["runs", "show", &run_id, "--json"], "").await.json()["status"] == "completed"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_run_says_where_and_exits_1() {
    let mut folder = report_folder();
    // No server listens at this address.
    model_at(&mut folder, &format!("http://127.0.0.1:{}/v1", free_port())).await;
    folder.write("agents/asking.yaml", ASKING);
    folder.write(
        "workflows/half.yaml",
        "id: half\nstages:\n  - {id: plan, runnable: writer, input: '计划：{query}'}\n  - {id: rest, runnable: asking, input: '{plan}'}\n",
    );
    let _dev = folder.dev().await;
    let detached = folder.run(&["workflows", "run", "half", "电池", "--detach", "--json"], "").await;
    assert_eq!(detached.json()["workflow_id"], "half");
    let failed = folder.run(&["workflows", "run", "half", "电池", "--run-id", "r1"], "").await;
    assert_eq!((failed.code, failed.out.as_str()), (1, ""), "{failed:?}");
    for part in ["✗ rest", "run `r1` is failed: rest", "turnwheel runs show r1", "turnwheel runs resume r1"] {
        assert!(failed.err.contains(part), "{part}: {failed:?}");
    }
    eventually(DEADLINE, "both have failed", || async {
        folder.run(&["runs", "list", "--status", "failed"], "").await.out.matches("half").count() == 2
    })
    .await;
    let resumed = folder.run(&["runs", "resume", "r1"], "").await;
    assert_eq!((resumed.code, resumed.out.as_str()), (0, "r1\n"), "{resumed:?}");
    assert!(resumed.err.contains("queued run `r1` of workflow `half` to continue"), "{resumed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_leaves_the_run_going_and_says_how_to_end_it() {
    let mut folder = report_folder();
    // The listener accepts the connection and never responds.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    model_at(&mut folder, &format!("http://{}/v1", listener.local_addr().unwrap())).await;
    folder.write("agents/writer.yaml", "id: writer\nmodel: default\nsystem_prompt: 你写报告\n");
    let _dev = folder.dev().await;
    let mut command = folder.command(&["workflows", "run", "report", "电池", "--run-id", "r1"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let status = async || folder.run(&["runs", "show", "r1", "--json"], "").await;
    eventually(DEADLINE, "the run runs", || async {
        let shown = status().await;
        shown.code == 0 && shown.json()["status"] == "running"
    })
    .await;
    interrupt(&child);
    let ended = tokio::task::spawn_blocking(|| child.wait_with_output()).await.unwrap().unwrap();
    let err = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{err}");
    for part in ["turnwheel runs show r1 --watch", "turnwheel runs cancel r1"] {
        assert!(err.contains(part), "{part}: {err}");
    }
    assert_eq!(status().await.json()["status"], "running");
    let cancelled = folder.run(&["runs", "cancel", "r1", "--reason", "够了", "--by", "li"], "").await;
    assert_eq!((cancelled.code, cancelled.out.as_str()), (0, "r1\n"), "{cancelled:?}");
    assert!(cancelled.err.contains("queued the cancellation of run `r1` of workflow"), "{cancelled:?}");
    eventually(DEADLINE, "the run is cancelled", || async { status().await.json()["status"] == "cancelled" }).await;
    let shown = folder.run(&["runs", "show", "r1"], "").await;
    assert!(shown.out.contains("够了"), "{shown:?}");
}

async fn model_at(folder: &mut Folder, base_url: &str) {
    let model = ScriptedModel::answering(vec![json!({})]).await;
    let model = Model { base_url: base_url.to_owned(), ..scripted(&model) };
    folder.settings.models.insert("default".into(), model);
}

fn interrupt(child: &Child) {
    let sent = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[tokio::test]
async fn workflow_files_are_checked_without_servers() {
    let folder = report_folder();
    folder.write("turnwheel.toml", "");
    let good = folder.run(&["workflows", "validate"], "").await;
    assert_eq!(good.code, 0, "{good:?}");
    assert!(good.out.contains("report is valid"), "{good:?}");
    folder.write("workflows/bad.yaml", "id: bad\nstages:\n  - {id: a, runnable: nobody, input: '{query}'}\n");
    let bad = folder.run(&["workflows", "validate"], "").await;
    assert_eq!(bad.code, 1, "{bad:?}");
    for part in ["✓ workflows/report.yaml", "✗ workflows/bad.yaml", "Runnable not found: nobody", "line 3"] {
        assert!(bad.out.contains(part), "{part}: {bad:?}");
    }
    let as_json = folder.run(&["workflows", "validate", "workflows/bad.yaml", "--json"], "").await;
    assert_eq!((as_json.code, &as_json.json()["files"][0]["ok"]), (1, &json!(false)));
    for wrong in [
        &["workflows", "run"][..],
        &["workflows", "show", "a.b"],
        &["workflows", "show", "report", "--json", "--mermaid"],
        &["runs", "list", "--status", "asleep"],
        &["runs", "restart", "r1"],
    ] {
        assert_eq!(folder.run(wrong, "").await.code, 2, "{wrong:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_takes_workflows_from_the_command_line() {
    let mut settings = cluster().await.settings();
    settings.gateway.listen = ([127, 0, 0, 1], free_port()).into();
    let folder = Folder::with(settings);
    let _worker = Process::start(folder.path(), &folder.settings, &["worker"]);
    folder.write("agents/writer.yaml", WRITER);
    folder.write("workflows/report.yaml", REPORT);
    assert_eq!(folder.run(&["agents", "apply"], "").await.code, 0);
    let applied = folder.run(&["workflows", "apply"], "").await;
    assert!(applied.code == 0 && applied.out.contains("report applied"), "{applied:?}");
    let again = folder.run(&["workflows", "apply"], "").await;
    assert!(again.out.contains("report unchanged"), "{again:?}");
    let run = folder.run(&["workflows", "run", "report", "电池", "--run-id", "r1"], "").await;
    assert_eq!((run.code, run.out.as_str()), (0, "报告完成\n"), "{run:?}");
    let shown = folder.run(&["runs", "show", "r1", "--json"], "").await.json();
    assert_eq!(shown["timeline"].as_array().unwrap().len(), 2, "{shown:#}");
    let resumed = folder.run(&["runs", "resume", "r1"], "").await;
    assert_eq!(resumed.code, 1, "a completed run cannot be resumed: {resumed:?}");
    let unknown = folder.run(&["runs", "show", "nobody"], "").await;
    assert!(unknown.code == 1 && unknown.err.contains("turnwheel runs list"), "{unknown:?}");
}
