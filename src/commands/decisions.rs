//! Judging decisions of coordinator agents without carrying them out.

use crate::error::{CommandError, ErrorKind};
use base::config::Settings;
use decisions::correct::Correction;
use decisions::judge::{Coordinator, Verdicts};
use decisions::kind::{Decision, DecisionType};
use decisions::schema;
use decisions::world::{Snapshot, SubagentFacts, WorkflowFacts, WorkflowStatus};
use definitions::coordinator::{DecisionLimits, workflow_facts};
use definitions::workflow::session_plan::SessionPlan;
use engine::execution::scripts::with_scripts;
use sandbox::Sandbox;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use storage::store::Store;
use types::duration::Lenient;
use types::ids::{self, Id};
use types::session::Session;

/// A decision to be judged.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ProposedDecision {
    /// The type of the decision, such as `respond`.
    pub decision_type: String,
    /// The payload: an object with the fields of the type.
    #[schemars(with = "Map<String, Value>")]
    pub payload: Value,
    /// The session in which the decision would be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Id>")]
    pub session_id: Option<String>,
    /// The agent that would make the decision; the session's agent by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Id>")]
    pub agent_id: Option<String>,
    /// The workflows that exist, in place of the stored ones, and further sub-agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub world: Option<GivenWorld>,
}

/// Workflows and sub-agents for a judgement.
#[derive(Clone, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GivenWorld {
    /// The session's own plans.
    #[serde(default)]
    pub workflows: Vec<GivenWorkflow>,
    /// Id of the session's current workflow.
    #[serde(default)]
    pub current: Option<String>,
    /// Sub-agents besides those of the agent, as in an agent file.
    #[serde(default)]
    pub subagents: Vec<GivenSubagent>,
}

/// A plan of the session.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GivenWorkflow {
    /// The id.
    pub workflow_id: String,
    /// The status; `READY` by default.
    #[serde(default)]
    pub status: WorkflowStatus,
    /// The fields of a `create_workflow_plan`.
    pub definition: Map<String, Value>,
}

/// A sub-agent.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GivenSubagent {
    /// The type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The agent or workflow that runs; without effect on a judgement.
    #[serde(default)]
    pub runnable: Option<String>,
    /// The purpose; without effect on a judgement.
    #[serde(default)]
    pub description: Option<String>,
    /// JSON Schema of the task; any task by default.
    #[serde(default)]
    pub input: Option<Map<String, Value>>,
    /// The longest time: a text with a unit such as `120s`, or seconds.
    #[serde(default)]
    #[schemars(with = "Option<Value>")]
    pub timeout: Option<Lenient>,
}

/// The verdict on a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DecisionVerdict {
    /// True if the payload is valid as given.
    pub is_valid: bool,
    /// Every error. It begins with the field in backquotes and ends with the remedy.
    pub errors: Vec<String>,
    /// Probable mistakes.
    pub warnings: Vec<String>,
    /// True if the payload is valid after correction, or as given.
    pub valid_after_correction: bool,
    /// The payload after correction, even if it is not valid.
    pub corrected: Map<String, Value>,
    /// The corrections; empty if the payload is valid as given.
    pub corrections: Vec<Correction>,
}

impl From<Verdicts> for DecisionVerdict {
    fn from(verdicts: Verdicts) -> Self {
        let Verdicts { given, valid_after_correction, corrected, corrections } = verdicts;
        let (is_valid, errors, warnings) = (given.is_valid, given.errors, given.warnings);
        Self { is_valid, errors, warnings, valid_after_correction, corrected, corrections }
    }
}

/// Judges a decision with the workflows of the store, or in the given world. `models` are the known models besides
/// `default` and `offline`. `sandbox` compiles scripts.
pub async fn validate(
    store: &dyn Store,
    settings: &Settings,
    models: &[String],
    sandbox: &Sandbox,
    proposed: ProposedDecision,
) -> Result<DecisionVerdict, CommandError> {
    let ProposedDecision { session_id, agent_id, world: given, .. } = &proposed;
    let session = match (session_id, given) {
        (Some(id), None) => {
            ids::check("session_id", id)?;
            Some(store.session(id).await?.ok_or_else(|| CommandError::unknown_session(id))?)
        }
        _ => None,
    };
    let of_session = session.as_ref().map(|session| session.agent_id.as_str());
    let agent = match agent_id.as_deref().or(of_session) {
        Some(id) => {
            ids::check("agent_id", id)?;
            Some(store.agent(id).await?.ok_or_else(|| CommandError::unknown_agent(id))?)
        }
        None => None,
    };
    let decision = decision(&proposed)?;
    let mut world = DecisionLimits::new(settings, models).world(agent.as_ref().map(|agent| agent.config.as_ref()));
    add(&mut world, given.clone().unwrap_or_default())?;
    if given.is_none() {
        add_stored(store, session.as_ref(), &decision, &mut world).await?;
    }
    let world = with_scripts(&world, &decision.payload, sandbox).await;
    Ok(Coordinator::new(world.as_ref()).verdicts(decision).into())
}

