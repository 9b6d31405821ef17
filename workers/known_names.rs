//! The names against which files are checked before they are applied: those of the running workers, else of the
//! settings.

use crate::client::GatewayClient;
use base::config::Settings;
use commands::workflows::WorkflowSummary;
use definitions::agent::validate::KnownNames;
use engine::admission::WorkersOverview;
use engine::run;
use engine::workflow::Flows;

/// The names in the local settings and folders.
pub fn local_names(settings: &Settings) -> KnownNames {
    KnownNames::new(settings, Flows::builtin().ids()).with_flows(run::known_ids(settings))
}

/// The names on a running system.
pub struct WorkerNames {
    /// The running workers.
    pub workers: WorkersOverview,
    /// The names that agents and workflows may use on them.
    pub known: KnownNames,
    /// The workflows that can be read.
    pub workflows: Vec<WorkflowSummary>,
}

impl WorkerNames {
    /// Asks the gateway. Without `json` it prints to stderr if the names differ from the local settings.
    pub async fn load(client: &GatewayClient, settings: &Settings, json: bool) -> anyhow::Result<Self> {
        let workers = client.workers_overview().await?;
        let mut workflows = client.workflows().await?;
        workflows.retain(|workflow| workflow.error.is_none());
        let ids = workflows.iter().map(|workflow| workflow.workflow_id.clone());
        let local = local_names(settings).with_private(settings.http.allow_private.clone());
        let known = workers.checked_with(ids, &local);
        if !json {
            print_differences(&workers, settings);
        }
        Ok(Self { workers, known, workflows })
    }
}

fn print_differences(running: &WorkersOverview, settings: &Settings) {
    if running.is_empty() {
        eprintln!("no worker is running: checked against the local settings");
        return;
    }
    let differing = running.differing(settings);
    if !differing.is_empty() {
        let count = running.len();
        let workers = if count == 1 { "the running worker".to_owned() } else { format!("the {count} running workers") };
        eprintln!("checked against {workers} instead of the local settings ({})", differing.join("; "));
    }
    for difference in running.differences() {
        eprintln!("warning: the running workers differ in {difference}");
    }
}
