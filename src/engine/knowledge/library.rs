//! The search indexes of this process: one for each agent with knowledge. An index is rebuilt when the sources in the
//! store change.

use super::index::{self, HITS_PER_REPLY, Hit, Index};
use base::metrics::metrics;
use definitions::knowledge::source::SourceEntry;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::store::{Store, StoreError};
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

/// Interval at which the store is asked for changed sources: one small query for all agents.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Time for which a turn waits for an index that was never built, for example after a start.
const INDEX_WAIT: Duration = Duration::from_secs(10);

/// The search indexes of this process. Cheap to clone; clones share the indexes.
#[derive(Clone)]
pub struct Library {
    shared: Arc<LibraryState>,
}

struct LibraryState {
    store: Arc<dyn Store>,
    indexes: watch::Sender<Indexes>,
    /// Held while an index is built. Only one at a time, because it takes a CPU core and much memory.
    building: Mutex<()>,
    /// Whether the metrics of the process tell its size.
    counted: bool,
}

/// The known agents and their indexes.
#[derive(Default)]
struct Indexes {
    /// False until the sources of all agents were read for the first time.
    seen: bool,
    /// Agents with knowledge. `None` while the first index of the agent is being built.
    agents: HashMap<String, Option<Arc<Index>>>,
}

impl Indexes {
    /// The index of the agent, `Some(None)` if it has no knowledge; `None` if that is not known yet.
    fn index(&self, agent_id: &str) -> Option<Option<Arc<Index>>> {
        match self.agents.get(agent_id) {
            Some(Some(index)) => Some(Some(Arc::clone(index))),
            Some(None) => None,
            None if self.seen => Some(None),
            None => None,
        }
    }
}

impl Library {
    /// Creates the library for the knowledge in `store`. Reads nothing yet, see [`Library::follow`].
    pub fn new(store: Arc<dyn Store>) -> Self {
        let (indexes, building) = (watch::Sender::new(Indexes::default()), Mutex::new(()));
        Self { shared: Arc::new(LibraryState { store, indexes, building, counted: true }) }
    }

    /// An empty library for the same store, of which no metric of the process tells: it is that of a draft.
    #[must_use]
    pub fn uncounted(&self) -> Self {
        let (store, indexes) = (Arc::clone(&self.shared.store), watch::Sender::new(Indexes::default()));
        Self { shared: Arc::new(LibraryState { store, indexes, building: Mutex::new(()), counted: false }) }
    }

