//! Cases for the definitions that sessions use: plans, agents and knowledge.

use base::clock;
use definitions::agent::AgentRecord;
use definitions::knowledge::source::{Origin, Source};
use definitions::workflow::definition::WorkflowRecord;
use futures::future::join_all;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use storage::store::*;
use types::plan::Plan;

/// An agent with a hash that the case chooses.
pub fn agent(id: &str, hash: &str, mut document: Value) -> AgentRecord {
    document["id"] = json!(id);
    AgentRecord {
        config: Arc::new(serde_json::from_value(document.clone()).unwrap()),
        document,
        hash: hash.into(),
        updated_at: clock::now(),
        source: None,
    }
}

pub fn plan(workflow: &str, hash: &str, greeting: &str) -> Plan {
    Plan {
        workflow_id: workflow.into(),
        hash: hash.into(),
        name: "小智".into(),
        tone: "热情".into(),
        greeting: Some(greeting.into()),
        sop: "1. 问候".into(),
        tools: Vec::new(),
        skills: Vec::new(),
        timers: None,
        constraints: String::new(),
        created_at: clock::now(),
    }
}

pub async fn the_first_plan_stays(store: Arc<dyn Store>) {
    assert!(store.plan("sales", "h1").await.unwrap().is_none());
    let first = plan("sales", "h1", "您好");
    assert_eq!(*store.put_plan(first.clone()).await.unwrap(), first);
    assert_eq!(*store.put_plan(plan("sales", "h1", "hello")).await.unwrap(), first);
    assert_eq!(*store.plan("sales", "h1").await.unwrap().unwrap(), first);
    let racing = join_all((0..10).map(|i| store.put_plan(plan("sales", "h2", &i.to_string())))).await;
    let greetings: HashSet<_> = racing.into_iter().map(|plan| plan.unwrap().greeting.clone()).collect();
    assert_eq!(greetings.len(), 1);
}

pub async fn an_applied_agent_is_seen_at_once_and_its_older_version_stays(store: Arc<dyn Store>) {
    assert!(store.agent("sales").await.unwrap().is_none());
    for version in 1..=5 {
        let record = agent("sales", &format!("h{version}"), json!({"name": format!("v{version}")}));
        assert!(store.put_agent(record.clone()).await.unwrap());
        assert!(!store.put_agent(record.clone()).await.unwrap(), "the same version again");
        assert_eq!(*store.agent("sales").await.unwrap().unwrap(), record);
    }
    for version in 1..=5 {
        let old = store.agent_version("sales", &format!("h{version}")).await.unwrap().unwrap();
        assert_eq!(old.config.name, format!("v{version}"));
    }
    assert!(store.put_agent(agent("sales", "h2", json!({"name": "v2"}))).await.unwrap(), "back to an older version");
    assert_eq!(store.agent("sales").await.unwrap().unwrap().hash, "h2");
    assert!(store.agent_version("sales", "h9").await.unwrap().is_none());
    store.put_agent(agent("a", "h", json!({}))).await.unwrap();
    let ids: Vec<String> = store.agents().await.unwrap().good.iter().map(|agent| agent.id().to_owned()).collect();
    assert_eq!(ids, ["a", "sales"]);
}

pub async fn a_stored_version_never_changes(store: Arc<dyn Store>) {
    let version = |name: &str| agent("sales", "h1", json!({"name": name, "number": 1.5}));
    let first = version("first");
    assert!(store.put_agent(first.clone()).await.unwrap());
    // Another document with the same hash, as an attacker can make for md5.
    for refused in
        [store.put_agent(version("colliding")).await.map(drop), store.put_agent_version(&version("colliding")).await]
    {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, StoreError::Refused(_)), "{refused:?}");
        assert!(refused.to_string().contains("agent `sales`") && refused.to_string().contains("h1"), "{refused}");
    }
    assert_eq!(*store.agent("sales").await.unwrap().unwrap(), first);
    assert_eq!(store.agent_version("sales", "h1").await.unwrap().unwrap().config.name, "first");
    store.put_agent_version(&first).await.unwrap();
    assert!(!store.put_agent(first).await.unwrap(), "the same document");
    store.put_agent(agent("sales", "h2", json!({}))).await.unwrap();
    store.put_agent(version("colliding")).await.unwrap_err();
    assert!(store.put_agent(version("first")).await.unwrap(), "back to the older version");

    let workflow = |name: &str| {
        let document = json!({"id": "w", "name": name, "stages": [{"id": "s", "runnable": "sales"}]});
        WorkflowRecord { hash: "h1".into(), ..WorkflowRecord::from_document(document, clock::now()).unwrap() }
    };
    store.put_workflow_version(&workflow("first")).await.unwrap();
    store.put_workflow(workflow("colliding")).await.unwrap_err();
    assert!(store.workflow("w").await.unwrap().is_none());
    store.put_workflow(workflow("first")).await.unwrap();
    let racing = join_all((0..10).map(|i| store.put_agent(agent("b", "h1", json!({"name": i.to_string()}))))).await;
    assert_eq!(racing.iter().filter(|put| put.is_ok()).count(), 1, "{racing:?}");
}

