//! `turnwheel decisions`: judges and lists decisions of coordinators' models, and prints JSON Schemas.

use crate::connection;
use crate::failure::Failure;
use crate::table::{TextTable, one_line, print, print_json, print_table, printable, table};
use anyhow::Context;
use base::config::load::LoadedSettings;
use base::tasks::Tasks;
use clap::{Args, Subcommand};
use commands::decisions::{DecisionVerdict, GivenWorld, ProposedDecision, named_schema, schemas, validate_here};
use commands::session_decisions::SessionDecision;
use sandbox::Sandbox;
use serde_json::{Value, json};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  turnwheel decisions validate decision.json    judge a payload or a decision
  turnwheel decisions schema respond            print the JSON Schema of a payload
  turnwheel decisions list --session s1         the decisions of a session, with their verdicts
  turnwheel decisions replay --session s1       judge them again, by the rules of now";

const VALIDATE: &str = "\
Examples:
  turnwheel decisions validate decision.json
  echo '{\"action_type\": \"continue\", \"thought\": \"x\"}' | turnwheel decisions validate -
  turnwheel decisions validate payload.json --type respond     a payload without `action_type`
  turnwheel decisions validate modify.json --world world.json  with a session's plans
  turnwheel decisions validate decision.json --json            the verdict as JSON

The file has a payload, or `{\"decision_type\": …, \"payload\": {…}}`, as JSON. The limits are those of the settings \
`decisions.*`. A world is `{\"workflows\": [{\"workflow_id\", \"status\", \"definition\"}], \"current\", \
\"subagents\": [{\"type\", \"input\", \"timeout\"}]}`; docs/decisions.md explains it. Needs no servers. Exit status 0 only if \
the decision is valid as given.";

const SCHEMA: &str = "\
Examples:
  turnwheel decisions schema                          all schemas by name
  turnwheel decisions schema create_workflow_plan     the payload of one type
  turnwheel decisions schema conversation_decision    the answer of a coordinator's model";

const LIST: &str = "\
Examples:
  turnwheel decisions list --session s1
  turnwheel decisions list --session s1 --turns 5 --json

A turn's decisions are listed after its commit, until the setting retention.turns has passed. Secrets are masked.";

const REPLAY: &str = "\
Examples:
  turnwheel decisions replay --session s1             verdicts that would differ now
  turnwheel decisions replay --session s1 --json      all decisions, with the verdict of now

