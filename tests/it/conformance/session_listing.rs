//! Cases for the filters of a listing of sessions, and for its bounds.

use super::kit::*;
use crate::support::eventually;
use std::sync::Arc;
use std::time::Duration;
use storage::store::records::{SessionPage, SessionQuery};
use storage::store::*;
use types::session::{Handoff, Role, Status, Words};
use types::timestamp::Timestamp;

/// Runs a turn of each session, in this order and each in a millisecond of its own. Returns when each last changed.
async fn sessions(store: &Arc<dyn Store>, ids: &[&str], edit: impl Fn(&str, &mut Change)) -> Vec<Timestamp> {
    let mut changed = Vec::new();
    for (seq, id) in (1..).zip(ids) {
        let last = changed.last().copied().unwrap_or_default();
        let passed = || async { store.due_timers(Duration::ZERO, 1).await.unwrap().now > last };
        eventually(DEADLINE, "the next millisecond begins", passed).await;
        changed.push(run_turn(store, id, seq, |change| edit(id, change)).await.updated_at);
    }
    changed
}

async fn found(store: &Arc<dyn Store>, query: SessionQuery) -> Vec<String> {
    let sessions = store.sessions(query).await.unwrap();
    assert!(sessions.iter().all(|session| session.history.len() <= 1), "only the last entries");
    sessions.into_iter().map(|session| session.session_id).collect()
}

pub async fn sessions_are_found_by_channel_user_time_and_what_they_wait_for(store: Arc<dyn Store>) {
    let ids = ["plain", "asked", "flow", "human", "wechat"];
    let changed = sessions(&store, &ids, |id, change| match id {
        "asked" => change.task = Some(task()),
        "flow" => change.waiting = Some(waiting()),
        "human" => {
            change.workflow_state.status = Status::Transferred;
            change.handoff = Some(Handoff { turn_id: "m-4".into(), since: stream(), ..Handoff::default() });
        }
        "wechat" => (change.channel, change.user_id) = ("微信".into(), "u2".into()),
        _ => {}
    })
    .await;
    let all = SessionQuery::default;
    let waiting = |waiting| SessionQuery { waiting: Some(waiting), ..all() };
    assert_eq!(found(&store, waiting(true)).await, ["human", "flow", "asked"]);
    assert_eq!(found(&store, waiting(false)).await, ["wechat", "plain"]);
    let status = Some(Status::Ready);
    assert_eq!(found(&store, SessionQuery { status, ..waiting(true) }).await, ["flow", "asked"]);
    let (channel, user_id) = (Some("微信".to_owned()), Some("u2".to_owned()));
    assert_eq!(found(&store, SessionQuery { channel: channel.clone(), ..all() }).await, ["wechat"]);
    assert_eq!(found(&store, SessionQuery { user_id: user_id.clone(), ..all() }).await, ["wechat"]);
    let neither = SessionQuery { channel, user_id: Some("u1".into()), ..all() };
    assert!(found(&store, neither).await.is_empty());
    let (since, until) = (Some(changed[1]), Some(changed[3]));
    assert_eq!(found(&store, SessionQuery { since, until, ..all() }).await, ["flow", "asked"]);
    assert_eq!(found(&store, SessionQuery { since: until, ..waiting(true) }).await, ["human"]);
    // The first of these sessions no longer waits.
    run_turn(&store, "flow", 9, |_| ()).await;
    assert_eq!(found(&store, waiting(true)).await, ["human", "asked"]);
    assert_eq!(found(&store, waiting(false)).await, ["flow", "wechat", "plain"]);
}

pub async fn sessions_are_found_by_the_words_of_their_histories(store: Arc<dyn Store>) {
    let ids = ["a", "b", "c", "silent"];
    sessions(&store, &ids, |id, change| {
        change.history = match id {
            "a" => vec![entry(Role::User, "我要退货 Order A-17"), entry(Role::Assistant, "好的，50% (off)")],
            "b" => vec![entry(Role::User, "ORDER a.17"), entry(Role::Human, "退款 Größe")],
            "c" => vec![entry(Role::User, "你好")],
            _ => Vec::new(),
        };
    })
    .await;
    let words =
        async |text: &str| found(&store, SessionQuery { words: Words::of(text), ..SessionQuery::default() }).await;
    assert_eq!(words("order").await, ["b", "a"]);
    assert_eq!(words("order 退货").await, ["a"], "words of different places");
    assert_eq!(words("退").await, ["b", "a"]);
    assert_eq!(words("a.17").await, ["b"], "a word is no pattern");
    assert_eq!(words("(OFF)").await, ["a"]);
    assert_eq!(words("GRÖSSE größe").await, [""; 0]);
    assert_eq!(words("GRÖßE").await, ["b"]);
    assert_eq!(words(" \t").await, ["silent", "c", "b", "a"]);
    let last = store.sessions(SessionQuery { words: Words::of("退货"), ..SessionQuery::default() }).await.unwrap();
    assert_eq!(last[0].history.last().unwrap().text, "好的，50% (off)");
    // Words that the history has dropped are not found.
    run_turn(&store, "a", 9, |change| (change.history, change.history_drop) = (vec![entry(Role::User, "在吗")], 2))
        .await;
    assert!(words("退货").await.is_empty());
    assert_eq!(words("在吗").await, ["a"]);
}

pub async fn a_bounded_listing_goes_on_where_it_ended(store: Arc<dyn Store>) {
    let ids = ["a", "b", "c", "d", "e", "f", "g"];
    sessions(&store, &ids, |id, change| {
        change.channel = if matches!(id, "a" | "c") { "rare" } else { "web" }.into();
        change.history = vec![entry(Role::User, if matches!(id, "a" | "c") { "稀有" } else { "常见" })];
    })
    .await;
    let by_channel = SessionQuery { channel: Some("rare".into()), ..SessionQuery::default() };
    let by_word = SessionQuery { words: Words::of("稀有"), ..SessionQuery::default() };
    for query in [by_channel, by_word] {
        let (mut after, mut pages) = (None, Vec::new());
        loop {
            let query = SessionQuery { after, max_examined: 2, ..query.clone() };
            let SessionPage { page, ends_at } = store.sessions_page(query).await.unwrap();
            assert!(!page.has_more);
            pages.push(page.items.into_iter().map(|session| session.session_id).collect::<Vec<_>>());
            after = ends_at;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(pages, [vec![], vec![], vec!["c".to_owned()], vec!["a".to_owned()]]);
        let full = store.sessions_page(SessionQuery { limit: 1, max_examined: 7, ..query.clone() }).await.unwrap();
        assert!(full.page.has_more && full.ends_at.is_none(), "{full:?}");
        let whole = store.sessions_page(SessionQuery { max_examined: 8, ..query }).await.unwrap();
        assert_eq!((whole.page.items.len(), whole.ends_at), (2, None));
    }
}
