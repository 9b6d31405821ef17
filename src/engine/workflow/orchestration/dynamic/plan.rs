//! Plans, and what replaces one after a review (D-05 to D-07). Every error is a text that goes back to the model.

use crate::model::answer;
use base::http_client::bounded;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// More steps than any plan needs.
const MAX_STEPS: usize = 50;

/// One question to one sub-agent. Steps of equal numbers run at once, groups in ascending order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanStep {
    /// Its group.
    pub step: i64,
    /// Who is asked.
    pub agent: String,
    /// What is asked.
    pub question: String,
}

/// What a plan agent decides on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TriageAction {
    /// Carry out `plan`.
    Plan,
    /// Ask the user `plan_reason`.
    Clarify,
    /// Say `reject_reason`.
    Reject,
}

/// The answer of a plan agent, `triage_plan`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriagePlan {
    /// What to do.
    pub action: TriageAction,
    /// Why it is none of its business, for the user.
    #[serde(default, deserialize_with = "or_default")]
    pub reject_reason: String,
    /// What is to be found out.
    #[serde(default, deserialize_with = "or_default")]
    pub plan: Vec<PlanStep>,
    /// Why so; of `clarify` the question to the user (OP-D1).
    #[serde(default, deserialize_with = "or_default")]
    pub plan_reason: String,
}

/// The answer of a replan agent, `triage_replan`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriageReplan {
    /// Whether there is more to be found out.
    pub accept_review: bool,
    /// What.
    #[serde(default, deserialize_with = "or_default")]
    pub new_plan: Vec<PlanStep>,
    /// Why not.
    #[serde(default, deserialize_with = "or_default")]
    pub rejection_reason: String,
}

impl TriagePlan {
    /// Reads an answer whose steps may name `agents`.
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

    /// What stands for a plan that cannot be used.
    pub fn rejected(reason: impl Into<String>) -> Self {
        let (plan, plan_reason) = (Vec::new(), String::new());
        Self { action: TriageAction::Reject, reject_reason: reason.into(), plan, plan_reason }
    }
}

impl TriageReplan {
    /// Reads an answer whose steps may name `agents`.
    pub fn parse(content: &str, agents: &[&str]) -> Result<Self, String> {
        let triage: Self = read(content)?;
        if triage.accept_review {
            check("new_plan", &triage.new_plan, agents)?;
        }
        Ok(triage)
    }

    /// What stands for an answer that there is not.
    pub fn refused(reason: impl Into<String>) -> Self {
        Self { accept_review: false, new_plan: Vec::new(), rejection_reason: reason.into() }
    }
}

/// Reads a structure; what is wrong is told with its place.
pub(super) fn read<T: DeserializeOwned>(content: &str) -> Result<T, String> {
    let object = Value::Object(answer::object(content)?);
    serde_path_to_error::deserialize(&object).map_err(|error| {
        let place = error.path().to_string();
        if place == "." { error.inner().to_string() } else { format!("`{place}`: {}", error.inner()) }
    })
}

/// Models write null for what they leave out.
pub(super) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// All that is wrong with a plan, in one text.
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

/// The places of a plan's steps, group by group in their order.
pub fn groups(plan: &[PlanStep]) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (at, step) in plan.iter().enumerate() {
        groups.entry(step.step).or_default().push(at);
    }
    groups.into_values().collect()
}

/// What the branches of a plan's steps are called: by their agents, numbered where one is asked again.
pub fn branch_ids(plan: &[PlanStep]) -> Vec<String> {
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