Judges the recorded decisions by the rules, settings and agent file of now. Nothing is carried out or changed.";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Decisions {
    /// Judge a decision without carrying it out
    #[command(after_help = VALIDATE)]
    Validate(ValidateDecision),
    /// List the decisions of a session with their verdicts
    #[command(after_help = LIST)]
    List(SessionArgs),
    /// Judge the decisions of a session again
    #[command(after_help = REPLAY)]
    Replay(SessionArgs),
    /// Print the JSON Schema of a payload or an answer, or of all
    #[command(after_help = SCHEMA)]
    Schema {
        /// A type such as `respond`, `conversation_decision` or `plan_and_conversation_decision` [default: all]
        name: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct ValidateDecision {
    /// File with the decision; `-` for standard input
    file: PathBuf,
    /// Type of the decision [default: `decision_type`, else `action_type` of the payload]
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// File with the workflows and sub-agents that exist
    #[arg(long, value_name = "FILE")]
    world: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct SessionArgs {
    /// Id of the session
    #[arg(long, value_parser = crate::id)]
    session: String,
    /// Highest number of turns, the newest first, 1 to 1000
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    turns: u16,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Decisions {
    pub async fn run(self, loaded: &LoadedSettings) -> anyhow::Result<ExitCode> {
        match self {
            Self::Validate(command) => command.run(loaded).await,
            Self::List(command) => command.list(loaded).await,
            Self::Replay(command) => command.replay(loaded).await,
            Self::Schema { name: Some(name) } => {
                print_json(&named_schema(&name).map_err(|error| {
                    let known: Vec<_> = schemas().into_keys().collect();
                    Failure::new(error.message, format!("the schemas are {}", known.join(", ")))
                })?)?;
                Ok(ExitCode::SUCCESS)
            }
            Self::Schema { name: None } => {
                print_json(&schemas())?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

impl SessionArgs {
    async fn list(self, loaded: &LoadedSettings) -> anyhow::Result<ExitCode> {
        let decisions = self.read(loaded, false).await?;
        if self.json {
            print_json(&json!({ "decisions": decisions }))?;
        } else if decisions.is_empty() {
            eprintln!("no decisions");
        } else {
            print_table(&rows(&decisions));
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn replay(self, loaded: &LoadedSettings) -> anyhow::Result<ExitCode> {
        let decisions = self.read(loaded, true).await?;
        if self.json {
            print_json(&json!({ "decisions": decisions }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let judged = decisions.iter().filter(|decision| decision.now.is_some()).count();
        let (differing, _): (Vec<_>, Vec<_>) = decisions.into_iter().partition(SessionDecision::differs);
        eprintln!("{judged} decisions judged again, {} of them in another way", differing.len());
        for SessionDecision { recorded, now } in differing {
            let now = match now {
                Some(now) if !now.is_valid => format!("rejected: {}", now.errors.join("; ")),
                _ => "valid".to_owned(),
            };
            let (id, kind, before) = (recorded.decision_id, recorded.decision_type, recorded.outcome.as_str());
            print(one_line(&format!("{id} {kind}: was {before}, is now {now}")));
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn read(&self, loaded: &LoadedSettings, replay: bool) -> anyhow::Result<Vec<SessionDecision>> {
        let tasks = Tasks::new();
        let client = connection::connect(loaded, &tasks).await?;
        client.decisions(&self.session, usize::from(self.turns), replay).await
    }
}

fn rows(decisions: &[SessionDecision]) -> TextTable {
    let mut rows = table(&["decision", "type", "confidence", "verdict", "details", "at"]);
    for SessionDecision { recorded, .. } in decisions {
        let details = match &recorded.corrections[..] {
            [] => recorded.errors.join("; "),
            corrections => {
                let paths: Vec<_> = corrections.iter().map(|correction| correction.path.as_str()).collect();
                format!("corrected: {}", paths.join(", "))
            }
        };
        rows.add_row([
            recorded.decision_id.clone(),
            recorded.decision_type.to_string(),
            recorded.confidence.map(|confidence| confidence.to_string()).unwrap_or_default(),
            recorded.outcome.as_str().to_owned(),
            details,
            recorded.at.to_string(),
        ]);
    }
    rows
}

impl ValidateDecision {
    async fn run(self, loaded: &LoadedSettings) -> anyhow::Result<ExitCode> {
        let proposed = self.proposed()?;
        let sandbox = Sandbox::new(&loaded.settings.python, None, &loaded.env, Tasks::new());
        let verdict = validate_here(&loaded.settings, &sandbox, &proposed)
            .await
            .map_err(|error| Failure::new(error.message, "`turnwheel decisions schema` prints all types and fields"))?;
        if self.json {
            print_json(&verdict)?;
        } else {
            show(&proposed.decision_type, &verdict);
        }
        Ok(if verdict.is_valid { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The decision in the file, with the type and the world of the options.
    fn proposed(&self) -> anyhow::Result<ProposedDecision> {
        let mut read: Value = read(&self.file)?;
        let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let named = text(&read, "decision_type");
        // A bare payload has no field of this name.
        let payload = match read.get_mut("payload") {
            Some(payload) => payload.take(),
            None => read,
        };
        let kind = self.kind.clone().or(named).or_else(|| text(&payload, "action_type"));
        let Some(decision_type) = kind else {
            let message = format!("{} has neither `decision_type` nor `action_type`", self.file.display());
            return Err(Failure::new(message, "add one of them, or give the type as --type").into());
        };
        let world: Option<GivenWorld> = self.world.as_deref().map(self::read).transpose()?;
        Ok(ProposedDecision { decision_type, payload, session_id: None, agent_id: None, world })
    }
}

/// Reads a JSON file, or standard input.
fn read<T: serde::de::DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let (name, text) = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        ("standard input".to_owned(), text)
    } else {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        (name, text)
    };
    serde_json::from_str(text.trim_start_matches('\u{feff}')).map_err(|error| {
        Failure::new(format!("{name} cannot be read: {error}"), "write one JSON object; --help has examples").into()
    })
}

fn show(kind: &str, verdict: &DecisionVerdict) {
    let words = match (verdict.is_valid, verdict.valid_after_correction) {
        (true, _) => "valid",
        (false, true) => "not valid; valid after correction",
        (false, false) => "not valid",
    };
    print(printable(&format!("{kind}: {words}")));
    let lines = |name: &str, findings: &[String]| {
        for finding in findings {
            print(printable(&format!("  {name}: {finding}")));
        }
    };
    lines("error", &verdict.errors);
    lines("warning", &verdict.warnings);
    for correction in &verdict.corrections {
        let rule = json!(correction.rule);
        let rule = rule.as_str().unwrap_or_default();
        let (path, from, to) = (&correction.path, &correction.from, &correction.to);
        print(printable(&format!("  correction: `{path}` from {from} to {to} ({rule})")));
    }
}
