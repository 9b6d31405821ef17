//! What files are checked against before they are applied: the running workers, else the settings here.

use crate::access::Access;
use base::config::Settings;
use commands::crew::Crew;
use definitions::agent::validate::Known;
use engine::run;
use engine::workflow::Flows;

/// What the settings and folders here have.
pub fn here(settings: &Settings) -> Known {
    Known::new(settings, Flows::builtin().ids()).with_flows(run::known_ids(settings))
}

/// The running workers, and the names that agents and workflows are checked against now. Without `json`, it says on stderr where
/// these are not the settings here.
pub async fn of(access: &Access, settings: &Settings, json: bool) -> anyhow::Result<(Crew, Known)> {
    let crew = access.crew().await?;
    let listed = access.list_workflows().await?.into_iter().filter(|workflow| workflow.error.is_none());
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
        eprintln!("no worker is running: checked against the settings here");
        return;
    }
    let differing = crew.differing(settings);
    if !differing.is_empty() {
        let count = crew.len();
        let workers = if count == 1 { "the running worker".to_owned() } else { format!("the {count} running workers") };
        eprintln!("checked against {workers}, and not against the settings here ({})", differing.join("; "));
    }
    for difference in crew.differences() {
        eprintln!("warning: the running workers differ in {difference}");
    }
}
