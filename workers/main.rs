//! The program `turnwheel`: parses the command line, reads the settings, and calls the library.
//!
//! Each group of commands has its own file. [`roles`] runs the long-lived processes (`dev`, `worker`, `scheduler`,
//! `gateway`, `all`). The other commands reach a running system through [`connection`]: always a gateway, which the
//! process serves itself for a cluster. Their output goes through [`table`], [`chat_display`] (conversations),
//! [`progress`] (runs) and [`report`] (files); [`failure`] formats errors with their hints.

// A binary's modules have no outside users.
#![allow(unreachable_pub)]

mod agent_drafts;
mod agent_replay;
mod agents;
mod audit;
mod author;
mod authoring;
mod backup;
mod bench;
mod chaos;
mod chat;
mod chat_display;
mod claims;
mod client;
mod config;
mod connection;
mod dead;
mod decisions;
mod deletion;
mod demo;
mod doctor;
mod examples;
mod failure;
mod feed;
mod follow_run;
mod handoffs;
mod init;
mod knowledge;
mod known_names;
mod list_args;
mod log;
mod migrate;
mod models;
mod operator_args;
mod progress;
mod prompts;
mod report;
mod roles;
mod run_input;
mod runs;
mod send;
mod sessions;
mod signals;
mod steps;
mod table;
mod timers;
mod versions;
mod wait_turn;
mod watch;
mod watch_option;
mod workflows;

use base::config::load::{LoadedSettings, Sources};
use base::config::{SecretValues, Settings};
use base::telemetry::Otlp;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use types::format;
use types::ids::{self, IdError};

const EXAMPLES: &str = "\
Examples:
  turnwheel dev                                   everything in one process, no servers needed
  turnwheel chat --agent sales                    talk to an agent of the running gateway
  turnwheel author 把一段话总结成三点               make a workflow in a dialogue
  turnwheel send --session s1 --agent sales 你好   send one message
  turnwheel sessions show s1                      show a conversation: status, timers, history
  turnwheel agents validate agents/               check agent files
  turnwheel workflows run smart_router 帮我写段代码   run a workflow and watch its progress
  turnwheel dead list                             list jobs that failed for good, with the reasons
  turnwheel doctor                                find problems, and print how to fix them
  turnwheel backup                                save everything into a file, for `restore`
  turnwheel --set worker.concurrency=64 worker    start one more worker of a cluster
  turnwheel chaos --minutes 1                     kill processes, and check that nothing is lost

New here? Run `turnwheel dev`, and in a second terminal `turnwheel chat --agent sales`. `turnwheel init` writes a \
first agent of your own.

Settings come from turnwheel.toml, then TURNWHEEL_… variables, then --set; `turnwheel config` shows them.
A command that queues work prints its id to stdout and its effect to stderr; with --json it prints JSON.
Exit status: 0 success, 1 failure, 2 wrong usage.";

/// Heading of the options that every command accepts.
const GLOBAL: &str = "Global options";

