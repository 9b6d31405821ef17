//! Decisions that store a plan: a new one, a changed node, and a revision. A step stores the plan. It changes the
//! version that the decision was judged with, so a repeated turn stores the same plan.

use super::judge::Accepted;
use super::workflows::{JudgedWorkflow, nodes_of};
use crate::execution::TurnError;
use crate::journal::{Done, Durability, Label, StepError};
use crate::turn::state::Turn;
use decisions::node_type::NodeType;
use decisions::payload::{CreateNode, ModifyNode, Payload};
use decisions::world::WorkflowStatus;
use decisions::{changes, revision};
use definitions::workflow::definition::WorkflowRecord;
use definitions::workflow::session_plan::PlanOrigin;
use serde::Serialize;
use serde_json::{Map, Value, json};
use storage::store::StoreError;
use types::timestamp::Timestamp;

/// Id of the only node of a plan that `create_node` makes.
const SINGLE_NODE: &str = "node_1";

/// The statuses that a change of the plan replaces by `READY`.
const CHANGEABLE: [WorkflowStatus; 4] =
    [WorkflowStatus::Draft, WorkflowStatus::Completed, WorkflowStatus::Failed, WorkflowStatus::Cancelled];

/// Input of the step that stores a plan.
#[derive(Serialize)]
struct StoreInput<'i> {
    workflow_id: &'i str,
    base: Option<&'i JudgedWorkflow>,
    payload: &'i Map<String, Value>,
}

impl Turn<'_> {
    /// Id of the plan that a decision of this iteration creates. It is the same in every attempt of the turn.
    pub(super) fn plan_id(&self, iteration: u32) -> String {
        let digest = md5::compute(format!("{}/{}/{iteration}", self.session.session_id, self.turn_id()));
        format!("w{digest:x}")
    }

    /// Stores a new plan. Returns its result for the model.
    pub(super) async fn create_plan(&mut self, iteration: u32, accepted: &Accepted) -> Result<Value, TurnError> {
        let id = self.plan_id(iteration);
        let fields = match &*accepted.payload {
            Payload::CreateNode(node) => single(node, &accepted.fields),
            _ => accepted.fields.clone(),
        };
        self.store_plan(iteration, &id, accepted, Box::new(move |_| Ok(fields))).await
    }

    /// Changes a node of a plan.
    pub(super) async fn modify_node(&mut self, iteration: u32, accepted: &Accepted) -> Result<Value, TurnError> {
        let (Payload::ModifyNode(ModifyNode { node_id, updates, .. }), Some(judged)) =
            (&*accepted.payload, &accepted.workflow)
        else {
            return Ok(gone());
        };
        let (node_id, updates) = (node_id.clone(), updates.clone());
        let change = move |plan: &Map<String, Value>| changed(plan, &node_id, &updates);
        self.store_plan(iteration, &judged.workflow_id, accepted, Box::new(change)).await
    }

    /// Stores a revision of a plan.
    pub(super) async fn replan(&mut self, iteration: u32, accepted: &Accepted) -> Result<Value, TurnError> {
        let (Payload::ReplanWorkflow(replan), Some(judged)) = (&*accepted.payload, &accepted.workflow) else {
            return Ok(gone());
        };
        let suggested = replan.suggested_changes.clone().unwrap_or_default();
        let change = move |plan: &Map<String, Value>| Ok(revision::apply(plan, &suggested).plan);
        self.store_plan(iteration, &judged.workflow_id, accepted, Box::new(change)).await
    }

    /// Stores a version of a plan in the step `<i>/store`: `make` returns its fields from those of the version that was
    /// judged. The plan becomes the session's current one.
    async fn store_plan(
        &mut self,
        iteration: u32,
        id: &str,
        accepted: &Accepted,
        make: MakePlan,
    ) -> Result<Value, TurnError> {
        self.settle().await?;
        let base = accepted.workflow.as_ref();
        let (services, journal) = (self.services, self.journal.clone());
        let (session_id, agent_id) = (self.session.session_id.as_str(), self.agent.config.id.as_str());
        let input = StoreInput { workflow_id: id, base, payload: &accepted.fields };
        let (key, label) = (format!("{iteration}/store"), Label { kind: "store", target: id });
        let step = journal.step(&key, label, Durability::OnReturn, &input, |_| async {
            let (store, now) = (&services.store, services.clock.now());
            let record = match base {
                Some(base) => match store.workflow_version(id, &base.hash).await? {
                    Some(version) => make(&plan_of(&version)).and_then(|plan| revised(&version, &plan, now)),
                    None => return Ok(Done { ok: false, ..Done::ok(gone()) }),
                },
                None => make(&Map::new()).and_then(|fields| {
                    let origin = PlanOrigin { id, owner_session: session_id, agent_id };
                    WorkflowRecord::of_plan(origin, &fields, now).map_err(|error| error.to_string())
                }),
            };
            let record = match record {
                Ok(record) => record,
                Err(error) => return Ok(Done { ok: false, ..Done::ok(json!({"ok": false, "error": error})) }),
            };
            let runs = base.is_some_and(|base| base.status == WorkflowStatus::Running);
            let status = if runs { WorkflowStatus::Running } else { WorkflowStatus::Ready };
            let name = record.graph().map_or("", |graph| graph.name.as_str());
            let result = json!({"workflow_id": id, "name": name, "status": status, "nodes": nodes_of(&record)});
            store.put_session_plan(record, agent_id).await?;
            if base.is_some() {
                store.set_workflow_state(id, &CHANGEABLE, WorkflowStatus::Ready, None).await?;
            }
            Ok::<_, StoreError>(Done::ok(json!({"ok": true, "result": result})))
        });
        let result = match Box::pin(step).await {
            Ok(stepped) => stepped.output,
            Err(StepError::Journal(error)) => return Err(error.into()),
            Err(StepError::Operation(error)) => return Err(error.into()),
        };
        if result["ok"] == true {
            self.session.current_workflow = Some(id.to_owned());
        }
        Ok(result)
    }
}

