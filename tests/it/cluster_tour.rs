//! Runs the commands of the README's cluster section one after the other, with servers and ports of the test.

use crate::support::engine::DEADLINE;
use crate::support::eventually;
use crate::support::servers::{binary, free_port};
use crate::tour::Text;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// The reader's shell: its folder, exported variables and background processes.
struct Shell {
    dir: TempDir,
    replaced: Vec<(String, String)>,
    exported: Vec<(String, String)>,
    running: Vec<Child>,
}

impl Drop for Shell {
    fn drop(&mut self) {
        for child in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Shell {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (nats, mongod, gateway, demo) = (free_port(), free_port(), free_port(), free_port());
        let program = |name, program| binary(name, program).display().to_string();
        let replaced = [
            ("nats-server ", format!("{} -a 127.0.0.1 -p {nats} ", program("NATS_SERVER_BIN", "nats-server"))),
            ("mongod ", format!("{} --port {mongod} --wiredTigerCacheSizeGB 0.25 ", program("MONGOD_BIN", "mongod"))),
            ("127.0.0.1:4222", format!("127.0.0.1:{nats}")),
            ("127.0.0.1:27017", format!("127.0.0.1:{mongod}")),
            ("turnwheel demo", format!("turnwheel demo --listen 127.0.0.1:{demo}")),
            ("turnwheel ", format!("{} ", env!("CARGO_BIN_EXE_turnwheel"))),
            ("/tmp/tw-", format!("{}/tw-", dir.path().display())),
        ];
        let replaced = replaced.map(|(from, to)| (from.to_owned(), to)).to_vec();
        let exported = vec![
            ("TURNWHEEL_GATEWAY__LISTEN".to_owned(), format!("127.0.0.1:{gateway}")),
            ("NO_PROXY".to_owned(), "127.0.0.1".to_owned()),
        ];
        std::fs::create_dir(dir.path().join("agents")).unwrap();
        for name in ["sales.yaml", "support.yaml"] {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("agents").join(name);
            let text = std::fs::read_to_string(file).unwrap().replace("127.0.0.1:8090", &format!("127.0.0.1:{demo}"));
            std::fs::write(dir.path().join("agents").join(name), text).unwrap();
        }
        Self { dir, replaced, exported, running: Vec::new() }
    }

    fn own(&self, command: &str) -> String {
        self.replaced.iter().fold(command.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec {line}")]).current_dir(self.dir.path()).stdin(Stdio::null());
        for name in ["NATS_URL", "MONGODB_URI", "TURNWHEEL_CONFIG"] {
            command.env_remove(name);
        }
        command.envs(self.exported.iter().cloned());
        command
    }

    /// Runs one line as a shell would, and repeats it until it succeeds, because the servers take a moment to start.
    async fn run(&mut self, line: &str) -> String {
        let line = self.own(line);
        if let Some(variables) = line.strip_prefix("export ") {
            let pairs = variables.split(' ').map(|pair| pair.split_once('=').unwrap());
            self.exported.extend(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
            return String::new();
        }
        if let Some(line) = line.strip_suffix(" &") {
            let child = self.command(line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            self.running.push(child);
            return String::new();
        }
        self.output(&line, |_| true).await
    }

    /// Repeats a line until it succeeds with the expected output. Returns the output.
    async fn output(&self, line: &str, expected: impl Fn(&str) -> bool) -> String {
        eventually(DEADLINE, &format!("`{line}` succeeds"), || async {
            let mut command = self.command(line);
            let ended = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
            let text = String::from_utf8(ended.stdout).unwrap();
            (ended.status.success() && expected(&text)).then_some(text)
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_readme_s_cluster_works_word_for_word() {
    let lines: Vec<String> = Text::section("The cluster").block().collect();
    assert!(lines[0].starts_with("cargo install"), "{lines:?}");
    let (mut shell, mut last) = (Shell::new(), String::new());
    for line in &lines[1..] {
        last = shell.run(line).await;
    }
    assert!(lines.last().unwrap().contains("turnwheel send"), "{lines:?}");
    assert!(last.contains("已发货"), "the sample agent has called the demo API: {last}");
    assert!(!last.contains("private"), "{last}");
    let doctor = shell.own("turnwheel doctor");
    let doctor = shell.output(&doctor, |text| text.contains("workers: 2 run")).await;
    assert!(!doctor.contains("private address"), "{doctor}");
}
