//! Cases of versions as people see them: their labels, their listing, and what becomes of them.

use super::catalog::agent;
use super::expiry;
use super::kit::*;
use super::runs::workflow;
use base::clock;
use definitions::agent::AgentRecord;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use storage::store::*;
use types::authoring::Artifact;

type Sessions = Arc<dyn Store>;

fn record(hash: &str) -> AgentRecord {
    agent("sales", hash, json!({"name": hash}))
}

fn label(source: Option<&str>, by: &str, note: &str) -> VersionLabel {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    VersionLabel { source: source.map(str::to_owned), by: text(by), note: text(note) }
}

fn draft(hash: &str, label: VersionLabel) -> DraftVersion {
    let document = json!({"id": "sales", "name": hash});
    DraftVersion { artifact: Artifact::Agent, id: "sales".into(), hash: hash.into(), document, label }
}

async fn publish(store: &Sessions, record: AgentRecord, over: Over, label: VersionLabel) -> PublishEnd {
    let definition = Definition::Agent(record);
    store.publish(PublishDefinition { definition, over, owner: None, label }).await.unwrap()
}

async fn details(store: &Sessions, hash: &str) -> VersionDetails {
    store.version_details(Artifact::Agent, "sales", hash).await.unwrap().unwrap()
}

/// The versions, the newest first.
async fn listed(store: &Sessions) -> Vec<VersionEntry> {
    let mut listed = store.versions(Artifact::Agent, "sales").await.unwrap();
    listed.sort_by_key(|entry| std::cmp::Reverse(entry.at));
    listed
}

pub async fn a_version_keeps_its_text_and_who_applied_it_last(store: Sessions) {
    let first = label(Some("# 一\nid: sales\n"), "anna", "first");
    assert_eq!(publish(&store, record("h1"), Over::Nothing, first).await, PublishEnd::Published);
    clock_is_past(clock::now()).await;
    assert_eq!(publish(&store, record("h2"), Over::Anything, label(None, "ben", "")).await, PublishEnd::Published);
    let hashes = |listed: &[VersionEntry]| listed.iter().map(|entry| entry.hash.clone()).collect::<Vec<_>>();
    assert_eq!(hashes(&listed(&store).await), ["h2", "h1"]);
    let kept = details(&store, "h1").await;
    assert_eq!((kept.source.as_deref(), kept.entry.by.as_deref()), (Some("# 一\nid: sales\n"), Some("anna")));
    assert_eq!((kept.entry.note.as_deref(), kept.entry.is_draft), (Some("first"), false));
    assert_eq!(kept.document, json!({"id": "sales", "name": "h1"}));
    clock_is_past(clock::now()).await;
    let back = label(None, "ben", "back");
    assert_eq!(publish(&store, record("h1"), Over::Version("h2".into()), back).await, PublishEnd::Published);
    let now = details(&store, "h1").await;
    assert_eq!((now.source.as_deref(), now.entry.by.as_deref()), (Some("# 一\nid: sales\n"), Some("ben")));
    assert!(now.entry.at > kept.entry.at && now.entry.note.as_deref() == Some("back"));
    assert_eq!(hashes(&listed(&store).await), ["h1", "h2"]);
    // The same again, by hand, by a run, and by the files of `dev`.
    let again = label(None, "carl", "");
    assert_eq!(publish(&store, record("h1"), Over::Anything, again).await, PublishEnd::Unchanged);
    store.put_agent_version(&record("h1")).await.unwrap();
    let of_file = AgentRecord { source: Some("# 一\nid: sales\n".into()), ..record("h1") };
    assert!(!store.put_agent(of_file).await.unwrap());
    assert_eq!(details(&store, "h1").await, now, "nothing has changed");
    let edited = AgentRecord { source: Some("# 二\nid: sales\n".into()), ..record("h1") };
    assert!(!store.put_agent(edited).await.unwrap(), "only a comment");
    let edited = details(&store, "h1").await;
    assert_eq!((edited.source.as_deref(), edited.entry.by), (Some("# 二\nid: sales\n"), None));
    assert_eq!(store.versions(Artifact::Workflow, "sales").await.unwrap(), []);
    assert_eq!(store.version_details(Artifact::Agent, "sales", "h9").await.unwrap(), None);
}