/// Makes the fields of a plan from those of its last version. The error is a text for the model.
type MakePlan = Box<dyn FnOnce(&Map<String, Value>) -> Result<Map<String, Value>, String> + Send>;

fn gone() -> Value {
    json!({"ok": false, "error": "the plan no longer exists; create it again"})
}

fn plan_of(version: &WorkflowRecord) -> Map<String, Value> {
    version.graph().map(|graph| graph.plan.clone()).unwrap_or_default()
}

fn revised(version: &WorkflowRecord, plan: &Map<String, Value>, now: Timestamp) -> Result<WorkflowRecord, String> {
    version.revised(plan, now).map_err(|error| error.to_string())
}

/// The plan with changes of one node.
pub(super) fn changed(
    plan: &Map<String, Value>,
    node_id: &str,
    updates: &Map<String, Value>,
) -> Result<Map<String, Value>, String> {
    let missing = || format!("the plan has no node `{node_id}`; name another one");
    let node = revision::node(plan, node_id).ok_or_else(missing)?;
    let kind = node.get("type").and_then(Value::as_str).and_then(NodeType::parse).ok_or_else(missing)?;
    let changed = changes::apply(kind, node, updates);
    if let Some(problem) = changed.problems.first() {
        return Err(format!("`{}` {}", problem.key, problem.text));
    }
    revision::with_node(plan, node_id, changed.node).ok_or_else(missing)
}

/// The fields of a plan with one node. `fields` are those of the payload.
fn single(node: &CreateNode, fields: &Map<String, Value>) -> Map<String, Value> {
    let mut spec =
        json!({"node_id": SINGLE_NODE, "type": node.node_type, "name": node.node_name, "config": node.config});
    if let Some(retry_config) = fields.get("retry_config").filter(|retry| !retry.is_null()) {
        spec["retry_config"] = retry_config.clone();
    }
    let description = node.description.clone().unwrap_or_default();
    let plan = [
        ("name", Value::from(node.node_name.as_str())),
        ("description", description.into()),
        ("nodes", json!([spec])),
        ("edges", json!([])),
    ];
    plan.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
