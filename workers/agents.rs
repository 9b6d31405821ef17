//! `turnwheel agents`: applies, validates, tries, compares, lists and shows agents.

use crate::agent_drafts::{self, DiffAgent, TestAgent};
use crate::agent_replay::{self, ReplayAgent};
use crate::client::{DocumentKind, GatewayClient, Upload};
use crate::connection;
use crate::deletion::{self, DeleteDefinition};
use crate::failure::Failure;
use crate::known_names::{self, WorkerNames};
use crate::report::{AGENT, FileReport, Report};
use crate::table::{print, print_json, print_table, printable, table};
use crate::versions::{self, ApplyArgs, VersionsArgs};
use base::config::load::LoadedSettings;
use base::tasks::Tasks;
use clap::Subcommand;
use commands::agents::AgentSummary;
use definitions::agent::AgentRecord;
use definitions::agent::load::{self, AgentError};
use definitions::agent::validate::KnownNames;
use definitions::document::Finding;
use definitions::document::file::DocumentError;
use definitions::knowledge::files::{self, NamedText};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  turnwheel agents validate agents/sales.yaml   check a file without storing it
  turnwheel agents apply                        check and store all files of agents_dir
  turnwheel agents show sales --json            print the stored configuration
  turnwheel agents schema > agent.schema.json   for editors: completion and field descriptions";

