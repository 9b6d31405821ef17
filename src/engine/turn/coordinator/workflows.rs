//! The workflows of a coordinator: the plans of its session with their status, and the registered workflows that it may
//! run. They are read before a decision is judged, and for the prompts.

use crate::execution::prompt_view::pretty_json;
use crate::execution::{Services, TurnError, stored};
use crate::run::plan_state;
use crate::turn::state::Turn;
use decisions::kind::{Decision, DecisionType};
use decisions::node_type::NodeType;
use decisions::table::configs;
use decisions::world::{Snapshot, WorkflowStatus, World};
use definitions::coordinator::workflow_facts;
use definitions::workflow::definition::WorkflowRecord;
use definitions::workflow::session_plan::SessionPlan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use storage::store::StoreError;
use types::ids;
use types::run::RunRecord;

/// Limit in bytes on the nodes of the current plan in a prompt. Of larger ones it has ids, types and names.
const MAX_SHOWN: usize = 16 * 1024;

/// The version of a workflow that a verdict depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JudgedWorkflow {
    /// The id.
    pub workflow_id: String,
    /// Hash of the version.
    pub hash: String,
    /// The status when the decision was judged.
    pub status: WorkflowStatus,
}

/// The session in which a decision is made.
#[derive(Clone, Copy)]
pub(super) struct Place<'p> {
    pub(super) session_id: &'p str,
    /// Id of the session's current workflow. A session without one has no plans.
    pub(super) current: Option<&'p str>,
}

/// The workflow that the decision names, or the current one.
pub(super) fn named<'d>(decision: &'d Decision, current: Option<&'d str>) -> Option<&'d str> {
    let named = decision.payload.get("workflow_id").and_then(Value::as_str);
    match decision.decision_type {
        DecisionType::ExecuteWorkflow | DecisionType::ErrorRecovery | DecisionType::ReplanWorkflow => named,
        DecisionType::ModifyNode => named.or(current),
        _ => None,
    }
    .filter(|id| ids::is_legal(id))
}

/// Adds the workflows that a verdict on the decision may depend on: the session's plans, and the registered workflow that
/// the decision names. Returns the version of the named one.
pub(super) async fn add_workflows(
    services: &Services,
    place: Place<'_>,
    decision: &Decision,
    world: &mut Snapshot,
) -> Result<Option<JudgedWorkflow>, StoreError> {
    let Some(id) = named(decision, place.current) else { return Ok(None) };
    let plans = plans_of(services, place).await?;
    let mut found = None;
    for SessionPlan { workflow, state } in &plans {
        world.add(workflow_facts(workflow, state.status));
        if workflow.id() == id {
            found = Some((Arc::clone(workflow), state.status));
        }
    }
    world.current = place.current.filter(|id| world.workflows.contains_key(*id)).map(str::to_owned);
    if found.is_none()
        && let Some(workflow) = registered(services, id).await?
    {
        world.add(workflow_facts(&workflow, WorkflowStatus::Ready));
        found = Some((workflow, WorkflowStatus::Ready));
    }
    let judged = |(workflow, status): (Arc<WorkflowRecord>, _)| JudgedWorkflow {
        workflow_id: workflow.id().to_owned(),
        hash: workflow.hash.clone(),
        status,
    };
    Ok(found.map(judged))
}

