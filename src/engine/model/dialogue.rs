//! The data behind a request of an authoring dialogue, which the offline model reads instead of the prompt.

use crate::knowledge::Hit;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use types::authoring::StoredState;

/// What can be used, as the model is shown it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalogue {
    /// The items, by kind and id.
    pub items: Vec<Item>,
}

/// Something that can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Names it, such as `node.HTTP`, `tool.mail.gmail` or `workflow.report`.
    pub id: String,
    /// The part of the id before the first dot.
    pub kind: String,
    /// What it does, in one line.
    pub line: String,
}

/// What a request needs besides the state of the dialogue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// The manner of the agent that authors: its `system_prompt`.
    pub manner: String,
    /// What is installed.
    pub catalogue: Catalogue,
    /// The definitions of the tools and skills in the catalogue, by its ids.
    pub parts: BTreeMap<String, Value>,
    /// The document that is edited or copied; the published one, once there is one.
    pub source: Option<Value>,
    /// The document that was written last in this dialogue. Its findings are those of the state.
    pub draft: Option<Value>,
    /// Passages of the agent's knowledge about the user's message.
    pub passages: Vec<Hit>,
}

/// What the offline model reads instead of a prompt.
#[derive(Clone, Debug, Default)]
pub struct Dialogue {
    /// The state of the dialogue.
    pub stored: StoredState,
    /// What the request needs besides.
    pub facts: Facts,
}