pub async fn a_draft_of_a_person_is_listed_published_and_deleted_with_its_agent(store: Sessions) {
    store.put_draft(draft("h1", label(Some("id: sales"), "anna", "try")), NO_DIALOGUE).await.unwrap();
    let entry = details(&store, "h1").await.entry;
    assert_eq!((entry.is_draft, entry.by.as_deref(), entry.note.as_deref()), (true, Some("anna"), Some("try")));
    assert_eq!(store.agent_version_count("sales").await.unwrap(), 0, "quotas do not count it");
    assert_eq!(store.agent_version("sales", "h1").await.unwrap().unwrap().config.name, "h1");
    // A dialogue may have made the same document, and goes away.
    store.put_draft(draft("h1", VersionLabel::default()), "s1").await.unwrap();
    store.erase_records("s1").await.unwrap();
    let kept = details(&store, "h1").await;
    assert_eq!((kept.source.as_deref(), kept.entry.by.as_deref()), (Some("id: sales"), Some("anna")));
    assert_eq!(publish(&store, record("h1"), Over::Nothing, label(None, "ben", "")).await, PublishEnd::Published);
    let entry = details(&store, "h1").await.entry;
    assert_eq!((entry.is_draft, entry.by.as_deref(), entry.note.as_deref()), (false, Some("ben"), Some("try")));
    // Stored as a draft again, it stays in use.
    store.put_draft(draft("h1", label(None, "carl", "")), NO_DIALOGUE).await.unwrap();
    let entry = details(&store, "h1").await.entry;
    assert_eq!((entry.is_draft, entry.by.as_deref()), (false, Some("ben")));
    store.put_draft(draft("h2", VersionLabel::default()), NO_DIALOGUE).await.unwrap();
    store.put_draft(draft("h3", VersionLabel::default()), "s2").await.unwrap();
    assert_eq!(store.erase_agent("sales").await.unwrap().versions, 2);
    assert_eq!(listed(&store).await.iter().map(|entry| entry.hash.as_str()).collect::<Vec<_>>(), ["h3"]);
}

pub async fn a_draft_of_a_person_expires_unless_a_conversation_uses_it(store: Sessions) {
    for hash in ["h1", "h2"] {
        store.put_draft(draft(hash, VersionLabel::default()), NO_DIALOGUE).await.unwrap();
    }
    run_turn(&store, "open", 1, |change| {
        change.agent_id = "sales".into();
        change.workflow_state.hash = "h1".into();
    })
    .await;
    let gone = expiry::expire(&store, Duration::ZERO).await;
    assert_eq!((gone.agents, gone.workflows), (1, 0), "{gone:?}");
    assert!(store.agent_version("sales", "h1").await.unwrap().is_some());
    assert_eq!(listed(&store).await.iter().map(|entry| entry.hash.as_str()).collect::<Vec<_>>(), ["h1"]);
}

pub async fn open_conversations_with_another_version_are_counted(store: Sessions) {
    for (session, of, hash, closed_at) in [
        ("a", "sales", "h1", None),
        ("b", "sales", "h2", None),
        ("c", "sales", "h1", Some(clock::now())),
        ("d", "other", "h1", None),
    ] {
        run_turn(&store, session, 1, |change| {
            change.agent_id = of.into();
            change.workflow_state.hash = hash.into();
            change.closed_at = closed_at;
        })
        .await;
    }
    for (hash, count) in [("h1", 1), ("h2", 1), ("h3", 2)] {
        assert_eq!(store.open_sessions_without("sales", hash).await.unwrap(), count, "{hash}");
    }
    assert_eq!(store.open_sessions_without("nobody", "h1").await.unwrap(), 0);
}

pub async fn a_workflow_s_versions_have_labels_too(store: Sessions) {
    let (first, second) = (workflow("w", "v1"), workflow("w", "v2"));
    for (record, over, by) in [(&first, Over::Nothing, "anna"), (&second, Over::Version(first.hash.clone()), "ben")] {
        let definition = Definition::Workflow(record.clone());
        let publish = PublishDefinition { definition, over, owner: None, label: label(Some("id: w"), by, "") };
        assert_eq!(store.publish(publish).await.unwrap(), PublishEnd::Published);
    }
    let mut by: Vec<_> = store.versions(Artifact::Workflow, "w").await.unwrap().into_iter().map(|v| v.by).collect();
    by.sort();
    assert_eq!(by, [Some("anna".to_owned()), Some("ben".to_owned())]);
    let details = store.version_details(Artifact::Workflow, "w", &second.hash).await.unwrap().unwrap();
    assert_eq!((details.source.as_deref(), details.document), (Some("id: w"), second.document));
}
