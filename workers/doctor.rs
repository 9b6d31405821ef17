//! `turnwheel doctor`: finds problems and prints how to fix them.

use crate::connection::{NO_SYSTEM_HINT, is_cluster, running_dev};
use crate::table::{print, print_json, printable};
use base::config::load::LoadedSettings;
use base::tasks::Tasks;
use clap::Args;
use commands::doctor::{self, Finding, Level, Tools};
use connectors::Connectors;
use engine::workflow::Flows;
use sandbox::Sandbox;
use serde_json::json;
use std::io::IsTerminal;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  turnwheel doctor                                             check the cluster, or `dev`
  turnwheel doctor --json                                      for a monitor: `problems`, `findings`
  turnwheel doctor --initiate                                  initiate MongoDB's replica set, once
  turnwheel doctor --nats-monitor http://nats.internal:8222    read NATS' sync settings there

Without --initiate it changes nothing. On a cluster it checks that NATS and MongoDB are reachable, their versions, \
streams, consumer, indexes, replicas, journal and sync, the difference of the clocks, that workers pull and that a \
scheduler leads. Everywhere it checks for invalid agents and prompts, stuck lanes, overdue timers, dead letters, full storage, large \
sessions, the oldest unhandled message, and an unreachable trace collector, that the sandbox runs a script and stops an attack, and that each connector reaches its \
database, which refuses writes if it is read-only.
Exit status: 0 no problems (advice is allowed), 1 a problem, 2 wrong usage.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Doctor {
    /// Address of nats-server's monitoring port [default: port 8222 of the server]
    #[arg(long, value_name = "URL")]
    nats_monitor: Option<String>,
    /// First initiate MongoDB's replica set, which a mongod started with --replSet needs once
    #[arg(long)]
    initiate: bool,
    /// Print only advice and problems
    #[arg(long)]
    quiet: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub async fn run(self, loaded: &LoadedSettings, colour: bool) -> anyhow::Result<ExitCode> {
        let mut findings = Vec::new();
        if self.initiate {
            // Only for a configured cluster: another mongod may run at the default address.
            findings.push(match is_cluster(loaded) {
                true => doctor::initiate(&loaded.settings).await,
                false => Finding::problem(
                    "--initiate",
                    "no cluster is configured, so no replica set is initiated",
                    "set NATS_URL and MONGODB_URI, or `backend = \"cluster\"`",
                ),
            });
        }
        findings.extend(self.findings(loaded).await?);
        findings.retain(|finding| !self.quiet || finding.level > Level::Ok);
        let count = |level| findings.iter().filter(|finding| finding.level == level).count();
        let (problems, advice) = (count(Level::Problem), count(Level::Advice));
        if self.json {
            print_json(&json!({ "problems": problems, "advice": advice, "findings": findings }))?;
        } else {
            let colour = colour && std::io::stdout().is_terminal();
            findings.iter().flat_map(|finding| lines(finding, colour)).for_each(print);
            print(format!("problems: {problems}, advice: {advice}"));
        }
        Ok(if problems > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    async fn findings(&self, loaded: &LoadedSettings) -> anyhow::Result<Vec<Finding>> {
        let settings = &loaded.settings;
        let sandbox = Sandbox::new(&settings.python, None, &loaded.env, Tasks::new());
        let connectors = Connectors::new(&settings.connectors, &loaded.env, &Tasks::new());
        if is_cluster(loaded) {
            let monitor = self.nats_monitor.as_deref();
            let tools = Tools { sandbox: &sandbox, connectors: &connectors };
            return Ok(Box::pin(doctor::cluster(settings, &Flows::builtin(), tools, monitor)).await);
        }
        if let Some(client) = running_dev(loaded).await? {
            let mut findings = vec![Finding::ok(client.base(), "the dev server responds")];
            findings.extend(client.doctor().await?);
            return Ok(findings);
        }
        let place = format!("data_dir = {}", settings.data_dir.display());
        let mut findings =
            vec![Finding::problem(place, "no dev server is running, and no cluster is configured", NO_SYSTEM_HINT)];
        findings.extend(doctor::files(settings));
        findings.extend(doctor::telemetry(settings).await);
        findings.extend(doctor::python(&settings.python, &sandbox).await);
        findings.extend(doctor::connectors(&connectors).await);
        Ok(findings)
    }
}

/// Formats a finding, with its remedy on the next line.
fn lines(finding: &Finding, colour: bool) -> Vec<String> {
    let Finding { level, place, what, remedy } = finding;
    let word = format!("{:<7}", level.as_str());
    let word = match (colour, level) {
        (false, _) => word,
        (true, Level::Ok) => format!("\u{1b}[32m{word}\u{1b}[0m"),
        (true, Level::Advice) => format!("\u{1b}[33m{word}\u{1b}[0m"),
        (true, Level::Problem) => format!("\u{1b}[31m{word}\u{1b}[0m"),
    };
    let mut lines = vec![format!("{word} {}", printable(&format!("{place}: {what}")))];
    lines.extend(
        Some(remedy).filter(|remedy| !remedy.is_empty()).map(|remedy| printable(&format!("        → {remedy}"))),
    );
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_change_stands_below_and_colours_only_on_a_terminal() {
        let finding = Finding::problem("TW_JOBS", "kept in memory\u{7}", "create it again");
        assert_eq!(lines(&finding, false), ["problem TW_JOBS: kept in memory", "        → create it again"]);
        assert!(lines(&finding, true)[0].starts_with("\u{1b}[31mproblem"));
        assert_eq!(lines(&Finding::ok("clocks", "1 ms apart"), false), ["ok      clocks: 1 ms apart"]);
    }
}
