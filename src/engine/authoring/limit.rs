//! The time limit of a stage.

use crate::model::{DeltaSink, Model, ModelError, ModelReply, ModelRequest};
use async_trait::async_trait;
use base::clock::{Clock, Moment};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use types::authoring::{Stage, StoredState};

/// One visit of a stage, which may take `timeout_seconds`. A repeated turn starts the visit again.
#[derive(Clone, Debug)]
pub(super) struct Visit {
    stage: Stage,
    begun: Moment,
    seconds: u32,
    clock: Clock,
}

impl Visit {
    /// Begins the visit of the current stage.
    pub(super) fn new(stored: &StoredState, clock: &Clock) -> Self {
        Self {
            stage: stored.state.stage,
            begun: clock.moment(),
            seconds: stored.config.timeout_seconds,
            clock: clock.clone(),
        }
    }

    /// Begins another visit if the stage has changed.
    pub(super) fn enter(&mut self, stored: &StoredState) {
        if self.stage != stored.state.stage {
            *self = Self::new(stored, &self.clock);
        }
    }

    /// Returns the time limit of the whole visit, in seconds.
    pub(super) const fn seconds(&self) -> u32 {
        self.seconds
    }

    /// Returns the remaining time.
    pub(super) fn left(&self) -> Duration {
        Duration::from_secs(self.seconds.into()).saturating_sub(self.begun.until(self.clock.moment()))
    }

    /// Returns the result of `work`, or `None` if it takes longer than the remaining time.
    pub(super) async fn limit<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let left = self.left();
        if left.is_zero() { None } else { self.clock.timeout(left, work).await }
    }
}

/// A model that must answer within the visit of a stage.
pub(super) struct TimedModel {
    pub(super) model: Arc<dyn Model>,
    pub(super) visit: Visit,
}

impl TimedModel {
    async fn within<F: Future<Output = Result<ModelReply, ModelError>>>(&self, answer: F) -> F::Output {
        let late = || ModelError::Late { seconds: self.visit.seconds() };
        self.visit.limit(answer).await.unwrap_or_else(|| Err(late()))
    }
}

#[async_trait]
impl Model for TimedModel {
    async fn complete(&self, request: ModelRequest) -> Result<ModelReply, ModelError> {
        self.within(self.model.complete(request)).await
    }

    async fn stream(&self, request: ModelRequest, deltas: DeltaSink) -> Result<ModelReply, ModelError> {
        self.within(self.model.stream(request, deltas)).await
    }
}
