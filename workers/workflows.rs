//! `turnwheel workflows`: runs, lists, shows, validates and applies workflows.

use crate::client::{CONCURRENT_REQUESTS, DocumentKind, GatewayClient, Upload};
use crate::connection;
use crate::deletion::{self, DeleteDefinition};
use crate::failure::Failure;
use crate::follow_run::RunFollower;
use crate::known_names::{self, WorkerNames};
use crate::report::{FileReport, Report, WORKFLOW};
use crate::run_input;
use crate::runs::print_started;
use crate::table::{print, print_json, print_table, printable, table, width};
use crate::versions::{self, ApplyArgs, VersionsArgs};
use base::config::Settings;
use base::config::load::LoadedSettings;
use base::tasks::Tasks;
use clap::{Args, Subcommand};
use commands::runs::NewRun;
use commands::workflows::Source;
use decisions::world::WorkflowStatus;
use definitions::agent::{AgentRecord, StoredAgent, load};
use definitions::workflow::definition::{StoredWorkflow, Workflow, WorkflowRecord};
use definitions::workflow::runnable_registry::RunnableRegistry;
use definitions::workflow::{read, schema, structure};
use engine::workflow::Flows;
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  turnwheel workflows list                                list stored and built-in workflows
  turnwheel workflows show research_workflow              show the stages as a tree
  turnwheel workflows run iterative_research 研究电池回收   run it and watch its progress
  turnwheel workflows validate workflows/my.yaml          check a file without storing it
  turnwheel workflows schema > workflow.schema.json       for editors: completion and descriptions";

const LIST: &str = "\
Examples:
  turnwheel workflows list
  turnwheel workflows list --owner-session s1    plans that a coordinator made in this session
  turnwheel workflows list --json";

const VALIDATE: &str = "\
Examples:
  turnwheel workflows validate
  turnwheel workflows validate workflows/research.yaml more/
  turnwheel workflows validate --json       for a build server; `problem` has the reason

The agents, workflows and functions that stages name must exist: among these files, in workflows_dir or agents_dir, or \
built in. Needs no servers. Exit status 1 if a file is invalid.";

const SHOW: &str = "\
Examples:
  turnwheel workflows show research_workflow
  turnwheel workflows show research_workflow --mermaid > research.mmd   a diagram for web pages
  turnwheel workflows show research_workflow --json                     the stored definition";

const RUN: &str = "\
Examples:
  turnwheel workflows run smart_router 帮我写段代码
  turnwheel workflows run iterative_research 研究电池回收 > report.md    stdout has only the output
  turnwheel workflows run smart_router --session s1 再短一点             with a session's history
  turnwheel workflows run smart_router --user u1 你好                    for a user
  turnwheel workflows run research_workflow --detach 研究量子计算         print the run's id
  turnwheel workflows run smart_router --json 你好                       one event per line, as JSON
  turnwheel workflows run sales_report --input '{\"since\": \"2026-01\"}'  the inputs of a graph
  turnwheel workflows run sales_report --input @inputs.json   from a file; `-` reads standard input

The run is on the queue: Ctrl-C ends only the command, with exit status 130. Exit status 1 if the run fails.";

const APPLY: &str = "\
Examples:
  turnwheel workflows apply                        all files of workflows_dir
  turnwheel workflows apply my.yaml more/          one file, and all files of a folder
  turnwheel workflows apply --json  {\"files\": [{path, ok, workflow_id, hash, changed, warnings}, …]}

Valid files are stored even if others are not. Exit status 1 if a file is invalid. A running run keeps its definition. \
With --note, --if-match, --draft and --version as `agents apply`.";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Workflows {
    /// List the workflows that can run
    #[command(after_help = LIST)]
    List {
        /// List the plans of this session instead
        #[arg(long, value_parser = crate::id)]
        owner_session: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Check workflow files without storing them
    #[command(after_help = VALIDATE)]
    Validate {
        /// Files or folders [default: the setting workflows_dir]
        paths: Vec<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of workflow files
    #[command(
        after_help = "Examples:\n  turnwheel workflows schema > workflow.schema.json   for editors with YAML support"
    )]
    Schema,
    /// Show a workflow: its stages with their agents, inputs and conditions
    #[command(after_help = SHOW)]
    Show(ShowWorkflow),
    /// Run a workflow and watch its progress
    #[command(after_help = RUN)]
    Run(RunWorkflow),
    /// Check workflow files and store the valid ones; runs that start afterwards use them
    #[command(after_help = APPLY)]
    Apply(ApplyArgs),
    /// List the versions of a workflow with who applied them, when and why
    #[command(after_help = versions::WORKFLOW)]
    Versions(VersionsArgs),
    /// Delete a workflow with its versions
    #[command(after_help = deletion::WORKFLOW)]
    Delete(DeleteDefinition),
}

