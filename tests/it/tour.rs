//! Runs the commands of the README's tour, as they are written. The tests replace `cargo run --release --` by the built
//! program, and the ports 8080 and 8090 by free ones.

use crate::support::engine::DEADLINE;
use crate::support::eventually;
use crate::support::model_server::{Answer, ModelServer};
use crate::support::servers::free_port;
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A part of the README, with its commands and sayings.
pub struct Text(String);

impl Text {
    pub fn section(title: &str) -> Self {
        let readme = include_str!("../../README.md");
        let begin = readme.find(&format!("\n## {title}\n")).unwrap_or_else(|| panic!("the README has no `{title}`"));
        let text = &readme[begin + 1..];
        Self(text[..text[1..].find("\n## ").map_or(text.len(), |end| end + 1)].to_owned())
    }

    /// A numbered step of the tour.
    fn step(&self, number: u32) -> Self {
        let begin = self.0.find(&format!("\n{number}. **")).unwrap_or_else(|| panic!("the tour has no step {number}"));
        let text = &self.0[begin + 1..];
        Self(text[..text.find(&format!("\n{}. **", number + 1)).unwrap_or(text.len())].to_owned())
    }

    /// Lines of the first code block, without comments.
    pub fn block(&self) -> impl Iterator<Item = String> {
        let block = self.0.split("```").nth(1).unwrap_or_default();
        let lines = block.lines().skip(1).map(|line| line.split("  #").next().unwrap_or_default().trim().to_owned());
        lines.filter(|line| !line.is_empty())
    }

    /// Texts in backticks, and lines of code blocks without comments.
    pub fn code(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (at, part) in self.0.split("```").enumerate() {
            if at % 2 == 1 {
                let lines = part.lines().skip(1).map(|line| line.split("  #").next().unwrap_or_default().trim());
                found.extend(lines.filter(|line| !line.is_empty()).map(str::to_owned));
            } else {
                let spans = part.split('`').enumerate().filter(|(at, _)| at % 2 == 1);
                found.extend(spans.map(|(_, span)| span.split_whitespace().collect::<Vec<_>>().join(" ")));
            }
        }
        found
    }

    fn commands(&self) -> Vec<String> {
        self.code().into_iter().filter(|code| code.starts_with("cargo run") || code.starts_with("curl ")).collect()
    }

    /// The command that contains these words.
    fn command(&self, words: &str) -> String {
        let commands = self.commands();
        commands
            .iter()
            .find(|command| command.contains(words))
            .cloned()
            .unwrap_or_else(|| panic!("{words}: {commands:?}"))
    }

    /// The messages that the reader should write to the agent.
    fn sayings(&self) -> Vec<String> {
        self.code().into_iter().filter(|code| !code.is_ascii()).collect()
    }
}

/// The reader's folder: a copy of the project's agents, and the files that the commands create.
struct TourReader {
    dir: TempDir,
    gateway: String,
    demo: String,
}

impl TourReader {
    fn new() -> Self {
        let address = || format!("127.0.0.1:{}", free_port());
        let reader = Self { dir: tempfile::tempdir().unwrap(), gateway: address(), demo: address() };
        std::fs::create_dir_all(reader.path("agents/tasks")).unwrap();
        let tasks = ["tasks/research_agent.yaml", "tasks/report_agent.yaml"];
        for name in ["sales.yaml", "support.yaml", "planner.yaml"].into_iter().chain(tasks) {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("agents").join(name);
            reader.write(&format!("agents/{name}"), &reader.own(&std::fs::read_to_string(file).unwrap()));
        }
        reader
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.path(name), content).unwrap();
    }

    fn own(&self, text: &str) -> String {
        text.replace("cargo run --release --", env!("CARGO_BIN_EXE_turnwheel"))
            .replace("127.0.0.1:8080", &self.gateway)
            .replace("127.0.0.1:8090", &self.demo)
    }

    fn spawn(&self, command: &str) -> Running {
        let mut shell = Command::new("sh");
        let child = shell
            // `exec`, so that a kill reaches the command itself.
            .args(["-c", &format!("exec {}", self.own(command))])
            .current_dir(self.dir.path())
            .env("TURNWHEEL_GATEWAY__LISTEN", &self.gateway)
            .env("NO_PROXY", "127.0.0.1")
            .env_remove("RUST_LOG")
            .env_remove("NATS_URL")
            .env_remove("MONGODB_URI")
            .env_remove("TURNWHEEL_CONFIG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Running(child)
    }

    /// Runs a command to its end with these lines on its standard input.
    async fn run(&self, command: &str, lines: &[String]) -> String {
        let (mut running, typed) = (self.spawn(command), lines.join("\n") + "\n");
        let ended = tokio::task::spawn_blocking(move || {
            // A command that reads no input may have closed it.
            let _ = running.0.stdin.take().unwrap().write_all(typed.as_bytes());
            let out = std::io::read_to_string(running.0.stdout.take().unwrap()).unwrap();
            (running.0.wait().unwrap(), out)
        });
        let (status, out) = ended.await.unwrap();
        assert!(status.success(), "{command}: {status}\n{out}");
        out
    }

    async fn dev(&self, command: &str) -> Running {
        let running = self.spawn(command);
        let client = base::http_client::builder().no_proxy().build().unwrap();
        let address = format!("http://{}/readyz", self.gateway);
        eventually(DEADLINE, "dev is ready", || async {
            client.get(&address).send().await.is_ok_and(|answer| answer.status() == 200)
        })
        .await;
        running
    }
}

