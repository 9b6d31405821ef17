//! A model whose calls are counted, under the name that the settings give it.

use super::{DeltaSink, Model, ModelError, ModelReply, ModelRequest};
use crate::metrics::ModelMetrics;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Instant;

/// See the module.
pub(super) struct Metered {
    model: Arc<dyn Model>,
    metrics: ModelMetrics,
}

impl Metered {
    pub(super) fn new(name: &str, model: Arc<dyn Model>) -> Self {
        Self { model, metrics: ModelMetrics::of(name) }
    }
}

#[async_trait]
impl Model for Metered {
    async fn complete(&self, request: ModelRequest) -> Result<ModelReply, ModelError> {
        let begun = Instant::now();
        let answer = self.model.complete(request).await;
        self.metrics.asked(begun.elapsed(), &answer);
        answer
    }

    async fn stream(&self, request: ModelRequest, deltas: DeltaSink) -> Result<ModelReply, ModelError> {
        let begun = Instant::now();
        let answer = self.model.stream(request, deltas.clone()).await;
        self.metrics.asked(begun.elapsed(), &answer);
        if let Some(first) = deltas.first() {
            self.metrics.first_chunk(first.saturating_duration_since(begun));
        }
        answer
    }
}
