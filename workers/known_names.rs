//! The names against which files are checked before they are applied: those of the running workers, else of the
//! settings.

use crate::client::GatewayClient;
use base::config::Settings;
use commands::workers_overview::WorkersOverview;
use definitions::agent::validate::KnownNames;
use engine::run;
use engine::workflow::Flows;

/// The names in the local settings and folders.
pub fn local_names(settings: &Settings) -> KnownNames {
    KnownNames::new(settings, Flows::builtin().ids()).with_flows(run::known_ids(settings))
}

/// The running workers, and the names that agents and workflows may use on them. Without `json` it prints to stderr if
/// these differ from the local settings.
pub async fn worker_names(
    client: &GatewayClient,
    settings: &Settings,
    json: bool,
) -> anyhow::Result<(WorkersOverview, KnownNames)> {
    let crew = client.workers_overview().await?;
    let listed = client.workflows().await?.into_iter().filter(|workflow| workflow.error.is_none());
    let workflows = listed.map(|workflow| workflow.workflow_id);
    let local = local_names(settings).with_private(settings.http.allow_private.clone());
    let known = crew.checked_with(workflows, &local);
    if !json {
        print_differences(&crew, settings);
    }
    Ok((crew, known))
}

fn print_differences(crew: &WorkersOverview, settings: &Settings) {
    if crew.is_empty() {
        eprintln!("no worker is running: checked against the local settings");
        return;
    }
    let differing = crew.differing(settings);
    if !differing.is_empty() {
        let count = crew.len();
        let workers = if count == 1 { "the running worker".to_owned() } else { format!("the {count} running workers") };
        eprintln!("checked against {workers} instead of the local settings ({})", differing.join("; "));
    }
    for difference in crew.differences() {
        eprintln!("warning: the running workers differ in {difference}");
    }
}
