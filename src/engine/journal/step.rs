//! The parts of a step: its label, the result of its operation, and the result as the caller gets it.

use types::step::Tokens;

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
    pub tokens: Option<Tokens>,
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
