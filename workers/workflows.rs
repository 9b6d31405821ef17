//! `turnwheel workflows`: workflow files into the store, what is there, and runs of them.

use crate::access::Access;
use crate::failure::Failure;
use crate::files::{Checked, Files};
use crate::following::Following;
use crate::table::{one_line, print, print_json, print_table, printable, table};
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use turnwheel::clock::Timestamp;
use turnwheel::config::load::Loaded;
use turnwheel::gateway::intake::NewRun;
use turnwheel::tasks::Tasks;
use turnwheel::workflow::orchestration::definition::{StoredWorkflow, WorkflowRecord};
use turnwheel::workflow::orchestration::structure;

const EXAMPLES: &str = "\
Examples:
  turnwheel workflows list                                those of the store, and those that come with the program
  turnwheel workflows show research_workflow              its stages as a tree
  turnwheel workflows run iterative_research 研究电池回收   run it, and see how it goes
  turnwheel workflows validate workflows/my.yaml          check a file; nothing is stored";

const LIST: &str = "\
Examples:
  turnwheel workflows list
  turnwheel workflows list --json";

const VALIDATE: &str = "\
Examples:
  turnwheel workflows validate
  turnwheel workflows validate workflows/research.yaml more/

What a stage runs has to be there: among these files, in workflows_dir or agents_dir, or with the program. Needs no servers.
Exit status 1 if a file is bad.";

const SHOW: &str = "\
Examples:
  turnwheel workflows show research_workflow
  turnwheel workflows show research_workflow --mermaid > research.mmd   a diagram for Markdown and web pages
  turnwheel workflows show research_workflow --json                     the definition as registered";

const RUN: &str = "\
Examples:
  turnwheel workflows run smart_router 帮我写段代码
  turnwheel workflows run iterative_research 研究电池回收 > report.md    only the output goes to stdout
  turnwheel workflows run smart_router --session s1 再短一点             with the history of a session
  turnwheel workflows run research_workflow --detach 研究量子计算         print the run's id and leave
  turnwheel workflows run smart_router --json 你好                       each event as a line of JSON

The run is the queue's: Ctrl-C leaves it going, with exit status 130. Exit status 1 when it fails.";

const APPLY: &str = "\
Examples:
  turnwheel workflows apply                        all files of workflows_dir
  turnwheel workflows apply my.yaml more/          a file, and all files of a folder

The good files are stored; exit status 1 if one was bad. A run keeps what it began with.";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Workflows {
    /// Workflows that can be run
    #[command(after_help = LIST)]
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Check workflow files
    #[command(after_help = VALIDATE)]
    Validate {
        /// Files or folders; the setting workflows_dir
        paths: Vec<PathBuf>,
    },
    /// One workflow: its stages, what they run, inputs and conditions
    #[command(after_help = SHOW)]
    Show(Show),
    /// Run a workflow and see how it goes
    #[command(after_help = RUN)]
    Run(Run),
    /// Check workflow files and store the good ones; runs that start afterwards use them
    #[command(after_help = APPLY)]
    Apply {
        /// Files or folders; the setting workflows_dir
        paths: Vec<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub struct Show {
    /// The workflow
    #[arg(value_parser = crate::id)]
    id: String,
    /// As a Mermaid flowchart
    #[arg(long, conflicts_with = "json")]
    mermaid: bool,
    /// The definition as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct Run {
    /// The workflow
    #[arg(value_parser = crate::id)]
    id: String,
    /// What it is asked
    #[arg(required = true)]
    query: Vec<String>,
    /// The session that it belongs to: its history goes before the query, its stream has the events
    #[arg(long, value_parser = crate::id)]
    session: Option<String>,
    /// The run's id: the same id again is no second run
    #[arg(long, value_parser = crate::id)]
    run_id: Option<String>,
    /// Print the run's id and leave
    #[arg(long)]
    detach: bool,
    /// Events as JSON, one a line; with --detach the run's id as JSON
    #[arg(long)]
    json: bool,
}

impl Workflows {
    pub async fn run(self, loaded: &Loaded, colour: bool) -> anyhow::Result<ExitCode> {
        let tasks = Tasks::new();
        let open = || Access::open(loaded, &tasks);
        match self {
            Self::List { json } => list(&open().await?, json).await,
            Self::Validate { paths } => Ok(validate(checked(&paths, loaded)?)),
            Self::Show(which) => show(&open().await?, &which).await,
            Self::Run(what) => run(&open().await?, what, colour, &tasks).await,
            Self::Apply { paths } => {
                let files = checked(&paths, loaded)?;
                apply(&open().await?, files).await
            }
        }
    }
}

async fn list(access: &Access, json: bool) -> anyhow::Result<ExitCode> {
    let workflows = access.list_workflows().await?;
    if json {
        print_json(&json!({ "workflows": workflows }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = table(&["workflow", "type", "from", "hash", "applied", "description"]);
    for workflow in workflows {
        rows.add_row([
            workflow.workflow_id,
            workflow.kind,
            workflow.source.as_str().to_owned(),
            workflow.hash,
            workflow.updated_at.map(|at| at.to_string()).unwrap_or_default(),
            workflow.description,
        ]);
    }
    print_table(&rows);
    Ok(ExitCode::SUCCESS)
}

async fn show(access: &Access, which: &Show) -> anyhow::Result<ExitCode> {
    let Some(stored) = access.get_workflow(&which.id).await? else {
        let message = format!("there is no workflow `{}`", which.id);
        return Err(Failure::new(message, "`turnwheel workflows list` shows those there are").into());
    };
    if which.json {
        print_json(&stored)?;
        return Ok(ExitCode::SUCCESS);
    }
    let StoredWorkflow { hash, definition, updated_at, .. } = stored;
    let record = WorkflowRecord::from_document(definition, updated_at)?;
    match which.mermaid {
        true => print(printable(&structure::mermaid(&record.workflow))),
        false => {
            print(format!("workflow {} (hash {hash})", record.id()));
            if !record.workflow.description.is_empty() {
                print(printable(&record.workflow.description));
            }
            print(printable(&structure::tree(&record.workflow)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn run(access: &Access, what: Run, colour: bool, tasks: &Tasks) -> anyhow::Result<ExitCode> {
    let Run { id, query, session, run_id, detach, json } = what;
    let new = NewRun { workflow_id: id, query: query.join(" "), session_id: session, run_id, ..NewRun::default() };
    let started = access.start_run(new).await?;
    if detach {
        match json {
            true => print_json(&started)?,
            false => print(&started.run_id),
        }
        return Ok(ExitCode::SUCCESS);
    }
    Following::new(access, &started.run_id, colour, json).to_end(tasks).await
}
