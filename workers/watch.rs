//! `turnwheel dev`: applies agent and workflow files at the start, and again when a file changes.

use base::config::Settings;
use commands::doctor::{Finding, without_file};
use definitions::agent::validate::KnownNames;
use definitions::agent::{AgentRecord, load};
use definitions::knowledge::files::{self, NamedText};
use engine::definition_files::DefinitionFiles;
use engine::knowledge::sync;
use engine::run;
use engine::workflow::Flows;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use storage::store::Store;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use types::agent::AgentConfig;

/// Interval between two checks of the folders.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Agents with their files. Their knowledge files are watched, too.
pub type Watched = Vec<(PathBuf, Arc<AgentConfig>)>;

/// Applies every valid file of `agents_dir` (without that folder, the built-in agents) with its knowledge files, and
/// registers the workflows of `workflows_dir`. Logs invalid files with their errors; they do not stop the others.
pub async fn apply(settings: &Settings, store: &dyn Store) -> Watched {
    let watched = apply_agents(settings, store).await;
    let (flows, known) = (Flows::builtin().ids(), KnownNames::new(settings, Vec::new()));
    run::register_folder(settings, store, flows, &known, run::Registered::IsReplaced).await;
    watched
}

async fn apply_agents(settings: &Settings, store: &dyn Store) -> Watched {
    let known = KnownNames::new(settings, Flows::builtin().ids()).with_flows(run::known_ids(settings));
    let on_disk = settings.agents_dir.is_dir();
    let read = if on_disk { load::read_path(&settings.agents_dir) } else { load::starters() };
    let (mut watched, mut broken) = (Vec::new(), false);
    for (path, agent) in read {
        broken |= agent.is_err();
        if let Ok(agent) = &agent {
            watched.push((path.clone(), Arc::clone(&agent.config)));
        }
        let checked = agent.and_then(|agent| known.check(agent)).and_then(|(agent, mut warnings)| {
            let texts = match on_disk {
                true => {
                    let (texts, more) = files::read(&path, &agent)?;
                    warnings.extend(more);
                    texts
                }
                false => files::builtin(&agent.config),
            };
            Ok((agent, texts, warnings))
        });
        match checked {
            Ok((agent, texts, warnings)) => {
                for warning in warnings {
                    warn!("{}: {warning}", path.display());
                }
                put(store, agent, texts).await;
            }
            Err(problem) => error!("{}: {problem}", path.display()),
        }
    }
    // Without a readable file of every agent it is not known which agents have none.
    if on_disk && !broken {
        let filed: BTreeSet<String> = watched.iter().map(|(_, agent)| agent.id.clone()).collect();
        for Finding { place, what, remedy, .. } in without_file(store, &filed).await {
            warn!("{place}: {what}; {remedy}");
        }
    }
    watched
}

async fn put(store: &dyn Store, agent: AgentRecord, texts: Vec<NamedText>) {
    let (id, hash) = (agent.id().to_owned(), agent.hash.clone());
    match store.put_agent(agent).await {
        Ok(true) => info!(agent_id = id, hash, "agent applied"),
        Ok(false) => {}
        Err(problem) => return warn!(agent_id = id, "cannot apply the agent: {problem}"),
    }
    match sync::store(store, &id, texts).await {
        Ok(true) => info!(agent_id = id, "the agent's knowledge is applied"),
        Ok(false) => {}
        Err(problem) => warn!(agent_id = id, "cannot apply the agent's knowledge: {problem}"),
    }
}

/// Applies the folders again whenever a file in them, or a knowledge file of an agent, has changed; until `stop`.
pub async fn keep(
    settings: Settings,
    store: Arc<dyn Store>,
    definition_files: Arc<DefinitionFiles>,
    mut watched: Watched,
    stop: CancellationToken,
) {
    let mut seen = snapshot(&settings, &watched);
    loop {
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = stop.cancelled() => return,
        }
        let now = snapshot(&settings, &watched);
        if now != seen {
            let before = now;
            // Between the change of the store and that of its file, the file would undo the change.
            let _held = definition_files.hold().await;
            watched = apply(&settings, store.as_ref()).await;
            // An agent may now name files that were not watched before.
            seen = snapshot(&settings, &watched);
            seen.extend(before);
        }
    }
}

/// Size and modification time of every watched file.
fn snapshot(settings: &Settings, watched: &Watched) -> BTreeMap<PathBuf, (u64, Option<SystemTime>)> {
    let folders =
        [&settings.agents_dir, &settings.workflows_dir].into_iter().filter_map(|dir| std::fs::read_dir(dir).ok());
    let entries = folders.flatten().flatten().map(|entry| entry.path());
    let known = watched.iter().flat_map(|(file, agent)| files::paths(file, agent));
    let files = entries.chain(known).filter_map(|path| {
        let metadata = std::fs::metadata(&path).ok()?;
        metadata.is_file().then(|| (path, (metadata.len(), metadata.modified().ok())))
    });
    files.collect()
}
