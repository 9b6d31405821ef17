//! `turnwheel bench`: what this machine and these settings are good for.

use crate::failure::Failure;
use crate::table::{print, print_json, print_table, table};
use clap::{Args, Subcommand};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use turnwheel::bench::options::TurnsOptions;
use turnwheel::bench::report::Report;
use turnwheel::bench::{self, Problem, Progress};
use turnwheel::config::load::Loaded;

const TURNS: &str = "\
Examples:
  turnwheel bench turns                                     closed loop with 1, 64 and 256 users
  turnwheel bench turns --actions 0,1,3 --concurrency 256   rows for turns with 0, 1 and 3 actions
  turnwheel bench turns --rate 500 --seconds 60             open loop: 500 messages a second
  turnwheel bench turns --hot --concurrency 64              all messages in one session
  turnwheel bench turns --backend embedded --json           the embedded file; JSON
  turnwheel --set worker.concurrency=1024 bench turns --concurrency 1024

The latency is from the message's publication (open loop: from when it was due) until its reply is seen on the out
stream. The floor is the same number of queue and store commands in the same groups with no engine between them, measured
right after each row under the same load; the ratio is how much of it the engine reaches.";

const EXAMPLES: &str = "\
Examples:
  turnwheel bench turns                      turns a second and latency, beside the floor
  turnwheel bench turns --backend embedded   the same on the embedded file

Without --nats and --mongodb, servers of the benchmark's own are started in a temporary folder: from NATS_SERVER_BIN and
MONGOD_BIN, else the PATH, else target/servers. Use a release build, and leave the machine to it.";

/// Measure throughput, latency, memory and recovery
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Turns a second and latency from message to reply, beside the floor of the servers
    #[command(after_help = TURNS)]
    Turns(TurnsOptions),
    /// A process of a running benchmark
    #[command(hide = true)]
    Member { orders: PathBuf },
}

impl Bench {
    pub async fn run(self, loaded: &Loaded) -> anyhow::Result<()> {
        let (progress, settings, env) = (Shown::default(), &loaded.settings, &loaded.env);
        let work = async {
            match &self.what {
                What::Turns(options) => {
                    Ok(Some((Box::pin(bench::turns::run(options, settings, env, &progress)).await?, options.site.json)))
                }
                What::Member { orders } => Box::pin(bench::crew::serve(orders)).await.map(|()| None),
            }
        };
        // An interrupted benchmark still ends its servers and removes its folder.
        let done: anyhow::Result<Option<(Report, bool)>> = tokio::select! {
            done = work => done,
            _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
        };
        progress.end();
        match done.map_err(with_hint)? {
            Some((report, true)) => print_json(&report),
            Some((report, false)) => {
                show(&report);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

fn with_hint(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<Problem>() {
        Some(problem) => Failure::new(&problem.message, &problem.hint).into(),
        None => error,
    }
}

fn show(report: &Report) {
    for line in report.conditions() {
        print(line);
    }
    print("");
    let mut table = table(&report.columns.iter().map(|(heading, _)| *heading).collect::<Vec<_>>());
    for row in &report.rows {
        table.add_row(report.cells(row));
    }
    print_table(&table);
}

/// Progress on stderr: phases as lines, what they have come to in a line that is written over.
struct Shown {
    ticked: Mutex<Option<Instant>>,
}

impl Default for Shown {
    fn default() -> Self {
        Self { ticked: Mutex::new(None) }
    }
}

impl Shown {
    /// Clears the line that is written over.
    fn end(&self) {
        if std::io::stderr().is_terminal() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

impl Progress for Shown {
    fn phase(&self, text: &str) {
        self.end();
        let _ = writeln!(std::io::stderr(), "bench: {text}");
    }

    fn tick(&self, text: &str) {
        let Ok(mut ticked) = self.ticked.lock() else { return };
        if std::io::stderr().is_terminal() && ticked.is_none_or(|at| at.elapsed() > Duration::from_millis(100)) {
            *ticked = Some(Instant::now());
            let _ = write!(std::io::stderr(), "\r\x1b[K  {text}");
            let _ = std::io::stderr().flush();
        }
    }
}
