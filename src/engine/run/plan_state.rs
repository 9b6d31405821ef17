//! The status of a session's plan follows its runs. Each change is one conditional write, so a repeated run changes
//! nothing twice. Other workflows have no status.

use crate::execution::{Services, TurnError};
use crate::journal::{Done, Durability, Journal, Label, StepError};
use crate::workflow::orchestration::RevisedGraph;
use decisions::world::WorkflowStatus;
use definitions::workflow::definition::WorkflowRecord;
use definitions::workflow::session_plan::SessionPlan;
use storage::store::StoreError;
use tracing::warn;
use types::run::{RunRecord, RunStatus};

/// Key of the step that records whether a run within a turn may execute its plan.
const CLAIM_KEY: &str = "claim";

/// The statuses that a run replaces by `RUNNING`.
const IDLE: [WorkflowStatus; 4] =
    [WorkflowStatus::Ready, WorkflowStatus::Completed, WorkflowStatus::Failed, WorkflowStatus::Cancelled];

/// The status of a plan after a run that has ended so; `None` while the run has not ended.
pub(crate) const fn status_after(run: RunStatus) -> Option<WorkflowStatus> {
    match run {
        RunStatus::Completed => Some(WorkflowStatus::Completed),
        RunStatus::Failed => Some(WorkflowStatus::Failed),
        RunStatus::Cancelled => Some(WorkflowStatus::Cancelled),
        RunStatus::Pending | RunStatus::Running | RunStatus::Waiting => None,
    }
}

/// Error of a run whose plan another run executes.
pub(crate) fn busy(workflow_id: &str) -> String {
    format!("another run executes `{workflow_id}`; wait for its end")
}

/// Sets the plan to `RUNNING`. Returns false while another run executes it. The run must have a record, so that its end
/// can be found.
pub(crate) async fn begin(services: &Services, workflow_id: &str, run_id: &str) -> Result<bool, StoreError> {
    services.store.set_workflow_state(workflow_id, &IDLE, WorkflowStatus::Running, Some(run_id)).await
}

/// Like [`begin`], as a step: a repeated run gets the same result. True for workflows that no session owns.
pub(super) async fn claim(
    services: &Services,
    journal: &Journal,
    workflow: &WorkflowRecord,
    run_id: &str,
) -> Result<bool, TurnError> {
    if workflow.owner_session.is_none() {
        return Ok(true);
    }
    let label = Label { kind: "plan", target: workflow.id() };
    let step = journal.step(CLAIM_KEY, label, Durability::OnReturn, run_id, |_| async {
        let begun = begin(services, workflow.id(), run_id).await?;
        Ok::<_, StoreError>(Done { ok: begun, ..Done::ok(begun) })
    });
    match Box::pin(step).await {
        Ok(stepped) => Ok(stepped.output),
        Err(StepError::Journal(error)) => Err(error.into()),
        Err(StepError::Operation(error)) => Err(error.into()),
    }
}

/// Stores the last revision of a plan that a run has replanned. Does nothing if the plan was changed since the run began.
pub(super) async fn store_revision(
    services: &Services,
    begun: &WorkflowRecord,
    revised: Option<&RevisedGraph>,
) -> Result<(), StoreError> {
    let (Some(revised), true) = (revised, begun.owner_session.is_some()) else { return Ok(()) };
    let current = services.store.workflow(begun.id()).await?;
    if current.is_none_or(|current| current.hash != begun.hash) {
        return Ok(());
    }
    match begun.revised(&revised.plan, services.clock.now()) {
        Ok(record) => {
            let agent_id = record.graph().and_then(|graph| graph.coordinator.clone()).unwrap_or_default();
            services.store.put_session_plan(record, &agent_id).await
        }
        // The revision was validated, so this does not happen. The plan stays as it was.
        Err(error) => {
            warn!(workflow_id = begun.id(), "the revision of a plan cannot be stored: {error}");
            Ok(())
        }
    }
}

/// Like [`store_revision`], for a run that has recorded its end and is then abandoned.
pub(super) async fn store_recorded_revision(
    services: &Services,
    run: &RunRecord,
    revised: Option<&RevisedGraph>,
) -> Result<(), StoreError> {
    if revised.is_none() {
        return Ok(());
    }
    match services.store.workflow_version(&run.workflow_id, &run.hash).await {
        Ok(Some(begun)) => store_revision(services, &begun, revised).await,
        // Without the version with which it began, a later change of the plan cannot be recognised.
        Ok(None) | Err(StoreError::Damaged { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Sets the plan to the status of its ended run. Does nothing if another run has executed it since.
pub(super) async fn end(services: &Services, workflow: &WorkflowRecord, run: &RunRecord) -> Result<(), StoreError> {
    if workflow.owner_session.is_none() {
        return Ok(());
    }
    settle(services, run).await
}

/// Sets the status of a plan that is `RUNNING`, if its run has ended, or is no longer stored. Returns the new status.
pub(crate) async fn repair(services: &Services, plan: &SessionPlan) -> Result<Option<WorkflowStatus>, StoreError> {
    let Some(run_id) = &plan.state.status_run else { return Ok(None) };
    let status = match services.store.run(run_id).await? {
        Some(run) => status_after(run.status),
        None => Some(WorkflowStatus::Failed),
    };
    if let Some(status) = status {
        let running = [WorkflowStatus::Running];
        services.store.set_workflow_state(plan.workflow.id(), &running, status, Some(run_id)).await?;
    }
    Ok(status)
}

/// Like [`end`], for a workflow that may be a plan.
pub(crate) async fn settle(services: &Services, run: &RunRecord) -> Result<(), StoreError> {
    if let Some(status) = status_after(run.status) {
        let running = [WorkflowStatus::Running];
        services.store.set_workflow_state(&run.workflow_id, &running, status, Some(&run.run_id)).await?;
    }
    Ok(())
}
