//! `turnwheel runs`: lists, shows, cancels, resumes and restarts runs.

use crate::client::GatewayClient;
use crate::connection;
use crate::list_args::ListArgs;
use crate::progress::took;
use crate::table::{one_line, pretty, print_json, print_queued, printable, rough, table};
use crate::watch_option::WatchOption;
use base::clock;
use base::config::load::LoadedSettings;
use base::tasks::Tasks;
use clap::{Args, Subcommand};
use commands::run_answers::{AnsweredRun, NewAnswer};
use commands::run_details::{RunDetails, RunSummary};
use commands::runs::StartedRun;
use engine::workflow::open_question::OpenQuestion;
use engine::workflow::orchestration::TimelineEntry;
use engine::workflow::orchestration::timeline::StageStatus;
use std::time::Duration;
use types::run::{NodeState, NodeStatus, RunQuery, RunRecord, RunStatus};
use types::timestamp::Timestamp;

const EXAMPLES: &str = "\
Examples:
  turnwheel runs list --status failed                 list failed runs, newest first
  turnwheel runs show RUN                             show its stages, times, tokens and output
  turnwheel runs resume RUN                           continue at the failed stage
  turnwheel runs restart RUN --from summary           repeat it from a stage, as a new run
  turnwheel runs answer RUN yes                       answer its question";

const LIST: &str = "\
Examples:
  turnwheel runs list
  turnwheel runs list --workflow research_workflow --status running --watch
  turnwheel runs list --session s1 --limit 200 --json";

const SHOW: &str = "\
Examples:
  turnwheel runs show RUN
  turnwheel runs show RUN --watch      show it again whenever it changes, until Ctrl-C
  turnwheel runs show RUN --json       with complete inputs and outputs
  turnwheel runs show RUN --mermaid > run.mmd    a diagram with the states of a graph's nodes";

const CANCEL: &str = "\
Examples:
  turnwheel runs cancel RUN
  turnwheel runs cancel RUN --reason 'wrong question' --by li

The run ends immediately. Its recorded stages are kept, so that `resume` can continue from there.";

const RESUME: &str = "\
Examples:
  turnwheel runs resume RUN

A failed or cancelled run continues under its own id. Completed stages do not run again, the failed stage does.";

const RESTART: &str = "\
Examples:
  turnwheel runs restart RUN --from summary
  turnwheel runs restart RUN --from 'outer_loop[2]/parallel_result'
  turnwheel runs restart RUN --from trend               a node of a graph

Earlier stages keep their output. The given stage and all later ones run again in a new run. Of a graph, the node and \
those behind it run again. The id of the new run is printed to stdout.";

const ANSWER: &str = "\
Examples:
  turnwheel runs answer RUN yes
  turnwheel runs answer RUN ship it on Monday --by li
  turnwheel runs answer RUN no --node 'each[2]/approve'

Answers the question that was asked first, or that of the node; `runs show` lists the open questions. A text that equals \
a choice is that choice. For a run within a chat, send the answer as a message of its session.";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Runs {
    /// List runs, newest first
    #[command(after_help = LIST)]
    List(ListRuns),
    /// Show a run with its stages and its output
    #[command(after_help = SHOW)]
    Show(ShowRun),
    /// Cancel a run
    #[command(after_help = CANCEL)]
    Cancel(CancelRun),
    /// Continue a failed or cancelled run
    #[command(after_help = RESUME)]
    Resume(RunArgs),
    /// Repeat a run from a stage or a node, as a new run
    #[command(after_help = RESTART)]
    Restart(RestartRun),
    /// Give the answer to a question of a run
    #[command(after_help = ANSWER)]
    Answer(AnswerRun),
}

#[derive(Debug, Args)]
pub struct ListRuns {
    /// Only runs of this workflow
    #[arg(long, value_parser = crate::id)]
    workflow: Option<String>,
    /// Only runs in this status: pending, running, waiting, completed, failed or cancelled
    #[arg(long, value_parser = status)]
    status: Option<RunStatus>,
    /// Only runs that belong to this session
    #[arg(long, value_parser = crate::id)]
    session: Option<String>,
    #[command(flatten)]
    listing: ListArgs,
}