/// A running command of the tour. Dropping it kills the command.
struct Running(Child);

impl Running {
    /// Reads until all of `parts` have appeared, in any order.
    async fn until(mut self, parts: &'static [&'static str]) {
        let read = tokio::task::spawn_blocking(move || {
            let mut missing = parts.to_vec();
            for line in BufReader::new(self.0.stdout.take().unwrap()).lines() {
                let line = line.unwrap();
                missing.retain(|part| !line.contains(part));
                if missing.is_empty() {
                    break;
                }
            }
            missing
        });
        let missing =
            tokio::time::timeout(DEADLINE, read).await.unwrap_or_else(|_| panic!("not all of {parts:?} appeared"));
        assert_eq!(missing.unwrap(), Vec::<&str>::new());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_readme_s_tour_works_word_for_word() {
    let tour = Text::section("Five minutes");
    let reader = TourReader::new();
    // The demo API must outlive `dev`, because the reader looks at its log afterwards.
    let api = reader.spawn("cargo run --release -- demo --listen 127.0.0.1:8090");
    let dev_command = Text::section("Two commands").command("-- dev");
    let dev = reader.dev(&dev_command).await;

    let talk = tour.step(1);
    let chat = talk.command("chat");
    assert_eq!(talk.sayings().len(), 2, "{:?}", talk.sayings());
    let said = reader.run(&chat, &talk.sayings()).await;
    for part in ["[status] acknowledged", "[greeting] 您好，我是小智", "[status] typing", "已发货", "2 天"] {
        assert!(said.contains(part), "{part}: {said}");
    }

    let look = tour.step(2);
    let shown = reader.run(&look.command("sessions show"), &[]).await;
    assert!(shown.contains("已发货") && shown.contains("ready"), "{shown}");
    reader.spawn(&look.command("/events")).until(&["event: reply", "event: status", "event: step", "已发货"]).await;

    let kill = tour.step(3);
    assert!(kill.code().contains(&"kill -9".to_owned()));
    let log = kill.command("/log");
    let slow = reader.spawn(&chat);
    let mut typing = slow.0.stdin.as_ref().unwrap();
    typing.write_all((kill.sayings().concat() + "\n").as_bytes()).unwrap();
    eventually(DEADLINE, "the slow action runs", || async { reader.run(&log, &[]).await.contains("SLOW-1") }).await;
    drop(dev);
    let dev = reader.dev(&dev_command).await;
    eventually(DEADLINE, "the turn has continued", || async {
        reader.run(&look.command("sessions show"), &[]).await.contains("3 天")
    })
    .await;
    drop(slow);
    let called = reader.run(&log, &[]).await;
    assert!(called.contains("GET /eta") && called.contains("\"tour/"), "keys begin with the session: {called}");

    let change = tour.step(4);
    assert!(change.code().contains(&"agents/sales.yaml".to_owned()));
    let file = std::fs::read_to_string(reader.path("agents/sales.yaml")).unwrap();
    let hello = talk.sayings()[..1].to_vec();
    reader.write("agents/sales.yaml", &file.replace("greeting: 您好，我是小智", "greeting: 早上好，我是小智"));
    eventually(DEADLINE, "the next message is greeted again", || async {
        reader.run(&chat, &hello).await.contains("[greeting] 早上好，我是小智")
    })
    .await;

    let workflow = tour.step(6).command("workflows run");
    let report = reader.run(&workflow, &[]).await;
    assert!(report.starts_with("# 研究报告：研究量子计算的最新进展"), "{report}");

    let plans = tour.step(7);
    let planned = reader.run(&plans.command("chat"), &plans.sayings()).await;
    assert!(planned.contains("共 3 个数，合计 16"), "{planned}");

    let authoring = tour.step(8);
    let author = authoring.command("author");
    let made = reader.run(&author, &["好".to_owned()]).await;
    assert!(made.contains("（离线规则）") && made.contains("已创建，可以运行"), "{made}");

    let real = tour.step(5);
    for name in ["turnwheel.example.toml", "turnwheel.toml", "[models.default]"] {
        assert!(real.code().contains(&name.to_owned()), "{name}");
    }
    let model = ModelServer::start().await;
    let first = json!({"next_status": "typing", "action": null, "response": "我是语言模型"});
    let plan = json!({"name": "小智", "tone": "", "greeting": null, "sop": "回答", "timers": null, "constraints": ""});
    model.script(move |call| {
        let planned = json!({"plan": plan, "decision": first});
        Some(Answer::json(if call.schema() == "decision" { &first } else { &planned }))
    });
    let example = include_str!("../../turnwheel.example.toml");
    let filled = example
        .replace("#[models.default]", "[models.default]")
        .replace("#provider = \"openai\"", "provider = \"openai\"")
        .replace("#base_url = \"https://api.openai.com/v1\"", &format!("base_url = \"{}\"", model.base_url()))
        .replace("#model = \"gpt-4.1-mini\"", "model = \"gpt-4.1-mini\"");
    reader.write("turnwheel.toml", &filled);
    drop(dev);
    let dev = reader.dev(&dev_command).await;
    assert!(reader.run(&chat, &hello).await.contains("我是语言模型"));
    assert_eq!(model.calls().len(), 1);
    drop((dev, api));

    let known =
        [chat, look.command("sessions show"), look.command("/events"), log, workflow, plans.command("chat"), author];
    let commands = tour.commands();
    assert_eq!(commands, known, "this test covers every command of the tour");
}
