//! Runs the tutorials in `docs/tutorials` and `docs/zh` as they are written.
//!
//! A block with `file=` in its info string is a file to write. A `console` block has commands (`$ …`, continued by
//! `> …`) with their output. `status=` is the exit status of the block's last command; all others succeed. A second word
//! names a terminal in which a process keeps running, and the other lines of such a block must appear there in this
//! order. `^C` interrupts that process. `…` stands for any text within a line, or alone for any lines.
//!
//! The tests skip a `sleep` before a command that only reads: they repeat that command until it shows the output of
//! the page. The tests replace the ports 8080, 8090 and 8070 by free ones.

use crate::support::engine::DEADLINE;
use crate::support::servers::free_port;
use crate::support::{eventually, within};
use regex::Regex;
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A fenced block of a page.
struct Block {
    info: Vec<String>,
    body: String,
}

/// The blocks of a page, in order, without the indentation of the list that they are in.
fn blocks(text: &str) -> Vec<Block> {
    let fence = Regex::new(r"(?ms)^( *)```([^\n]*)\n(.*?)^ *```$").unwrap();
    let block = |found: regex::Captures<'_>| {
        let lines = found[3].lines().map(|line| line.strip_prefix(&found[1]).unwrap_or(line));
        let body = lines.map(|line| format!("{line}\n")).collect();
        Block { info: found[2].split_whitespace().map(Into::into).collect(), body }
    };
    fence.captures_iter(text).map(block).collect()
}

/// The commands of a console block, each with the output that the page shows.
fn commands(body: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for line in body.lines() {
        match (line.strip_prefix("$ "), line.strip_prefix("> "), found.last_mut()) {
            (Some(command), _, _) => found.push((command.to_owned(), String::new())),
            (None, Some(more), Some((command, output))) if output.is_empty() => {
                command.push('\n');
                command.push_str(more);
            }
            (None, _, Some((_, output))) => {
                output.push_str(line);
                output.push('\n');
            }
            (None, _, None) => {}
        }
    }
    found
}

/// A pattern of one line of output.
fn line_pattern(line: &str) -> String {
    line.split('…').map(regex::escape).collect::<Vec<_>>().join("[^\\n]*?")
}

/// Whether `actual` is the output that the page shows.
fn is_shown(expected: &str, actual: &str) -> bool {
    let line = |line: &str| match line.trim() {
        "…" => "(?:[^\\n]*\\n)*?".to_owned(),
        _ => line_pattern(line) + "\\n",
    };
    let pattern: String = expected.trim_end().lines().map(line).collect();
    Regex::new(&format!("^{pattern}$")).unwrap().is_match(&format!("{}\n", actual.trim_end()))
}

/// True for a command that changes nothing and can be repeated.
fn only_reads(command: &str) -> bool {
    let mut words = command.split_whitespace();
    words.next() == Some("turnwheel") && words.nth(1).is_some_and(|verb| ["list", "search", "show"].contains(&verb))
}

/// Replaces ports, each as a whole word.
fn with_ports(text: &str, ports: &[(&str, String)]) -> String {
    let port = Regex::new(r"\b\d{4}\b").unwrap();
    let own = |found: &regex::Captures<'_>| {
        let own = ports.iter().find(|(port, _)| *port == &found[0]).map(|(_, own)| own.clone());
        own.unwrap_or_else(|| found[0].to_owned())
    };
    port.replace_all(text, own).into_owned()
}

/// The end of the last line if all lines appear in this order.
fn in_order(lines: &[&str], output: &str) -> Option<usize> {
    lines.iter().try_fold(0, |from, line| {
        let pattern = Regex::new(&line_pattern(line)).unwrap();
        pattern.find_at(output, from).map(|found| found.end())
    })
}

/// A process that keeps running, and its output.
struct Terminal {
    command: String,
    child: Child,
    log: PathBuf,
    /// Length of the output that earlier blocks have seen.
    seen: usize,
}

