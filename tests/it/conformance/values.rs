//! Cases for values: unusual texts and keys of users, models and APIs survive a round trip.

use super::catalog::{agent, plan};
use super::kit::*;
use serde_json::json;
use std::sync::Arc;
use storage::store::*;
use types::action::{Action, ActionKind};
use types::job::JobBody;
use types::session::Role;

pub async fn odd_keys_and_values_survive_in_the_profile_and_history(store: Arc<dyn Store>) {
    let mut said = entry(Role::User, "“你好”\n$set a.b \u{1F69A} \\\"");
    said.metadata = odd_map().into();
    let mut armed = timer("t1", LONG);
    armed.action = Some(Action { kind: ActionKind::Tool, target: "log".into(), params: odd_map() });
    let (kept, timers) = (said.clone(), TimerChange::Replace(vec![armed.clone()]));
    let session = run_turn(&store, "s", 1, |change| {
        change.profile = Some(odd_map());
        change.history = vec![said];
        change.timers = timers;
    })
    .await;
    assert_eq!(session.profile, odd_map());
    assert_eq!(*session.history, [kept]);
    assert_eq!(session.timers[0].action, armed.action);
    let again = grant(&store, "s", 2).await;
    assert_eq!((again.session.profile, again.session.history), (session.profile, session.history));
    let due = store.due_timers(LONG * 2, 10).await.unwrap();
    assert_eq!(due.timers[0].timer, session.timers[0]);
}

pub async fn odd_keys_and_values_survive_in_steps_and_turns(store: Arc<dyn Store>) {
    let taken = grant(&store, "s", 1).await;
    let odd = step("research/outer_loop[1]/并行/$verify.a b", odd_values());
    let first = store.record(record(&taken, "m-1", vec![odd.clone()], None)).await.unwrap();
    let again = store.record(record(&taken, "m-1", vec![odd.clone()], None)).await.unwrap();
    assert_eq!((first, again), (vec![Recorded::New], vec![Recorded::Existing(Arc::clone(&odd))]));
    assert_eq!(store.steps("s", "m-1").await.unwrap(), [odd.as_ref().clone()]);
    let mut change = change(&taken.session, "m-1");
    if let JobBody::UserMessage(message) = &mut change.turn.job.body {
        message.metadata = odd_map();
    }
    let turn = change.turn.clone();
    store.commit(commit(&taken, 1, Some(change))).await.unwrap();
    assert_eq!(store.turn("s", "m-1").await.unwrap(), Some(turn));
}

pub async fn odd_keys_and_values_survive_in_agents_and_plans(store: Arc<dyn Store>) {
    let record = agent(
        "客服",
        "h1",
        json!({
            "name": "小智", "constraints": "不得承诺：$set、a.b",
            "skills": [{"id": "q", "params": {"type": "object", "properties": {"$ref.订单": odd_values()}}}],
        }),
    );
    assert!(store.put_agent(record.clone()).await.unwrap());
    let kept = store.agent("客服").await.unwrap().unwrap();
    assert_eq!(*kept, record);
    let mut plan = plan("客服", "h1", "您好");
    plan.skills = kept.config.skills.clone();
    store.put_plan(plan.clone()).await.unwrap();
    assert_eq!(*store.plan("客服", "h1").await.unwrap().unwrap(), plan);
}

pub async fn chinese_ids_are_as_good_as_others(store: Arc<dyn Store>) {
    let session = run_turn(&store, "会话-一", 1, |change| change.user_id = "用户".into()).await;
    assert_eq!((session.session_id.as_str(), session.user_id.as_str()), ("会话-一", "用户"));
    assert!(store.session("会话").await.unwrap().is_none());
    assert_eq!(store.turns("会话-一", 10).await.unwrap().len(), 1);
    assert!(store.turns("会话", 10).await.unwrap().is_empty());
}
