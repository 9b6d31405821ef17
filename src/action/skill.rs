//! SKILL: an intent of the agent's action books, served by its API (E-26).

use super::{Action, ActionResult, http::HttpCaller, params};
use crate::agent::AgentConfig;

/// Calls the skill that `action` names. Every failure is a result for the model to read (OP-E18).
pub async fn run(http: &HttpCaller, agent: &AgentConfig, action: &Action, idempotency_key: &str) -> ActionResult {
    let Some(skill) = agent.skills.iter().find(|skill| skill.id == action.target) else {
        let known: Vec<&str> = agent.skills.iter().map(|skill| skill.id.as_str()).collect();
        return ActionResult::failed(format!(
            "there is no skill `{}`; the skills are: {}",
            action.target,
            known.join(", ")
        ));
    };
    if let Err(problem) = params::check(&skill.params, &action.params) {
        return ActionResult::failed(format!("invalid params: {problem}"));
    }
    match &skill.http {
        Some(call) => http.call(call, &action.params, idempotency_key).await,
        None => ActionResult::failed(format!("skill `{}` has no `http` call in the agent file", skill.id)),
    }
}
