//! The daily budget of one agent, for model calls that belong to none of its turns: those of the drafts that it has
//! made.

use super::token_meter::check;
use crate::model::budgeted::Admission;
use crate::model::{ModelError, ModelReply, ModelRequest, Models};
use async_trait::async_trait;
use base::clock::Clock;
use base::config;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use storage::store::Store;
use tracing::warn;
use types::agent::AgentConfig;
use types::budget::Limit;
use types::turn::DayUse;

/// The daily budget of one agent. Each call counts at once, because no commit follows that could count it.
pub struct DayMeter {
    store: Arc<dyn Store>,
    clock: Clock,
    agent_id: String,
    most: u64,
    has_refused: AtomicBool,
}

impl DayMeter {
    /// The meter of an agent; `None` if there is no limit to its day.
    pub fn of(
        store: &Arc<dyn Store>,
        defaults: &config::Budget,
        agent: &AgentConfig,
        clock: Clock,
    ) -> Option<Arc<Self>> {
        let most = defaults.limits(agent.budget).day?;
        let (store, agent_id) = (Arc::clone(store), agent.id.clone());
        Some(Arc::new(Self { store, clock, agent_id, most, has_refused: AtomicBool::new(false) }))
    }

    /// The same models, called only while the day's budget lasts.
    #[must_use]
    pub fn limit(self: &Arc<Self>, models: &Models) -> Models {
        models.metered_by(Arc::<Self>::clone(self))
    }

    /// Fails with [`ModelError::Spent`] if the day's budget is spent.
    pub async fn check(&self) -> Result<(), ModelError> {
        let day = self.clock.now().day();
        let used = self.store.tokens_of_day(&day, vec![self.agent_id.clone()]).await.map_err(|error| {
            let problem = format!("the token usage of `{}` today cannot be read: {error}", self.agent_id);
            ModelError::Unavailable { model: self.agent_id.clone(), attempts: 0, problem }
        })?;
        let used = used.get(&self.agent_id).copied().unwrap_or(0);
        check(Some(self.most), used, Limit::Day, &self.agent_id)
    }

    /// True if a call was not made, because the budget was spent.
    pub fn has_refused(&self) -> bool {
        self.has_refused.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Admission for DayMeter {
    async fn admit(&self, _: &ModelRequest) -> Result<Option<String>, ModelError> {
        let checked = self.check().await;
        if matches!(checked, Err(ModelError::Spent { .. })) {
            self.has_refused.store(true, Ordering::Relaxed);
        }
        checked.map(|()| None)
    }

    async fn answered(&self, reply: &ModelReply) {
        let tokens = reply.tokens.prompt.saturating_add(reply.tokens.completion);
        if tokens == 0 {
            return;
        }
        let used = DayUse { agent_id: self.agent_id.clone(), day: self.clock.now().day(), tokens };
        if let Err(error) = self.store.use_tokens(used).await {
            warn!(
                agent_id = self.agent_id,
                tokens, "the day's count of tokens is too low, adding to it failed: {error}"
            );
        }
    }
}
