//! `turnwheel dev` applies the agent and workflow files at start, and again when one changes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use turnwheel::agent::load;
use turnwheel::agent::validate::Known;
use turnwheel::config::Settings;
use turnwheel::run;
use turnwheel::store::Store;
use turnwheel::workflow::Flows;

/// How often the folder is looked at.
const PERIOD: Duration = Duration::from_millis(500);

/// Applies every good file of `agents_dir`, or the compiled-in agents when there is no such folder, and registers those of
/// `workflows_dir`; a bad one is reported by name and does not stop the others.
pub async fn apply(settings: &Settings, store: &dyn Store) {
    apply_agents(settings, store).await;
    run::register_folder(settings, store, Flows::builtin().ids()).await;
}

async fn apply_agents(settings: &Settings, store: &dyn Store) {
    let known = Known::new(settings, Flows::builtin().ids()).with_flows(run::known_ids(settings));
    let read = if settings.agents_dir.is_dir() { load::read_path(&settings.agents_dir) } else { load::starters() };
    for (path, agent) in read {
        let agent = match agent.and_then(|agent| known.check(agent)) {
            Ok((agent, warnings)) => {
                for warning in warnings {
                    warn!("{}: {warning}", path.display());
                }
                agent
            }
            Err(problem) => {
                error!("{}: {problem}", path.display());
                continue;
            }
        };
        let (id, hash) = (agent.id().to_owned(), agent.hash.clone());
        match store.put_agent(agent).await {
            Ok(true) => info!(agent_id = id, hash, "agent applied"),
            Ok(false) => {}
            Err(problem) => warn!(agent_id = id, "the agent is not applied: {problem}"),
        }
    }
}

/// Applies the folders again whenever a file in them has changed, until `stop`.
pub async fn keep(settings: Settings, store: Arc<dyn Store>, stop: CancellationToken) {
    let look = || (snapshot(&settings.agents_dir), snapshot(&settings.workflows_dir));
    let mut seen = look();
    loop {
        tokio::select! {
            () = tokio::time::sleep(PERIOD) => {}
            () = stop.cancelled() => return,
        }
        let now = look();
        if now != seen {
            seen = now;
            apply(&settings, store.as_ref()).await;
        }
    }
}

/// Size and time of every file.
fn snapshot(dir: &Path) -> BTreeMap<PathBuf, (u64, Option<SystemTime>)> {
    let Ok(entries) = std::fs::read_dir(dir) else { return BTreeMap::new() };
    let files = entries.flatten().filter_map(|entry| {
        let metadata = entry.metadata().ok()?;
        metadata.is_file().then(|| (entry.path(), (metadata.len(), metadata.modified().ok())))
    });
    files.collect()
}
