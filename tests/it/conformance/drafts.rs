//! Cases of drafts of authoring dialogues, and of their publication.

use super::catalog::agent;
use super::runs::workflow;
use super::{authoring, expiry};
use definitions::agent::AgentRecord;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use storage::store::*;
use types::authoring::Artifact;

type Sessions = Arc<dyn Store>;

fn version(artifact: Artifact, id: &str, hash: &str, mut document: Value) -> DraftVersion {
    document["id"] = json!(id);
    let (id, hash, label) = (id.into(), hash.into(), VersionLabel::default());
    DraftVersion { artifact, id, hash, document, label }
}

fn of_agent(hash: &str) -> DraftVersion {
    version(Artifact::Agent, "sales", hash, json!({"name": hash}))
}

fn record(hash: &str) -> AgentRecord {
    agent("sales", hash, json!({"name": hash}))
}

async fn document(store: &Sessions, draft: &DraftVersion) -> Option<Value> {
    store.version_document(draft.artifact, &draft.id, &draft.hash).await.unwrap()
}

async fn publish(store: &Sessions, hash: &str, over: Option<&str>, owner: Option<&str>) -> PublishEnd {
    let definition = Definition::Agent(record(hash));
    let over = over.map_or(Over::Nothing, |hash| Over::Version(hash.to_owned()));
    let (owner, label) = (owner.map(str::to_owned), VersionLabel::default());
    store.publish(PublishDefinition { definition, over, owner, label }).await.unwrap()
}

pub async fn a_draft_is_a_version_that_nothing_lists_or_counts(store: Sessions) {
    let of_agent = of_agent("h1");
    // A draft need not be a document that any program can use, and it may have any keys.
    let of_workflow =
        version(Artifact::Workflow, "流程", "h1", json!({"type": "graph", "nodes": [{"$a.b": {"c": 1}}]}));
    for draft in [&of_agent, &of_workflow] {
        assert_eq!(document(&store, draft).await, None);
        store.put_draft(draft.clone(), "s1").await.unwrap();
        store.put_draft(draft.clone(), "s1").await.unwrap();
        assert_eq!(document(&store, draft).await.as_ref(), Some(&draft.document));
        let other = DraftVersion { document: json!({"id": "another"}), ..draft.clone() };
        assert!(matches!(store.put_draft(other, "s1").await, Err(StoreError::Refused(_))), "a version never changes");
    }
    assert_eq!(store.agent_version("sales", "h1").await.unwrap().unwrap().config.name, "h1");
    assert!(store.agent("sales").await.unwrap().is_none() && store.workflow("流程").await.unwrap().is_none());
    assert!(store.agents().await.unwrap().good.is_empty() && store.workflows().await.unwrap().damaged.is_empty());
    assert_eq!(store.agent_version_count("sales").await.unwrap(), 0);
    assert_eq!(store.workflow_version_count("流程").await.unwrap(), 0);
}

pub async fn a_draft_goes_with_the_last_of_its_dialogues(store: Sessions) {
    let (shared, own) = (of_agent("h1"), version(Artifact::Workflow, "w", "h1", json!({})));
    store.put_draft(shared.clone(), "s1").await.unwrap();
    store.put_draft(shared.clone(), "s2").await.unwrap();
    store.put_draft(own.clone(), "s1").await.unwrap();
    store.put_agent(record("h2")).await.unwrap();
    store.put_draft(of_agent("h2"), "s1").await.unwrap();
    store.agent_version("sales", "h1").await.unwrap().unwrap();
    assert_eq!(store.drop_drafts("s").await.unwrap(), 0, "a session whose id begins alike");
    store.erase_records("s1").await.unwrap();
    assert_eq!(document(&store, &own).await, None);
    assert!(document(&store, &shared).await.is_some(), "another dialogue has it, too");
    assert!(document(&store, &of_agent("h2")).await.is_some(), "a version that was applied is no draft");
    assert_eq!(store.drop_drafts("s2").await.unwrap(), 1);
    assert_eq!(document(&store, &shared).await, None);
    assert!(store.agent_version("sales", "h1").await.unwrap().is_none());
    assert_eq!(store.agent("sales").await.unwrap().unwrap().hash, "h2");
}