const APPLY: &str = "\
Examples:
  turnwheel agents apply                             all files of agents_dir
  turnwheel agents apply agents/sales.yaml more/     one file, and all files of a folder
  turnwheel agents apply --json                      {\"files\": [{path, ok, agent_id, changed, …}]}
  turnwheel agents apply sales.yaml --note 'shorter' --if-match 9e107d9d372bb6826bd81d3542a419d6
  turnwheel agents apply sales.yaml --draft          stores it; `send --agent-version` tries it
  turnwheel agents apply sales --version 9e107d9d    a draft, or an earlier version again

Valid files are stored even if others are not. Exit status 1 if a file is invalid.";

const SHOW: &str = "\
Examples:
  turnwheel agents show sales
  turnwheel agents show sales --yaml > sales.yaml    the text of its file, with comments
  turnwheel agents show sales --json";

const VALIDATE: &str = "\
Examples:
  turnwheel agents validate
  turnwheel agents validate agents/sales.yaml
  turnwheel agents validate --json                   for a build server; `problem` has the reason

Needs no servers. Exit status 1 if a file is invalid.";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Agents {
    /// Check agent files and store the valid ones; turns that start afterwards use them
    #[command(after_help = APPLY)]
    Apply(ApplyArgs),
    /// List the versions of an agent with who applied them, when and why
    #[command(after_help = versions::AGENT)]
    Versions(VersionsArgs),
    /// Check agent files without storing them
    #[command(after_help = VALIDATE)]
    Validate {
        /// Files or folders [default: the setting agents_dir]
        paths: Vec<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of agent files
    #[command(after_help = "Examples:\n  turnwheel agents schema > agent.schema.json   for editors with YAML support")]
    Schema,
    /// List the agents in the store
    #[command(after_help = "Examples:\n  turnwheel agents list\n  turnwheel agents list --json")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show an agent's stored configuration
    #[command(after_help = SHOW)]
    Show {
        /// Id of the agent
        #[arg(value_parser = crate::id)]
        id: String,
        /// Print the text of its file: as applied with comments, else as YAML
        #[arg(long, conflicts_with = "json")]
        yaml: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Try an agent file with tests; only models are called
    #[command(after_help = agent_drafts::TEST)]
    Test(TestAgent),
    /// Compare an agent file with the stored agent or another file
    #[command(after_help = agent_drafts::DIFF)]
    Diff(DiffAgent),
    /// Replay recorded turns against an agent file; only models are called
    #[command(after_help = agent_replay::REPLAY)]
    Replay(ReplayAgent),
    /// Delete an agent with its versions and knowledge
    #[command(after_help = deletion::AGENT)]
    Delete(DeleteDefinition),
}

impl Agents {
    pub async fn run(self, loaded: &LoadedSettings) -> anyhow::Result<ExitCode> {
        let tasks = Tasks::new();
        match self {
            Self::Schema => print_json(&types::agent::schema::schema()).map(|()| ExitCode::SUCCESS),
            Self::Validate { paths, json } => {
                let known = known_names::local_names(&loaded.settings);
                validate(checked(read(&paths, &loaded.settings.agents_dir)?, &known), Report::new(AGENT, json))
            }
            Self::Apply(args) => {
                if let Some((id, hash)) = args.stored()? {
                    let client = connection::connect(loaded, &tasks).await?;
                    return versions::apply_stored(&client, DocumentKind::Agents, (&id, &hash), &args).await;
                }
                let files = read(&args.paths, &loaded.settings.agents_dir)?;
                args.check_one(files.len())?;
                let client = connection::connect(loaded, &tasks).await?;
                let WorkerNames { known, .. } = WorkerNames::load(&client, &loaded.settings, args.json).await?;
                apply(&client, checked(files, &known), &args).await
            }
            Self::Versions(args) => args.run(&connection::connect(loaded, &tasks).await?, DocumentKind::Agents).await,
            Self::List { json } => {
                let listed = list(&connection::connect(loaded, &tasks).await?, json).await;
                tell_broken(&loaded.settings.agents_dir);
                listed
            }
            Self::Test(test) => Box::pin(test.run(loaded)).await,
            Self::Diff(diff) => diff.run(loaded).await,
            Self::Replay(replay) => Box::pin(replay.run(loaded)).await,
            Self::Delete(which) => {
                which.agent(&connection::connect(loaded, &tasks).await?).await.map(|()| ExitCode::SUCCESS)
            }
            Self::Show { id, yaml, json } => show(&connection::connect(loaded, &tasks).await?, &id, yaml, json).await,
        }
    }
}

/// A file's path and its agent.
type Read = (PathBuf, Result<AgentRecord, AgentError>);

/// The report of a file, and its valid agent with the knowledge texts that it names, or the error.
type Checked = (FileReport, Result<(AgentRecord, Vec<NamedText>), AgentError>);

fn checked(files: Vec<Read>, known: &KnownNames) -> Vec<Checked> {
    let check = |(path, agent): Read| match agent.and_then(|agent| known.check(agent)) {
        Ok((agent, warnings)) => with_texts(&path, agent, warnings),
        Err(problem) => (FileReport::new(&path), Err(problem)),
    };
    files.into_iter().map(check).collect()
}

/// Prints the invalid files of `agents_dir`: the store has an older version of their agents, or none.
fn tell_broken(agents_dir: &Path) {
    let files = if agents_dir.is_dir() { load::read_path(agents_dir) } else { Vec::new() };
    for (path, problem) in files.into_iter().filter_map(|(path, agent)| Some((path, agent.err()?))) {
        eprintln!("{}", printable(&format!("warning: {} is not applied: {problem}", path.display())));
    }
}

/// Reads the knowledge files of a valid agent.
fn with_texts(path: &Path, agent: AgentRecord, mut warnings: Vec<Finding>) -> Checked {
    let texts = files::read(path, &agent).map(|(texts, more)| {
        warnings.extend(more);
        texts
    });
    let file = FileReport::new(path).odd(&warnings);
    match texts {
        Ok(texts) => (file.valid(agent.id(), &agent.hash), Ok((agent, texts))),
        Err(problem) => (file, Err(problem)),
    }
}

/// Reads the given files, or those of `agents_dir`.
fn read(paths: &[PathBuf], agents_dir: &Path) -> anyhow::Result<Vec<Read>> {
    let default = [agents_dir.to_owned()];
    if paths.is_empty() && !agents_dir.exists() {
        let message = format!("there is no folder {} (the setting agents_dir)", agents_dir.display());
        let hint =
            "give agent files or folders, or set agents_dir; without it `turnwheel dev` uses the built-in agents";
        return Err(Failure::new(message, hint).into());
    }
    let paths = if paths.is_empty() { &default } else { paths };
    let files = load::read_paths(paths);
    if files.is_empty() {
        let folders: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        let message = format!("there is no agent file in {}", folders.join(", "));
        return Err(Failure::new(message, "agent files end in .yaml, .yml or .json").into());
    }
    Ok(files)
}

fn refused(file: FileReport, problem: &AgentError) -> FileReport {
    match problem {
        AgentError::Document(DocumentError::Read(_)) => file.unread(problem),
        problem => file.refused(problem),
    }
}

fn validate(files: Vec<Checked>, mut report: Report) -> anyhow::Result<ExitCode> {
    for (file, agent) in files {
        report.add(match agent {
            Ok(_) => file,
            Err(problem) => refused(file, &problem),
        });
    }
    report.end()
}

async fn apply(client: &GatewayClient, files: Vec<Checked>, args: &ApplyArgs) -> anyhow::Result<ExitCode> {
    let (mut report, change) = (Report::new(AGENT, args.json), args.change());
    for (file, agent) in files {
        let (agent, texts) = match agent {
            Ok(checked) => checked,
            Err(problem) => {
                report.add(refused(file, &problem));
                continue;
            }
        };
        let id = agent.id().to_owned();
        let applied = async {
            let upload = Upload::agent(&agent);
            if args.draft {
                // The knowledge is that of the applied version, too.
                client.store_draft(upload, change.note.as_deref()).await?;
                return anyhow::Ok(None);
            }
            let changed = client.apply(upload, &change).await?;
            Ok(Some((changed, client.apply_knowledge(&id, texts).await?)))
        };
        match applied.await {
            Ok(None) => report.add(file.drafted()),
            Ok(Some((changed, knowledge))) => report.add(file.applied(changed).with_knowledge(knowledge)),
            // A gateway of another version may refuse a file that is valid here. The other files are still applied.
            Err(error) if error.downcast_ref::<Failure>().is_some_and(|failure| failure.status == Some(422)) => {
                report.add(file.refused(&error));
            }
            Err(error) => return Err(error.context(format!("cannot apply the agent `{id}`"))),
        }
    }
    report.end()
}

async fn list(client: &GatewayClient, json: bool) -> anyhow::Result<ExitCode> {
    let agents = client.agents().await?;
    if json {
        print_json(&json!({ "agents": agents }))?;
    } else if agents.is_empty() {
        eprintln!("no agents; apply some with `turnwheel agents apply`");
    } else {
        let mut rows = table(&["agent", "name", "kind", "model", "hash", "applied"]);
        for agent in agents {
            if let Some(problem) = agent.error {
                rows.add_row([agent.agent_id, format!("cannot be read: {problem}")]);
                continue;
            }
            let kind = if agent.task { "task" } else { "chat" };
            let asks = format!("{} ({})", asks(&agent), agent.provider);
            rows.add_row([agent.agent_id, agent.name, kind.into(), asks, agent.hash, agent.updated_at.to_string()]);
        }
        print_table(&rows);
    }
    Ok(ExitCode::SUCCESS)
}

/// All models of an agent. A gateway of an earlier version returns only the first.
fn asks(agent: &AgentSummary) -> String {
    if agent.models.is_empty() { agent.model.clone() } else { agent.models.join(", ") }
}

async fn show(client: &GatewayClient, id: &str, yaml: bool, json: bool) -> anyhow::Result<ExitCode> {
    let unknown = || Failure::new(format!("there is no agent `{id}`"), "`turnwheel agents list` shows all agents");
    let details = client.agent_details(id).await?.ok_or_else(unknown)?;
    if json {
        print_json(&details)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (agent, label) = (details.agent, details.label);
    if yaml {
        print(printable(versions::text(&agent.config, label.source.as_deref()).trim_end()));
    } else {
        let by = label.by.map(|by| format!(" by {by}")).unwrap_or_default();
        print(format!("agent    {}", agent.agent_id));
        print(format!("hash     {}", agent.hash));
        print(printable(&format!("applied  {}{by}", agent.updated_at)));
        label.note.iter().for_each(|note| print(printable(&format!("note     {note}"))));
        print(printable(&serde_json::to_string_pretty(&agent.config)?));
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_agents_is_an_error_and_a_missing_file_is_a_bad_one() {
        let dir = tempfile::tempdir().unwrap();
        let lines = |dir: &Path| crate::failure::lines(&read(&[], dir).unwrap_err());
        assert!(lines(dir.path())[1].contains(".yaml"));
        let none = lines(&dir.path().join("none"));
        assert!(none[0].contains("none (the setting agents_dir)") && none[1].contains("agents_dir"), "{none:?}");
        let files = read(&[dir.path().join("no.yaml")], dir.path()).unwrap();
        assert!(files[0].1.is_err());
    }
}
