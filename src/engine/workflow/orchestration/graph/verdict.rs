//! The recorded verdict on a recovery or a replan. A repeated run follows it.

use super::failure::NodeError;
use super::scope::GraphRun;
use crate::journal::{Done, Durability, Label, StepError};
use crate::scripts::with_scripts;
use crate::workflow::orchestration::stage_context::StageContext;
use decisions::correct::Correction;
use decisions::judge::{Coordinator, Judged};
use decisions::kind::Decision;
use decisions::policy::Policy;
use decisions::world::{Snapshot, WorkflowFacts, WorkflowStatus};
use definitions::agent::AgentRecord;
use definitions::workflow::condition::Condition;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::convert::Infallible;
use types::timestamp::Timestamp;

/// The verdict.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Verdict {
    /// Empty for a valid decision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) errors: Vec<String>,
    /// The payload after correction; absent for a rejected decision.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(super) payload: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) corrections: Vec<Correction>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
    /// The time at which a RETRY begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<Timestamp>,
    /// The graph after a replan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) plan: Option<Map<String, Value>>,
}

impl Verdict {
    /// The verdict on a decision that is not carried out.
    pub(super) fn rejected(errors: Vec<String>) -> Self {
        Self { errors, ..Self::default() }
    }

    pub(super) fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }
}

/// Records the verdict on a decision under `key`. `complete` adds what belongs to the type of the decision.
pub(super) async fn record(
    here: &StageContext,
    key: &str,
    world: &Snapshot,
    decision: Decision,
    complete: impl FnOnce(Verdict) -> Verdict + Send,
) -> Result<Verdict, NodeError> {
    let label = Label { kind: "decision", target: decision.decision_type.as_str() };
    let (input, sandbox) = (decision.clone(), &here.services().sandbox);
    let journal = here.journal();
    let step = journal.step(key, label, Durability::OnReturn, &input, |_| async move {
        let world = with_scripts(world, &decision.payload, sandbox).await;
        let verdict = match Coordinator::new(world.as_ref()).judge(decision) {
            Judged::Rejected { errors } => Verdict::rejected(errors),
            Judged::Valid { fields, corrections, warnings, .. } => {
                complete(Verdict { payload: fields, corrections, warnings, ..Verdict::default() })
            }
        };
        Ok::<_, Infallible>(Done { ok: verdict.is_valid(), ..Done::ok(verdict) })
    });
    match Box::pin(step).await {
        Ok(stepped) => Ok(stepped.output),
        Err(StepError::Journal(error)) => Err(error.into()),
        Err(StepError::Operation(never)) => match never {},
    }
}

/// The world in which a decision about the run is judged. `plan` is the run's own copy of the graph, so the decision may
/// change it. Without an agent the plan is the operator's, who may do anything.
pub(super) fn world(
    here: &StageContext,
    scope: &GraphRun<'_>,
    agent: Option<&AgentRecord>,
    plan: Map<String, Value>,
) -> Snapshot {
    let mut world = match agent {
        Some(agent) => here.services().decisions.world(Some(&agent.config)),
        None => {
            Snapshot::new(Policy::default(), |text| Condition::parse(text).map(drop).map_err(|error| error.to_string()))
        }
    };
    let workflow_id = scope.workflow_id.to_owned();
    world.current = Some(workflow_id.clone());
    world.add(WorkflowFacts { workflow_id, status: WorkflowStatus::Running, is_owned: true, definition: plan });
    world
}
