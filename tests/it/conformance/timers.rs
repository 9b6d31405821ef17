//! Cases for the timers of sessions.

use super::kit::*;
use std::sync::Arc;
use std::time::Duration;
use storage::store::*;

pub async fn timers_are_kept_removed_and_replaced(store: Arc<dyn Store>) {
    let ids = |session: &types::session::Session| -> Vec<(String, u64)> {
        session.timers.iter().map(|timer| (timer.timer_id.clone(), timer.generation)).collect()
    };
    let due = || async {
        let due = store.due_timers(LONG * 2, 10).await.unwrap();
        due.timers.into_iter().map(|due| due.timer.timer_id).collect::<Vec<_>>()
    };
    let armed = run_turn(&store, "s", 1, |change| {
        change.timer_generation = 1;
        change.timers = TimerChange::Replace(vec![timer("a", LONG), timer("b", LONG / 2)]);
    })
    .await;
    assert_eq!(ids(&armed), [("a".into(), 1), ("b".into(), 1)]);
    let kept = run_turn(&store, "s", 2, |_| ()).await;
    assert_eq!(kept.timers, armed.timers);
    assert_eq!(due().await, ["b", "a"]);
    let (others, all) = (vec!["c".into(), "$a".into()], vec!["b".into(), "c".into(), "d".into()]);
    let untouched = run_turn(&store, "t", 1, |change| {
        change.timers = TimerChange::Replace(vec![timer("c", LONG), timer("d", LONG), timer("$a", LONG)]);
    })
    .await;
    assert_eq!(untouched.timers.len(), 3);
    let removed = run_turn(&store, "t", 2, |change| change.timers = TimerChange::Remove(others)).await;
    assert_eq!(ids(&removed), [("d".into(), 0)]);
    assert!(
        run_turn(&store, "t", 3, |change| change.timers = TimerChange::Remove(all.clone())).await.timers.is_empty()
    );
    let fired = run_turn(&store, "s", 3, |change| change.timers = TimerChange::Remove(all)).await;
    assert_eq!((ids(&fired), due().await), (vec![("a".into(), 1)], vec!["a".into()]));
    let replaced = run_turn(&store, "s", 4, |change| {
        change.timer_generation = 2;
        change.timers = TimerChange::Replace(vec![timer("c", LONG)]);
    })
    .await;
    assert_eq!((ids(&replaced), due().await), (vec![("c".into(), 2)], vec!["c".into()]));
    let cancelled = run_turn(&store, "s", 5, |change| {
        change.timer_generation = 3;
        change.timers = TimerChange::Replace(Vec::new());
    })
    .await;
    assert_eq!((cancelled.timers.len(), cancelled.timer_generation), (0, 3));
    assert!(due().await.is_empty());
}

pub async fn timers_are_exchanged_and_the_others_stay(store: Arc<dyn Store>) {
    let due = || async {
        let due = store.due_timers(LONG * 3, 10).await.unwrap();
        due.timers.into_iter().map(|due| due.timer.timer_id).collect::<Vec<_>>()
    };
    let armed = run_turn(&store, "s", 1, |change| {
        change.timer_generation = 1;
        change.timers = TimerChange::Replace(vec![timer("handoff", LONG * 2), timer("claim-1", LONG)]);
    })
    .await;
    let exchange = |removed: &[&str], added: &[&str]| TimerChange::Exchange {
        removed: removed.iter().map(|id| (*id).to_owned()).collect(),
        added: added.iter().map(|id| timer(id, LONG)).collect(),
    };
    let changed = run_turn(&store, "s", 2, |change| change.timers = exchange(&["claim-1", "gone"], &["claim-2"])).await;
    assert_eq!(changed.timers[0], armed.timers[0], "it is due when it was due");
    assert_eq!((changed.timers[1].timer_id.as_str(), changed.timers[1].generation), ("claim-2", 1));
    assert_eq!((changed.timers.len(), changed.timer_generation), (2, 1));
    assert_eq!(due().await, ["claim-2", "handoff"]);
    let added = run_turn(&store, "s", 3, |change| change.timers = exchange(&[], &["claim-3"])).await;
    assert_eq!(added.timers.len(), 3);
    let removed = run_turn(&store, "s", 4, |change| change.timers = exchange(&["claim-2", "claim-3"], &[])).await;
    assert_eq!((removed.timers, due().await), (vec![armed.timers[0].clone()], vec!["handoff".to_owned()]));
}

pub async fn due_timers_come_in_order_within_horizon_and_limit(store: Arc<dyn Store>) {
    for (seq, (id, delay)) in [("a", 30_u64), ("b", 10), ("c", 500), ("d", 20)].into_iter().enumerate() {
        let timer = timer(id, Duration::from_secs(delay));
        run_turn(&store, id, seq as u64 + 1, |change| change.timers = TimerChange::Replace(vec![timer])).await;
    }
    let due = |seconds: u64, limit: usize| {
        let store = Arc::clone(&store);
        async move {
            let due = store.due_timers(Duration::from_secs(seconds), limit).await.unwrap();
            due.timers.into_iter().map(|due| due.session_id).collect::<Vec<_>>()
        }
    };
    assert!(due(0, 10).await.is_empty());
    assert_eq!(due(60, 10).await, ["b", "d", "a"]);
    assert_eq!(due(60, 2).await, ["b", "d"]);
    assert_eq!(due(25, 10).await, ["b", "d"]);
}
