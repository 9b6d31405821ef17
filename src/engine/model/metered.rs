//! Counts the calls of a model, under its name in the settings.

use super::{DeltaSink, Model, ModelError, ModelReply, ModelRequest};
use async_trait::async_trait;
use base::metrics::ModelMetrics;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::warn;

/// A model with metrics and a log line for each failed call.
pub(super) struct Metered {
    name: String,
    model: Arc<dyn Model>,
    metrics: ModelMetrics,
}

impl Metered {
    pub(super) fn new(name: &str, model: Arc<dyn Model>) -> Self {
        Self { name: name.to_owned(), model, metrics: ModelMetrics::for_model(name) }
    }

    /// Counts a call and logs a failure. The surrounding span carries session and turn.
    fn record_call(&self, took: Duration, answer: &Result<ModelReply, ModelError>) {
        match answer {
            Ok(reply) => self.metrics.record_answer(took, reply.tokens.prompt, reply.tokens.completion),
            Err(ModelError::Unavailable { .. }) => self.metrics.record_unavailable(took),
            Err(_) => self.metrics.record_refusal(took),
        }
        if let Err(error) = answer {
            let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            warn!(model = self.name, attempts = error.attempts(), ms, "model call failed: {error}");
        }
    }

    fn with_name(&self, answer: Result<ModelReply, ModelError>) -> Result<ModelReply, ModelError> {
        answer.map(|reply| ModelReply { name: Some(self.name.clone()), ..reply })
    }
}

#[async_trait]
impl Model for Metered {
    async fn complete(&self, request: ModelRequest) -> Result<ModelReply, ModelError> {
        let begun = Instant::now();
        let answer = self.model.complete(request).await;
        self.record_call(begun.elapsed(), &answer);
        self.with_name(answer)
    }

    async fn stream(&self, request: ModelRequest, deltas: DeltaSink) -> Result<ModelReply, ModelError> {
        let begun = Instant::now();
        let answer = self.model.stream(request, deltas.clone()).await;
        self.record_call(begun.elapsed(), &answer);
        // A first piece from before this call belongs to another model of the chain.
        if let Some(took) = deltas.first().and_then(|first| first.checked_duration_since(begun)) {
            self.metrics.record_first_chunk(took);
        }
        self.with_name(answer)
    }
}
