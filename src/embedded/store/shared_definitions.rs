//! Agents and workflows that a store has besides those in its file: those of another store, without a copy.

use definitions::agent::AgentRecord;
use definitions::workflow::definition::WorkflowRecord;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Current versions by id, for a store that lasts only as long as a rehearsal. A definition in the file hides the one
/// with its id. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct SharedDefinitions {
    pub(super) agents: Arc<BTreeMap<String, Arc<AgentRecord>>>,
    pub(super) workflows: Arc<BTreeMap<String, Arc<WorkflowRecord>>>,
}

impl SharedDefinitions {
    /// Adds definitions. A later one replaces an earlier one with its id.
    pub fn extend(
        &mut self,
        agents: impl IntoIterator<Item = Arc<AgentRecord>>,
        workflows: impl IntoIterator<Item = Arc<WorkflowRecord>>,
    ) {
        let agents = agents.into_iter().map(|agent| (agent.id().to_owned(), agent));
        Arc::make_mut(&mut self.agents).extend(agents);
        let workflows = workflows.into_iter().map(|workflow| (workflow.id().to_owned(), workflow));
        Arc::make_mut(&mut self.workflows).extend(workflows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{EmbeddedFile, EmbeddedStore};
    use base::clock;
    use base::config::Settings;
    use serde_json::json;
    use storage::store::Store;

    fn workflow(id: &str, name: &str) -> WorkflowRecord {
        let stages = json!([{"id": "x", "runnable": "a", "input": "{query}"}]);
        WorkflowRecord::from_document(json!({"id": id, "name": name, "stages": stages}), clock::now()).unwrap()
    }

    #[tokio::test]
    async fn shared_definitions_are_not_copied_and_one_in_the_file_hides_its_namesake() {
        let [one, two] = [workflow("one", "一"), workflow("two", "二")].map(Arc::new);
        let mut shared = SharedDefinitions::default();
        shared.extend([], [Arc::clone(&one), Arc::clone(&two)]);
        let file = EmbeddedFile::in_memory().unwrap();
        let store = EmbeddedStore::with_shared(Arc::clone(&file), &Settings::default(), shared).unwrap();
        let changed = workflow("two", "改");
        assert!(store.put_workflow(changed.clone()).await.unwrap());
        store.put_workflow(workflow("three", "三")).await.unwrap();
        assert!(Arc::ptr_eq(&store.workflow("one").await.unwrap().unwrap(), &one));
        assert_eq!(store.workflow("two").await.unwrap().unwrap().hash, changed.hash);
        let versions = [&one.hash, &two.hash, &changed.hash];
        for (id, hash) in ["one", "two", "two"].iter().zip(versions) {
            assert_eq!(store.workflow_version(id, hash).await.unwrap().unwrap().hash, *hash);
        }
        assert!(store.workflow_version("one", &two.hash).await.unwrap().is_none());
        let listed = store.workflows().await.unwrap();
        let listed: Vec<_> = listed.good.iter().map(|found| (found.id(), found.hash.as_str())).collect();
        assert_eq!(listed.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ["one", "three", "two"]);
        assert_eq!(listed[2].1, changed.hash);
        let alone = EmbeddedStore::new(file, &Settings::default()).unwrap();
        assert!(alone.workflow("one").await.unwrap().is_none(), "they are not in the file");
    }
}