pub async fn sources_are_stored_listed_and_removed_by_agent(store: Arc<dyn Store>) {
    let source =
        |agent: &str, name: &str, text: &str, origin| Source::new(agent, name, text, origin, clock::now()).unwrap();
    assert!(store.knowledge_entries(None).await.unwrap().is_empty());
    assert!(store.knowledge("sales").await.unwrap().is_empty());
    let text = format!("# 售后\n\n退货 $set a.b \u{3000}\n\n## 保修\n\n{}", "三年。".repeat(1_000));
    let returns = source("sales", "kb/退货.md", &text, Origin::AgentFile);
    assert!(returns.passages.len() > 3);
    assert!(store.put_knowledge(returns.clone()).await.unwrap());
    assert!(!store.put_knowledge(returns.clone()).await.unwrap(), "the same source again");
    let added = source("sales", "kb/退货.md", &text, Origin::Added);
    assert!(store.put_knowledge(added.clone()).await.unwrap(), "another origin is a change");
    let others = [
        source("sale", "z.md", "一", Origin::Added),
        source("sales", "$a.md", "二", Origin::Added),
        source("sales2", "a.md", "三", Origin::Added),
    ];
    for other in &others {
        store.put_knowledge(other.clone()).await.unwrap();
    }
    let entries = |sources: &[&Source]| -> Vec<_> { sources.iter().map(|source| source.entry.clone()).collect() };
    let [other, first, last] = &others;
    assert_eq!(store.knowledge_entries(None).await.unwrap(), entries(&[other, first, &added, last]));
    assert_eq!(store.knowledge_entries(Some("sales")).await.unwrap(), entries(&[first, &added]));
    assert!(store.knowledge_entries(Some("sal")).await.unwrap().is_empty());
    assert_eq!(store.knowledge("sales").await.unwrap(), [first.clone(), added.clone()]);
    let shorter = source("sales", "kb/退货.md", "三十天", Origin::Added);
    assert!(store.put_knowledge(shorter.clone()).await.unwrap());
    assert_eq!(store.knowledge("sales").await.unwrap(), [first.clone(), shorter]);
    assert!(store.remove_knowledge("sales", "kb/退货.md").await.unwrap());
    assert!(!store.remove_knowledge("sales", "kb/退货.md").await.unwrap());
    assert!(!store.remove_knowledge("sales", "a.md").await.unwrap());
    assert_eq!(store.knowledge("sales").await.unwrap(), std::slice::from_ref(first));
    assert_eq!(store.knowledge("sales2").await.unwrap(), std::slice::from_ref(last));
}

pub async fn the_first_secret_of_a_name_stays(store: Arc<dyn Store>) {
    let candidates: Vec<[u8; 32]> = (0..8).map(|n| [n; 32]).collect();
    let made = futures::future::join_all(candidates.iter().map(|one| store.shared_secret("console", *one))).await;
    let first = *made[0].as_ref().unwrap();
    assert!(candidates.contains(&first));
    assert!(made.iter().all(|made| *made.as_ref().unwrap() == first), "{made:?}");
    assert_eq!(store.shared_secret("console", [99; 32]).await.unwrap(), first);
    assert_eq!(store.shared_secret("other", [77; 32]).await.unwrap(), [77; 32]);
}
