//! The parts of a step: its label, the result of its operation, and the result as the caller gets it.

use types::step::TokenUsage;

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
}

impl<O> Done<O> {
    /// A successful result without figures.
    pub fn ok(output: O) -> Self {
        Self { output, ok: true, model: None, tokens: None, attempts: None, target: None, charged: None }
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

/// When the result of a step becomes durable.
pub enum Durability<'a, O> {
    /// Before the step returns. For an operation with an effect outside of the turn.
    OnReturn,
    /// Soon after the step returns, together with other steps, and at the latest when
    /// [`Journal::settle`](super::Journal::settle) returns. For an operation whose only effect is its result, such as a
    /// model call. Until the result is durable nothing that follows from it may become visible outside, and no step
    /// with another durability starts.
    Deferred,
    /// With the commit if the function returns true for the result, else before the step returns. For a result after
    /// which the turn does nothing else: nothing outside has seen it, so a repeated turn may get another one.
    WithCommitIf(Box<dyn FnOnce(&O) -> bool + Send + 'a>),
}

impl<'a, O> Durability<'a, O> {
    /// [`Durability::WithCommitIf`].
    pub(crate) fn with_commit_if(is_last: impl FnOnce(&O) -> bool + Send + 'a) -> Self {
        Self::WithCommitIf(Box::new(is_last))
    }
}
