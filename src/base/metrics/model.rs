//! Metrics of model calls. The label `model` is a model's name in the settings.

use super::{SECONDS_BUCKETS, counters, histograms, observe};
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, Registry};
use std::time::Duration;

/// The metric families of all models.
pub(super) struct Families {
    calls: IntCounterVec,
    seconds: HistogramVec,
    first_chunk: HistogramVec,
    tokens: IntCounterVec,
}

impl Families {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            calls: counters(
                registry,
                "turnwheel_model_calls_total",
                "Model calls, each including its retries, by outcome.",
                &["model", "outcome"],
            ),
            seconds: histograms(
                registry,
                "turnwheel_model_call_seconds",
                "Duration of a model call, including its retries.",
                SECONDS_BUCKETS,
                "model",
            ),
            first_chunk: histograms(
                registry,
                "turnwheel_model_first_chunk_seconds",
                "Time from a model call to the first chunk of its streamed answer.",
                SECONDS_BUCKETS,
                "model",
            ),
            tokens: counters(
                registry,
                "turnwheel_model_tokens_total",
                "Tokens that a model reports as used, by kind.",
                &["model", "kind"],
            ),
        }
    }
}

/// The metrics of one model.
pub struct ModelMetrics {
    answered: IntCounter,
    unavailable: IntCounter,
    refused: IntCounter,
    seconds: Histogram,
    first_chunk: Histogram,
    prompt: IntCounter,
    completion: IntCounter,
}

impl ModelMetrics {
    /// The metrics of the model with this name.
    pub fn for_model(name: &str) -> Self {
        let families = &super::metrics().models;
        let calls = |outcome: &str| families.calls.with_label_values(&[name, outcome]);
        let tokens = |kind: &str| families.tokens.with_label_values(&[name, kind]);
        Self {
            answered: calls("answered"),
            unavailable: calls("unavailable"),
            refused: calls("refused"),
            seconds: families.seconds.with_label_values(&[name]),
            first_chunk: families.first_chunk.with_label_values(&[name]),
            prompt: tokens("prompt"),
            completion: tokens("completion"),
        }
    }

    /// Records the time to the first chunk of a streamed answer.
    pub fn record_first_chunk(&self, took: Duration) {
        observe(&self.first_chunk, took);
    }

    /// Records an answered call, with the tokens of the prompt and of the answer.
    pub fn record_answer(&self, took: Duration, prompt: u64, completion: u64) {
        observe(&self.seconds, took);
        self.answered.inc();
        self.prompt.inc_by(prompt);
        self.completion.inc_by(completion);
    }

    /// Records a call that failed because the model was unavailable.
    pub fn record_unavailable(&self, took: Duration) {
        observe(&self.seconds, took);
        self.unavailable.inc();
    }

    /// Records a call that the model refused.
    pub fn record_refusal(&self, took: Duration) {
        observe(&self.seconds, took);
        self.refused.inc();
    }
}
