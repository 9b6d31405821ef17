//! Updates the sources in the store from the files of an agent.

use base::clock;
use base::error::SharedError;
use definitions::knowledge::files::NamedText;
use definitions::knowledge::source::{Origin, Source, SourceEntry};
use std::collections::{BTreeMap, BTreeSet};
use storage::store::{Store, StoreError};

/// The changes that make the sources in the store equal to the agent's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Texts to store.
    pub put: Vec<NamedText>,
    /// Names of the sources to remove.
    pub remove: Vec<String>,
}

impl Changes {
    /// Compares the stored sources with the texts that the agent file names. Sources added by other means stay.
    pub fn between(agent_id: &str, there: &[SourceEntry], texts: Vec<NamedText>) -> Self {
        let known: BTreeMap<&str, &SourceEntry> = there.iter().map(|entry| (entry.source.as_str(), entry)).collect();
        let names: BTreeSet<String> = texts.iter().map(|text| text.name.clone()).collect();
        let is_new = |text: &NamedText| {
            let source = Source::new(agent_id, &text.name, &text.text, Origin::AgentFile, clock::now());
            let same = |entry: &&SourceEntry, hash: &str| entry.hash == hash && entry.origin == Origin::AgentFile;
            source
                .is_ok_and(|source| !known.get(text.name.as_str()).is_some_and(|entry| same(entry, &source.entry.hash)))
        };
        let gone = |entry: &&SourceEntry| entry.origin == Origin::AgentFile && !names.contains(&entry.source);
        let remove = there.iter().filter(gone).map(|entry| entry.source.clone()).collect();
        Self { put: texts.into_iter().filter(is_new).collect(), remove }
    }

    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.put.is_empty() && self.remove.is_empty()
    }
}

/// Stores the texts that the agent file names, and removes its former ones. Returns whether anything changed.
pub async fn store(store: &dyn Store, agent_id: &str, texts: Vec<NamedText>) -> Result<bool, StoreError> {
    let there = store.knowledge_entries(Some(agent_id)).await?;
    let changes = Changes::between(agent_id, &there, texts);
    for NamedText { name, text } in &changes.put {
        let source = Source::new(agent_id, name, text, Origin::AgentFile, clock::now())
            .map_err(|error| StoreError::Refused(SharedError::explained(format!("{name}: {error}"), error)))?;
        store.put_knowledge(source).await?;
    }
    for name in &changes.remove {
        store.remove_knowledge(agent_id, name).await?;
    }
    Ok(!changes.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_stored_and_what_somebody_added_stays() {
        let text = |name: &str, text: &str| NamedText { name: name.into(), text: text.into() };
        let entry =
            |name: &str, content: &str, origin| Source::new("shop", name, content, origin, clock::now()).unwrap().entry;
        let there = [
            entry("same.md", "一", Origin::AgentFile),
            entry("old.md", "一", Origin::AgentFile),
            entry("gone.md", "一", Origin::AgentFile),
            entry("own.md", "一", Origin::Added),
            entry("taken.md", "一", Origin::Added),
        ];
        let texts = ["same.md", "taken.md", "new.md"].map(|name| text(name, "一"));
        let changes = Changes::between("shop", &there, [&texts[..], &[text("old.md", "二")]].concat());
        let put: Vec<&str> = changes.put.iter().map(|text| text.name.as_str()).collect();
        assert_eq!((put, changes.remove), (vec!["taken.md", "new.md", "old.md"], vec!["gone.md".to_owned()]));
    }
}
