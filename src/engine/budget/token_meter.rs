//! The token budgets of one turn, or of one run with a lane of its own.

use super::Budgets;
use crate::journal::{Journal, TurnUsage};
use crate::model::budgeted::Admission;
use crate::model::{ModelError, ModelRequest};
use async_trait::async_trait;
use base::metrics::metrics;
use std::sync::Arc;
use std::time::Duration;
use storage::store::StoreError;
use tracing::{debug, warn};
use types::agent::AgentConfig;
use types::budget::{Limit, Limits};
use types::turn::DayUse;

/// Pause before an unreachable store is asked again.
const STORE_RETRY_DELAY: Duration = Duration::from_millis(200);

/// The agent of a turn, with its limits.
struct TurnAgent {
    agent_id: String,
    limits: Limits,
    /// Tokens that the conversation has used before this turn.
    before: u64,
}

/// The token budgets of one turn or run.
pub struct TokenMeter {
    budgets: Arc<Budgets>,
    journal: Journal,
    own: Option<TurnAgent>,
}

impl TokenMeter {
    /// The meter of a turn of `agent`, whose conversation has used `before` tokens so far.
    pub(crate) fn for_turn(budgets: &Arc<Budgets>, journal: Journal, agent: &AgentConfig, before: u64) -> Arc<Self> {
        let own = TurnAgent { agent_id: agent.id.clone(), limits: budgets.limits(agent.budget), before };
        Arc::new(Self { budgets: Arc::clone(budgets), journal, own: Some(own) })
    }

    /// The meter of a run with a lane of its own. It checks only the daily budgets of the run's task agents.
    pub(crate) fn for_run(budgets: &Arc<Budgets>, journal: Journal) -> Arc<Self> {
        Arc::new(Self { budgets: Arc::clone(budgets), journal, own: None })
    }

    /// The tokens that the turn adds to the day of each agent with a daily budget.
    pub(crate) fn days(&self, usage: &TurnUsage) -> Vec<DayUse> {
        let own = self.own.as_ref().filter(|own| own.limits.day.is_some());
        let own = own.map(|own| (own.agent_id.clone(), usage.total));
        let agents = usage.agents.iter().map(|(agent_id, tokens)| (agent_id.clone(), *tokens));
        let day = self.journal.clock().now().day();
        let used = own.into_iter().chain(agents).filter(|(_, tokens)| *tokens > 0);
        let days: Vec<_> = used.map(|(agent_id, tokens)| DayUse { agent_id, day: day.clone(), tokens }).collect();
        self.budgets.note(&days);
        days
    }

    async fn check_day(
        &self,
        most: Option<u64>,
        agent_id: &str,
        of: impl Fn(&TurnUsage) -> u64,
    ) -> Result<(), ModelError> {
        if most.is_none() {
            return Ok(());
        }
        let before = self.used(agent_id).await?;
        check(most, before.saturating_add(of(&self.journal.usage())), Limit::Day, agent_id)
    }

    /// The tokens used on the day. Waits while the store is unreachable; a long wait costs the worker its lease.
    async fn used(&self, agent_id: &str) -> Result<u64, ModelError> {
        loop {
            match self.budgets.used(agent_id, self.journal.clock().now().day()).await {
                Ok(tokens) => return Ok(tokens),
                Err(StoreError::Unavailable(problem)) => {
                    debug!(agent_id, "the store is unreachable; waiting for the day's token usage: {problem}")
                }
                Err(error) => {
                    let problem = format!("the token usage of `{agent_id}` today cannot be read: {error}");
                    return Err(ModelError::Unavailable { model: agent_id.to_owned(), attempts: 0, problem });
                }
            }
            self.journal.clock().sleep(STORE_RETRY_DELAY).await;
        }
    }
}

#[async_trait]
impl Admission for TokenMeter {
    async fn admit(&self, request: &ModelRequest) -> Result<Option<String>, ModelError> {
        if let Some(own) = &self.own {
            let spent = self.journal.usage().total;
            check(own.limits.turn, spent, Limit::Turn, &own.agent_id)?;
            check(own.limits.session, own.before.saturating_add(spent), Limit::Session, &own.agent_id)?;
            self.check_day(own.limits.day, &own.agent_id, |usage| usage.total).await?;
        }
        let Some(agent) = request.facts.agent.as_deref().filter(|agent| agent.is_task_agent()) else { return Ok(None) };
        let most = self.budgets.limits(agent.budget).day;
        self.check_day(most, &agent.id, |usage| usage.agents.get(&agent.id).copied().unwrap_or(0)).await?;
        Ok(most.map(|_| agent.id.clone()))
    }
}

pub(super) fn check(most: Option<u64>, used: u64, limit: Limit, agent_id: &str) -> Result<(), ModelError> {
    match most {
        Some(most) if used >= most => {
            metrics().budget_refusal(limit);
            let spent = ModelError::Spent { limit, agent: agent_id.to_owned(), used, most };
            warn!("model call refused: {spent}");
            Err(spent)
        }
        _ => Ok(()),
    }
}
