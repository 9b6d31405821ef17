//! Every command with a token of every role. `--help` lists the commands: a new one without a rule fails.

use super::Guarded;
use crate::commands::{Ended, Folder};
use crate::scenarios::sales;
use crate::support::backend::embedded;
use base::config::{Backend, Settings};
use futures::{StreamExt, stream};
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt::Write;
use types::access::Role::{self, Admin, Agent, Author, Channel, Operator, Viewer};

/// Commands that ask no gateway, or serve one themselves.
const LOCAL: [&str; 18] = [
    "dev",
    "init",
    "worker",
    "scheduler",
    "gateway",
    "all",
    "agents validate",
    "agents schema",
    "agents test",
    "workflows validate",
    "workflows schema",
    "decisions validate",
    "decisions schema",
    "bench",
    "config",
    "demo",
    "completions",
    "chaos",
];

/// Commands of the whole system, which need its servers or its file, not a gateway.
const OF_THE_SYSTEM: [&str; 3] = ["backup", "restore", "migrate"];

const READERS: &[Role] = &[Viewer, Agent, Operator, Admin];
const AGENTS: &[Role] = &[Agent, Operator, Admin];
const OPERATORS: &[Role] = &[Operator, Admin];
const AUTHORS: &[Role] = &[Author, Operator, Admin];
const AUTHORS_AND_READERS: &[Role] = &[Author, Viewer, Agent, Operator, Admin];
const ADMINS: &[Role] = &[Admin];
const FRONT_ENDS: &[Role] = &[Channel, Admin];

/// The commands that ask a gateway: the command, its arguments, the roles that may call it.
const RULES: [(&str, &str, &[Role]); 50] = [
    ("agents apply", "agent.json", ADMINS),
    ("agents versions", "sales", READERS),
    ("agents list", "", READERS),
    ("agents show", "sales", READERS),
    ("agents diff", "agent.json", READERS),
    ("agents replay", "agent.json", READERS),
    ("agents delete", "sales", ADMINS),
    ("chat", "--agent sales --session s1", FRONT_ENDS),
    ("author", "hi", AUTHORS),
    ("authoring list", "", AUTHORS_AND_READERS),
    ("authoring show", "d1", AUTHORS_AND_READERS),
    ("authoring delete", "d1", AUTHORS),
    ("send", "--session s1 --agent sales hi", FRONT_ENDS),
    ("models", "", READERS),
    ("sessions list", "", READERS),
    ("sessions show", "s1", &[Channel, Viewer, Agent, Operator, Admin]),
    ("sessions prompts", "s1 m-1", READERS),
    ("sessions cancel", "s1", OPERATORS),
    ("sessions release", "s1", AGENTS),
    ("sessions claim", "s1", AGENTS),
    ("sessions unclaim", "s1", AGENTS),
    ("sessions transfer", "s1 --to li", AGENTS),
    ("sessions note", "s1 hi", AGENTS),
    ("handoffs", "", READERS),
    ("sessions close", "s1", OPERATORS),
    ("sessions delete", "s1", ADMINS),
    ("users delete", "u1", ADMINS),
    ("audit", "", ADMINS),
    ("timers list", "", READERS),
    ("timers cancel", "--session s1", OPERATORS),
    ("knowledge add", "--agent sales kb.md", ADMINS),
    ("knowledge list", "", READERS),
    ("knowledge search", "--agent sales returns", READERS),
    ("knowledge remove", "--agent sales kb.md", ADMINS),
    ("workflows list", "", READERS),
    ("workflows show", "research_workflow", READERS),
    ("workflows run", "smart_router hi", AUTHORS),
    ("workflows apply", "workflow.json", ADMINS),
    ("workflows versions", "research_workflow", READERS),
    ("workflows delete", "w1", ADMINS),
    ("runs list", "", READERS),
    ("runs show", "r1", READERS),
    ("runs cancel", "r1", OPERATORS),
    ("runs resume", "r1", OPERATORS),
    ("runs restart", "r1 --from a", OPERATORS),
    ("runs answer", "r1 yes", OPERATORS),
    ("dead list", "", READERS),
    ("dead show", "7", READERS),
    ("dead replay", "7", OPERATORS),
    ("dead delete", "7", ADMINS),
];

