//! Settings of the journal.

use serde::{Deserialize, Serialize};

/// Data that the journal keeps in addition to the results of steps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    /// Whether each model call keeps its prompt; `off` unless given, but `full` in `turnwheel dev`.
    pub prompts: Option<PromptKeeping>,
}

/// Whether prompts are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PromptKeeping {
    /// They are not kept.
    Off,
    /// The messages of each model call are kept with its step, with secrets masked.
    Full,
}

impl Journal {
    /// True if prompts are kept.
    pub fn keeps_prompts(&self) -> bool {
        self.prompts == Some(PromptKeeping::Full)
    }
}
