//! The state that all parts of a turn's journal share, and how it is written to the store.

use super::deferred::Deferred;
use super::running_steps::RunningSteps;
use super::under_way::UnderWay;
use super::usage::UsageLog;
use super::{Guard, JournalError, PromptMask, Stepped, lock};
use base::clock::Clock;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use storage::store::records::{Record, Recorded};
use storage::store::{self, Store};
use types::step::StepRecord;

pub(super) struct TurnJournal {
    /// Where steps are recorded; `None` for a journal in memory.
    pub(super) store: Option<Arc<dyn Store>>,
    pub(super) clock: Clock,
    pub(super) session_id: String,
    pub(super) turn_id: String,
    pub(super) epoch: u64,
    pub(super) guard: Guard,
    /// Recorded steps by key. Sorted, so that the steps of one part are contiguous.
    pub(super) recorded: Mutex<BTreeMap<String, Arc<StepRecord>>>,
    pub(super) notes: Mutex<Vec<Arc<StepRecord>>>,
    pub(super) deferred: Deferred,
    pub(super) usage: Arc<UsageLog>,
    /// No further step may start.
    pub(super) halted: AtomicBool,
    pub(super) running_steps: RunningSteps,
    /// The steps whose operations run now, by full key.
    pub(super) under_way: UnderWay,
    /// Masks the prompts of model calls, if prompts are kept.
    pub(super) prompt_mask: Option<PromptMask>,
}

impl TurnJournal {
    /// Creates an empty journal in memory.
    pub(super) fn in_memory(clock: Clock, session_id: &str, turn_id: &str, guard: Guard) -> Self {
        Self {
            store: None,
            clock,
            session_id: session_id.to_owned(),
            turn_id: turn_id.to_owned(),
            epoch: 0,
            guard,
            recorded: Mutex::default(),
            notes: Mutex::default(),
            deferred: Deferred::default(),
            usage: Arc::default(),
            halted: AtomicBool::new(false),
            running_steps: RunningSteps::default(),
            under_way: UnderWay::default(),
            prompt_mask: None,
        }
    }

    /// Writes all deferred steps in one request.
    pub(super) async fn settle(&self) -> Result<(), JournalError> {
        // A concurrent caller waits for the write in flight, too.
        let _writing = self.deferred.writing.lock().await;
        let steps = self.deferred.waiting();
        if steps.is_empty() {
            return Ok(());
        }
        if self.deferred.has_failed() {
            return Err(JournalError::Halted);
        }
        // Do not write into a turn that another worker runs by now.
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
        let answers = self.write(request).await.inspect_err(|_| {
            self.deferred.fail();
            self.halt();
        })?;
        self.deferred.written(steps.len());
        for (step, answer) in steps.iter().zip(answers) {
            // Later steps have used our result, so it must be equal to the recorded one.
            if let Recorded::Existing(earlier) = answer
                && (earlier.input_hash != step.input_hash || earlier.output != step.output)
            {
                return Err(JournalError::Overtaken { turn_id: self.turn_id.clone(), key: earlier.key.clone() });
            }
        }
        Ok(())
    }

    /// Writes steps to the store, if there is one.
    pub(super) async fn write(&self, request: Record) -> store::Result<Vec<Recorded>> {
        match &self.store {
            Some(store) => store.record(request).await,
            None => Ok(request.steps.iter().map(|_| Recorded::New).collect()),
        }
    }

    /// Lets no further step start in this attempt. Running steps complete: an aborted model call could still reach its
    /// server, and the next attempt would send it a second time.
    pub(super) fn halt(&self) {
        self.halted.store(true, Ordering::Release);
    }

    /// Records `step` together with the pending notes. Returns the record that another attempt has written before, if
    /// it did.
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
        let answer = match self.write(request).await {
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
            self.usage.add(&self.turn_id, earlier);
        }
        lock(&self.recorded).insert(key, earlier.clone().unwrap_or(step));
        Ok(earlier)
    }

    pub(super) fn replay<O: DeserializeOwned>(
        &self,
        step: &StepRecord,
        input_hash: &str,
    ) -> Result<Stepped<O>, JournalError> {
        if step.input_hash != input_hash {
            return Err(JournalError::Mismatch {
                turn_id: self.turn_id.clone(),
                key: step.key.clone(),
                recorded: step.input_hash.clone(),
                asked: input_hash.to_owned(),
            });
        }
        let output = O::deserialize(&step.output).map_err(|source| JournalError::Unreadable {
            turn_id: self.turn_id.clone(),
            key: step.key.clone(),
            source,
        })?;
        Ok(Stepped::new(step, output))
    }
}
