//! The data of a request in an authoring dialogue. The offline model reads them instead of the prompt.

use crate::knowledge::Hit;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use types::authoring::StoredState;

/// The installed items, as the model sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalogue {
    /// The items, by kind and id.
    pub items: Vec<Item>,
}

/// An installed item that an artefact can use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// The id, such as `node.HTTP`, `tool.mail.gmail` or `workflow.report`.
    pub id: String,
    /// The part of the id before the first dot.
    pub kind: String,
    /// The purpose, in one line.
    pub line: String,
}

/// The facts of a request, in addition to the state of the dialogue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// The `system_prompt` of the agent `authoring`: its manner.
    pub manner: String,
    /// The installed items.
    pub catalogue: Catalogue,
    /// The definitions of the tools and skills in the catalogue, by its ids.
    pub parts: BTreeMap<String, Value>,
    /// The source: the document to edit or copy, or the one that the dialogue has published.
    pub source: Option<Value>,
    /// The last draft. Its findings are in the state.
    pub draft: Option<Value>,
    /// Passages of the agent's knowledge about the user's message.
    pub passages: Vec<Hit>,
}

/// The input of the offline model, in place of a prompt.
#[derive(Clone, Debug, Default)]
pub struct Dialogue {
    /// The state of the dialogue.
    pub stored: StoredState,
    /// The facts, in addition to the state.
    pub facts: Facts,
}
