//! Texts that a plan contributes to the prompts of its turns. They are rendered once for each plan and cached.

use super::Services;
use crate::action::tool::{Tools, described};
use crate::prompt::SharedText;
use crate::workflow::Flows;
use moka::sync::Cache;
use serde_json::{Value, json};
use std::sync::{Arc, Weak};
use types::agent::{AgentConfig, Skill, Tool};
use types::plan::Plan;

/// Capacity of the cache, in plans.
const CACHE_CAPACITY: u64 = 1_000;

/// The texts of one plan, by their names in the prompts.
pub(crate) struct PlanTexts(Vec<(&'static str, SharedText)>);

impl PlanTexts {
    fn new(plan: &Plan, agent: &AgentConfig, services: &Services) -> Self {
        let texts = [
            ("name", plan.name.clone()),
            ("tone", plan.tone.clone()),
            ("sop", plan.sop.clone()),
            ("constraints", plan.constraints.clone()),
            ("tools_json", pretty_json(&tools_for_prompt(&plan.tools, &services.tools))),
            ("skills_json", pretty_json(&skills_for_prompt(&plan.skills, &services.tools))),
            ("flows_json", pretty_json(&flows_for_prompt(&agent.flows, &services.flows))),
        ];
        Self(texts.into_iter().map(|(name, text)| (name, text.into())).collect())
    }

    /// Iterates over the names and texts.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&'static str, SharedText)> {
        self.0.iter().cloned()
    }
}

/// Cache of the texts of recently used plans, by the hash of their agent file.
pub struct PlanTextCache(Cache<String, (Weak<Plan>, Arc<PlanTexts>)>);

impl Default for PlanTextCache {
    fn default() -> Self {
        Self(Cache::new(CACHE_CAPACITY))
    }
}

impl PlanTextCache {
    /// Returns the texts of `plan`, with the flows of `agent`. Renders them on a cache miss.
    pub(crate) fn get(&self, plan: &Arc<Plan>, agent: &AgentConfig, services: &Services) -> Arc<PlanTexts> {
        // Compares addresses instead of contents. The weak reference keeps the allocation, so no other plan can get
        // its address.
        let same = |(known, _): &(Weak<Plan>, _)| known.as_ptr() == Arc::as_ptr(plan);
        if let Some((_, shown)) = self.0.get(&plan.hash).filter(same) {
            return shown;
        }
        let shown = Arc::new(PlanTexts::new(plan, agent, services));
        self.0.insert(plan.hash.clone(), (Arc::downgrade(plan), Arc::clone(&shown)));
        shown
    }
}

/// Skills as the model sees them. Without their HTTP calls: URLs and headers are no use to the model.
pub(crate) fn skills_for_prompt(skills: &[Skill], functions: &Tools) -> Value {
    let seen = skills.iter().map(|skill| {
        let function = functions.params(&skill.id).filter(|_| skill.http.is_none());
        let (description, params) = described(&skill.description, &skill.params, function);
        json!({ "id": skill.id, "description": description, "condition": skill.condition, "params": params })
    });
    seen.collect()
}

/// Tools as the model sees them, without their HTTP calls.
pub(crate) fn tools_for_prompt(tools: &[Tool], functions: &Tools) -> Value {
    let seen = tools.iter().map(|tool| {
        let function = functions.params(&tool.id).filter(|_| tool.http.is_none() && tool.builtin.is_none());
        let (description, params) = described(&tool.description, &tool.params, function);
        json!({ "id": tool.id, "description": description, "params": params })
    });
    seen.collect()
}

/// Flows as the model sees them: a flow with typed params as an object with its schema, any other flow as its id.
pub(crate) fn flows_for_prompt(ids: &[String], flows: &Flows) -> Value {
    let seen = ids.iter().map(|id| match flows.params(id) {
        Some(schema) => {
            let (description, params) = described("", &Value::Null, Some(schema));
            json!({ "id": id, "description": description, "params": params })
        }
        None => json!(id),
    });
    seen.collect()
}

pub(crate) fn pretty_json(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