#[derive(Debug, Args)]
pub struct ShowWorkflow {
    /// Id of the workflow
    #[arg(value_parser = crate::id)]
    id: String,
    /// Print a Mermaid flowchart
    #[arg(long, conflicts_with = "json")]
    mermaid: bool,
    /// Print the definition as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct RunWorkflow {
    /// Id of the workflow
    #[arg(value_parser = crate::id)]
    id: String,
    /// The workflow's input; a graph needs none
    query: Vec<String>,
    /// The inputs of a graph: a JSON object, `@FILE`, or `-` for standard input [default: those in the query, if that
    /// is a JSON object]
    #[arg(long, value_name = "JSON")]
    input: Option<String>,
    /// Session that the run belongs to; its history precedes the input, and its stream has the run's events [default:
    /// none]
    #[arg(long, value_parser = crate::id)]
    session: Option<String>,
    /// User for whom it runs; recorded with the run and its events [default: none]
    #[arg(long, value_parser = crate::dotted_id)]
    user: Option<String>,
    /// Id of the run; a repeat with the same id is not a second run [default: a random id]
    #[arg(long, value_parser = crate::id)]
    run_id: Option<String>,
    /// Start the run, print its id and exit
    #[arg(long)]
    detach: bool,
    /// Print one event per line, as JSON; with --detach {run_id, workflow_id}
    #[arg(long)]
    json: bool,
}

impl Workflows {
    pub async fn run(self, loaded: &LoadedSettings, colour: bool) -> anyhow::Result<ExitCode> {
        let tasks = Tasks::new();
        let connect = || connection::connect(loaded, &tasks);
        match self {
            Self::List { owner_session: None, json } => list(&connect().await?, json).await,
            Self::List { owner_session: Some(session_id), json } => plans(&connect().await?, &session_id, json).await,
            Self::Validate { paths, json } => validate(&paths, loaded, json),
            Self::Schema => {
                print(schema::SCHEMA.trim_end());
                Ok(ExitCode::SUCCESS)
            }
            Self::Show(which) => show(&connect().await?, &which).await,
            Self::Run(what) => run(&connect().await?, what, colour, &tasks).await,
            Self::Apply(args) => match args.stored()? {
                Some((id, hash)) => {
                    versions::apply_stored(&connect().await?, DocumentKind::Workflows, (&id, &hash), &args).await
                }
                None => apply(&connect().await?, loaded, &args).await,
            },
            Self::Versions(args) => args.run(&connect().await?, DocumentKind::Workflows).await,
            Self::Delete(which) => which.workflow(&connect().await?).await.map(|()| ExitCode::SUCCESS),
        }
    }
}

async fn list(client: &GatewayClient, json: bool) -> anyhow::Result<ExitCode> {
    let workflows = client.workflows().await?;
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
            workflow.error.map_or(workflow.description, |problem| format!("cannot be read: {problem}")),
        ]);
    }
    print_table(&rows);
    Ok(ExitCode::SUCCESS)
}

