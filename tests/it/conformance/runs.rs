//! Cases for workflows and their runs.

use super::kit::*;
use base::clock;
use definitions::workflow::definition::WorkflowRecord;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use storage::store::*;
use types::run::{NodeState, RunQuery, RunRecord, RunStatus};
use types::run_outcome::{RunFailure, RunUsage};
use types::session::Kind;

pub fn workflow(id: &str, description: &str) -> WorkflowRecord {
    let stages = json!([{"id": "a", "runnable": "analyst", "input": "{query}"}]);
    let document = json!({"type": "pipeline", "id": id, "description": description, "stages": stages});
    WorkflowRecord::from_document(document, clock::now()).unwrap()
}

pub fn run(id: &str, workflow_id: &str, status: RunStatus) -> RunRecord {
    RunRecord {
        run_id: id.into(),
        workflow_id: workflow_id.into(),
        hash: "h1".into(),
        status,
        query: "研究电池回收 $set a.b".into(),
        params: serde_json::from_value(json!({"$since": "2026", "a.b": [1, {"c": null}]})).unwrap(),
        notify: Some(true),
        origin_session: None,
        user_id: None,
        channel: "web".into(),
        lane: id.into(),
        turn_id: "m-1".into(),
        prefix: String::new(),
        output: None,
        error: None,
        revision: Some(1),
        graph: Some(vec![NodeState::pending("n", "LLM")]),
        usage: RunUsage::default(),
        from_run: None,
        from_stage: None,
        created_at: clock::now(),
        started_at: None,
        ended_at: None,
    }
}

pub async fn a_registered_workflow_is_seen_at_once_and_its_older_version_stays(store: Arc<dyn Store>) {
    assert!(store.workflow("w").await.unwrap().is_none());
    let versions: Vec<_> = (1..=3).map(|version| workflow("w", &format!("v{version}"))).collect();
    for version in &versions {
        assert!(store.put_workflow(version.clone()).await.unwrap());
        assert!(!store.put_workflow(version.clone()).await.unwrap(), "the same version again");
        let now = store.workflow("w").await.unwrap().unwrap();
        assert_eq!((&now.hash, &now.document, &now.workflow), (&version.hash, &version.document, &version.workflow));
    }
    for version in &versions {
        let old = store.workflow_version("w", &version.hash).await.unwrap().unwrap();
        assert_eq!(old.workflow.description, version.workflow.description);
    }
    assert!(store.put_workflow(versions[0].clone()).await.unwrap(), "back to an older version");
    assert_eq!(store.workflow("w").await.unwrap().unwrap().hash, versions[0].hash);
    assert!(store.workflow_version("w", "h9").await.unwrap().is_none());
    store.put_workflow(workflow("研究", "")).await.unwrap();
    store.put_workflow(workflow("a", "")).await.unwrap();
    let ids: Vec<String> =
        store.workflows().await.unwrap().good.iter().map(|workflow| workflow.id().to_owned()).collect();
    assert_eq!(ids, ["a", "w", "研究"]);
}

pub async fn a_version_is_kept_without_being_current(store: Arc<dyn Store>) {
    let kept = workflow("w", "compiled in");
    store.put_workflow_version(&kept).await.unwrap();
    store.put_workflow_version(&kept).await.unwrap();
    assert!(store.workflow("w").await.unwrap().is_none() && store.workflows().await.unwrap().good.is_empty());
    let found = store.workflow_version("w", &kept.hash).await.unwrap().unwrap();
    assert_eq!(found.document, kept.document);
    let agent = super::catalog::agent("analyst", "h1", json!({"system_prompt": "分析", "model": "offline"}));
    store.put_agent_version(&agent).await.unwrap();
    assert!(store.agent("analyst").await.unwrap().is_none());
    assert_eq!(*store.agent_version("analyst", "h1").await.unwrap().unwrap(), agent);
}

pub async fn a_run_is_put_once(store: Arc<dyn Store>) {
    assert!(store.run("r").await.unwrap().is_none());
    let first = run("r", "w", RunStatus::Pending);
    assert!(store.put_run(first.clone()).await.unwrap());
    assert!(!store.put_run(run("r", "other", RunStatus::Running)).await.unwrap());
    assert_eq!(store.run("r").await.unwrap(), Some(first));
}