// A turn makes thousands of small allocations on many threads. jemalloc takes a fraction of the time.
#[cfg(feature = "dist")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A durable workflow engine for conversational agents
#[derive(Debug, Parser)]
#[command(name = "turnwheel", version, after_help = EXAMPLES)]
struct Cli {
    /// Settings file [default: TURNWHEEL_CONFIG, else turnwheel.toml in the working directory]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Log filter, such as `info` or `turnwheel=debug` [default: TURNWHEEL_LOG, else RUST_LOG, else
    /// `info,async_nats=warn` for dev, all, worker, scheduler and gateway, `warn,turnwheel_cluster=error` for others]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "FILTER")]
    log: Option<String>,
    /// Log as JSON, one object per line
    #[arg(long, global = true, help_heading = GLOBAL)]
    log_json: bool,
    /// Override one setting, such as `--set worker.concurrency=64`; repeatable
    #[arg(long = "set", global = true, help_heading = GLOBAL, value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run everything in one process, without servers: worker, scheduler, gateway and demo API
    #[command(after_help = examples::DEV)]
    Dev,
    /// Write a first agent file, to start from
    Init(init::Init),
    /// Run a worker, which executes turns, as one process of a cluster; start more to scale
    #[command(after_help = examples::WORKER)]
    Worker,
    /// Run a scheduler, which publishes due timers, as one process of a cluster; a second one stands by
    #[command(after_help = examples::SCHEDULER)]
    Scheduler,
    /// Run a gateway, which serves HTTP and server-sent events, as one process of a cluster
    #[command(after_help = examples::GATEWAY)]
    Gateway,
    /// Run worker, scheduler and gateway in one process, on the NATS and MongoDB of a cluster
    #[command(after_help = examples::ALL)]
    All,
    /// Apply, validate, test, compare, list and show agents
    #[command(subcommand)]
    Agents(agents::Agents),
    /// Talk to an agent in the terminal, through a gateway
    Chat(chat::Chat),
    /// Make a workflow or an agent in a dialogue, through a gateway
    Author(author::Author),
    /// List, show and delete authoring dialogues
    #[command(subcommand)]
    Authoring(authoring::Authoring),
    /// Send one message to an agent
    Send(send::Send),
    /// List models with their circuits, and agents with their budgets
    Models(models::ListModels),
    /// List the conversations that humans have or shall get
    Handoffs(handoffs::Handoffs),
    /// List, show, cancel, claim, release, close and delete conversations
    #[command(subcommand)]
    Sessions(sessions::Sessions),
    /// Delete all data of a user
    #[command(subcommand)]
    Users(deletion::Users),
    /// List who has changed something: the audit trail
    #[command(after_help = audit::EXAMPLES)]
    Audit(audit::Audit),
    /// List and cancel pending timers
    #[command(subcommand)]
    Timers(timers::Timers),
    /// Add, list, search and remove the texts that agents answer from
    #[command(subcommand)]
    Knowledge(knowledge::Knowledge),
    /// Run, list, show, validate and apply workflows
    #[command(subcommand)]
    Workflows(workflows::Workflows),
    /// List, show, cancel, resume and restart runs of workflows
    #[command(subcommand)]
    Runs(runs::Runs),
    /// List, show, replay and delete dead letters: jobs that failed for good
    #[command(subcommand)]
    Dead(dead::Dead),
    /// Judge and list decisions of coordinators' models, and print their JSON Schemas
    #[command(subcommand)]
    Decisions(decisions::Decisions),
    /// Check servers, settings, agents and lanes, and print how to fix problems
    Doctor(doctor::Doctor),
    /// Bring the data of an older version up to date, or check whether that is necessary
    Migrate(migrate::Migrate),
    /// Back up everything that the system keeps, while it runs
    Backup(backup::Backup),
    /// Restore a backup, or check it
    Restore(backup::Restore),
    /// Measure throughput, latency, memory and recovery
    Bench(bench::Bench),
    /// Print the effective settings and the source of each
    Config(config::Config),
    /// Serve the demo API that the agents in agents/ call (`dev` includes it)
    Demo(demo::Demo),
    /// Print the completion script for a shell
    #[command(after_help = examples::COMPLETIONS)]
    Completions {
        /// The shell to complete in
        shell: Shell,
    },
    /// Test the guarantees: kill and pause everything under load, then check that nothing is lost or duplicated
    Chaos(chaos::Chaos),
}

impl Command {
    /// True for the long-running commands, which log their work. The others log only warnings.
    const fn is_role(&self) -> bool {
        self.role().is_some()
    }

    const fn role(&self) -> Option<&'static str> {
        match self {
            Self::Dev => Some("dev"),
            Self::Worker => Some("worker"),
            Self::Scheduler => Some("scheduler"),
            Self::Gateway => Some("gateway"),
            Self::All => Some("all"),
            _ => None,
        }
    }
}

fn main() -> ExitCode {
    // First: a child for scripts must not start threads, and reads no settings.
    sandbox::serve_if_asked();
    let cli = Cli::parse();
    if let Command::Completions { shell } = cli.command {
        // Needs neither settings nor servers: shells run this when they start.
        return completions(shell);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report_failure(&anyhow::Error::new(error).context("cannot start the runtime")),
    };
    let code = match runtime.block_on(run(cli)) {
        Ok(code) => code,
        Err(error) => report_failure(&error),
    };
    // A pending read of the terminal would delay an orderly shutdown until the next key.
    runtime.shutdown_background();
    code
}

