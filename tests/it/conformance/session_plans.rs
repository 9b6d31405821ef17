//! Cases for the plans of sessions: their owner, their status, and how many are kept.

use super::kit::clock_is_past;
use base::clock;
use decisions::world::WorkflowStatus::{self, Completed, Failed, Ready, Running};
use definitions::workflow::definition::WorkflowRecord;
use definitions::workflow::session_plan::{MAX_PLANS, PlanOrigin};
use futures::future::join_all;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use storage::store::*;

/// The statuses from which a run may begin.
const IDLE: [WorkflowStatus; 2] = [Ready, Completed];

fn fields(prompt: &str) -> Map<String, Value> {
    let node = json!({"node_id": "node_1", "type": "LLM", "name": "问", "config": {"prompt": prompt}});
    let fields = json!({"name": "报表", "description": "", "nodes": [node], "edges": [],
        "global_config": {"env": {"$ODD": "a.b"}}});
    fields.as_object().cloned().unwrap()
}

pub fn plan(id: &str, session: &str, prompt: &str) -> WorkflowRecord {
    let origin = PlanOrigin { id, owner_session: session, agent_id: "planner" };
    WorkflowRecord::of_plan(origin, &fields(prompt), clock::now()).unwrap()
}

async fn ids(store: &Arc<dyn Store>, session: &str) -> Vec<String> {
    store.plans_of(session).await.unwrap().iter().map(|plan| plan.workflow.id().to_owned()).collect()
}

async fn status(store: &Arc<dyn Store>, session: &str) -> (WorkflowStatus, Option<String>) {
    let state = store.plans_of(session).await.unwrap().remove(0).state;
    (state.status, state.status_run)
}

pub async fn a_plan_is_found_by_its_id_and_listed_for_its_session_only(store: Arc<dyn Store>) {
    assert!(store.plans_of("s1").await.unwrap().is_empty());
    let first = plan("w1", "s1", "你好");
    store.put_session_plan(first.clone(), "planner").await.unwrap();
    store.put_session_plan(plan("w2", "s10", "您好"), "planner").await.unwrap();
    assert_eq!(*store.workflow("w1").await.unwrap().unwrap(), first);
    assert_eq!(*store.workflow_version("w1", &first.hash).await.unwrap().unwrap(), first);
    let listed = store.plans_of("s1").await.unwrap();
    assert_eq!((listed.len(), listed[0].workflow.as_ref(), listed[0].name()), (1, &first, "报表"));
    let state = &listed[0].state;
    assert_eq!((state.status, state.status_run.as_deref()), (Ready, None));
    assert_eq!((state.owner_session.as_str(), state.agent_id.as_str()), ("s1", "planner"));
    assert!(store.workflows().await.unwrap().good.is_empty(), "plans are in no listing of workflows");
    assert_eq!(ids(&store, "s10").await, ["w2"]);
}

pub async fn a_changed_plan_keeps_its_state_and_its_older_version(store: Arc<dyn Store>) {
    let (first, second) = (plan("w1", "s1", "一"), plan("w1", "s1", "二"));
    store.put_session_plan(first.clone(), "planner").await.unwrap();
    assert!(store.set_workflow_state("w1", &IDLE, Running, Some("r1")).await.unwrap());
    for _ in 0..2 {
        store.put_session_plan(second.clone(), "planner").await.unwrap();
        assert_eq!(status(&store, "s1").await, (Running, Some("r1".to_owned())));
        assert_eq!(store.workflow("w1").await.unwrap().unwrap().hash, second.hash);
    }
    assert_eq!(*store.workflow_version("w1", &first.hash).await.unwrap().unwrap(), first);
    assert_eq!(ids(&store, "s1").await, ["w1"]);
}

