//! What is counted of model calls. The label `model` is a name of the settings.

use super::{SECONDS, counters, histograms, observe};
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, Registry};
use std::time::Duration;

/// The families of all models.
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
                "Questions to a model with all their retries, by outcome.",
                &["model", "outcome"],
            ),
            seconds: histograms(
                registry,
                ("turnwheel_model_call_seconds", "How long a question to a model took with all its retries.", SECONDS),
                "model",
            ),
            first_chunk: histograms(
                registry,
                (
                    "turnwheel_model_first_chunk_seconds",
                    "From a question to a model until the first piece of its answer, where it is streamed.",
                    SECONDS,
                ),
                "model",
            ),
            tokens: counters(
                registry,
                "turnwheel_model_tokens_total",
                "Tokens that a model says it used, by kind.",
                &["model", "kind"],
            ),
        }
    }
}

/// What is counted of one model.
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
    /// Of the model of that name.
    pub fn of(name: &str) -> Self {
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

    /// The first piece of a streamed answer has come.
    pub fn first_chunk(&self, took: Duration) {
        observe(&self.first_chunk, took);
    }

    /// A call has been answered, with its prompt's and its completion's tokens.
    pub fn answered(&self, took: Duration, (prompt, completion): (u64, u64)) {
        observe(&self.seconds, took);
        self.answered.inc();
        self.prompt.inc_by(prompt);
        self.completion.inc_by(completion);
    }

    /// A call has failed: the model was unavailable.
    pub fn unavailable(&self, took: Duration) {
        observe(&self.seconds, took);
        self.unavailable.inc();
    }

    /// A call has failed: the model refused it.
    pub fn refused(&self, took: Duration) {
        observe(&self.seconds, took);
        self.refused.inc();
    }
}