/// Prints the error and its hints to stderr.
fn report_failure(error: &anyhow::Error) -> ExitCode {
    for line in failure::lines(error) {
        eprintln!("{}", log::masked(&line));
    }
    ExitCode::FAILURE
}

fn completions(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "turnwheel", &mut script);
    match std::io::stdout().write_all(&script) {
        // A closed pipe is fine: a reader such as `head` has read enough.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            report_failure(&anyhow::Error::new(error).context("cannot write the completions"))
        }
        Ok(()) | Err(_) => ExitCode::SUCCESS,
    }
}

async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let sources = Sources { client_only: !cli.command.is_role(), ..Sources::from_process(cli.config, cli.set) };
    // The other commands print a notice themselves when they wait for servers.
    let default = match cli.command.is_role() {
        // The NATS client names servers only by their ports, and the queue logs the same events.
        true => "info,async_nats=warn",
        false => "warn,turnwheel_cluster=error",
    };
    let loaded = Settings::load(&sources)?;
    if let Some(format) = loaded.env.get(format::TEST_VARIABLE).and_then(|format| format.parse().ok()) {
        format::pretend(format);
    }
    log::hide(SecretValues::new(&loaded.settings, &loaded.env));
    let otlp = match cli.command.role() {
        Some(role) => Otlp::start(&loaded.settings.telemetry, role)?,
        None => None,
    };
    log::start(cli.log.as_deref(), cli.log_json, default, &sources.env, otlp.as_ref())?;
    let colour = log::may_colour(&sources.env);
    let done = Box::pin(dispatch(cli.command, loaded, colour)).await;
    if let Some(otlp) = otlp {
        otlp.stop().await;
    }
    done
}

async fn dispatch(command: Command, loaded: LoadedSettings, colour: bool) -> anyhow::Result<ExitCode> {
    let done = |()| ExitCode::SUCCESS;
    match command {
        Command::Dev => Box::pin(roles::dev(loaded.settings)).await.map(done),
        Command::Init(command) => command.run(&loaded.settings).map(done),
        Command::Worker => Box::pin(roles::worker(loaded.settings)).await.map(done),
        Command::Scheduler => Box::pin(roles::scheduler(loaded.settings)).await.map(done),
        Command::Gateway => Box::pin(roles::gateway(loaded.settings)).await.map(done),
        Command::All => Box::pin(roles::all(loaded.settings)).await.map(done),
        Command::Agents(command) => Box::pin(command.run(&loaded)).await,
        Command::Models(command) => Box::pin(command.run(&loaded)).await.map(done),
        Command::Chat(command) => Box::pin(command.run(&loaded, colour)).await.map(done),
        Command::Author(command) => Box::pin(command.run(&loaded, colour)).await.map(done),
        Command::Authoring(command) => Box::pin(command.run(&loaded)).await.map(done),
        Command::Send(command) => Box::pin(command.run(&loaded)).await.map(done),
        Command::Sessions(command) => Box::pin(command.run(&loaded)).await.map(done),
        Command::Users(command) => Box::pin(command.run(&loaded)).await.map(done),
        Command::Audit(command) => Box::pin(command.run(&loaded)).await.map(done),
        Command::Handoffs(command) => Box::pin(command.run(&loaded)).await.map(done),
        Command::Timers(command) => Box::pin(command.run(&loaded)).await.map(done),
        Command::Knowledge(command) => Box::pin(command.run(&loaded)).await,
        Command::Workflows(command) => Box::pin(command.run(&loaded, colour)).await,
        Command::Runs(command) => Box::pin(command.run(&loaded)).await.map(done),
        Command::Decisions(command) => Box::pin(command.run(&loaded)).await,
        Command::Dead(command) => Box::pin(command.run(&loaded)).await,
        Command::Doctor(command) => Box::pin(command.run(&loaded, colour)).await,
        Command::Migrate(command) => Box::pin(command.run(&loaded)).await,
        Command::Completions { .. } => Ok(ExitCode::SUCCESS),
        Command::Config(command) => command.run(&loaded).map(done),
        Command::Backup(command) => Box::pin(command.run(&loaded)).await.map(done),
        Command::Restore(command) => Box::pin(command.run(&loaded)).await.map(done),
        Command::Bench(command) => Box::pin(command.run(&loaded)).await.map(done),
        Command::Demo(command) => Box::pin(command.run()).await.map(done),
        Command::Chaos(command) => Box::pin(command.run(loaded)).await,
    }
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE, such as `worker.concurrency=64`".to_owned()),
    }
}

