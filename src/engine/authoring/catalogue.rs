//! What is installed and can be used by an artefact.

use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// What can be used, as the model is shown it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalogue {
    /// The items, by id.
    pub items: Vec<Item>,
}

/// Something that can be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Names it, such as `node.HTTP`, `tool.mail.gmail` or `workflow.report`.
    pub id: String,
    /// The part of the id before the first dot.
    pub kind: String,
    /// What it does, in one line.
    pub line: String,
}

impl Catalogue {
    /// The ids of all items.
    pub fn ids(&self) -> HashSet<String> {
        self.items.iter().map(|item| item.id.clone()).collect()
    }
}
