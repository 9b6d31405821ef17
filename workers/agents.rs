//! `turnwheel agents`: agent files into the store, and what is there.

use crate::access::Access;
use crate::failure::Failure;
use crate::table::{print, print_json, print_table, printable, table};
use clap::Subcommand;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use turnwheel::agent::AgentRecord;
use turnwheel::agent::load::{self, AgentError};
use turnwheel::agent::validate::{Finding, Known};
use turnwheel::config::load::Loaded;
use turnwheel::knowledge::files::{self, NamedText};
use turnwheel::tasks::Tasks;
use turnwheel::workflow::Flows;

const EXAMPLES: &str = "\
Examples:
  turnwheel agents validate agents/sales.yaml   check a file; nothing is stored
  turnwheel agents apply                        all files of agents_dir
  turnwheel agents show sales --json
  turnwheel agents schema > agent.schema.json   for editors: completion, and a word on each field";

const APPLY: &str = "\
Examples:
  turnwheel agents apply                             all files of agents_dir
  turnwheel agents apply agents/sales.yaml more/     a file, and all files of a folder

The good files are stored; exit status 1 if one was bad.";

const VALIDATE: &str = "\
Examples:
  turnwheel agents validate
  turnwheel agents validate agents/sales.yaml

Needs no servers. Exit status 1 if a file is bad.";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Agents {
    /// Check agent files and store the good ones; turns that start afterwards use them
    #[command(after_help = APPLY)]
    Apply {
        /// Files or folders; the setting agents_dir
        paths: Vec<PathBuf>,
    },
    /// Check agent files
    #[command(after_help = VALIDATE)]
    Validate {
        /// Files or folders; the setting agents_dir
        paths: Vec<PathBuf>,
    },
    /// Print the JSON Schema of agent files
    #[command(after_help = "Examples:\n  turnwheel agents schema > agent.schema.json   for an editor's YAML support")]
    Schema,
    /// Agents in the store
    #[command(after_help = "Examples:\n  turnwheel agents list\n  turnwheel agents list --json")]
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// One agent as applied
    #[command(after_help = "Examples:\n  turnwheel agents show sales\n  turnwheel agents show sales --json")]
    Show {
        /// The agent
        #[arg(value_parser = crate::id)]
        id: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

impl Agents {
    pub async fn run(self, loaded: &Loaded) -> anyhow::Result<ExitCode> {
        let tasks = Tasks::new();
        match self {
            Self::Schema => print_json(&turnwheel::agent::schema::schema()).map(|()| ExitCode::SUCCESS),
            Self::Validate { paths } => Ok(validate(checked(&paths, loaded)?)),
            Self::Apply { paths } => {
                let files = checked(&paths, loaded)?;
                apply(&Access::open(loaded, &tasks).await?, files).await
            }
            Self::List { json } => list(&Access::open(loaded, &tasks).await?, json).await,
            Self::Show { id, json } => show(&Access::open(loaded, &tasks).await?, &id, json).await,
        }
    }
}

/// A file, and the agent in it.
type Read = (PathBuf, Result<AgentRecord, AgentError>);
/// The same with the texts that the agent answers from.
type Checked = (PathBuf, Result<(AgentRecord, Vec<NamedText>), AgentError>);

/// The named files, or those of `agents_dir`; warnings are printed on the way.
fn checked(paths: &[PathBuf], loaded: &Loaded) -> anyhow::Result<Vec<Checked>> {
    let known = Known::new(&loaded.settings, Flows::builtin().ids());
    let files = read(paths, &loaded.settings.agents_dir)?.into_iter();
    let check = |(path, agent): Read| {
        let checked = agent.and_then(|agent| known.check(agent)).and_then(|(agent, warnings)| {
            warn_of(&path, &warnings);
            let (texts, warnings) = files::read(&path, &agent)?;
            warn_of(&path, &warnings);
            Ok((agent, texts))
        });
        (path, checked)
    };
    Ok(files.map(check).collect())
}

fn warn_of(path: &Path, warnings: &[Finding]) {
    for warning in warnings {
        eprintln!("{}", printable(&format!("warning: {}: {warning}", path.display())));
    }
}

fn read(paths: &[PathBuf], agents_dir: &Path) -> anyhow::Result<Vec<Read>> {
    let default = [agents_dir.to_owned()];
    let paths = if paths.is_empty() { &default } else { paths };
    let files = load::read_paths(paths);
    if files.is_empty() {
        let folders: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        let message = format!("there is no agent file in {}", folders.join(", "));
        return Err(Failure::new(message, "agent files end in .yaml, .yml or .json").into());
    }
    Ok(files)
}

/// The lines for a file that is no agent.
fn refused(path: &Path, problem: &impl std::fmt::Display) -> String {
    let path = path.display();
    let problem = problem.to_string().replace('\n', "\n  ");
    printable(&format!("✗ {path}: {problem}\n  hint: correct it and check it with `turnwheel agents validate {path}`"))
}

fn ended(bad: usize) -> ExitCode {
    if bad == 0 {
        return ExitCode::SUCCESS;
    }
    eprintln!("error: {bad} of the files {} no agent", if bad == 1 { "is" } else { "are" });
    ExitCode::FAILURE
}

fn validate(files: Vec<Checked>) -> ExitCode {
    let mut bad = 0;
    for (path, agent) in files {
        match agent {
            Ok((agent, _)) => print(format!("✓ {}: {} is valid ({})", path.display(), agent.id(), agent.hash)),
            Err(problem) => {
                bad += 1;
                print(refused(&path, &problem));
            }
        }
    }
    ended(bad)
}

async fn apply(access: &Access, files: Vec<Checked>) -> anyhow::Result<ExitCode> {
    let mut bad = 0;
    for (path, agent) in files {
        let (agent, texts) = match agent {
            Ok(checked) => checked,
            Err(problem) => {
                bad += 1;
                print(refused(&path, &problem));
                continue;
            }
        };
        let (id, hash) = (agent.id().to_owned(), agent.hash.clone());
        let applied = async {
            let agent = access.apply_agent(agent).await?;
            anyhow::Ok((agent, access.apply_knowledge(&id, texts).await?))
        };
        match applied.await {
            Ok((agent, knowledge)) => {
                let word = match (agent, knowledge) {
                    (true, _) => "applied",
                    (false, true) => "unchanged, its knowledge applied",
                    (false, false) => "unchanged",
                };
                print(format!("✓ {}: {id} {word} ({hash})", path.display()));
            }
            // A gateway of another version may refuse what this one takes; the other files go on.
            Err(error) if error.downcast_ref::<Failure>().is_some_and(|failure| failure.status == Some(422)) => {
                bad += 1;
                print(refused(&path, &error));
            }
            Err(error) => return Err(error.context(format!("cannot apply {}", path.display()))),
        }
    }
    Ok(ended(bad))
}

async fn list(access: &Access, json: bool) -> anyhow::Result<ExitCode> {
    let agents = access.list_agents().await?;
    if json {
        print_json(&json!({ "agents": agents }))?;
    } else if agents.is_empty() {
        eprintln!("no agents; apply some with `turnwheel agents apply`");
    } else {
        let mut rows = table(&["agent", "name", "kind", "model", "hash", "applied"]);
        for agent in agents {
            let kind = if agent.task { "task" } else { "chat" };
            rows.add_row([
                agent.agent_id,
                agent.name,
                kind.into(),
                format!("{} ({})", agent.model, agent.provider),
                agent.hash,
                agent.updated_at.to_string(),
            ]);
        }
        print_table(&rows);
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(access: &Access, id: &str, json: bool) -> anyhow::Result<ExitCode> {
    let unknown = || Failure::new(format!("there is no agent `{id}`"), "`turnwheel agents list` shows those there are");
    let agent = access.get_agent(id).await?.ok_or_else(unknown)?;
    if json {
        print_json(&agent)?;
    } else {
        print(format!("agent    {}", agent.agent_id));
        print(format!("hash     {}", agent.hash));
        print(format!("applied  {}", agent.updated_at));
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
        let error = read(&[], dir.path()).unwrap_err();
        assert!(crate::failure::lines(&error)[1].contains(".yaml"));
        let files = read(&[dir.path().join("no.yaml")], dir.path()).unwrap();
        assert!(files[0].1.is_err());
    }
}
