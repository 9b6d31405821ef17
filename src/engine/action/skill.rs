//! SKILL actions: call the HTTP API of a skill, or a function registered in Rust.

use super::http::HttpCaller;
use super::outcome::{self, CallLabels};
use super::tool::Tools;
use super::{ActionResult, params};
use std::time::Instant;
use types::action::Action;
use types::agent::{AgentConfig, Skill};

/// Executes the skill that `action` names. Every failure is a result for the model.
pub async fn run(
    http: &HttpCaller,
    functions: &Tools,
    agent: &AgentConfig,
    action: &Action,
    idempotency_key: &str,
) -> ActionResult {
    let (begun, skill) = (Instant::now(), agent.skills.iter().find(|skill| skill.id == action.target));
    let result = match skill {
        Some(skill) => call(http, functions, skill, action, idempotency_key).await,
        None => {
            let known: Vec<&str> = agent.skills.iter().map(|skill| skill.id.as_str()).collect();
            let known = known.join(", ");
            ActionResult::failed(format!("there is no skill `{}`; the skills are: {known}", action.target))
        }
    };
    let counted = http.stand_in().is_none();
    let called = CallLabels { kind: "skill", target: &action.target, known: skill.is_some(), counted };
    outcome::report_result(called, &result, begun.elapsed());
    result
}

async fn call(
    http: &HttpCaller,
    functions: &Tools,
    skill: &Skill,
    action: &Action,
    idempotency_key: &str,
) -> ActionResult {
    if let Err(problem) = params::check(&skill.params, &action.params) {
        return ActionResult::failed(format!("invalid params: {problem}"));
    }
    if let Some(stand_in) = http.stand_in() {
        stand_in.called(&skill.id, || http.would_call(skill.http.as_ref(), &skill.id, &action.params));
        return stand_in.call(&skill.id, &action.params);
    }
    match &skill.http {
        Some(call) => http.call(call, &action.params, idempotency_key).await,
        None => functions.call(&skill.id, &action.params, idempotency_key).await.unwrap_or_else(|| {
            ActionResult::failed(format!(
                "skill `{}` has no `http` in the agent file, and no function is registered under its id",
                skill.id
            ))
        }),
    }
}