pub async fn a_session_keeps_its_last_plans_and_those_that_run(store: Arc<dyn Store>) {
    for at in 0..MAX_PLANS {
        store.put_session_plan(plan(&format!("w{at}"), "s1", "x"), "planner").await.unwrap();
        if at == 0 {
            assert!(store.set_workflow_state("w0", &IDLE, Running, Some("r")).await.unwrap());
        }
        if at < 3 || at == MAX_PLANS - 1 {
            let used = store.plans_of("s1").await.unwrap().into_iter().map(|plan| plan.state.used_at);
            clock_is_past(used.max().unwrap()).await;
        }
    }
    store.put_session_plan(plan("other", "s2", "x"), "planner").await.unwrap();
    let first = store.workflow("w1").await.unwrap().unwrap();
    store.put_session_plan(plan("w20", "s1", "x"), "planner").await.unwrap();
    store.put_session_plan(plan("w21", "s1", "x"), "planner").await.unwrap();
    let kept = ids(&store, "s1").await;
    assert_eq!((kept.len(), kept[0].as_str(), kept[MAX_PLANS - 1].as_str()), (MAX_PLANS, "w21", "w2"));
    assert!(store.workflow("w1").await.unwrap().is_none());
    assert!(store.workflow("w0").await.unwrap().is_some(), "a plan that runs is kept");
    assert!(store.set_workflow_state("w0", &[Running], Completed, Some("r")).await.unwrap());
    assert!(!store.set_workflow_state("w1", &IDLE, Running, Some("r")).await.unwrap(), "it is gone");
    let version = store.workflow_version("w1", &first.hash).await.unwrap();
    assert!(version.is_some(), "runs of the plan still need their version");
    assert_eq!(ids(&store, "s2").await, ["other"]);
}

pub async fn one_run_of_a_plan_begins_at_a_time(store: Arc<dyn Store>) {
    assert!(!store.set_workflow_state("w1", &IDLE, Running, Some("r0")).await.unwrap(), "there is no plan");
    store.put_session_plan(plan("w1", "s1", "x"), "planner").await.unwrap();
    let runs: Vec<String> = (0..10).map(|at| format!("r{at}")).collect();
    let begun = join_all(runs.iter().map(|run| store.set_workflow_state("w1", &IDLE, Running, Some(run)))).await;
    let begun: Vec<_> = runs.iter().zip(begun).filter(|(_, begun)| *begun.as_ref().unwrap()).collect();
    let [(run, _)] = begun[..] else { panic!("{begun:?}") };
    assert_eq!(status(&store, "s1").await, (Running, Some(run.clone())));
    assert!(store.set_workflow_state("w1", &IDLE, Running, Some(run)).await.unwrap(), "a repeat");
    assert!(!store.set_workflow_state("w1", &[Running], Failed, Some("other")).await.unwrap());
    assert!(store.set_workflow_state("w1", &[Running], Failed, Some(run)).await.unwrap());
    assert!(store.set_workflow_state("w1", &[Running], Failed, Some(run)).await.unwrap(), "a repeat");
    assert!(!store.set_workflow_state("w1", &IDLE, Running, Some("next")).await.unwrap(), "it has failed");
    assert!(store.set_workflow_state("w1", &[Failed], Ready, None).await.unwrap());
    assert_eq!(status(&store, "s1").await, (Ready, Some(run.clone())), "the last run is known");
    store.put_workflow(super::runs::workflow("w2", "an operator's")).await.unwrap();
    assert!(!store.set_workflow_state("w2", &IDLE, Running, Some("r")).await.unwrap(), "it has no status");
}

pub async fn a_plan_of_another_owner_is_not_replaced(store: Arc<dyn Store>) {
    store.put_session_plan(plan("w1", "s1", "一"), "planner").await.unwrap();
    store.put_workflow(super::runs::workflow("w2", "an operator's")).await.unwrap();
    for id in ["w1", "w2"] {
        let refused = store.put_session_plan(plan(id, "s2", "二"), "planner").await;
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{id}: {refused:?}");
    }
    assert_eq!(ids(&store, "s1").await, ["w1"]);
    assert!(ids(&store, "s2").await.is_empty());
}
