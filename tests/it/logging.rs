//! The log of a worker: it shows the course of a conversation, and no text from outside can forge a line.

use crate::scenarios::{acts, answer, sales};
use crate::support::api::{self, Api};
use crate::support::backend::cluster;
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::eventually;
use crate::support::process::Process;
use crate::support::script::{ScriptedModel, plan};
use crate::support::servers::free_port;
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use storage::queue::Publish;
use tempfile::TempDir;

/// A worker process, and an engine without workers.
struct Watched {
    engine: Engine,
    dir: TempDir,
    metrics: String,
    worker: Process,
}

impl Watched {
    /// The model plans, calls the skill, then replies.
    async fn start(args: &[&str], env: &[(&str, &str)]) -> Self {
        let first = plan(json!("您好"), &acts("processing", "SKILL", "query_order", &json!({"order_id": "A1"})));
        let model = ScriptedModel::answering(vec![first, answer("好的")]).await;
        Self::with(cluster().await, model, args, env).await
    }

    async fn with(backend: Backend, model: ScriptedModel, args: &[&str], env: &[(&str, &str)]) -> Self {
        let engine = Engine::watching(backend, model).await;
        engine.apply(sales()).await;
        let (dir, metrics) = (tempfile::tempdir().unwrap(), format!("127.0.0.1:{}", free_port()));
        let set = format!("metrics.listen={metrics}");
        let args: Vec<&str> = [&["--set", set.as_str()], args, &["worker"]].concat();
        let worker = Process::start_with(dir.path(), &engine.settings, &args, env);
        Self { engine, dir, metrics, worker }
    }

    fn api(&self) -> &Api {
        &self.engine.api
    }

    /// The log lines so far that contain all of these parts.
    fn lines(&self, parts: &[&str]) -> Vec<String> {
        let log = Process::log(self.dir.path());
        let has = |line: &&str| parts.iter().all(|part| line.contains(part));
        log.lines().filter(has).map(str::to_owned).collect()
    }

    /// Waits for the only line with these parts.
    async fn line(&self, parts: &[&str]) -> String {
        eventually(DEADLINE, &format!("a line with {parts:?}"), || async { !self.lines(parts).is_empty() }).await;
        match self.lines(parts).as_slice() {
            [line] => line.clone(),
            lines => panic!("{lines:#?}"),
        }
    }

    async fn metrics(&self) -> String {
        let client = base::http_client::builder().no_proxy().build().unwrap();
        let answer = client.get(format!("http://{}/metrics", self.metrics)).send().await.unwrap();
        answer.text().await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_conversation_can_be_followed_in_the_log() {
    let watched = Watched::start(&[], &[]).await;
    watched.api().script(|_, _| (404, json!({"error": "unknown order"})));
    watched.engine.say("s1", "m-1", "查订单 A1").await;
    watched.engine.say("s1", "m-2", "谢谢").await;
    let ended = watched.line(&["INFO", "turn ended", "turn_id=\"m-1\""]).await;
    for part in [
        "session_id=\"s1\"",
        "agent_id=\"sales\"",
        "status=\"ready\"",
        "outcome=\"answered\"",
        "actions=\"query_order\"",
        "tokens=36",
        " ms=",
        "attempt=1",
        "worker=\"worker-",
    ] {
        assert!(ended.contains(part), "{part}: {ended}");
    }
    watched.line(&["INFO", "turn ended", "session_id=\"s1\"", "turn_id=\"m-2\"", "actions=\"\""]).await;
    let failed = watched.line(&["WARN", "action failed", "kind=\"skill\"", "target=\"query_order\""]).await;
    for part in ["session_id=\"s1\"", "turn_id=\"m-1\"", "agent_id=\"sales\"", "404"] {
        assert!(failed.contains(part), "{part}: {failed}");
    }
    let counted = "turnwheel_actions_total{kind=\"skill\",outcome=\"failed\",target=\"query_order\"} 1";
    assert!(watched.metrics().await.contains(counted));
    assert_eq!(watched.lines(&["DEBUG"]), [""; 0], "the default level is `info`");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_model_call_is_warned_of() {
    let model = ScriptedModel::start(|_| crate::support::script::Answer::status(401, "bad key")).await;
    let watched = Watched::with(cluster().await, model, &[], &[]).await;
    watched.engine.say("s1", "m-1", "你好").await;
    let failed = watched.line(&["WARN", "model call failed", "session_id=\"s1\""]).await;
    assert!(failed.contains("model=\"default\"") && failed.contains("401"), "{failed}");
    let ended = watched.line(&["turn ended", "outcome=\"cancelled\""]).await;
    assert!(ended.contains("reason=\"model_unavailable: "), "{ended}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn debug_names_session_turn_and_agent_with_each_status() {
    let watched = Watched::start(&[], &[("RUST_LOG", "debug")]).await;
    watched.engine.say("s1", "m-1", "查订单 A1").await;
    let named = ["DEBUG", "session_id=\"s1\"", "turn_id=\"m-1\"", "agent_id=\"sales\""];
    for status in ["to=acknowledged", "to=processing", "to=typing", "to=ready"] {
        watched.line(&[named.as_slice(), &[status]].concat()).await;
    }
    drop(watched);
    let quiet = Watched::start(&["--log", "warn"], &[("RUST_LOG", "debug")]).await;
    quiet.engine.say("s1", "m-1", "查订单 A1").await;
    assert!(quiet.lines(&["DEBUG"]).is_empty() && quiet.lines(&["INFO"]).is_empty(), "the flag wins");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_takeover_of_a_dead_worker_s_turn_is_logged() {
    let watched = Watched::start(&[], &[]).await;
    // The first worker gets no response.
    let asked = AtomicBool::new(false);
    watched.api().script(
        move |_, _| {
            if asked.swap(true, Ordering::SeqCst) { (200, json!({})).into() } else { api::Answer::Hang }
        },
    );
    watched.engine.publish("s1", "m-1", "查订单 A1").await;
    eventually(DEADLINE, "the action runs", || async { !watched.api().calls("/orders").is_empty() }).await;
    let Watched { engine, dir, metrics, worker } = watched;
    worker.kill();
    let worker = Process::start(dir.path(), &engine.settings, &["worker"]);
    let watched = Watched { engine, dir, metrics, worker };
    let taken = watched.line(&["INFO", "taking over", "session_id=\"s1\"", "turn_id=\"m-1\""]).await;
    assert!(taken.contains("attempt=2"), "{taken}");
    watched.line(&["turn ended", "turn_id=\"m-1\"", "attempt=2"]).await;
    drop(watched.worker);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_text_from_outside_is_a_line_of_the_log() {
    let watched = Watched::start(&[], &[]).await;
    for (number, end) in ["\n", "\r", "\u{2028}", "\u{85}"].into_iter().enumerate() {
        let kind = format!("x{end}FORGED{number} INFO nobody said so");
        let payload = json!({"type": kind, "session_id": "s1"}).to_string().into();
        watched.engine.queue.publish(Publish { session_id: "s1".into(), msg_id: None, payload }).await.unwrap();
    }
    for number in 0..4 {
        let line = watched.line(&[&format!("FORGED{number}")]).await;
        assert!(line.contains("WARN") && line.contains("to the dead letters"), "{line}");
        assert!(!line.contains(['\r', '\u{85}', '\u{2028}']), "{line:?}");
    }
}
