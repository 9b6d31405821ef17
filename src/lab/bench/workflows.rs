//! `bench workflows`: stages per second and stored bytes per stage, in one long pipeline and in many short ones.

use super::Progress;
use super::member::{MemberProfile, Role};
use super::options::WorkflowsOptions;
use super::report::{Column, Report, Row};
use super::runs::MeasuredRuns;
use super::test_cluster::TestCluster;
use super::workers::Workers;
use base::config::{Environment, Settings};
use definitions::agent::AgentRecord;
use definitions::workflow::definition::WorkflowRecord;
use serde_json::{Value, json};
use std::time::Duration;
use types::duration::Text;
use types::timestamp::Timestamp;

/// Id of the agent of every stage.
const AGENT: &str = "stage";
/// Id of the workflow.
const WORKFLOW: &str = "bench";

const COLUMNS: &[Column] = &[
    ("runs", "runs"),
    ("stages each", "stages"),
    ("workers", "workers"),
    ("stages/s", "stages_per_s"),
    ("seconds", "seconds"),
    ("CPU µs/stage", "us_per_stage_all"),
    ("store B/stage", "store_bytes_per_stage"),
    ("events B/stage", "event_bytes_per_stage"),
];

/// Runs the benchmark: one row for each pipeline length, and one for the short runs.
pub async fn run(
    options: &WorkflowsOptions,
    settings: &Settings,
    env: &Environment,
    progress: &dyn Progress,
) -> anyhow::Result<Report> {
    let cluster = TestCluster::prepare(&options.target, settings, env, progress).await?;
    let mut rows = Vec::new();
    for stages in &options.stages {
        rows.push(Box::pin(row(&cluster, options, 1, *stages, progress)).await?);
    }
    if options.runs > 0 {
        rows.push(Box::pin(row(&cluster, options, options.runs, options.run_stages, progress)).await?);
    }
    Ok(Report { environment: cluster.conditions.clone(), rows, columns: COLUMNS })
}

async fn row(
    cluster: &TestCluster,
    options: &WorkflowsOptions,
    runs: usize,
    stages: usize,
    progress: &dyn Progress,
) -> anyhow::Result<Row> {
    progress.phase(&format!("workflows: {runs} × a pipeline of {stages} stages"));
    let namespace = cluster.open_namespace(|settings| settings.workflow.max_stages = u64::MAX >> 1).await?;
    namespace.store.put_agent(AgentRecord::from_document(agent(), Timestamp::from_millis(0))?).await?;
    namespace.store.put_workflow(WorkflowRecord::from_document(pipeline(stages), Timestamp::from_millis(0))?).await?;
    let profile = MemberProfile { role: Role::Worker, actions: 0, model_latency: Text(Duration::ZERO), hot: false };
    let workers = Workers::start(&namespace, &profile, options.workers, cluster.dir())?;
    let measured = MeasuredRuns {
        cluster,
        namespace: &namespace,
        workers: &workers,
        workflow_id: WORKFLOW,
        runs,
        unit: "stage",
        units: stages,
    };
    let mut row = measured.measure(progress).await?;
    let figures = json!({
        "bench": "workflows",
        "backend": options.target.backend,
        "workers": options.workers,
    });
    if let Value::Object(figures) = figures {
        row.extend(figures);
    }
    workers.end().await;
    namespace.close().await?;
    Ok(row)
}

/// An agent whose model replies immediately.
fn agent() -> Value {
    let answer = "这一步已经完成：The plan is checked, and the next stage can go on with it.";
    json!({ "id": AGENT, "model": "offline", "system_prompt": "Go on.",
            "rules": [{ "when": { "always": true }, "decide": { "response": answer } }] })
}

fn pipeline(stages: usize) -> Value {
    let stage = |number: usize| {
        let input = if number == 0 { "{query}".to_owned() } else { format!("{{query}}\n{{s{}}}", number - 1) };
        json!({ "id": format!("s{number}"), "runnable": AGENT, "input": input })
    };
    json!({ "type": "pipeline", "id": WORKFLOW, "stages": (0..stages).map(stage).collect::<Vec<_>>() })
}
