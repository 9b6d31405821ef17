//! Steps of another run that a part of a journal takes over.

use super::{Journal, JournalError, lock};
use std::sync::Arc;
use storage::store::records::{Record, Recorded};
use types::step::StepRecord;

/// Number of steps in one write.
const COPY_BATCH: usize = 200;

impl Journal {
    /// Records steps of another run in this part, unless they are recorded. The keys of `steps` have no prefix; the last
    /// step shows that the copy is complete. Their tokens were counted by that run. Durable on return.
    pub(crate) async fn copy(&self, steps: Vec<StepRecord>) -> Result<(), JournalError> {
        let copied = |step: StepRecord| {
            Arc::new(StepRecord { key: self.full_key(&step.key), tokens: None, charged: None, ..step })
        };
        let steps: Vec<Arc<StepRecord>> = steps.into_iter().map(copied).collect();
        for steps in steps.chunks(COPY_BATCH) {
            if !self.turn.guard.holds().await? {
                return Err(JournalError::Lost);
            }
            let request = Record {
                session_id: self.turn.session_id.clone(),
                turn_id: self.turn.turn_id.clone(),
                epoch: self.turn.epoch,
                steps: steps.to_vec(),
                status: None,
            };
            let answers = self.turn.write(request).await?;
            let mut recorded = lock(&self.turn.recorded);
            for (step, answer) in steps.iter().zip(answers) {
                let kept = if let Recorded::Existing(earlier) = answer { earlier } else { Arc::clone(step) };
                recorded.insert(step.key.clone(), kept);
            }
        }
        Ok(())
    }
}
