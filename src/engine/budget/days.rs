//! What agents have used today, as this process knows it: read from the store at most once a second, and between that by what
//! the turns here have used.

use base::config;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use storage::store::{Result, Store};
use types::budget::{Budget, Limits};
use types::turn::DayUse;

/// How long what the store said is believed.
const BELIEVED: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Known {
    day: String,
    tokens: u64,
    read: Instant,
}

/// See the module; also the settings' defaults.
pub struct Budgets {
    store: Arc<dyn Store>,
    defaults: config::Budget,
    known: Mutex<HashMap<String, Known>>,
}

impl Budgets {
    /// Those of agents in `store`, where the settings have these defaults.
    pub fn new(store: Arc<dyn Store>, defaults: &config::Budget) -> Arc<Self> {
        Arc::new(Self { store, defaults: defaults.clone(), known: Mutex::default() })
    }

    /// The limits in force for an agent with this budget.
    pub fn limits(&self, budget: Budget) -> Limits {
        self.defaults.limits(budget)
    }

    /// The tokens of an agent's committed turns on `day`, which is today.
    pub(super) async fn used(&self, agent_id: &str, day: String) -> Result<u64> {
        if let Some(known) =
            self.lock().get(agent_id).filter(|known| known.day == day && known.read.elapsed() < BELIEVED)
        {
            return Ok(known.tokens);
        }
        let read = Instant::now();
        let found = self.store.tokens_of_day(&day, vec![agent_id.to_owned()]).await?;
        let tokens = found.get(agent_id).copied().unwrap_or(0);
        self.lock().insert(agent_id.to_owned(), Known { day, tokens, read });
        Ok(tokens)
    }

    /// A turn here is about to be committed that has used this.
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

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