impl Terminal {
    fn output(&self) -> String {
        let colour = Regex::new("\u{1b}\\[[0-9;]*m").unwrap();
        let bytes = fs::read(&self.log).unwrap_or_default();
        colour.replace_all(&String::from_utf8_lossy(&bytes[self.seen.min(bytes.len())..]), "").into_owned()
    }

    fn signal(&self, name: &str) {
        let killed = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status();
        assert!(killed.unwrap().success());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A reader in an empty folder, with `turnwheel` on the PATH.
struct Reader {
    folder: TempDir,
    programs: PathBuf,
    gateway: String,
    ports: [(&'static str, String); 3],
    terminals: HashMap<String, Terminal>,
}

impl Reader {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["bin", "work"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let programs = folder.path().join("bin");
        symlink(env!("CARGO_BIN_EXE_turnwheel"), programs.join("turnwheel")).unwrap();
        let ports = ["8080", "8090", "8070"].map(|port| (port, free_port().to_string()));
        let gateway = format!("127.0.0.1:{}", ports[0].1);
        Self { folder, programs, gateway, ports, terminals: HashMap::new() }
    }

    fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// The text with this reader's ports.
    fn own(&self, text: &str) -> String {
        with_ports(text, &self.ports)
    }

    fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("bash");
        let command = format!("PATH=\"$PROGRAMS:$PATH\"\n{command}");
        shell.args(["-c", &command]).current_dir(self.work());
        shell.env("PROGRAMS", &self.programs).env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
        shell.env("TURNWHEEL_GATEWAY__LISTEN", &self.gateway);
        for name in ["RUST_LOG", "NATS_URL", "MONGODB_URI", "TURNWHEEL_CONFIG"] {
            shell.env_remove(name);
        }
        shell.stdin(Stdio::null());
        shell
    }

    fn start(&mut self, terminal: &str, command: &str) {
        let log = self.folder.path().join(format!("{terminal}.log"));
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let seen = usize::try_from(file.metadata().unwrap().len()).unwrap();
        // `exec`, so that a signal reaches the command itself.
        let mut shell = self.shell(&format!("exec {command}"));
        let child = shell.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        self.terminals.insert(terminal.to_owned(), Terminal { command: command.to_owned(), child, log, seen });
    }

    async fn in_terminal(&mut self, name: &str, body: &str) {
        let mut shown: Vec<&str> = Vec::new();
        for line in body.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                self.ended(name).await;
                self.start(name, command);
                shown.clear();
            } else if line == "^C" {
                self.terminals[name].signal("INT");
                let (command, status) = self.ended(name).await.unwrap();
                assert!(!command.starts_with("turnwheel") || status.success(), "{command}: {status}");
            } else if line.trim() != "…" {
                shown.push(line);
                let terminal = &self.terminals[name];
                let appeared = within(DEADLINE, || async { in_order(&shown, &terminal.output()) }).await;
                assert!(appeared.is_some(), "terminal {name} lacks, in this order: {shown:#?}\n{}", terminal.output());
            }
        }
        if let Some(terminal) = self.terminals.get_mut(name) {
            terminal.seen = usize::try_from(fs::metadata(&terminal.log).unwrap().len()).unwrap();
        }
    }

    /// Waits until the process of a terminal has ended, if there is one. Returns its command and exit status.
    async fn ended(&mut self, name: &str) -> Option<(String, ExitStatus)> {
        let mut terminal = self.terminals.remove(name)?;
        let what = format!("the process in terminal {name} has ended");
        let ended = || std::future::ready(terminal.child.try_wait().unwrap());
        let status = eventually(DEADLINE, &what, ended).await;
        Some((terminal.command.clone(), status))
    }

    /// Runs the commands of a block, the last of which exits with `status`.
    async fn run_all(&self, commands: &[(String, String)], status: i32) {
        let mut patience = Duration::ZERO;
        for (at, (command, expected)) in commands.iter().enumerate() {
            let next = commands.get(at + 1);
            if command.starts_with("sleep ") && next.is_some_and(|(next, _)| only_reads(next)) {
                patience = DEADLINE;
                continue;
            }
            let status = if next.is_none() { status } else { 0 };
            let mut found = String::new();
            let shown = within(std::mem::take(&mut patience), || {
                let ended = self.shell(&format!("exec 2>&1\n{command}")).output().unwrap();
                let output = String::from_utf8_lossy(&ended.stdout);
                let is_silent = expected.trim().is_empty() && output.trim().is_empty();
                let is_shown = is_silent || is_shown(expected, &output);
                found = format!("{output}{}", ended.status);
                std::future::ready(is_shown && ended.status.code() == Some(status))
            });
            let is_shown = shown.await.is_some();
            assert!(is_shown, "$ {command}\nshown:\n{expected}exit status: {status}\nfound:\n{found}");
        }
    }
}

async fn works(page: &str) {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
    let mut reader = Reader::new();
    // `dev` serves its demo API on a fixed port, which another process may use.
    reader.start("demo", &reader.own("turnwheel demo --listen 127.0.0.1:8090"));
    let mut ran = 0;
    for Block { info, body } in blocks(&reader.own(&text)) {
        let field = |name: &str| info.iter().find_map(|word| word.strip_prefix(name));
        let (file, status) = (field("file="), field("status=").map_or(0, |status| status.parse().unwrap()));
        let terminal = info.get(1).filter(|word| !word.contains('='));
        match (file, info.first().map(String::as_str), terminal) {
            (Some(file), _, _) => {
                let path = reader.work().join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, &body).unwrap();
            }
            (None, Some("console"), Some(terminal)) => reader.in_terminal(&terminal.clone(), &body).await,
            (None, Some("console"), None) => {
                let commands = commands(&body);
                reader.run_all(&commands, status).await;
                ran += commands.len();
            }
            _ => {}
        }
    }
    assert!(ran > 5, "{page} has commands");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_agent_works_word_for_word() {
    works("docs/tutorials/first-agent.md").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_workflow_works_word_for_word() {
    works("docs/tutorials/first-workflow.md").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_channel_works_word_for_word() {
    works("docs/tutorials/first-channel.md").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_agent_works_in_chinese() {
    works("docs/zh/agents.md").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_workflow_works_in_chinese() {
    works("docs/zh/workflows.md").await;
}

#[test]
fn ports_are_replaced_once_and_as_whole_words() {
    let ports = [("8080", "18090".to_owned()), ("8090", "8080".to_owned())];
    assert_eq!(with_ports("a:8080 b:8090/8080 c:18080 8070", &ports), "a:18090 b:8080/18090 c:18080 8070");
}

#[test]
fn lines_of_a_terminal_are_found_in_their_order() {
    let output = "one\ntwo\none\nthree\n";
    assert!(in_order(&["one", "two", "three"], output).is_some());
    assert!(in_order(&["two", "one"], output).is_some());
    assert_eq!(in_order(&["three", "two"], output), None);
    assert_eq!(in_order(&["two", "two"], output), None);
}

#[test]
fn only_commands_that_read_are_repeated() {
    assert!(only_reads("turnwheel runs show facts-1") && only_reads("turnwheel knowledge search --agent hotel x"));
    assert!(!only_reads("turnwheel runs cancel x") && !only_reads("echo 'show' | turnwheel chat"));
}

#[test]
fn output_is_compared_line_by_line() {
    for (expected, actual, same) in [
        ("a\nb\n", "a\nb", true),
        ("a … c\n", "a b c\n", true),
        ("a\n…\nd\n", "a\nb\nc\nd\n", true),
        ("a\n…\nd\n", "a\nd\n", true),
        ("a\n", "a\nb\n", false),
        ("a … c\n", "a b\nc\n", false),
    ] {
        assert_eq!(is_shown(expected, actual), same, "{expected:?} {actual:?}");
    }
}
