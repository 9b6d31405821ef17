//! What goes into a step, and what comes out of it.

use types::step::Tokens;

/// What a step is, for those who read the journal.
#[derive(Clone, Copy, Debug)]
pub struct Label<'a> {
    /// `model`, `skill`, `tool`, `flow`, …
    pub kind: &'a str,
    /// What it calls.
    pub target: &'a str,
}

/// What an operation came to.
#[derive(Clone, Debug)]
pub struct Done<O> {
    /// The result.
    pub output: O,
    /// False when the result is a failure.
    pub ok: bool,
    /// The model that answered.
    pub model: Option<String>,
    /// What it used.
    pub tokens: Option<Tokens>,
    /// Attempts that it took.
    pub attempts: Option<u32>,
    /// What it called, where the label could not know: which of several models.
    pub target: Option<String>,
    /// The task agent whose day the tokens count against.
    pub charged: Option<String>,
}

impl<O> Done<O> {
    /// A success without figures.
    pub fn ok(output: O) -> Self {
        Self { output, ok: true, model: None, tokens: None, attempts: None, target: None, charged: None }
    }
}

/// A step's result, and how it came about.
#[derive(Clone, Debug)]
pub struct Stepped<O> {
    /// The result.
    pub output: O,
    /// Whether it is a success.
    pub ok: bool,
    /// How long the operation took, in milliseconds.
    pub ms: u64,
    /// The operation's full key within the turn.
    pub key: String,
    /// What it called.
    pub target: String,
}