/// Judges a decision with the settings and the given world only. `sandbox` compiles scripts.
pub async fn validate_here(
    settings: &Settings,
    sandbox: &Sandbox,
    proposed: &ProposedDecision,
) -> Result<DecisionVerdict, CommandError> {
    let models: Vec<String> = settings.models.keys().cloned().collect();
    let mut world = DecisionLimits::new(settings, &models).world(None);
    add(&mut world, proposed.world.clone().unwrap_or_default())?;
    let decision = decision(proposed)?;
    let world = with_scripts(&world, &decision.payload, sandbox).await;
    Ok(Coordinator::new(world.as_ref()).verdicts(decision).into())
}

/// The JSON Schemas by name.
pub fn schemas() -> BTreeMap<&'static str, Value> {
    schema::names().into_iter().filter_map(|name| Some((name, schema::named(name)?))).collect()
}

/// The JSON Schema with this name.
pub fn named_schema(name: &str) -> Result<Value, CommandError> {
    schema::named(name).ok_or_else(|| {
        let message = format!("there is no schema `{name}`");
        let hint = "/api/v1/decisions/schema has all schemas by name";
        CommandError::new(ErrorKind::NotFound, "unknown_decision_type", message, hint)
    })
}

fn invalid(message: String) -> CommandError {
    let hint = "the types are in /api/v1/decisions/schema; a payload is an object";
    CommandError::invalid("invalid_decision", message, hint)
}

fn decision(proposed: &ProposedDecision) -> Result<Decision, CommandError> {
    let name = &proposed.decision_type;
    let kind = DecisionType::parse(name);
    let kind = kind.ok_or_else(|| invalid(format!("decision_type: there is no type `{}`", name.escape_debug())))?;
    let payload = proposed.payload.as_object();
    let payload = payload.ok_or_else(|| invalid("payload: it is not an object".to_owned()))?;
    Ok(Decision::new(kind, payload.clone()))
}

/// Adds the given workflows and sub-agents.
fn add(world: &mut Snapshot, given: GivenWorld) -> Result<(), CommandError> {
    if let Some(current) = &given.current
        && given.workflows.iter().all(|workflow| workflow.workflow_id != *current)
    {
        return Err(invalid(format!("world.current: there is no workflow `{}` in `world`", current.escape_debug())));
    }
    for GivenWorkflow { workflow_id, status, definition } in given.workflows {
        world.add(WorkflowFacts { workflow_id, status, is_owned: true, definition });
    }
    world.current = given.current;
    for GivenSubagent { kind, input, timeout, .. } in given.subagents {
        let timeout = timeout.map(|timeout| timeout.0.as_secs_f64());
        world.subagents.insert(kind, SubagentFacts { input: input.map_or(Value::Null, Value::Object), timeout });
    }
    Ok(())
}

/// Adds the plans of the session, and the registered workflow that the decision names, which is always ready.
async fn add_stored(
    store: &dyn Store,
    session: Option<&Session>,
    decision: &Decision,
    world: &mut Snapshot,
) -> Result<(), CommandError> {
    if let Some(session) = session {
        for SessionPlan { workflow, state } in store.plans_of(&session.session_id).await? {
            world.add(workflow_facts(&workflow, state.status));
        }
        world.current = session.current_workflow.clone().filter(|id| world.workflows.contains_key(id));
    }
    let named = decision.payload.get("workflow_id").and_then(Value::as_str).filter(|id| ids::is_legal(id));
    if let Some(id) = named.filter(|id| !world.workflows.contains_key(*id)) {
        let registered = engine::execution::stored::workflow(store, id).await?;
        if let Some(record) = registered.filter(|record| record.owner_session.is_none()) {
            world.add(workflow_facts(&record, WorkflowStatus::Ready));
        }
    }
    Ok(())
}
