//! Start of a user's turn: compares the agent's hash, makes the plan and sends the greeting.

use super::coordinator::First;
use super::decision::PlanDraft;
use super::interruption::Interruption;
use super::placeholder::is_placeholder;
use super::state::Turn;
use crate::execution::TurnError;
use crate::turn::planner;
use serde_json::Value;
use std::sync::Arc;
use types::agent::coordinator::Mode;
use types::event::ReplyKind;
use types::plan::Plan;
use types::session::{Status, WorkflowState};

/// The kind of a greeting's entry in the history.
const GREETING_KIND: &str = ReplyKind::Greeting.as_str();

/// Input of the decision loop.
pub(super) struct LoopInput {
    pub(super) plan: Arc<Plan>,
    /// What phase 1 has decided, for the first iteration.
    pub(super) first: Option<First>,
    /// True if this turn has sent the greeting.
    pub(super) greeted: bool,
}

impl Turn<'_> {
    /// Loads or makes the plan, and sends the greeting if the session still needs one.
    pub(super) async fn plan_and_greet(&mut self) -> Result<LoopInput, Interruption> {
        let changed = self.session.workflow_state.hash != self.agent.hash;
        // A repeated turn replays its phase 1 although the plan is now in the cache: it needs the recorded decision.
        let planned = self.has_planned();
        let cached = if planned { None } else { self.cached_plan().await? };
        let (plan, first) = match cached {
            Some(plan) => (plan, None),
            None => {
                let (draft, first) = self.first_answer().await?;
                let plan = planner::complete(&self.agent, draft, self.services.clock.now());
                (self.services.store.put_plan(plan).await?, Some(first))
            }
        };
        if changed {
            self.adopt_configuration();
        }
        let greeted = self.greet(&plan).await?;
        Ok(LoopInput { plan, first, greeted })
    }

    /// Phase 1, in the mode of the agent.
    async fn first_answer(&mut self) -> Result<(PlanDraft, First), Interruption> {
        Ok(match self.agent.config.mode {
            Mode::Actions => {
                let (draft, decision) = Box::pin(self.phase_one()).await?;
                (draft, First::Decision(decision))
            }
            Mode::Coordinator => {
                let (draft, answer) = Box::pin(self.coordinator_phase_one()).await?;
                (draft, First::Answer(Box::new(answer)))
            }
        })
    }

    /// Loads the cached plan of the agent's current hash.
    async fn cached_plan(&mut self) -> Result<Option<Arc<Plan>>, TurnError> {
        let store = Arc::clone(&self.services.store);
        Ok(store.plan(&self.agent.config.id, &self.agent.hash).await?)
    }

    fn adopt_configuration(&mut self) {
        let status = self.session.workflow_state.status;
        let need_greeting = self.needs_greeting();
        self.session.workflow_state = WorkflowState { hash: self.agent.hash.clone(), need_greeting, status };
        // The status is already `processing` if the turn has abandoned a waiting flow.
        if status != Status::Processing {
            self.transition(Status::Acknowledged);
        }
    }

    /// True if the new configuration must greet the session. False while the history has the greeting of this hash.
    /// With `regreet_on_change: false` also false if this agent has greeted the session before.
    fn needs_greeting(&self) -> bool {
        let (config, before) = (&self.agent.config, &self.session.workflow_state);
        let greeted = |field: &str, value: &str| {
            let greetings = self.session.history.iter().filter(|entry| entry.kind.as_deref() == Some(GREETING_KIND));
            greetings.filter_map(|entry| entry.metadata.get(field)?.as_str()).any(|found| found == value)
        };
        if greeted("hash", &self.agent.hash) {
            return false;
        }
        let by_agent = !before.hash.is_empty() && !before.need_greeting && !self.moved;
        config.regreet_on_change || !(by_agent || greeted("agent_id", &config.id))
    }

    async fn greet(&mut self, plan: &Plan) -> Result<bool, TurnError> {
        if !self.session.workflow_state.need_greeting {
            return Ok(false);
        }
        // Earlier versions stored plans without the check for placeholders.
        let drafted = || plan.greeting.clone().filter(|text| !is_placeholder(text));
        let configured = self.agent.config.greeting.clone().filter(|text| !text.trim().is_empty());
        let Some(greeting) = configured.or_else(drafted).filter(|text| !text.trim().is_empty()) else {
            return Ok(false);
        };
        let by = [("agent_id", self.agent.config.id.as_str()), ("hash", self.agent.hash.as_str())];
        let metadata = by.map(|(field, value)| (field.to_owned(), Value::from(value))).into_iter().collect();
        self.reply_with(ReplyKind::Greeting, "greet", &greeting, metadata);
        self.mark_greeted();
        // Published now, so that the user reads the greeting while the model works.
        self.settle().await?;
        Ok(true)
    }

    /// Records in the session that this configuration's greeting has been sent.
    pub(super) fn mark_greeted(&mut self) {
        self.session.workflow_state.hash.clone_from(&self.agent.hash);
        self.session.workflow_state.need_greeting = false;
    }
}
