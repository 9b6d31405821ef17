//! The knowledge of all agents, as this process searches it: an index for each agent that has any, built anew when the store's
//! sources differ.

use super::index::{self, Hit, Index, TOP};
use base::metrics::metrics;
use definitions::knowledge::source::SourceEntry;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::store::{Store, StoreError};
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

/// How often the store is asked whether sources have changed: one small question for all agents, whatever turns there are.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a turn waits for an index that has never been built, such as after a start.
const PATIENCE: Duration = Duration::from_secs(10);

/// See the module. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Library {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn Store>,
    shelves: watch::Sender<Shelves>,
    /// One builds at a time: it takes a processor and much memory.
    building: Mutex<()>,
}

/// What is known of the store.
#[derive(Default)]
struct Shelves {
    /// False until the store has been looked at for the first time.
    seen: bool,
    /// Agents with knowledge; without an index while it is built for the first time.
    agents: HashMap<String, Option<Arc<Index>>>,
}

impl Shelves {
    /// The agent's index, if it is known whether there is one.
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
    /// The knowledge in `store`. Nothing is read yet: see [`Library::follow`].
    pub fn new(store: Arc<dyn Store>) -> Self {
        let (shelves, building) = (watch::Sender::new(Shelves::default()), Mutex::new(()));
        Self { shared: Arc::new(Shared { store, shelves, building }) }
    }

    /// Keeps up with the store until `stop`. A worker runs it.
    pub async fn follow(self, stop: CancellationToken) {
        let follow = async {
            let mut away = false;
            loop {
                match self.look(None).await {
                    Ok(()) => away = false,
                    Err(problem) => {
                        // What is damaged stays so: no turn waits for it.
                        if !matches!(problem, StoreError::Unavailable(_)) {
                            self.shared.shelves.send_modify(|shelves| shelves.seen = true);
                        }
                        if !away {
                            away = true;
                            warn!("knowledge cannot be read, the last known is used: {problem}");
                        }
                    }
                }
                tokio::time::sleep(PERIOD).await;
            }
        };
        stop.run_until_cancelled(follow).await;
    }

    /// The index of an agent as it is, for a turn's reply. An agent without knowledge costs a look into a map.
    pub(crate) async fn index(&self, agent_id: &str) -> Option<Arc<Index>> {
        let known = self.shared.shelves.borrow().index(agent_id);
        match known {
            Some(index) => index,
            // What is rare is not to take room in every turn that waits.
            None => Box::pin(self.awaited(agent_id)).await,
        }
    }

    async fn awaited(&self, agent_id: &str) -> Option<Arc<Index>> {
        let mut shelves = self.shared.shelves.subscribe();
        let known = shelves.wait_for(|shelves| shelves.index(agent_id).is_some());
        match tokio::time::timeout(PATIENCE, known).await {
            Ok(Ok(shelves)) => shelves.index(agent_id).flatten(),
            Ok(Err(_)) | Err(_) => {
                debug!(agent_id, "the agent's knowledge is not there yet");
                None
            }
        }
    }

    /// Answers by the sources as they are in the store now: for commands, which may come before an index is built.
    pub async fn ask(&self, agent_id: &str, question: &str, limit: usize) -> Result<Vec<Hit>, StoreError> {
        self.refresh(agent_id).await?;
        let index = self.shared.shelves.borrow().index(agent_id).flatten();
        Ok(match index {
            Some(index) => search(index, question.to_owned(), String::new(), limit).await,
            None => Vec::new(),
        })
    }

    /// Takes over what the store has of an agent now. Turns in this process that come to their reply afterwards use it.
    pub async fn refresh(&self, agent_id: &str) -> Result<(), StoreError> {
        self.look(Some(agent_id)).await
    }

    /// Compares with the store, and builds what differs: of one agent, or of all.
    async fn look(&self, agent_id: Option<&str>) -> Result<(), StoreError> {
        let _one = self.shared.building.lock().await;
        let wanted = by_agent(self.shared.store.knowledge_entries(agent_id).await?);
        let mut stale = Vec::new();
        self.shared.shelves.send_if_modified(|shelves| {
            let before = (shelves.seen, shelves.agents.len());
            shelves.seen |= agent_id.is_none();
            let asked = |known: &String| agent_id.is_none_or(|agent_id| agent_id == known);
            shelves.agents.retain(|known, _| !asked(known) || wanted.contains_key(known));
            let gone = shelves.agents.len() != before.1;
            for (agent_id, version) in &wanted {
                let index = shelves.agents.get(agent_id).and_then(Option::as_ref);
                if index.is_none_or(|index| index.version() != version) {
                    stale.push(agent_id.clone());
                }
                // Turns wait for what was there before this process. What is added now, they have when it is built.
                if !before.0 {
                    shelves.agents.entry(agent_id.clone()).or_default();
                }
            }
            gone || shelves.seen != before.0
        });
        let mut outcome = Ok(());
        for agent_id in stale {
            // One agent's trouble is none of the others'.
            if let Err(problem) = self.build(&agent_id).await {
                self.shared.shelves.send_modify(|shelves| {
                    shelves.agents.retain(|known, index| *known != agent_id || index.is_some());
                });
                outcome = Err(problem);
            }
        }
        self.count();
        outcome
    }

    async fn build(&self, agent_id: &str) -> Result<(), StoreError> {
        let sources = self.shared.store.knowledge(agent_id).await?;
        let (begun, id) = (Instant::now(), agent_id.to_owned());
        // Seconds of computing have no place among the turns.
        let built = tokio::task::spawn_blocking(move || Index::build(&id, sources)).await;
        let refused = |problem: &dyn std::fmt::Display| StoreError::Refused(problem.to_string());
        let index = built.map_err(|panic| refused(&panic))?.map_err(|problem| refused(&problem))?;
        info!(agent_id, passages = index.len(), ms = begun.elapsed().as_millis(), "the agent's knowledge is indexed");
        self.shared.shelves.send_modify(|shelves| {
            shelves.agents.insert(agent_id.to_owned(), Some(Arc::new(index)));
        });
        Ok(())
    }

    fn count(&self) {
        let passages = self.shared.shelves.borrow().agents.values().flatten().map(|index| index.len()).sum::<usize>();
        metrics().knowledge_passages.set(i64::try_from(passages).unwrap_or(i64::MAX));
    }
}

/// The best passages for a turn's reply. Cutting a question into words and looking through a large index take milliseconds.
pub(crate) async fn hits(index: Arc<Index>, question: String, response: String) -> Vec<Hit> {
    let hits = search(index, question, response, TOP).await;
    metrics().knowledge_search(!hits.is_empty());
    hits
}

async fn search(index: Arc<Index>, question: String, response: String, limit: usize) -> Vec<Hit> {
    let searched = tokio::task::spawn_blocking(move || index.search(&question, &response, limit)).await;
    searched.unwrap_or_else(|panic| {
        warn!("a search of the knowledge has failed: {panic}");
        Vec::new()
    })
}

/// Agents with the version of their sources.
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
