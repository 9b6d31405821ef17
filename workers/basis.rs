//! The names against which files are checked before they are applied: those of the running workers, else of the
//! settings.

use crate::client::GatewayClient;
use base::config::Settings;
use commands::crew::Crew;
use definitions::agent::validate::Known;
use engine::run;
use engine::workflow::Flows;

/// The names in the local settings and folders.
pub fn here(settings: &Settings) -> Known {
    Known::new(settings, Flows::builtin().ids()).with_flows(run::known_ids(settings))
}

/// The running workers, and the names that agents and workflows may use on them. Without `json` it prints to stderr if
/// these differ from the local settings.
pub async fn of(access: &GatewayClient, settings: &Settings, json: bool) -> anyhow::Result<(Crew, Known)> {
    let crew = access.crew().await?;
    let listed = access.workflows().await?.into_iter().filter(|workflow| workflow.error.is_none());
    let workflows = listed.map(|workflow| workflow.workflow_id);
    let local = here(settings).with_private(settings.http.allow_private.clone());
    let known = crew.checked_with(workflows, &local);
    if !json {
        tell(&crew, settings);
    }
    Ok((crew, known))
}

fn tell(crew: &Crew, settings: &Settings) {
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