/// The registered workflow with this id. The plans of other sessions do not exist, nor does a damaged workflow.
async fn registered(services: &Services, id: &str) -> Result<Option<Arc<WorkflowRecord>>, StoreError> {
    match stored::workflow(services.store.as_ref(), id).await {
        Ok(found) => Ok(found.filter(|workflow| workflow.owner_session.is_none())),
        Err(StoreError::Damaged { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The session's plans with their status. The status of a plan whose run has ended without setting it is set now.
async fn plans_of(services: &Services, place: Place<'_>) -> Result<Vec<SessionPlan>, StoreError> {
    if place.current.is_none() {
        return Ok(Vec::new());
    }
    let mut plans = services.store.plans_of(place.session_id).await?;
    for plan in plans.iter_mut().filter(|plan| plan.state.status == WorkflowStatus::Running) {
        if let Some(status) = plan_state::repair(services, plan).await? {
            plan.state.status = status;
        }
    }
    Ok(plans)
}

impl Turn<'_> {
    /// The place of this turn's decisions.
    pub(super) fn place(&self) -> Place<'_> {
        Place { session_id: &self.session.session_id, current: self.session.current_workflow.as_deref() }
    }

    /// The workflows as JSON for a prompt; empty without workflows.
    pub(super) async fn workflows_text(&self) -> Result<String, TurnError> {
        let mut shown = Vec::new();
        let place = self.place();
        for plan in plans_of(self.services, place).await? {
            let run = match (&plan.state.status_run, plan.state.status) {
                (Some(run_id), WorkflowStatus::Failed) => self.services.store.run(run_id).await?,
                _ => None,
            };
            shown.push(plan_view(&plan, place.current, run.as_ref()));
        }
        let listed = self.agent.config.coordinator.as_ref().and_then(|config| config.workflows.as_ref());
        for id in listed.into_iter().flatten() {
            if let Some(workflow) = registered(self.services, id).await? {
                shown.push(registered_view(&workflow));
            }
        }
        Ok(if shown.is_empty() { String::new() } else { pretty_json(&Value::Array(shown)) })
    }

    /// The types of nodes that this agent may use, each with its output, and the connectors with their tables, for a
    /// prompt.
    pub(super) async fn node_texts(&self, world: &Snapshot) -> [(&'static str, String); 2] {
        let policy = world.policy();
        let kinds: Vec<String> =
            policy.node_types.iter().map(|kind| format!("- {kind}: {}", configs::output(*kind))).collect();
        let has_databases = policy.node_types.contains(&NodeType::Database);
        let is_allowed = |name: &str| {
            has_databases && policy.connectors.as_ref().is_none_or(|allowed| allowed.iter().any(|one| one == name))
        };
        let connectors = self.services.connectors.describe(is_allowed).await;
        let connectors: Vec<String> = connectors.iter().map(|connector| format!("- {connector}")).collect();
        [("node_types", kinds.join("\n")), ("connectors", connectors.join("\n"))]
    }
}

/// The ids, types and names of a plan's nodes.
pub(super) fn nodes_of(workflow: &WorkflowRecord) -> Vec<Value> {
    let nodes = workflow.graph().into_iter().flat_map(|graph| &graph.level.nodes);
    nodes.map(|node| json!({"node_id": node.id(), "type": node.kind(), "name": node.spec.name})).collect()
}

fn plan_view(plan: &SessionPlan, current: Option<&str>, failed: Option<&RunRecord>) -> Value {
    let (workflow, status) = (&plan.workflow, plan.state.status);
    let mut view = json!({"workflow_id": workflow.id(), "name": plan.name(), "status": status});
    view["nodes"] = nodes_of(workflow).into();
    if current == Some(workflow.id()) {
        view["current"] = true.into();
        let whole = ["nodes", "edges"].map(|name| workflow.document.get(name).cloned().unwrap_or_default());
        if whole.iter().map(|part| part.to_string().len()).sum::<usize>() <= MAX_SHOWN {
            [view["nodes"], view["edges"]] = whole;
        }
    }
    add_inputs(&mut view, workflow);
    if let Some(failure) = failed.and_then(|run| run.error.as_ref()) {
        view["failed_node_id"] = json!(failure.path_within("", workflow.id()));
        view["error"] = failure.cause.as_str().into();
    }
    view
}

fn registered_view(workflow: &WorkflowRecord) -> Value {
    let name = workflow.graph().map(|graph| graph.name.as_str()).filter(|name| !name.is_empty());
    let mut view = json!({"workflow_id": workflow.id(), "name": name.unwrap_or(workflow.id()),
        "description": workflow.workflow.description, "status": WorkflowStatus::Ready});
    add_inputs(&mut view, workflow);
    view
}

fn add_inputs(view: &mut Value, workflow: &WorkflowRecord) {
    if let Some(inputs) = workflow.graph().and_then(|graph| graph.global.inputs.as_ref()) {
        view["inputs"] = json!(inputs);
    }
}
