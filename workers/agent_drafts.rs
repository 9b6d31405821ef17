//! `turnwheel agents test|diff`: tries a draft in a file before it is applied, and compares it with the stored agent.

use crate::client::GatewayClient;
use crate::connection;
use crate::failure::Failure;
use crate::known_names;
use crate::table::{print, print_json, printable};
use anyhow::Context;
use base::config::Settings;
use base::config::load::LoadedSettings;
use base::tasks::Tasks;
use clap::Args;
use definitions::agent::AgentRecord;
use definitions::agent::load::{self, AgentError};
use definitions::difference::Difference;
use definitions::document::file;
use definitions::knowledge::files;
use definitions::workflow::definition::WorkflowRecord;
use definitions::workflow::read;
use engine::rehearsal::{Draft, DraftKnowledge, RehearsalTest, Rehearse, Rehearsed, TestResult, tests};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use turnwheel::rehearsal::Rehearsal;
use types::duration;

pub const TEST: &str = "\
Examples:
  turnwheel agents test agents/sales.yaml --tests sales_tests.yaml
  turnwheel agents test agents/sales.yaml --tests sales_tests.yaml --json    for a build server

A file of tests:
  tests:
    - name: an order
      turns:
        - say: Where is A1001?
          expect: {status: ready, calls: [query_order], reply_contains: on its way}
      answers: {query_order: {status: on its way}}

The agent runs in memory with the models of the settings. `answers` has the outputs of its skills, tools, flows and nodes \
by id, and `handoff`; a call without an answer fails. Only models are called. Needs no servers. Exit status 1 unless \
all tests pass.";

pub const DIFF: &str = "\
Examples:
  turnwheel agents diff agents/sales.yaml                      with the stored agent of this id
  turnwheel agents diff agents/sales.yaml --against sales_v1   with another stored agent
  turnwheel agents diff new.yaml --against old.yaml --json     two files; needs no servers

New hosts come first, then secrets that go to a host for the first time, actions, settings and texts. Exit status 0 also if \
the agents differ.";

#[derive(Debug, Args)]
pub struct TestAgent {
    /// Agent file
    file: PathBuf,
    /// File with the tests
    #[arg(long, value_name = "FILE")]
    tests: PathBuf,
    /// Time for all tests; a test that is not completed in this time counts as not run
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    timeout: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct DiffAgent {
    /// Agent file
    file: PathBuf,
    /// Id of a stored agent, or another file [default: the stored agent of the file's id]
    #[arg(long, value_name = "ID|FILE")]
    against: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl TestAgent {
    pub async fn run(self, loaded: &LoadedSettings) -> anyhow::Result<ExitCode> {
        let settings = &loaded.settings;
        let agent = load::file(&self.file)?;
        let (agent, warnings) =
            known_names::local_names(settings).check(agent).map_err(|problem| in_file(&self.file, problem))?;
        for warning in warnings {
            eprintln!("{}", printable(&format!("warning: {}: {warning}", self.file.display())));
        }
        let (texts, _) = files::read(&self.file, &agent).map_err(|problem| in_file(&self.file, problem))?;
        let tests = read_tests(&self.tests)?;
        let (agents, workflows) = companions(settings, agent.id());
        let rehearsal = Rehearsal::new(settings, &loaded.env).with(agents, workflows);
        let rehearsed =
            rehearsal.rehearse(&Draft::Agent(agent, DraftKnowledge::texts(texts)), &tests, self.timeout).await;
        let report = rehearsed.with_context(|| format!("cannot use {}", self.tests.display()))?;
        match self.json {
            true => print_json(&report)?,
            false => print(printable(described(&report).trim_end())),
        }
        Ok(if report.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

pub fn in_file(path: &Path, problem: AgentError) -> AgentError {
    AgentError::File { file: path.to_owned(), problem: Box::new(problem) }
}

fn read_tests(path: &Path) -> anyhow::Result<Vec<RehearsalTest>> {
    let read = || anyhow::Ok(tests(&file::parse(path, &file::text(path)?)?)?);
    read().with_context(|| format!("cannot use {}", path.display()))
}

/// The valid files of the folders of the settings, to which a draft may refer. The draft itself replaces its own file.
pub fn companions(settings: &Settings, draft: &str) -> (Vec<AgentRecord>, Vec<WorkflowRecord>) {
    let agents = if settings.agents_dir.is_dir() { load::read_path(&settings.agents_dir) } else { Vec::new() };
    let folder = &settings.workflows_dir;
    let workflows = if folder.is_dir() { read::read_paths(std::slice::from_ref(folder)) } else { Vec::new() };
    let agents = agents.into_iter().filter_map(|(_, agent)| agent.ok()).filter(|agent| agent.id() != draft);
    (agents.collect(), workflows.into_iter().filter_map(|(_, workflow)| workflow.ok()).collect())
}

/// One line for each test, and the numbers.
fn described(report: &Rehearsed) -> String {
    let mut text = String::new();
    for test in &report.tests {
        let line = match &test.result {
            TestResult::Passed => format!("passed   {}\n", test.name),
            TestResult::NotRun { reason } => format!("not run  {}: {reason}\n", test.name),
            TestResult::Failed(found) => {
                let (name, turn, what, expected) = (&test.name, found.turn, &found.what, &found.expected);
                let mut lines =
                    format!("failed   {name}: turn {turn}, {what}: expected {expected}\n         got {}\n", found.got);
                lines.extend(found.unanswered.iter().map(|missing| format!("         {missing}\n")));
                lines
            }
        };
        text.push_str(&line);
    }
    let Rehearsed { passed, failed, not_run, .. } = report;
    text + &format!("{passed} passed, {failed} failed, {not_run} not run\n")
}

impl DiffAgent {
    pub async fn run(self, loaded: &LoadedSettings) -> anyhow::Result<ExitCode> {
        let draft = load::file(&self.file)?;
        let base = match self.against.as_deref().map(Path::new).filter(|path| path.is_file()) {
            Some(path) => load::file(path)?.document,
            None => {
                let tasks = Tasks::new();
                let client = connection::connect(loaded, &tasks).await?;
                stored(&client, self.against.as_deref().unwrap_or(draft.id())).await?
            }
        };
        let difference = Difference::between(&base, &draft.document);
        match self.json {
            true => print_json(&difference)?,
            false => print(printable(difference.to_string().trim_end())),
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn stored(client: &GatewayClient, id: &str) -> anyhow::Result<Value> {
    let unknown = || {
        let hint = "`turnwheel agents list` shows all agents; --against takes the id of one, or a file";
        Failure::new(format!("there is neither an agent nor a file `{id}`"), hint)
    };
    types::ids::check("the id", id).map_err(|_| unknown())?;
    Ok(client.agent(id).await?.ok_or_else(unknown)?.config)
}
