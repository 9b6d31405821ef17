//! `error_recovery` in a conversation: a new run continues the session's newest failed run of the plan.

use super::execution::SyncRun;
use super::judge::Accepted;
use super::plan_changes::changed;
use super::workflows::JudgedWorkflow;
use crate::execution::TurnError;
use crate::journal::{Done, Durability, Label, StepError};
use crate::run::{BEGIN_KEY, plan_state, recovered_run};
use crate::turn::state::Turn;
use decisions::payload::{ErrorRecovery, Payload, RecoveryAction, RecoveryPlan};
use decisions::world::WorkflowStatus;
use definitions::workflow::definition::WorkflowRecord;
use futures::FutureExt;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::time::Duration;
use storage::store::StoreError;
use types::timestamp::Timestamp;

/// Output of the step that prepares a recovery.
#[derive(Serialize, Deserialize)]
enum Prepared {
    /// A new run continues the failed one.
    GoesOn {
        from_run: String,
        /// Hash of the version with the changes of the recovery.
        hash: String,
        /// When the run begins.
        until: Timestamp,
    },
    /// There is no new run, for this reason. The model reads it.
    Refused(String),
}

impl Turn<'_> {
    /// Carries out an `error_recovery`, and returns its result for the model.
    pub(super) async fn recover(&mut self, iteration: u32, accepted: &Accepted) -> Result<Value, TurnError> {
        let (Payload::ErrorRecovery(recovery), Some(judged)) = (&*accepted.payload, &accepted.workflow) else {
            return Ok(refused("the workflow no longer exists"));
        };
        let ErrorRecovery { workflow_id, recovery_plan, .. } = recovery;
        if recovery_plan.action == RecoveryAction::Abort {
            let result = json!({"workflow_id": workflow_id, "status": judged.status});
            return Ok(json!({"ok": true, "result": result}));
        }
        self.settle().await?;
        let (journal, key) = (self.journal.clone(), format!("{iteration}/recover"));
        let label = Label { kind: "recovery", target: workflow_id };
        let step = journal.step(&key, label, Durability::OnReturn, &accepted.fields, |_| async {
            let prepared = self.prepare_recovery(recovery, judged).await?;
            Ok::<_, StoreError>(Done { ok: matches!(prepared, Prepared::GoesOn { .. }), ..Done::ok(prepared) })
        });
        let prepared = match Box::pin(step).await {
            Ok(stepped) => stepped.output,
            Err(StepError::Journal(error)) => return Err(error.into()),
            Err(StepError::Operation(error)) => return Err(error.into()),
        };
        let (from_run, hash, until) = match prepared {
            Prepared::GoesOn { from_run, hash, until } => (from_run, hash, until),
            Prepared::Refused(error) => return Ok(refused(&error)),
        };
        self.services.clock.sleep(self.services.clock.now().until(until)).await;
        self.go_on(iteration, recovery, &from_run, &hash).boxed().await
    }

    /// Finds the failed run, and stores the version of the plan with the changes of the recovery, for this run only.
    async fn prepare_recovery(
        &self,
        recovery: &ErrorRecovery,
        judged: &JudgedWorkflow,
    ) -> Result<Prepared, StoreError> {
        let (services, id) = (self.services, recovery.workflow_id.as_str());
        let refused = |text: String| Ok(Prepared::Refused(text));
        let Some(failed) = recovered_run::newest_failed(services, &self.session.session_id, id).await? else {
            return refused(format!("the session has no failed run of `{id}`; execute it"));
        };
        if judged.status == WorkflowStatus::Running {
            return refused(plan_state::busy(id));
        }
        let Some(version) = services.store.workflow_version(id, &judged.hash).await? else {
            return refused(format!("the workflow `{id}` no longer exists"));
        };
        let now = services.clock.now();
        let record = match with_recovery(&version, recovery, now) {
            Ok(record) => record,
            Err(error) => return refused(error),
        };
        services.store.put_workflow_version(&record).await?;
        let delay = recovery.recovery_plan.delay.unwrap_or_default();
        let until = now.plus(Duration::try_from_secs_f64(delay).unwrap_or_default());
        Ok(Prepared::GoesOn { from_run: failed.run_id, hash: record.hash, until })
    }

    async fn go_on(
        &mut self,
        iteration: u32,
        recovery: &ErrorRecovery,
        from_run: &str,
        hash: &str,
    ) -> Result<Value, TurnError> {
        let (services, id) = (self.services, recovery.workflow_id.as_str());
        let gone = || refused("the failed run is no longer stored; execute the workflow again");
        let Some(failed) = services.store.run(from_run).await? else { return Ok(gone()) };
        let scope = self.journal.scope(&format!("{iteration}/{id}"));
        if !scope.is_recorded(BEGIN_KEY) {
            let Some(version) = services.store.workflow_version(id, hash).await? else { return Ok(gone()) };
            let (node, skips) = (&recovery.failed_node_id, recovery.recovery_plan.action == RecoveryAction::Skip);
            let steps = recovered_run::steps_to_keep(services, &failed, &version, node, skips).await?;
            let Some(steps) = steps else { return Ok(gone()) };
            scope.copy(steps).await?;
        }
        let run = SyncRun {
            workflow_id: id,
            query: &failed.query,
            params: failed.params.clone().unwrap_or_default(),
            from: Some((from_run, &recovery.failed_node_id)),
        };
        self.run_within_turn(iteration, run).await
    }
}

fn refused(error: &str) -> Value {
    json!({"ok": false, "error": error})
}

/// The version of the plan for the run that continues a failed one.
fn with_recovery(version: &WorkflowRecord, recovery: &ErrorRecovery, now: Timestamp) -> Result<WorkflowRecord, String> {
    let Some(graph) = version.graph() else { return Err(format!("`{}` is no graph; execute it again", version.id())) };
    let plan = changed(&graph.plan, &recovery.failed_node_id, &updates(&recovery.recovery_plan))?;
    version.revised(&plan, now).map_err(|error| error.to_string())
}

/// The changes of the failed node. `RETRY` repeats it, and `SKIP` lets it end without a further attempt.
fn updates(plan: &RecoveryPlan) -> Map<String, Value> {
    let mut updates = plan.modifications.clone().unwrap_or_default();
    match plan.action {
        RecoveryAction::Retry => {
            let further = plan.max_attempts.unwrap_or(1).saturating_sub(1);
            updates.insert("retry_config.max_retries".into(), further.into());
        }
        RecoveryAction::Skip => {
            let mut skip = json!({"action": "SKIP"});
            if let Some(node) = &plan.alternative_node {
                skip["alternative_node"] = node.as_str().into();
            }
            updates.insert("recovery".into(), skip);
        }
        RecoveryAction::Modify | RecoveryAction::Abort => {}
    }
    updates
}
