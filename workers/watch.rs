//! `turnwheel dev` applies the agent files at start, and again when one changes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use turnwheel::agent::load;
use turnwheel::agent::validate::Known;
use turnwheel::config::Settings;
use turnwheel::store::Store;
use turnwheel::workflow::Flows;

/// How often the folder is looked at.
const PERIOD: Duration = Duration::from_millis(500);

/// Applies every good file of `agents_dir`, or the compiled-in agents when there is no such folder; a bad one is reported
/// by name and does not stop the others.
pub async fn apply(settings: &Settings, store: &dyn Store) {
    let known = Known::new(settings, Flows::builtin().ids());
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

/// Applies the folder again whenever a file in it has changed, until `stop`.
pub async fn run(settings: Settings, store: Arc<dyn Store>, stop: CancellationToken) {
    let mut seen = snapshot(&settings.agents_dir);
    loop {
        tokio::select! {
            () = tokio::time::sleep(PERIOD) => {}
            () = stop.cancelled() => return,
        }
        let now = snapshot(&settings.agents_dir);
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
