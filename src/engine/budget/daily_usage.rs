//! The tokens that agents have used today. This process reads them from the store at most once a second, and between
//! reads adds the tokens of its own turns.

use base::config;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use storage::store::{Result, Store};
use types::budget::{Budget, Limits};
use types::turn::DayUse;

/// Time for which a value from the store is used.
const CACHE_TTL: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct CachedUsage {
    day: String,
    tokens: u64,
    read: Instant,
}

/// The daily usage of agents, and the default budgets of the settings.
pub struct Budgets {
    store: Arc<dyn Store>,
    defaults: config::Budget,
    known: Mutex<HashMap<String, CachedUsage>>,
}

impl Budgets {
    /// Creates the budgets for the agents in `store`, with the settings' `defaults`.
    pub fn new(store: Arc<dyn Store>, defaults: &config::Budget) -> Arc<Self> {
        Arc::new(Self { store, defaults: defaults.clone(), known: Mutex::default() })
    }

    /// The limits for an agent with this budget: its own values, otherwise the defaults.
    pub fn limits(&self, budget: Budget) -> Limits {
        self.defaults.limits(budget)
    }

    /// The tokens of the agent's committed turns on `day`, which must be today.
    pub(super) async fn used(&self, agent_id: &str, day: String) -> Result<u64> {
        if let Some(known) =
            self.lock().get(agent_id).filter(|known| known.day == day && known.read.elapsed() < CACHE_TTL)
        {
            return Ok(known.tokens);
        }
        let read = Instant::now();
        let found = self.store.tokens_of_day(&day, vec![agent_id.to_owned()]).await?;
        let tokens = found.get(agent_id).copied().unwrap_or(0);
        self.lock().insert(agent_id.to_owned(), CachedUsage { day, tokens, read });
        Ok(tokens)
    }

    /// Adds the tokens of a turn of this process that is about to be committed.
    pub(crate) fn note(&self, days: &[DayUse]) {
        if days.is_empty() {
            return;
        }
        let mut known = self.lock();
        for used in days {
            if let Some(known) = known.get_mut(&used.agent_id).filter(|known| known.day == used.day) {
                known.tokens = known.tokens.saturating_add(used.tokens);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, CachedUsage>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