/// Commands with rules that are tested elsewhere or end differently: why.
const OTHERS: [(&str, &str); 3] = [
    ("decisions list", "as `decisions replay`, whose endpoint is the same"),
    ("decisions replay", "its endpoint is in the test of all endpoints"),
    ("doctor", "on a cluster it asks the servers themselves"),
];

/// Commands that wait for an answer: only their refusal is tested.
const WAITING: [&str; 3] = ["author", "chat", "workflows run"];

/// All commands of the program without subcommands, as `--help` lists them.
async fn commands(folder: &Folder) -> BTreeSet<String> {
    let (mut found, mut left) = (BTreeSet::new(), vec![String::new()]);
    while let Some(command) = left.pop() {
        let args: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let help = folder.run(&args, "").await;
        assert_eq!(help.code, 0, "{help:?}");
        let listed = help.out.lines().skip_while(|line| *line != "Commands:").skip(1);
        let listed = listed.take_while(|line| !line.is_empty());
        let names =
            listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).filter(|name| !name.is_empty());
        let below: Vec<String> =
            names.filter(|name| *name != "help").map(|name| format!("{command} {name}").trim().to_owned()).collect();
        // The parts of `bench` measure servers of their own.
        match below.is_empty() || command == "bench" {
            true => found.extend([command]),
            false => left.extend(below),
        }
    }
    found
}

/// A folder whose commands find the gateway as they find a running `dev`.
async fn folder(guarded: &Guarded) -> Folder {
    let folder = Folder::with(Settings { backend: Backend::Embedded, ..Settings::default() });
    folder.write("turnwheel.toml", "");
    folder.write("agent.json", &sales().to_string().replace("{api}", "http://127.0.0.1:9"));
    let stages = json!([{"id": "a", "runnable": "smart_router", "input": "{query}"}]);
    folder.write(
        "workflow.json",
        &json!({"type": "pipeline", "id": "w1", "description": "x", "stages": stages}).to_string(),
    );
    folder.write("kb.md", "# returns\n\nwithin 30 days\n");
    folder.write("data/dev.json", &json!({"gateway": guarded.gateway.base, "pid": 1}).to_string());
    folder
}

async fn run(folder: &Folder, role: Role, command: &str, args: &str) -> Ended {
    let token = format!("gateway.tokens={role}-token");
    let args: Vec<&str> =
        ["--set", &token].into_iter().chain(command.split(' ')).chain(args.split_whitespace()).collect();
    folder.run(&args, "hi\n").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_command_ends_with_the_missing_role_for_those_who_may_not_call_it() {
    let entries = Role::ALL.map(|role| json!({"name": role, "role": role}));
    let guarded = Guarded::start(&embedded().await, &entries).await.with_sales().await;
    let folder = folder(&guarded).await;
    let named: Vec<&str> = RULES.iter().map(|(command, ..)| *command).chain(LOCAL).chain(OF_THE_SYSTEM).collect();
    let others = OTHERS.map(|(command, _)| command);
    for command in commands(&folder).await {
        let has_rule = named.contains(&command.as_str()) || others.contains(&command.as_str());
        assert!(has_rule, "`turnwheel {command}` has no rule about the roles that may call it");
    }
    let cases = RULES.iter().flat_map(|rule| Role::ALL.map(|role| (rule, role)));
    let cases = cases.filter(|((command, _, allowed), role)| !(allowed.contains(role) && WAITING.contains(command)));
    // Deletions last, since the other commands need the deleted agent.
    let (last, first): (Vec<_>, Vec<_>) = cases.partition(|((command, ..), _)| command.ends_with("delete"));
    let mut wrong = String::new();
    for cases in [first, last] {
        let mut ended = stream::iter(cases)
            .map(async |(rule, role)| (rule, role, run(&folder, role, rule.0, rule.1).await))
            .buffered(4);
        while let Some(((command, _, allowed), role, ended)) = ended.next().await {
            let is_refused = ended.code == 1 && ended.err.contains("this needs the role");
            let names = ended.err.contains("`admin`") && ended.err.contains(&format!("`{role}` has `{role}`"));
            if is_refused == allowed.contains(&role) || is_refused != names {
                let _ = writeln!(wrong, "{command} as {role}: {ended:?}");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
