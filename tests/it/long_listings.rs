//! Listings of 10,000 sessions with their filters, over HTTP. The times are printed.

use crate::conformance::kit::{entry, run_turn, waiting};
use crate::gateway::Gateway;
use crate::scenarios::on_both_backends;
use crate::support::engine::Backend;
use futures::{StreamExt, stream};
use std::time::{Duration, Instant};
use types::session::Role;

on_both_backends!(a_page_of_ten_thousand_sessions_is_found_in_a_second);

const SESSIONS: u64 = 10_000;
/// Turns that are created concurrently.
const CONCURRENT: usize = 64;
/// The longest time for a page. Unoptimized code takes several times as long.
const LIMIT: Duration = Duration::from_secs(if cfg!(debug_assertions) { 5 } else { 1 });

/// A page of the listing, and the number of its entries.
const PAGES: [(&str, usize); 9] = [
    ("", 50),
    ("?status=ready", 50),
    ("?channel=rare", 1),
    ("?agent_id=nobody", 0),
    ("?user_id=user-77", 1),
    ("?waiting=true", 10),
    ("?waiting=false", 50),
    ("?q=常见 order", 50),
    ("?q=稀有 needle", 1),
];

async fn a_page_of_ten_thousand_sessions_is_found_in_a_second(backend: Backend) {
    let store = &backend.store;
    stream::iter(1..=SESSIONS)
        .for_each_concurrent(CONCURRENT, async |number| {
            run_turn(store, &format!("s-{number}"), number, |change| {
                change.user_id = format!("user-{number}");
                change.channel = if number == 50 { "rare" } else { "web" }.into();
                change.waiting = number.is_multiple_of(1_000).then(waiting);
                change.history = (0..10)
                    .map(|at| entry(Role::User, &format!("第{at}条 我的 Order {number} 什么时候到？很常见的问题。")))
                    .collect();
                if number == 70 {
                    change.history.push(entry(Role::Assistant, "稀有的 Needle"));
                }
            })
            .await;
        })
        .await;
    let gateway = Gateway::start(&backend.queue, &backend.store, &backend.settings).await;
    for (query, count) in PAGES {
        let mut took = Duration::MAX;
        for _ in 0..3 {
            let begun = Instant::now();
            let page = gateway.json(&format!("/api/v1/sessions{query}")).await;
            took = took.min(begun.elapsed());
            assert_eq!(page["sessions"].as_array().unwrap().len(), count, "{query}");
        }
        eprintln!("{:?} GET /api/v1/sessions{query}: {count} entries in {took:?}", backend.settings.backend);
        assert!(took <= LIMIT, "{query} took {took:?}");
    }
}
