//! Plans of sessions: graphs that a coordinator agent has made, with their owner and their state.

use super::definition::{Shape, WorkflowRecord};
use super::graph::GraphDefinition;
use super::read::WorkflowError;
use decisions::world::WorkflowStatus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use types::timestamp::Timestamp;

/// Number of plans that a session keeps.
pub const MAX_PLANS: usize = 20;

/// The state of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanState {
    /// Whether the plan can run.
    pub status: WorkflowStatus,
    /// The session that owns the plan. Only this session may run or change it.
    pub owner_session: String,
    /// The agent that made the plan.
    pub agent_id: String,
    /// The last run of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_run: Option<String>,
    /// When the plan was last stored, or its status last set.
    pub used_at: Timestamp,
}

impl PlanState {
    /// The state of a new plan.
    pub fn new(owner_session: &str, agent_id: &str, now: Timestamp) -> Self {
        let (owner_session, agent_id) = (owner_session.to_owned(), agent_id.to_owned());
        Self { status: WorkflowStatus::Ready, owner_session, agent_id, status_run: None, used_at: now }
    }

    /// True if the change is allowed: the status is one of `from`, and a run that ends is the one that runs. A change
    /// that was made before is allowed again.
    pub fn may_become(&self, from: &[WorkflowStatus], to: WorkflowStatus, run_id: Option<&str>) -> bool {
        let is_same_run = self.status_run.as_deref() == run_id;
        let is_made = self.status == to && (run_id.is_none() || is_same_run);
        let is_of_run = run_id.is_none() || to == WorkflowStatus::Running || is_same_run;
        is_made || (from.contains(&self.status) && is_of_run)
    }
}

/// A plan with its state.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionPlan {
    /// The workflow: a graph.
    pub workflow: Arc<WorkflowRecord>,
    /// The state.
    pub state: PlanState,
}

impl SessionPlan {
    /// The name for people.
    pub fn name(&self) -> &str {
        self.workflow.graph().map_or("", |graph| graph.name.as_str())
    }
}

/// The identity of a new plan.
#[derive(Clone, Copy, Debug)]
pub struct PlanOrigin<'p> {
    /// Id of the workflow.
    pub id: &'p str,
    /// The session that owns it.
    pub owner_session: &'p str,
    /// The agent that made it. It is asked when a node fails for good.
    pub agent_id: &'p str,
}

impl WorkflowRecord {
    /// The graph of this workflow; `None` for another type.
    pub fn graph(&self) -> Option<&GraphDefinition> {
        match &self.workflow.shape {
            Shape::Graph(graph) => Some(graph),
            _ => None,
        }
    }

    /// The workflow of a plan. `fields` are `name`, `description`, `nodes`, `edges` and `global_config`; other fields are
    /// left out.
    pub fn of_plan(origin: PlanOrigin<'_>, fields: &Map<String, Value>, now: Timestamp) -> Result<Self, WorkflowError> {
        const FIELDS: [&str; 5] = ["name", "description", "nodes", "edges", "global_config"];
        let present = FIELDS.iter().filter_map(|name| Some((*name, fields.get(*name)?)));
        let mut document =
            Map::from_iter([("type".to_owned(), Value::from("graph")), ("id".to_owned(), origin.id.into())]);
        document.extend(
            present.filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.to_owned(), value.clone())),
        );
        document.insert("coordinator".into(), origin.agent_id.into());
        let record = Self::from_document(Value::Object(document), now)?;
        Ok(Self { owner_session: Some(origin.owner_session.into()), ..record })
    }

    /// The same workflow with other nodes, edges or settings: `plan` replaces the fields that it has.
    pub fn revised(&self, plan: &Map<String, Value>, now: Timestamp) -> Result<Self, WorkflowError> {
        let mut document = self.document.clone();
        if let Value::Object(fields) = &mut document {
            fields.extend(plan.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        let revised = Self::from_document(document, now)?;
        Ok(Self { owner_session: self.owner_session.clone(), ..revised })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use WorkflowStatus::{Completed, Failed, Ready, Running};
    use serde_json::json;

    fn state(status: WorkflowStatus, run_id: &str) -> PlanState {
        let state = PlanState::new("s1", "a", Timestamp::from_millis(0));
        PlanState { status, status_run: Some(run_id.to_owned()), ..state }
    }

    #[test]
    fn a_run_begins_once_and_ends_its_own_plan_only() {
        let can = [Ready, Completed];
        assert!(state(Ready, "r0").may_become(&can, Running, Some("r1")));
        assert!(state(Running, "r1").may_become(&can, Running, Some("r1")), "a repeat");
        assert!(!state(Running, "r0").may_become(&can, Running, Some("r1")));
        assert!(!state(Failed, "r0").may_become(&can, Running, Some("r1")));
        assert!(state(Running, "r1").may_become(&[Running], Failed, Some("r1")));
        assert!(state(Failed, "r1").may_become(&[Running], Failed, Some("r1")), "a repeat");
        assert!(!state(Running, "r2").may_become(&[Running], Completed, Some("r1")));
        assert!(state(Failed, "r1").may_become(&[Failed], Ready, None));
        assert!(!state(Running, "r1").may_become(&[Failed], Ready, None));
    }

    #[test]
    fn a_plan_is_the_document_of_a_graph() {
        let fields = json!({"action_type": "create_workflow_plan", "name": "问", "description": "", "edges": null,
            "nodes": [{"node_id": "a", "type": "LLM", "name": "问", "config": {"prompt": "你好"}}]});
        let origin = PlanOrigin { id: "w1", owner_session: "s1", agent_id: "planner" };
        let fields = fields.as_object().cloned().unwrap_or_default();
        let record = WorkflowRecord::of_plan(origin, &fields, Timestamp::from_millis(0)).unwrap();
        assert_eq!((record.id(), record.owner_session.as_deref()), ("w1", Some("s1")));
        assert_eq!(record.document["coordinator"], "planner");
        assert_eq!(record.document.get("action_type"), None);
        assert!(record.is_for(Some("s1")) && !record.is_for(Some("s2")) && !record.is_for(None));
        let nodes = json!({"nodes": [{"node_id": "b", "type": "LLM", "name": "答", "config": {"prompt": "好"}}]});
        let revised = record.revised(nodes.as_object().unwrap(), Timestamp::from_millis(0)).unwrap();
        assert!(revised.hash != record.hash && revised.owner_session == record.owner_session);
        assert_eq!(revised.graph().unwrap().level.nodes[0].id(), "b");
    }
}