pub async fn a_published_draft_is_an_ordinary_version(store: Sessions) {
    store.put_draft(of_agent("h1"), "s1").await.unwrap();
    assert_eq!(publish(&store, "h1", None, Some("alice")).await, PublishEnd::Published);
    assert_eq!(store.agent("sales").await.unwrap().unwrap().hash, "h1", "seen at once");
    assert_eq!(publish(&store, "h1", Some("h1"), Some("alice")).await, PublishEnd::Unchanged, "again");
    assert_eq!(store.owner(Artifact::Agent, "sales").await.unwrap().as_deref(), Some("alice"));
    assert_eq!(store.owner(Artifact::Workflow, "sales").await.unwrap(), None);
    assert_eq!(store.drop_drafts("s1").await.unwrap(), 0);
    assert_eq!(store.agent_version_count("sales").await.unwrap(), 1);
    // A draft that is applied by hand is no draft either.
    store.put_draft(of_agent("h2"), "s1").await.unwrap();
    assert!(store.put_agent(record("h2")).await.unwrap());
    assert_eq!(store.drop_drafts("s1").await.unwrap(), 0);
    assert!(store.agent_version("sales", "h2").await.unwrap().is_some());
    assert_eq!(store.owner(Artifact::Agent, "sales").await.unwrap().as_deref(), Some("alice"), "still hers");
    store.erase_agent("sales").await.unwrap();
    assert_eq!(store.owner(Artifact::Agent, "sales").await.unwrap(), None);
}

pub async fn a_publication_replaces_only_what_its_caller_has_seen(store: Sessions) {
    let moved = |hash: Option<&str>| PublishEnd::Moved(hash.map(str::to_owned));
    assert_eq!(publish(&store, "h1", Some("h0"), None).await, moved(None));
    assert_eq!(publish(&store, "h1", None, None).await, PublishEnd::Published);
    assert_eq!(publish(&store, "h2", None, Some("bob")).await, moved(Some("h1")), "the id is taken");
    assert_eq!(publish(&store, "h2", Some("h0"), Some("bob")).await, moved(Some("h1")));
    assert_eq!(store.agent("sales").await.unwrap().unwrap().hash, "h1");
    assert_eq!(store.owner(Artifact::Agent, "sales").await.unwrap(), None);
    assert_eq!(publish(&store, "h2", Some("h1"), Some("bob")).await, PublishEnd::Published);
    assert_eq!(store.agent("sales").await.unwrap().unwrap().hash, "h2");
    let workflow = Definition::Workflow(workflow("w", "v1"));
    let (over, owner, label) = (Over::Nothing, Some("bob".into()), VersionLabel::default());
    let publish = PublishDefinition { definition: workflow.clone(), over, owner, label };
    assert_eq!(store.publish(publish).await.unwrap(), PublishEnd::Published);
    assert_eq!(store.workflow("w").await.unwrap().unwrap().hash, workflow.hash());
    // Of two who have seen the same version, one replaces it.
    let both = [self::publish(&store, "h3", Some("h2"), None), self::publish(&store, "h4", Some("h2"), None)];
    let ends = futures::future::join_all(both).await;
    assert_eq!(ends.iter().filter(|end| **end == PublishEnd::Published).count(), 1, "{ends:?}");
}

pub async fn a_deleted_definition_leaves_the_drafts_to_their_dialogues(store: Sessions) {
    store.put_agent(record("h1")).await.unwrap();
    store.put_draft(of_agent("h2"), "s1").await.unwrap();
    assert_eq!(store.erase_agent("sales").await.unwrap().versions, 1);
    assert!(document(&store, &of_agent("h2")).await.is_some());
    assert_eq!(store.erase_agent("sales").await.unwrap(), ErasedDefinition::default(), "there is no such agent");
    let draft = version(Artifact::Workflow, "w", "h1", json!({}));
    store.put_draft(draft.clone(), "s1").await.unwrap();
    assert_eq!(store.erase_workflow("w").await.unwrap(), ErasedDefinition::default());
    assert!(document(&store, &draft).await.is_some());
}

pub async fn drafts_expire_only_without_their_dialogues(store: Sessions) {
    assert!(authoring::create(&store, authoring::dialogue("s1", "alice", 1)).await);
    store.put_draft(of_agent("h1"), "s1").await.unwrap();
    store.put_draft(of_agent("h2"), "gone").await.unwrap();
    let kept = version(Artifact::Workflow, "w", "h1", json!({}));
    store.put_draft(kept.clone(), "s1").await.unwrap();
    let gone = expiry::expire(&store, Duration::ZERO).await;
    assert_eq!((gone.agents, gone.workflows), (1, 0), "{gone:?}");
    assert!(document(&store, &of_agent("h1")).await.is_some() && document(&store, &kept).await.is_some());
    assert_eq!(document(&store, &of_agent("h2")).await, None);
}