/// An identifier on the command line: a bad one is wrong use, not a failure.
fn id(text: &str) -> Result<String, String> {
    ids::check("the id", text).map(|()| text.to_owned()).map_err(|error| error.to_string())
}

/// The same for ids of messages and users, which may have dots.
fn dotted_id(text: &str) -> Result<String, String> {
    let unnamed = |error: IdError| IdError { field: "the id", ..error }.to_string();
    ids::check("job_id", text).map(|()| text.to_owned()).map_err(unnamed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_s_help_teaches_by_example() {
        fn walk(command: &clap::Command, path: &str, without: &mut Vec<String>) {
            let path = format!("{path} {}", command.get_name());
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            // A group shows its commands' examples; those of its own commands count as well.
            if !help.contains("Examples:\n  ") {
                without.push(path.clone());
            }
            let shown = command.get_subcommands().filter(|inner| inner.get_name() != "help" && !inner.is_hide_set());
            shown.for_each(|inner| walk(inner, &path, without));
        }
        let mut without = Vec::new();
        walk(&Cli::command(), "", &mut without);
        assert_eq!(without, [""; 0], "commands without examples");
    }

    #[test]
    fn every_option_explains_itself_and_durations_have_units() {
        fn walk(command: &clap::Command, unclear: &mut Vec<String>) {
            for arg in command.get_arguments() {
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                let named =
                    |wanted: &str| arg.get_value_names().is_some_and(|names| names.iter().any(|name| name == wanted));
                let is_duration = arg.get_value_parser().type_id() == std::any::TypeId::of::<std::time::Duration>();
                if help.is_empty() || is_duration && !named("DURATION") {
                    unclear.push(format!("{} {}", command.get_name(), arg.get_id()));
                }
            }
            command.get_subcommands().filter(|inner| !inner.is_hide_set()).for_each(|inner| walk(inner, unclear));
        }
        let mut unclear = Vec::new();
        let mut cli = Cli::command();
        cli.build();
        walk(&cli, &mut unclear);
        assert_eq!(unclear, [""; 0], "options without help, or durations without a unit");
    }

    #[test]
    fn an_example_takes_one_line_of_the_help() {
        fn walk(command: &clap::Command, wide: &mut Vec<String>) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let width = |line: &str| line.chars().map(|c| if c < '\u{2e80}' { 1 } else { 2 }).sum::<usize>();
            wide.extend(help.lines().filter(|line| line.starts_with("  ") && width(line) > 100).map(str::to_owned));
            command.get_subcommands().for_each(|inner| walk(inner, wide));
        }
        let mut wide = Vec::new();
        walk(&Cli::command(), &mut wide);
        assert_eq!(wide, [""; 0], "lines that are wrapped where the terminal is not known");
    }

    #[test]
    fn wrong_use_is_told_from_failure() {
        for line in [
            "turnwheel",
            "turnwheel fly",
            "turnwheel --set x worker",
            "turnwheel sessions show a.b",
            "turnwheel send --session s1",
            "turnwheel sessions list --status asleep",
            "turnwheel workflows run",
            "turnwheel workflows show w --json --mermaid",
            "turnwheel runs restart r1",
        ] {
            let error = Cli::try_parse_from(line.split(' ')).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
        let cli = Cli::try_parse_from("turnwheel --set a.b=c=d send --session 会话 你好 吗".split(' ')).unwrap();
        assert_eq!(cli.set, [("a.b".to_owned(), "c=d".to_owned())]);
    }
}
