//! The commands as a user types them: the real binary, with `dev` on the embedded backend and on a cluster.

use crate::scenarios::sales;
use crate::support::engine::DEADLINE;
use crate::support::process::{Process, toml};
use crate::support::servers::{cluster, free_port};
use crate::support::{api, eventually};
use base::config::{Backend, Settings};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

/// A folder with a settings file in which commands run.
pub struct Folder {
    dir: TempDir,
    pub settings: Settings,
}

impl Folder {
    /// A folder for `dev` with the compiled-in agents.
    pub fn embedded() -> Self {
        let mut settings = Settings { backend: Backend::Embedded, ..Settings::default() };
        settings.gateway.listen = ([127, 0, 0, 1], free_port()).into();
        Self::with(settings)
    }

    pub fn with(settings: Settings) -> Self {
        Self { dir: tempfile::tempdir().unwrap(), settings }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub async fn dev(&self) -> Process {
        let process = Process::start(self.path(), &self.settings, &["dev"]);
        let client = base::http_client::builder().no_proxy().build().unwrap();
        let address = format!("http://{}/readyz", self.settings.gateway.listen);
        eventually(DEADLINE, "dev is ready", || async {
            client.get(&address).send().await.is_ok_and(|answer| answer.status() == 200)
        })
        .await;
        process
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_turnwheel"));
        command.args(["--config", "turnwheel.toml"]).args(args).current_dir(self.path());
        for name in ["NATS_URL", "MONGODB_URI", "TURNWHEEL_CONFIG", "RUST_LOG"] {
            command.env_remove(name);
        }
        command
    }

    /// Runs a command to its end with `input` on its standard input.
    pub async fn run(&self, args: &[&str], input: &str) -> Ended {
        let mut command = self.command(args);
        let input = input.to_owned();
        let run = move || {
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
            child.stdin.take().unwrap().write_all(input.as_bytes())?;
            child.wait_with_output()
        };
        Ended::from(tokio::task::spawn_blocking(run).await.unwrap().unwrap())
    }

    pub fn write(&self, name: &str, content: &str) {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Ended {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

fn agent(api: &api::Api) -> String {
    sales().to_string().replace("{api}", &api.base_url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_user_talks_to_the_agent_that_comes_with_dev() {
    let folder = Folder::embedded();
    folder.write("turnwheel.toml", "");
    let _dev = folder.dev().await;
    let chat = folder.run(&["chat", "--agent", "sales", "--session", "tour"], "你好\n几点关门？\n").await;
    assert_eq!(chat.code, 0, "{chat:?}");
    for part in ["[status] acknowledged", "[greeting] 您好，我是小智", "[status] typing", "18:00", "[status] ready"]
    {
        assert!(chat.out.contains(part), "{part}: {chat:?}");
    }
    assert!(chat.err.contains("offline rules"), "chat names the model: {chat:?}");
    let shown = folder.run(&["sessions", "show", "tour"], "").await;
    assert!(shown.out.contains("follow_up due in") && shown.out.contains("user 你好"), "{shown:?}");
    let steps = folder.run(&["sessions", "show", "tour", "--steps"], "").await;
    for part in ["answered", "KEY", "0/decide", "model", "default", " ok "] {
        assert!(steps.out.contains(part), "{part}: {steps:?}");
    }
    let steps = folder.run(&["sessions", "show", "tour", "--steps", "--json"], "").await.json();
    assert_eq!(steps["turns"].as_array().map(Vec::len), Some(2), "oldest first: {steps}");
    assert_eq!((&steps["turns"][0]["steps"][0]["kind"], &steps["turns"][0]["tokens"]), (&json!("model"), &json!(0)));
    let listed = folder.run(&["sessions", "list", "--json"], "").await.json();
    assert_eq!(listed["sessions"][0]["session_id"], "tour");
    let agents = folder.run(&["agents", "list"], "").await;
    assert!(agents.out.contains("default (offline)"), "{agents:?}");
    let models = folder.run(&["models"], "").await;
    for part in ["CIRCUIT", "USED TODAY", "sales", "offline"] {
        assert!(models.out.contains(part), "{part}: {models:?}");
    }
    let models = folder.run(&["models", "--json"], "").await.json();
    assert_eq!((&models["models"][0]["name"], &models["models"][0]["circuit"]), (&json!("default"), &json!(null)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edited_agent_is_applied_and_a_broken_file_stops_no_other() {
    let (folder, api) = (Folder::embedded(), api::Api::start().await);
    folder.write("agents/sales.json", &agent(&api));
    let _dev = folder.dev().await;
    let hash = async || folder.run(&["agents", "show", "sales", "--json"], "").await.json()["hash"].clone();
    let before = hash().await;
    folder.write("agents/broken.yaml", "id: broken\nsop: [\n");
    folder.write("agents/sales.json", &agent(&api).replace("先问候，再回答。", "先问候，再简短回答。"));
    eventually(DEADLINE, "the edited agent is applied", || async { hash().await != before }).await;
    let log = Process::log(folder.path());
    assert!(log.contains("broken.yaml") && log.contains("line "), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dev_killed_in_mid_turn_goes_on_where_it_was() {
    let (folder, api) = (Folder::embedded(), api::Api::start().await);
    let mut agent: Value = serde_json::from_str(&agent(&api)).unwrap();
    let action = |kind: &str, target: &str| json!({"type": kind, "target": target, "params": {"order_id": "A1"}});
    agent["rules"] = json!([
        {"when": {"result_of": "query_order"}, "decide": {"next_status": "processing", "action": action("TOOL", "eta")}},
        {"when": {"result_of": "eta"}, "decide": {"next_status": "typing", "response": "{result.days} 天到"}},
        {"when": {"always": true}, "decide": {"next_status": "processing", "action": action("SKILL", "query_order")}},
    ]);
    folder.write("agents/sales.json", &agent.to_string());
    let killed = Arc::new(AtomicBool::new(false));
    let is_killed = Arc::clone(&killed);
    api.script(move |path, _| match path {
        path if path.starts_with("/orders") => (200, json!({"status": "shipped"})).into(),
        _ if is_killed.load(Ordering::SeqCst) => (200, json!({"days": 2})).into(),
        _ => api::Answer::Hang,
    });
    let dev = folder.dev().await;
    folder.run(&["send", "--session", "s1", "--agent", "sales", "查订单"], "").await;
    eventually(DEADLINE, "the second action runs", || async { api.calls("/eta").len() == 1 }).await;
    dev.kill();
    killed.store(true, Ordering::SeqCst);
    let _dev = folder.dev().await;
    let session = eventually(DEADLINE, "the turn is done", || async {
        let session = folder.run(&["sessions", "show", "s1", "--json"], "").await.json();
        (session["workflow_state"]["status"] == "ready" && session["last_seq"].as_u64() >= Some(1)).then_some(session)
    })
    .await;
    assert_eq!(session["last_seq"], 1, "the message is redelivered without a wake-up");
    let texts: Vec<&Value> = session["history"].as_array().unwrap().iter().map(|entry| &entry["text"]).collect();
    assert_eq!(texts, ["查订单", "您好，我是小智", "2 天到"]);
    assert_eq!(api.calls("/orders").len(), 1, "the recorded action is not run again");
    let keys: Vec<String> = api.calls("/eta").into_iter().map(|call| call.idempotency_key).collect();
    assert!(keys.len() == 2 && keys[0] == keys[1], "{keys:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_takes_agents_messages_and_orders_from_the_command_line() {
    let (mut settings, api) = (cluster().await.settings(), api::Api::start().await);
    settings.gateway.listen = ([127, 0, 0, 1], free_port()).into();
    let folder = Folder::with(settings);
    let worker = Process::start(folder.path(), &folder.settings, &["worker"]);
    folder.write("good/sales.json", &agent(&api));
    folder.write("good/bad.yaml", "id: bad\nsop: x\nflows: [parallel_analysys]\n");
    let applied = folder.run(&["agents", "apply", "good"], "").await;
    assert_eq!(applied.code, 1, "one of the files is invalid: {applied:?}");
    assert!(applied.out.contains("sales applied") && applied.out.contains("flows[0]"), "{applied:?}");
    assert!(applied.out.contains("did you mean `parallel_analysis`"), "{applied:?}");
    let sent = folder.run(&["send", "--session", "s1", "--agent", "sales", "你好"], "").await;
    assert_eq!(sent.code, 0, "{sent:?}");
    eventually(DEADLINE, "the message is answered", || async {
        let shown = folder.run(&["sessions", "show", "s1", "--json"], "").await;
        shown.code == 0 && shown.json()["last_seq"] == 1
    })
    .await;
    let unknown = folder.run(&["sessions", "show", "nobody"], "").await;
    assert!(unknown.code == 1 && unknown.err.contains("hint: "), "{unknown:?}");
    assert_eq!(folder.run(&["sessions", "show", "a b"], "").await.code, 2);
    drop(worker);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_settings_are_all_named_and_secrets_are_masked() {
    let folder = Folder::with(Settings::default());
    folder.write("turnwheel.toml", "[worker]\nack_wait = \"soon\"\nconcurency = 5\n");
    let failed = folder.run(&["config"], "").await;
    assert_eq!(failed.code, 1);
    for part in ["worker.ack_wait", "soon", "worker.concurency", "did you mean `worker.concurrency`"] {
        assert!(failed.err.contains(part), "{part}: {failed:?}");
    }
    folder.write(
        "turnwheel.toml",
        "[mongodb]\nuri = \"mongodb://tw:p4ssw0rd@db/\"\n[gateway]\ntokens = [\"t0ken-t0ken-t0ken\"]\n",
    );
    let shown = folder.run(&["config"], "").await;
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(shown.out.contains("turnwheel.toml") && shown.out.contains("mongodb.uri"), "{shown:?}");
    assert!(!shown.out.contains("p4ssw0rd") && !shown.out.contains("t0ken"), "{shown:?}");
    let creds = shown.out.lines().find(|line| line.contains("nats.creds")).unwrap();
    assert_eq!(
        creds.split_whitespace().collect::<Vec<_>>(),
        ["nats.creds", "-", "default"],
        "a setting without a value"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demo_api_is_served_by_itself_until_it_is_told_to_stop() {
    let (folder, port) = (Folder::embedded(), free_port());
    let address = format!("127.0.0.1:{port}");
    let mut demo = Process::start(folder.path(), &folder.settings, &["demo", "--listen", &address]);
    let client = base::http_client::builder().no_proxy().build().unwrap();
    let order: Value = eventually(DEADLINE, "the demo API responds", || async {
        client.get(format!("http://{address}/orders/A1001")).send().await.ok()?.json().await.ok()
    })
    .await;
    assert_eq!(order["order_id"], "A1001");
    let taken = folder.run(&["demo", "--listen", &address], "").await;
    assert!(taken.code == 1 && taken.err.contains(&address) && taken.err.contains("--listen"), "{taken:?}");
    demo.signal("TERM");
    let ended = eventually(DEADLINE, "it ends", || std::future::ready(demo.ended()));
    assert!(ended.await.success());
}

#[tokio::test]
async fn a_finding_in_an_agent_file_names_file_line_and_column() {
    let folder = Folder::embedded();
    folder.write("turnwheel.toml", "");
    folder.write("agents/shop.yaml", "id: shop\nsop: 卖书\ngreating: 你好\ntools:\n  - id: t\n    builtin: nov\n");
    let checked = folder.run(&["agents", "validate"], "").await;
    assert_eq!(checked.code, 1);
    for part in
        ["agents/shop.yaml: line 6, column 14: tools[0].builtin: there is no builtin `nov`", "did you mean `now`?"]
    {
        assert!(checked.out.contains(part), "{part}: {checked:?}");
    }
    folder.write("agents/shop.yaml", "id: shop\nsop: 卖书\ngreating: 你好\n");
    let warned = folder.run(&["agents", "validate"], "").await;
    assert_eq!(warned.code, 0, "{warned:?}");
    assert!(warned.err.contains("agents/shop.yaml: line 3, column 11: greating: "), "{warned:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_came_of_agent_files_and_messages_is_told_to_programs() {
    let folder = Folder::embedded();
    let rules = json!([{"when": {"always": true}, "decide": {"next_status": "typing", "response": "好的"}}]);
    let shop = json!({"id": "shop", "model": "offline", "sop": "卖书", "greeting": "您好", "rules": rules});
    folder.write("more/shop.json", &shop.to_string());
    folder.write("more/broken.yaml", "id: broken\nsop: [\n");
    let _dev = folder.dev().await;
    let validated = folder.run(&["agents", "validate", "more", "--json"], "").await;
    assert_eq!(validated.code, 1, "one file is invalid: {validated:?}");
    let files = validated.json()["files"].clone();
    let of = |name: &str| {
        let found = files.as_array().unwrap().iter().find(|file| file["path"].as_str().unwrap().ends_with(name));
        found.unwrap_or_else(|| panic!("{name}: {files}")).clone()
    };
    assert_eq!((&of("shop.json")["ok"], &of("shop.json")["agent_id"]), (&json!(true), &json!("shop")));
    assert_eq!(of("broken.yaml")["ok"], false);
    assert!(of("broken.yaml")["problem"].as_str().unwrap().contains("line "), "{files}");

    let apply = async || folder.run(&["agents", "apply", "more/shop.json", "--json"], "").await;
    let applied = apply().await;
    assert_eq!(applied.code, 0, "{applied:?}");
    assert_eq!(
        (&applied.json()["files"][0]["changed"], &apply().await.json()["files"][0]["changed"]),
        (&json!(true), &json!(false))
    );

    let send = ["send", "--session", "s1", "--agent", "shop", "--job-id", "m-1", "--json"];
    let sent = folder.run(&[&send[..], &["你好"]].concat(), "").await.json();
    assert_eq!(sent, json!({"job_id": "m-1", "session_id": "s1"}));
    let waited = folder.run(&[&send[..], &["--wait", "你好"]].concat(), "").await.json();
    let texts: Vec<&Value> = waited["replies"].as_array().unwrap().iter().map(|reply| &reply["text"]).collect();
    assert_eq!((&waited["job_id"], texts), (&json!("m-1"), vec![&json!("您好"), &json!("好的")]));

    let unknown = folder.run(&["send", "--session", "s2", "--agent", "nobody", "--json", "你好"], "").await;
    assert_eq!((unknown.code, unknown.out.as_str()), (1, ""), "{unknown:?}");
    assert!(unknown.err.contains("error: ") && unknown.err.contains("hint: "), "{unknown:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dev_whose_file_cannot_grow_ends_with_the_reason() {
    let folder = Folder::embedded();
    folder.write("turnwheel.toml", &toml(&folder.settings));
    // The limit refuses writes that extend the file. It is more than the file's initial size, and less than the
    // messages need.
    let script = "trap '' XFSZ; ulimit -f 8192; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_turnwheel"), "--config", "turnwheel.toml", "dev"]);
    command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    for name in ["NATS_URL", "MONGODB_URI", "TURNWHEEL_CONFIG"] {
        command.env_remove(name);
    }
    let child = command.spawn().unwrap();
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap());
    let client = base::http_client::builder().no_proxy().build().unwrap();
    let address = format!("http://{}", folder.settings.gateway.listen);
    eventually(DEADLINE, "dev is ready", || async {
        client.get(format!("{address}/readyz")).send().await.is_ok_and(|answer| answer.status() == 200)
    })
    .await;
    let text = "字".repeat(60_000);
    let mut number = 0;
    while !ended.is_finished() {
        number += 1;
        let message = json!({"session_id": format!("s{number}"), "agent_id": "sales", "text": text});
        // Once the file is full, requests fail or are interrupted.
        let _ = client.post(format!("{address}/api/v1/messages")).json(&message).send().await;
        assert!(number < 2_000, "the process continues although its file cannot grow");
    }
    let ended = Ended::from(ended.await.unwrap());
    assert_eq!(ended.code, 1, "{ended:?}");
    for part in ["turnwheel.redb cannot be written", "make sure that its disk has space"] {
        assert!(ended.err.contains(part), "{part}: {}", ended.err);
    }
}
