//! The answers of the plan agent and the replan agent. Every parse error is a text that the model reads in a
//! correction.

use crate::model::answer;
use base::http_client::bounded;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// Limit on the steps of a plan.
const MAX_STEPS: usize = 50;

/// One question to one sub-agent. Steps with the same number form a group and run concurrently; the groups run in
/// ascending order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanStep {
    /// Number of the step's group.
    pub step: i64,
    /// Name of the sub-agent.
    pub agent: String,
    /// The question.
    pub question: String,
}

/// Decision of the plan agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TriageAction {
    /// Execute `plan`.
    Plan,
    /// Ask the user `plan_reason`.
    Clarify,
    /// Reject the request with `reject_reason`.
    Reject,
}

/// Answer of the plan agent, with the schema `triage_plan`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriagePlan {
    /// Decision of the agent.
    pub action: TriageAction,
    /// Why the request is rejected, as a text for the user.
    #[serde(default, deserialize_with = "or_default")]
    pub reject_reason: String,
    /// Steps of the plan.
    #[serde(default, deserialize_with = "or_default")]
    pub plan: Vec<PlanStep>,
    /// Reason for the decision. With `clarify`, the question to the user.
    #[serde(default, deserialize_with = "or_default")]
    pub plan_reason: String,
}

/// Answer of the replan agent, with the schema `triage_replan`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriageReplan {
    /// True if the agent follows the review and has a new plan.
    pub accept_review: bool,
    /// Steps of the new plan.
    #[serde(default, deserialize_with = "or_default")]
    pub new_plan: Vec<PlanStep>,
    /// Why the agent does not follow the review.
    #[serde(default, deserialize_with = "or_default")]
    pub rejection_reason: String,
}

impl TriagePlan {
    /// Parses an answer whose steps may name `agents`. The error is a text for the model.
    pub fn parse(content: &str, agents: &[&str]) -> Result<Self, String> {
        let triage: Self = read(content)?;
        if triage.action == TriageAction::Plan {
            if triage.plan.is_empty() {
                return Err("`plan` is empty; write its steps, or take the action `clarify` or `reject`".into());
            }
            check("plan", &triage.plan, agents)?;
        }
        Ok(triage)
    }

    /// Creates a rejection, in place of an invalid plan.
    pub fn rejected(reason: impl Into<String>) -> Self {
        let (plan, plan_reason) = (Vec::new(), String::new());
        Self { action: TriageAction::Reject, reject_reason: reason.into(), plan, plan_reason }
    }
}

impl TriageReplan {
    /// Parses an answer whose steps may name `agents`. The error is a text for the model.
    pub fn parse(content: &str, agents: &[&str]) -> Result<Self, String> {
        let triage: Self = read(content)?;
        if triage.accept_review {
            check("new_plan", &triage.new_plan, agents)?;
        }
        Ok(triage)
    }

    /// Creates a refusal, in place of a missing or invalid answer.
    pub fn refused(reason: impl Into<String>) -> Self {
        Self { accept_review: false, new_plan: Vec::new(), rejection_reason: reason.into() }
    }
}

/// Parses an answer. The error names the field that is wrong.
pub(super) fn read<T: DeserializeOwned>(content: &str) -> Result<T, String> {
    let object = Value::Object(answer::object(content)?);
    serde_path_to_error::deserialize(&object).map_err(|error| {
        let place = error.path().to_string();
        if place == "." { error.inner().to_string() } else { format!("`{place}`: {}", error.inner()) }
    })
}

/// Deserializes null as the default value, since models write null for fields that they leave out.
pub(super) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Checks a plan. The error names all problems.
fn check(field: &str, plan: &[PlanStep], agents: &[&str]) -> Result<(), String> {
    let mut problems = Vec::new();
    if plan.len() > MAX_STEPS {
        problems.push(format!("`{field}` has {} steps; at most {MAX_STEPS} are allowed", plan.len()));
    }
    for (at, step) in plan.iter().take(MAX_STEPS).enumerate() {
        if !agents.contains(&step.agent.as_str()) {
            let known: Vec<_> = agents.iter().map(|agent| format!("`{agent}`")).collect();
            let agent = bounded(&step.agent, 50);
            problems.push(format!("`{field}[{at}].agent`: there is no `{agent}`; known are {}", known.join(", ")));
        }
        if step.question.trim().is_empty() {
            problems.push(format!("`{field}[{at}].question` is empty"));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

/// Returns the indexes of a plan's steps, by group, with the groups in ascending order.
pub fn groups(plan: &[PlanStep]) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (at, step) in plan.iter().enumerate() {
        groups.entry(step.step).or_default().push(at);
    }
    groups.into_values().collect()
}

/// Returns the branch ids of a plan's steps: the name of the step's agent, with a number if the name is taken.
pub(crate) fn branch_ids(plan: &[PlanStep]) -> Vec<String> {
    let mut taken = HashSet::new();
    let id = |step: &PlanStep| {
        let numbered = (2..).map(|number| format!("{}-{number}", step.agent));
        let free = std::iter::once(step.agent.clone()).chain(numbered).find(|id| !taken.contains(id));
        let id = free.unwrap_or_else(|| step.agent.clone());
        taken.insert(id.clone());
        id
    };
    plan.iter().map(id).collect()
}
