//! The parts of a step: its label, the result of its operation, and the result as the caller gets it.

use std::sync::Arc;
use types::step::{StepRecord, TokenUsage};

/// Describes a step in its record and its span.
#[derive(Clone, Copy, Debug)]
pub struct Label<'a> {
    /// Kind of the step: `model`, `skill`, `tool`, `flow`, …
    pub kind: &'a str,
    /// Target of the call: the name of a model, the target of an action, …
    pub target: &'a str,
}

/// The result of an operation, with figures for the record.
#[derive(Clone, Debug)]
pub struct Done<O> {
    /// The result.
    pub output: O,
    /// False if the result is a failure.
    pub ok: bool,
    /// The model that replied, as it names itself.
    pub model: Option<String>,
    /// Tokens used.
    pub tokens: Option<TokenUsage>,
    /// Number of attempts, retries included.
    pub attempts: Option<u32>,
    /// Overrides the label's target, for example with the one of several models that replied.
    pub target: Option<String>,
    /// Id of the task agent whose daily budget the tokens count against.
    pub charged: Option<String>,
    /// True if the record needs no write of its own: it is written with the next one, at the latest with the commit.
    /// For a result that nothing outside sees before that, so that a repeated turn may get another one. Overrides the
    /// [`Durability`] of the step.
    pub with_commit: bool,
    /// The compressed prompt of a model call, if prompts are kept.
    pub prompt: Option<Arc<[u8]>>,
}

impl<O> Done<O> {
    /// A successful result without figures.
    pub fn ok(output: O) -> Self {
        let (model, tokens, attempts, target, charged) = (None, None, None, None, None);
        Self { output, ok: true, model, tokens, attempts, target, charged, with_commit: false, prompt: None }
    }
}

/// The result of a step, executed or replayed.
#[derive(Clone, Debug)]
pub struct Stepped<O> {
    /// The result.
    pub output: O,
    /// False if the result is a failure.
    pub ok: bool,
    /// Duration of the operation in milliseconds.
    pub ms: u64,
    /// Key of the step within the turn.
    pub key: String,
    /// Target of the call: the name of a model, the target of an action, …
    pub target: String,
}

impl<O> Stepped<O> {
    /// The result of the step with this record.
    pub(super) fn new(step: &StepRecord, output: O) -> Self {
        Self { output, ok: step.ok, ms: step.ms, key: step.key.clone(), target: step.target.clone() }
    }

    /// The same step with another form of its result.
    pub(crate) fn try_map<P, E>(self, form: impl FnOnce(O) -> Result<P, E>) -> Result<Stepped<P>, E> {
        let Self { output, ok, ms, key, target } = self;
        Ok(Stepped { output: form(output)?, ok, ms, key, target })
    }
}

/// When the result of a step becomes durable, unless it is written [with the commit](Done::with_commit).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Before the step returns. For an operation with an effect outside of the turn.
    OnReturn,
    /// Soon after the step returns, together with other steps, and at the latest when
    /// [`Journal::settle`](super::Journal::settle) returns. For an operation whose only effect is its result, such as a
    /// model call. Until the result is durable nothing that follows from it may become visible outside, and no step
    /// with another durability starts.
    Deferred,
}