async fn plans(client: &GatewayClient, session_id: &str, json: bool) -> anyhow::Result<ExitCode> {
    let plans = client.plans(session_id).await?;
    if json {
        print_json(&json!({ "workflows": plans }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = table(&["workflow", "status", "hash", "changed", "agent", "description"]);
    for plan in plans {
        rows.add_row([
            plan.workflow_id,
            plan.status.map_or("", WorkflowStatus::as_str).to_owned(),
            plan.hash,
            plan.updated_at.map(|at| at.to_string()).unwrap_or_default(),
            plan.agent_id.unwrap_or_default(),
            plan.description,
        ]);
    }
    print_table(&rows);
    Ok(ExitCode::SUCCESS)
}

async fn show(client: &GatewayClient, which: &ShowWorkflow) -> anyhow::Result<ExitCode> {
    let Some(details) = client.workflow_details(&which.id).await? else {
        let message = format!("there is no workflow `{}`", which.id);
        return Err(Failure::new(message, "`turnwheel workflows list` shows all workflows").into());
    };
    if which.json {
        print_json(&details)?;
        return Ok(ExitCode::SUCCESS);
    }
    let record = WorkflowRecord::from_stored(details.workflow)?;
    match which.mermaid {
        true => print(printable(&definitions::workflow::flowchart::mermaid(&record.workflow))),
        false => {
            print(format!("workflow {} (hash {})", record.id(), record.hash));
            if !record.workflow.description.is_empty() {
                print(printable(&record.workflow.description));
            }
            print(printable(&structure::tree(&record.workflow, width())));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the given files, or those of `workflows_dir`.
fn read(paths: &[PathBuf], settings: &Settings) -> anyhow::Result<Vec<read::LoadedWorkflow>> {
    let default = [settings.workflows_dir.clone()];
    let paths = if paths.is_empty() { &default } else { paths };
    let files = read::read_paths(paths);
    if files.is_empty() {
        let folders: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        let message = format!("there is no workflow file in {}", folders.join(", "));
        return Err(Failure::new(message, "workflow files end in .yaml, .yml or .json").into());
    }
    Ok(files)
}

fn good(files: &[read::LoadedWorkflow]) -> Vec<Arc<Workflow>> {
    files.iter().filter_map(|(_, read)| read.as_ref().ok()).map(|record| Arc::clone(&record.workflow)).collect()
}

/// The names that files may use without a running system: each other's, those in the configured folders, and the
/// built-in ones.
fn known_here(files: &[read::LoadedWorkflow], settings: &Settings) -> RunnableRegistry {
    let agents: Vec<_> =
        load::read_path(&settings.agents_dir).into_iter().filter_map(|(_, agent)| agent.ok()).collect();
    let default = [settings.workflows_dir.clone()];
    let others = if settings.workflows_dir.is_dir() { read::read_paths(&default) } else { Vec::new() };
    RunnableRegistry::new(Flows::builtin().ids())
        .with_builtin()
        .with_names(&known_names::local_names(settings))
        .with_agents(&agents)
        .with_needs(&agents, &known_names::local_names(settings))
        .with_workflows(good(&others))
        .with_workflows(good(files))
}

/// The report of a file, and its workflow if it is valid.
fn checked((path, read): read::LoadedWorkflow, known: &RunnableRegistry) -> (FileReport, Option<WorkflowRecord>) {
    match read.and_then(|record| known.check(record)) {
        Ok((record, warnings)) => {
            (FileReport::new(&path).odd(&warnings).valid(record.id(), &record.hash), Some(record))
        }
        Err(problem) => (FileReport::new(&path).refused(&problem), None),
    }
}

fn validate(paths: &[PathBuf], loaded: &LoadedSettings, json: bool) -> anyhow::Result<ExitCode> {
    let files = read(paths, &loaded.settings)?;
    let known = known_here(&files, &loaded.settings);
    let mut report = Report::new(WORKFLOW, json);
    files.into_iter().for_each(|file| report.add(checked(file, &known).0));
    report.end()
}

async fn apply(client: &GatewayClient, loaded: &LoadedSettings, args: &ApplyArgs) -> anyhow::Result<ExitCode> {
    let files = read(&args.paths, &loaded.settings)?;
    args.check_one(files.len())?;
    let names = WorkerNames::load(client, &loaded.settings, args.json).await?;
    let workers = &names.workers;
    let known = match workers.is_empty() {
        true => known_here(&files, &loaded.settings),
        false => {
            RunnableRegistry::new(workers.flows()).with_builtin().with_names(&names.known).with_workflows(good(&files))
        }
    };
    let known = with_stored(client, known, &names).await?;
    let (mut report, change) = (Report::new(WORKFLOW, args.json), args.change());
    let mut good = Vec::new();
    for file in files {
        match checked(file, &known) {
            (file, Some(record)) => good.push((file, record)),
            (file, None) => report.add(file),
        }
    }
    // A workflow can be registered only after the workflows that it names, so the refused ones are tried again.
    while !good.is_empty() {
        let mut refused = Vec::new();
        let before = good.len();
        for (file, record) in good {
            let applied = async {
                let upload = Upload::workflow(&record);
                if args.draft {
                    return client.store_draft(upload, change.note.as_deref()).await.map(|_| None);
                }
                client.apply(upload, &change).await.map(Some)
            };
            match applied.await {
                Ok(None) => report.add(file.drafted()),
                Ok(Some(changed)) => report.add(file.applied(changed)),
                Err(error) if is_refused(&error) => refused.push((file, record, error)),
                Err(error) => return Err(error.context(format!("cannot apply the workflow `{}`", record.id()))),
            }
        }
        if refused.len() == before {
            refused.into_iter().for_each(|(file, _, error)| report.add(file.refused(&error)));
            break;
        }
        good = refused.into_iter().map(|(file, record, _)| (file, record)).collect();
    }
    report.end()
}

fn is_refused(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Failure>().is_some_and(|failure| failure.status == Some(422))
}

/// Adds the workflows and agents that are stored already.
async fn with_stored(
    client: &GatewayClient,
    known: RunnableRegistry,
    names: &WorkerNames,
) -> anyhow::Result<RunnableRegistry> {
    let others = names.workflows.iter().filter(|listed| listed.source == Source::Store);
    let others = others.map(|listed| &listed.workflow_id).filter(|id| known.workflow(id).is_none());
    let workflows = stream::iter(others).map(async |id| client.workflow(id).await);
    let workflows: Vec<Option<StoredWorkflow>> = workflows.buffered(CONCURRENT_REQUESTS).try_collect().await?;
    let workflows = workflows.into_iter().flatten().filter_map(|stored| WorkflowRecord::from_stored(stored).ok());

    let listed = client.agents().await?;
    let others = listed.iter().filter(|listed| listed.error.is_none() && known.kind(&listed.agent_id).is_none());
    let agents = stream::iter(others).map(async |listed| client.agent(&listed.agent_id).await);
    let agents: Vec<Option<StoredAgent>> = agents.buffered(CONCURRENT_REQUESTS).try_collect().await?;
    let read = |stored: StoredAgent| AgentRecord::from_document(stored.config, stored.updated_at).ok();
    let agents: Vec<AgentRecord> = agents.into_iter().flatten().filter_map(read).collect();

    let known = known.with_agents(&agents).with_needs(&agents, &names.known);
    Ok(known.with_workflows(workflows.map(|record| record.workflow)))
}

async fn run(client: &GatewayClient, what: RunWorkflow, colour: bool, tasks: &Tasks) -> anyhow::Result<ExitCode> {
    let RunWorkflow { id, query, input, session, user, run_id, detach, json } = what;
    let query = query.join(" ");
    let input = input.as_deref().map(run_input::read).transpose()?;
    let new = NewRun { workflow_id: id, query, input, session_id: session, user_id: user, run_id, ..NewRun::default() };
    let started = client.start_run(&new).await?;
    if detach {
        match json {
            true => print_json(&started)?,
            false => print_started(&started),
        }
        return Ok(ExitCode::SUCCESS);
    }
    RunFollower::new(client, &started.run_id, colour, json).follow(tasks).await
}