pub async fn a_run_is_written_by_its_lane_s_last_holder(store: Arc<dyn Store>) {
    store.put_run(run("r", "w", RunStatus::Pending)).await.unwrap();
    let begun = RunRecord { started_at: Some(clock::now()), ..run("r", "w", RunStatus::Running) };
    store.update_run(begun.clone(), 3).await.unwrap();
    assert_eq!(store.run("r").await.unwrap(), Some(begun.clone()));
    assert!(!store.put_run(run("r", "w", RunStatus::Pending)).await.unwrap(), "the run exists already");
    store.update_run(run("r", "w", RunStatus::Failed), 2).await.unwrap();
    assert_eq!(store.run("r").await.unwrap(), Some(begun), "the write of an earlier lease holder is rejected");
    let ended = RunRecord { ended_at: Some(clock::now()), ..run("r", "w", RunStatus::Cancelled) };
    store.update_run(ended.clone(), 3).await.unwrap();
    assert_eq!(store.run("r").await.unwrap(), Some(ended));
}

pub async fn a_run_ends_with_its_turn_s_commit(store: Arc<dyn Store>) {
    let taken = grant(&store, "r", 1).await;
    let ended = RunRecord {
        output: Some("一、二、三".into()),
        error: Some(RunFailure { path: "outer_loop[2]/verify".into(), cause: "超时".into(), attempts: 2 }),
        usage: RunUsage { stages: 3, model_calls: 5, tokens: 700 },
        ended_at: Some(clock::now()),
        from_run: Some("r0".into()),
        from_stage: Some("summary".into()),
        ..run("r", "w", RunStatus::Failed)
    };
    let change = Change { run: Some(ended.clone()), ..change(&taken.session, "m-1") };
    let stale = Commit { epoch: taken.session.epoch + 1, ..commit(&taken, 1, Some(change.clone())) };
    assert_eq!(store.commit(stale).await.unwrap(), Committed::Fenced);
    assert_eq!(store.commit(commit(&taken, 1, Some(change))).await.unwrap(), Committed::Released);
    assert_eq!(store.run("r").await.unwrap(), Some(ended));
}

pub async fn runs_are_listed_newest_first_and_filtered(store: Arc<dyn Store>) {
    let start = clock::now();
    for (at, (id, workflow_id, status, session)) in [
        ("r1", "a", RunStatus::Completed, Some("s1")),
        ("r2", "b", RunStatus::Failed, None),
        ("r3", "a", RunStatus::Running, Some("s1")),
        ("r4", "a", RunStatus::Completed, Some("s2")),
    ]
    .into_iter()
    .enumerate()
    {
        let created_at = start.plus(Duration::from_millis(at as u64));
        let origin_session = session.map(str::to_owned);
        store.put_run(RunRecord { created_at, origin_session, ..run(id, workflow_id, status) }).await.unwrap();
    }
    let list = |query: RunQuery| async {
        let runs = store.runs(query).await.unwrap();
        Value::from(runs.into_iter().map(|run| run.run_id).collect::<Vec<_>>())
    };
    assert_eq!(list(RunQuery::default()).await, json!(["r4", "r3", "r2", "r1"]));
    assert_eq!(list(RunQuery { limit: 2, ..RunQuery::default() }).await, json!(["r4", "r3"]));
    assert_eq!(list(RunQuery { workflow_id: Some("b".into()), ..RunQuery::default() }).await, json!(["r2"]));
    let completed = RunQuery { status: Some(RunStatus::Completed), ..RunQuery::default() };
    assert_eq!(list(completed.clone()).await, json!(["r4", "r1"]));
    assert_eq!(list(RunQuery { limit: 1, ..completed }).await, json!(["r4"]));
    assert_eq!(list(RunQuery { origin_session: Some("s1".into()), ..RunQuery::default() }).await, json!(["r3", "r1"]));
}

/// Acquires the lane of a run.
pub(super) async fn lane_of_run(store: &Arc<dyn Store>, run_id: &str) -> Grant {
    let mut request = acquire(run_id, 1, "w1");
    request.new_session.kind = Kind::Run;
    granted(store.acquire(request).await.unwrap())
}

pub async fn lanes_of_runs_are_no_sessions(store: Arc<dyn Store>) {
    run_turn(&store, "chat", 1, |_| ()).await;
    let taken = lane_of_run(&store, "r").await;
    assert_eq!(taken.session.kind, Kind::Run);
    store.commit(commit(&taken, 1, Some(change(&taken.session, "m-1")))).await.unwrap();
    let listed = store.sessions(SessionQuery::default()).await.unwrap();
    assert_eq!(listed.iter().map(|session| session.session_id.as_str()).collect::<Vec<_>>(), ["chat"]);
    assert_eq!(idle(&store, 1).await, [("chat".to_owned(), 1)]);
    assert_eq!(store.session("r").await.unwrap().map(|session| session.kind), Some(Kind::Run));
}
