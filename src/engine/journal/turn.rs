//! What all parts of a turn's journal share: what is recorded, noted and deferred, and how that gets into the store.

use super::deferred::Deferred;
use super::spending::Spent;
use super::under_way::UnderWay;
use super::{Guard, JournalError, Stepped, lock};
use base::clock::Clock;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use storage::store::Store;
use storage::store::records::{Record, Recorded};
use types::step::StepRecord;

pub(super) struct TurnJournal {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Clock,
    pub(super) session_id: String,
    pub(super) turn_id: String,
    pub(super) epoch: u64,
    pub(super) guard: Guard,
    /// In the order of their keys, so that those of one part stand together.
    pub(super) recorded: Mutex<BTreeMap<String, Arc<StepRecord>>>,
    pub(super) notes: Mutex<Vec<Arc<StepRecord>>>,
    pub(super) deferred: Deferred,
    pub(super) spent: Arc<Spent>,
    /// No further step begins.
    pub(super) halted: AtomicBool,
    pub(super) under_way: UnderWay,
}

impl TurnJournal {
    /// Writes the deferred steps, together.
    pub(super) async fn settle(&self) -> Result<(), JournalError> {
        // Whoever comes meanwhile waits for what is on its way, too.
        let _writing = self.deferred.writing.lock().await;
        let steps = self.deferred.waiting();
        if steps.is_empty() {
            return Ok(());
        }
        if self.deferred.has_failed() {
            return Err(JournalError::Halted);
        }
        // What another worker has been given meanwhile is not written under its hands.
        if !self.guard.holds().await? {
            return Err(JournalError::Lost);
        }
        let request = Record {
            session_id: self.session_id.clone(),
            turn_id: self.turn_id.clone(),
            epoch: self.epoch,
            steps: steps.clone(),
            status: None,
        };
        let answers = self.store.record(request).await.inspect_err(|_| {
            self.deferred.fail();
            self.halt();
        })?;
        self.deferred.written(steps.len());
        for (step, answer) in steps.iter().zip(answers) {
            // What came after has used our result: it stands only if the record says the same.
            if let Recorded::Existing(earlier) = answer
                && (earlier.input_hash != step.input_hash || earlier.output != step.output)
            {
                return Err(JournalError::Overtaken { turn_id: self.turn_id.clone(), key: earlier.key.clone() });
            }
        }
        Ok(())
    }

    /// Nothing more begins in this attempt, and what is under way comes to its end: a question that is dropped may be asked
    /// when the next attempt has asked it again.
    pub(super) fn halt(&self) {
        self.halted.store(true, Ordering::Release);
    }

    /// Records `step` with the pending notes; answers the record that was there before, if any.
    pub(super) async fn record(&self, step: Arc<StepRecord>) -> Result<Option<Arc<StepRecord>>, JournalError> {
        let notes = std::mem::take(&mut *lock(&self.notes));
        let key = step.key.clone();
        let mut steps = vec![Arc::clone(&step)];
        steps.extend(notes.iter().cloned());
        let request = Record {
            session_id: self.session_id.clone(),
            turn_id: self.turn_id.clone(),
            epoch: self.epoch,
            steps,
            status: None,
        };
        let answer = match self.store.record(request).await {
            Ok(answer) => answer,
            Err(error) => {
                self.halt();
                lock(&self.notes).extend(notes);
                return Err(error.into());
            }
        };
        let earlier = match answer.into_iter().next() {
            Some(Recorded::Existing(earlier)) => Some(earlier),
            Some(Recorded::New) | None => None,
        };
        if let Some(earlier) = &earlier {
            self.spent.add(&self.turn_id, earlier);
        }
        lock(&self.recorded).insert(key, earlier.clone().unwrap_or(step));
        Ok(earlier)
    }

    pub(super) fn replay<O: DeserializeOwned>(
        &self,
        step: Arc<StepRecord>,
        input_hash: &str,
    ) -> Result<Stepped<O>, JournalError> {
        let step = Arc::unwrap_or_clone(step);
        if step.input_hash != input_hash {
            return Err(JournalError::Mismatch {
                turn_id: self.turn_id.clone(),
                key: step.key,
                recorded: step.input_hash,
                asked: input_hash.to_owned(),
            });
        }
        let output = serde_json::from_value(step.output).map_err(|error| JournalError::Unreadable {
            turn_id: self.turn_id.clone(),
            key: step.key.clone(),
            problem: error.to_string(),
        })?;
        Ok(Stepped { output, ok: step.ok, ms: step.ms, key: step.key, target: step.target })
    }
}