    /// Keeps the indexes up to date with the store until `stop`. Runs in each worker.
    pub async fn follow(self, stop: CancellationToken) {
        let follow = async {
            let mut failing = false;
            loop {
                match self.update_outdated(None).await {
                    Ok(()) => failing = false,
                    Err(problem) => {
                        // Damaged knowledge stays damaged, so turns do not wait for it.
                        if !matches!(problem, StoreError::Unavailable(_)) {
                            self.shared.indexes.send_modify(|indexes| indexes.seen = true);
                        }
                        if !failing {
                            failing = true;
                            warn!("reading the knowledge failed, using the last known version: {problem}");
                        }
                    }
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        stop.run_until_cancelled(follow).await;
    }

    /// The current index of an agent, for the reply of a turn. Cheap for an agent without knowledge. Waits a limited
    /// time for an index that is being built for the first time.
    pub(crate) async fn index(&self, agent_id: &str) -> Option<Arc<Index>> {
        let known = self.shared.indexes.borrow().index(agent_id);
        match known {
            Some(index) => index,
            // Boxed so that this rare branch does not enlarge every turn's future.
            None => Box::pin(self.wait_for_index(agent_id)).await,
        }
    }

    async fn wait_for_index(&self, agent_id: &str) -> Option<Arc<Index>> {
        let mut indexes = self.shared.indexes.subscribe();
        let known = indexes.wait_for(|indexes| indexes.index(agent_id).is_some());
        match tokio::time::timeout(INDEX_WAIT, known).await {
            Ok(Ok(indexes)) => indexes.index(agent_id).flatten(),
            Ok(Err(_)) | Err(_) => {
                debug!(agent_id, "the agent's knowledge is not indexed yet, continuing without it");
                None
            }
        }
    }

    /// Searches the sources that the store has now. For commands, which may run before an index is built.
    pub async fn ask(&self, agent_id: &str, question: &str, limit: usize) -> Result<Vec<Hit>, StoreError> {
        self.refresh(agent_id).await?;
        let index = self.shared.indexes.borrow().index(agent_id).flatten();
        Ok(match index {
            Some(index) => search(index, question.to_owned(), String::new(), limit).await,
            None => Vec::new(),
        })
    }

    /// Updates the index of an agent from the store. Later replies of turns in this process use it.
    pub async fn refresh(&self, agent_id: &str) -> Result<(), StoreError> {
        self.update_outdated(Some(agent_id)).await
    }

    /// Compares the indexes with the store and rebuilds the outdated ones, of one agent or of all.
    async fn update_outdated(&self, agent_id: Option<&str>) -> Result<(), StoreError> {
        let _one = self.shared.building.lock().await;
        let wanted = by_agent(self.shared.store.knowledge_entries(agent_id).await?);
        let mut stale = Vec::new();
        self.shared.indexes.send_if_modified(|indexes| {
            let before = (indexes.seen, indexes.agents.len());
            indexes.seen |= agent_id.is_none();
            let asked = |known: &String| agent_id.is_none_or(|agent_id| agent_id == known);
            indexes.agents.retain(|known, _| !asked(known) || wanted.contains_key(known));
            let gone = indexes.agents.len() != before.1;
            for (agent_id, version) in &wanted {
                let index = indexes.agents.get(agent_id).and_then(Option::as_ref);
                if index.is_none_or(|index| index.version() != version) {
                    stale.push(agent_id.clone());
                }
                // A turn waits for knowledge that existed before this process started. Knowledge that is added later is
                // used once it is indexed.
                if !before.0 {
                    indexes.agents.entry(agent_id.clone()).or_default();
                }
            }
            gone || indexes.seen != before.0
        });
        let mut outcome = Ok(());
        for agent_id in stale {
            // A failure for one agent must not affect the others.
            if let Err(problem) = self.build(&agent_id).await {
                self.shared.indexes.send_modify(|indexes| {
                    indexes.agents.retain(|known, index| *known != agent_id || index.is_some());
                });
                outcome = Err(problem);
            }
        }
        self.report_passages();
        outcome
    }

    async fn build(&self, agent_id: &str) -> Result<(), StoreError> {
        let sources = self.shared.store.knowledge(agent_id).await?;
        let (begun, id) = (Instant::now(), agent_id.to_owned());
        // Building takes seconds of CPU time, which would block other turns.
        let built = tokio::task::spawn_blocking(move || Index::build(&id, sources)).await;
        let index = built.map_err(StoreError::refused)?.map_err(StoreError::refused)?;
        info!(agent_id, passages = index.len(), ms = begun.elapsed().as_millis(), "knowledge indexed");
        self.shared.indexes.send_modify(|indexes| {
            indexes.agents.insert(agent_id.to_owned(), Some(Arc::new(index)));
        });
        Ok(())
    }

    fn report_passages(&self) {
        if !self.shared.counted {
            return;
        }
        let passages = self.shared.indexes.borrow().agents.values().flatten().map(|index| index.len()).sum::<usize>();
        metrics().knowledge_passages.set(i64::try_from(passages).unwrap_or(i64::MAX));
    }
}

/// The best passages for the reply of a turn. Runs on a blocking thread, because a search takes milliseconds of CPU
/// time.
pub(crate) async fn search_for_reply(index: Arc<Index>, question: String, response: String) -> Vec<Hit> {
    search(index, question, response, HITS_PER_REPLY).await
}

async fn search(index: Arc<Index>, question: String, response: String, limit: usize) -> Vec<Hit> {
    let searched = tokio::task::spawn_blocking(move || index.search(&question, &response, limit)).await;
    searched.unwrap_or_else(|panic| {
        warn!("knowledge search failed: {panic}");
        Vec::new()
    })
}

/// The version of the sources of each agent.
fn by_agent(entries: Vec<SourceEntry>) -> HashMap<String, String> {
    let mut sources: HashMap<String, Vec<(String, String)>> = HashMap::new();
    for entry in entries {
        sources.entry(entry.agent_id).or_default().push((entry.source, entry.hash));
    }
    let version = |mut sources: Vec<(String, String)>| {
        sources.sort();
        index::version(sources.iter().map(|(source, hash)| (source.as_str(), hash.as_str())))
    };
    sources.into_iter().map(|(agent_id, sources)| (agent_id, version(sources))).collect()
}