#[derive(Debug, Args)]
pub struct ShowRun {
    /// Id of the run
    #[arg(value_parser = crate::id)]
    run: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print a Mermaid flowchart
    #[arg(long, conflicts_with = "json")]
    mermaid: bool,
    #[command(flatten)]
    refresh: WatchOption,
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Id of the run
    #[arg(value_parser = crate::id)]
    run: String,
    /// Print JSON: {run_id, workflow_id}
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct CancelRun {
    /// Reason of the cancellation
    #[arg(long)]
    reason: Option<String>,
    /// Who cancels the run
    #[arg(long)]
    by: Option<String>,
    #[command(flatten)]
    ordered: RunArgs,
}

#[derive(Debug, Args)]
pub struct RestartRun {
    /// Path of the stage or id of the node, as `show` prints it
    #[arg(long, value_name = "STAGE")]
    from: String,
    #[command(flatten)]
    ordered: RunArgs,
}

#[derive(Debug, Args)]
pub struct AnswerRun {
    /// Id of the run
    #[arg(value_parser = crate::id)]
    run: String,
    /// The answer
    #[arg(required = true)]
    text: Vec<String>,
    /// Place of the node that asked, as `show` prints it [default: the question that was asked first]
    #[arg(long)]
    node: Option<String>,
    /// Who answers
    #[arg(long)]
    by: Option<String>,
    /// Print JSON: {run_id, workflow_id, node, question}
    #[arg(long)]
    json: bool,
}

fn status(text: &str) -> Result<RunStatus, String> {
    serde_json::from_value(text.into())
        .map_err(|_| "must be one of pending, running, waiting, completed, failed, cancelled".to_owned())
}

impl Runs {
    pub async fn run(self, loaded: &LoadedSettings) -> anyhow::Result<()> {
        let tasks = Tasks::new();
        let client = connection::connect(loaded, &tasks).await?;
        match self {
            Self::List(which) => which.listing.refresh.show("no runs", async || list(&client, &which).await).await,
            Self::Show(which) => which.refresh.show("", async || show(&client, &which).await).await,
            Self::Cancel(CancelRun { reason, by, ordered }) => {
                let cancelled = client.cancel_run(&ordered.run, reason, by).await?;
                let words = format!("queued the cancellation of {}", named(&cancelled));
                ordered.done(&cancelled, &format!("{words}; `turnwheel runs show {}` shows its status", ordered.run))
            }
            Self::Resume(ordered) => {
                let resumed = client.resume_run(&ordered.run).await?;
                ordered.done(&resumed, &format!("queued {} to continue; {}", named(&resumed), watch(&resumed)))
            }
            Self::Restart(RestartRun { from, ordered }) => {
                let restarted = client.restart_run(&ordered.run, &from).await?;
                let words =
                    format!("queued {}, which repeats run `{}` from `{from}` on", named(&restarted), ordered.run);
                ordered.done(&restarted, &format!("{words}; {}", watch(&restarted)))
            }
            Self::Answer(AnswerRun { run, text, node, by, json }) => {
                let answer = NewAnswer { text: text.join(" "), node, by };
                let answered = client.answer_run(&run, &answer).await?;
                if json {
                    return print_json(&answered);
                }
                let AnsweredRun { run_id, node, question, .. } = answered;
                let words = format!("queued the answer to the question of `{node}`: {}", one_line(&question));
                print_queued(&run_id, &format!("{words}; `turnwheel runs show {run} --watch` follows the run"));
                Ok(())
            }
        }
    }
}

impl RunArgs {
    fn done(&self, started: &StartedRun, words: &str) -> anyhow::Result<()> {
        if self.json {
            return print_json(started);
        }
        print_queued(&started.run_id, words);
        Ok(())
    }
}

/// A run in words.
fn named(run: &StartedRun) -> String {
    format!("run `{}` of workflow `{}`", run.run_id, run.workflow_id)
}

/// Names the command that follows a run.
fn watch(run: &StartedRun) -> String {
    format!("`turnwheel runs show {} --watch` follows it", run.run_id)
}

/// Prints that a run was started and is not followed, and its id.
pub fn print_started(run: &StartedRun) {
    print_queued(&run.run_id, &format!("queued {}; {}", named(run), watch(run)));
}

async fn list(client: &GatewayClient, which: &ListRuns) -> anyhow::Result<String> {
    let ListRuns { workflow, status, session, listing } = which;
    let query = RunQuery {
        workflow_id: workflow.clone(),
        status: *status,
        origin_session: session.clone(),
        limit: listing.limit(),
        ..RunQuery::default()
    };
    listing.text("runs", client.runs(&query).await?, |runs| rows(runs, clock::now()))
}

fn rows(runs: Vec<RunSummary>, now: Timestamp) -> String {
    let mut rows = table(&["run", "workflow", "status", "took", "tokens", "asked", "query", "error"]);
    for run in runs {
        let took = run.started_at.map(|started| took(started.until(run.ended_at.unwrap_or(now)))).unwrap_or_default();
        let (status, error) = (run.status.as_str().to_owned(), run.error.map(|failure| failure.to_string()));
        let asked = format!("{} ago", rough(run.created_at.until(now)));
        let (tokens, error) = (run.usage.tokens.to_string(), error.unwrap_or_default());
        rows.add_row([run.run_id, run.workflow_id, status, took, tokens, asked, run.query, error]);
    }
    rows.to_string()
}

async fn show(client: &GatewayClient, which: &ShowRun) -> anyhow::Result<String> {
    if which.mermaid {
        return Ok(printable(client.run_diagram(&which.run).await?.mermaid.trim_end()));
    }
    let details = client.run(&which.run).await?;
    match which.json {
        true => pretty(&details),
        false => Ok(describe(&details, clock::now())),
    }
}

/// Formats a run as lines.
fn describe(details: &RunDetails, now: Timestamp) -> String {
    let RunDetails { run, questions, timeline } = details;
    let mut lines = head(run, now);
    if !questions.is_empty() {
        lines.extend([String::new(), asked(questions, now)]);
    }
    if let Some(graph) = &run.graph {
        lines.extend([String::new(), nodes(graph)]);
    }
    if !timeline.is_empty() {
        lines.push(String::new());
        lines.push(stages(timeline, run));
    }
    if let Some(output) = &run.output {
        lines.extend([String::new(), "output".to_owned(), printable(output.trim_end())]);
    }
    lines.join("\n")
}

fn head(run: &RunRecord, now: Timestamp) -> Vec<String> {
    let row = |name: &str, text: &str| format!("{name:<9} {}", one_line(text));
    let mut lines = vec![
        row("run", &run.run_id),
        row("workflow", &format!("{} (hash {})", run.workflow_id, run.hash)),
        row("status", run.status.as_str()),
        row("query", &run.query),
    ];
    lines.extend(run.error.as_ref().map(|failure| row("error", &failure.to_string())));
    lines.extend(run.origin_session.as_ref().map(|session_id| row("session", session_id)));
    lines.extend(run.user_id.as_ref().map(|user_id| row("user", user_id)));
    if let (Some(from), stage) = (&run.from_run, run.from_stage.as_deref().unwrap_or_default()) {
        lines.push(row("repeats", &format!("{from} from {stage} on")));
    }
    lines.push(row("asked", &format!("{}, {} ago", run.created_at, rough(run.created_at.until(now)))));
    if let Some(started) = run.started_at {
        lines.push(row("took", &took(started.until(run.ended_at.unwrap_or(now)))));
    }
    let usage = run.usage;
    lines.push(row(
        "used",
        &format!("{} stages, {} model calls, {} tokens", usage.stages, usage.model_calls, usage.tokens),
    ));
    lines
}

/// The open questions, with the time until they fail.
fn asked(questions: &[OpenQuestion], now: Timestamp) -> String {
    let mut rows = table(&["question of", "left", "question", "choices"]);
    for OpenQuestion { node, question, choices, until, .. } in questions {
        rows.add_row([node.clone(), rough(now.until(*until)), question.clone(), choices.join(", ")]);
    }
    rows.to_string()
}

/// The nodes of a graph with their states.
fn nodes(graph: &[NodeState]) -> String {
    let mut rows = table(&["node", "type", "status", "attempts", "took", "error code"]);
    for NodeState { node_id, kind, status, attempts, ms, error_code } in graph {
        let status = match status {
            NodeStatus::Pending => "pending",
            NodeStatus::Running => "running",
            NodeStatus::Completed => "completed",
            NodeStatus::Failed => "failed",
            NodeStatus::Skipped => "skipped",
        };
        let took = ms.map(|ms| took(Duration::from_millis(ms))).unwrap_or_default();
        let error_code = error_code.clone().unwrap_or_default();
        rows.add_row([node_id.clone(), kind.clone(), status.to_owned(), attempts.to_string(), took, error_code]);
    }
    rows.to_string()
}

fn stages(timeline: &[TimelineEntry], run: &RunRecord) -> String {
    let mut rows = table(&["stage", "runs", "status", "after", "took", "model", "tokens", "error", "input"]);
    for stage in timeline {
        let tries = if stage.attempt > 1 { format!(" (attempt {})", stage.attempt) } else { String::new() };
        let status = match stage.status {
            // The run runs, waits, or ended before this stage did.
            StageStatus::Running => run.status.as_str(),
            StageStatus::Completed => "completed",
            StageStatus::Failed => "failed",
            StageStatus::Skipped => "skipped",
        };
        rows.add_row([
            format!("{}{tries}", stage.path),
            stage.runnable.clone(),
            status.to_owned(),
            run.started_at.zip(stage.started_at).map(|(run, stage)| took(run.until(stage))).unwrap_or_default(),
            stage.ms.map(|ms| took(Duration::from_millis(ms))).unwrap_or_default(),
            stage.model.clone().unwrap_or_default(),
            (stage.tokens.prompt + stage.tokens.completion).to_string(),
            stage.error.clone().unwrap_or_default(),
            stage.input.clone(),
        ]);
    }
    rows.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_run_in_lines_has_its_stages_its_failure_and_its_output() {
        let details: RunDetails = serde_json::from_value(json!({
            "run_id": "r1", "workflow_id": "research", "hash": "h", "status": "failed", "query": "研究\n电池\u{1b}",
            "error": {"path": "plan", "cause": "no answer", "attempts": 2}, "output": null, "from_run": "r0", "from_stage": "plan",
            "usage": {"stages": 2, "model_calls": 3, "tokens": 40}, "created_at": "2026-01-02T03:04:05Z",
            "started_at": "2026-01-02T03:04:06Z", "ended_at": "2026-01-02T03:04:08.500Z",
            "timeline": [{"path": "plan", "runnable": "planner_agent", "attempt": 2, "depth": 0, "status": "failed", "input": "计划",
                          "output": null, "error": "no answer", "started_at": "2026-01-02T03:04:06Z", "ended_at": "2026-01-02T03:04:08Z",
                          "ms": 2000, "model": "default", "tokens": {"prompt": 30, "completion": 10}, "model_calls": 1}],
        }))
        .unwrap();
        let text = describe(&details, "2026-01-02T04:04:05Z".parse().unwrap());
        for part in [
            "query     研究 电池\n",
            "took      2.5s",
            "1h ago",
            "r0 from plan on",
            "2 stages, 3 model calls, 40 tokens",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let stage = text.lines().last().unwrap();
        for part in ["plan (attempt 2)", "planner_agent", "failed", "0ms", "2.0s", "default", "40", "no answer", "计划"]
        {
            assert!(stage.contains(part), "{part}: {stage}");
        }
    }

    #[test]
    fn a_stage_that_has_not_ended_has_the_status_of_its_run() {
        for status in ["running", "waiting", "cancelled"] {
            let details: RunDetails = serde_json::from_value(json!({
                "run_id": "r1", "workflow_id": "w", "status": status, "created_at": "2026-01-02T03:04:05Z",
                "timeline": [{"path": "ask", "runnable": "asks", "attempt": 1, "depth": 0, "status": "running", "input": "",
                              "output": null, "error": null, "started_at": null, "ended_at": null, "ms": null, "model": null,
                              "tokens": {"prompt": 0, "completion": 0}, "model_calls": 0}],
            }))
            .unwrap();
            let text = describe(&details, "2026-01-02T04:04:05Z".parse().unwrap());
            assert!(text.lines().last().unwrap().contains(status), "{text}");
        }
    }

    #[test]
    fn only_a_run_s_statuses_are_statuses() {
        assert_eq!(status("failed"), Ok(RunStatus::Failed));
        assert!(status("transferred").unwrap_err().contains("pending"));
    }
}
