//! Copies the recorded steps with which a resumed or restarted run continues.

use super::recorded_end::END_KEY;
use super::start_record::BEGIN_KEY;
use super::start_record::{StartError, StartRecord};
use super::{RunJob, RunTurn, start_record, step_reuse};
use definitions::workflow::definition::Workflow;
use std::collections::HashMap;
use std::sync::Arc;
use storage::store::records::Record;
use types::step::StepRecord;

impl RunTurn<'_> {
    /// Copies the recorded steps with which a resumed or restarted run continues into this turn's journal. Durable on
    /// return. The step `begin` is written last, so its presence shows that the copy is complete.
    pub(super) async fn copy_steps(&self, run_job: &RunJob<'_>) -> Result<(), StartError> {
        let (Some(from_run), store) = (run_job.from_run, &self.services.store) else { return Ok(()) };
        let is_begin = |step: &StepRecord| step.key == BEGIN_KEY;
        if self.resumed && store.steps(self.run_id(), self.turn_id()).await?.iter().any(is_begin) {
            return Ok(());
        }
        let source = if self.is_resume(run_job) { self.known.clone() } else { store.run(from_run).await? };
        let Some(source) = source else {
            return Err(StartError::Unfit(format!("run `{from_run}` no longer exists")));
        };
        let steps = store.steps(&source.lane, &source.turn_id).await?;
        let mut steps = step_reuse::steps_of_run(steps, &source.prefix);
        // The run continues, so its recorded end does not count.
        steps.retain(|step| step.key != END_KEY);
        let mut steps = match (self.is_resume(run_job), run_job.from_stage) {
            (true, _) => step_reuse::steps_for_resume(steps, source.error.as_ref().map_or("", |error| &error.path)),
            (false, None) => steps.into_iter().filter(is_begin).collect(),
            (false, Some(stage)) => self.steps_before(steps, stage).await.map_err(|error| match error {
                StartError::Unfit(problem) => StartError::Unfit(format!("{problem} (run `{from_run}`)")),
                error => error,
            })?,
        };
        steps.sort_by_key(is_begin);
        for steps in steps.chunks(COPY_BATCH) {
            let request = Record {
                session_id: self.run_id().to_owned(),
                epoch: self.session.epoch,
                turn_id: self.turn_id().to_owned(),
                steps: steps.iter().cloned().map(Arc::new).collect(),
                status: None,
            };
            store.record(request).await?;
        }
        Ok(())
    }

    /// Selects the `steps` that do not depend on `stage`.
    pub(super) async fn steps_before(
        &self,
        steps: Vec<StepRecord>,
        stage: &str,
    ) -> Result<Vec<StepRecord>, StartError> {
        let Some(start_record) = StartRecord::from_steps(&steps, "") else {
            let problem = "its first step, which has its definitions, is no longer stored";
            return Err(StartError::Unfit(problem.to_owned()));
        };
        let resolved = start_record::load(self.services, &start_record.manifest).await?;
        let by_id: HashMap<String, Arc<Workflow>> =
            resolved.definitions().0.map(|record| (record.id().to_owned(), Arc::clone(&record.workflow))).collect();
        Ok(step_reuse::steps_for_restart(steps, &resolved.root().workflow, &|id| by_id.get(id).cloned(), stage))
    }
}

/// Number of steps copied from an earlier turn in one write.
const COPY_BATCH: usize = 200;
