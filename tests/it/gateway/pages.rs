//! Listings in pages: each entry once, also while entries are added; a page is bounded in entries and in bytes.

use super::{Gateway, refusal};
use crate::conformance::catalog::agent;
use crate::conformance::kit::{LONG, run_turn, step, timer};
use crate::conformance::runs::{run, workflow};
use crate::conformance::session_plans::plan;
use crate::scenarios::on_both_backends;
use crate::support::backend::embedded;
use crate::support::engine::Backend;
use base::clock;
use definitions::knowledge::source::{Origin, Source};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use storage::queue::DeadLetter;
use storage::store::{Process, TimerChange};
use types::cause::Cause;
use types::job::{JobBody, UserMessage};
use types::page::MAX_PAGE_BYTES;
use types::run::{RunRecord, RunStatus};

on_both_backends!(
    each_entry_is_in_one_page_also_while_entries_are_added,
    a_page_of_large_entries_ends_early_and_none_is_lost,
);

/// The listings: path, field of the entries, fields that name an entry.
const LISTINGS: [(&str, &str, &[&str]); 12] = [
    // First, because announcements expire.
    ("/api/v1/processes", "processes", &["process_id"]),
    ("/api/v1/sessions", "sessions", &["session_id"]),
    ("/api/v1/sessions/s1/turns", "turns", &["turn_id"]),
    ("/api/v1/sessions/s1/turns/m-1", "steps", &["key"]),
    ("/api/v1/runs", "runs", &["run_id"]),
    ("/api/v1/timers", "timers", &["session_id", "timer_id"]),
    ("/api/v1/dead", "letters", &["seq"]),
    ("/api/v1/agents", "agents", &["agent_id"]),
    ("/api/v1/models", "agents", &["agent_id"]),
    ("/api/v1/workflows", "workflows", &["workflow_id"]),
    ("/api/v1/workflows?owner_session=s1", "workflows", &["workflow_id"]),
    ("/api/v1/knowledge", "sources", &["agent_id", "source"]),
];

/// Entries that exist before the pages are read.
const FIRST: u64 = 7;

/// Adds an entry to every listing. Adds to the turns and plans of `s1` only for their own listings, if `path` is given: a
/// session that changes moves to the front, and it keeps only its last plans.
async fn add(backend: &Backend, number: u64, path: Option<&str>) {
    let store = &backend.store;
    let timers = TimerChange::Replace(vec![timer("t-b", LONG), timer("t-a", LONG)]);
    run_turn(store, &format!("会话-{number}"), 1_000 + number, |change| change.timers = timers).await;
    if path.is_none_or(|path| path.ends_with("/turns")) {
        run_turn(store, "s1", number, |change| {
            if number == 1 {
                change.steps = (0..FIRST).map(|at| step(&format!("{at}/流程/act"), json!(at))).collect();
            }
        })
        .await;
    }
    store.put_run(run(&format!("r{number}"), "w", RunStatus::Pending)).await.unwrap();
    let letter = DeadLetter {
        cause: Cause::Attempts,
        reason: "x".into(),
        subject: "tw.jobs.s".into(),
        attempts: 1,
        job_id: None,
        msg_id: number.to_string(),
        payload: "{}".into(),
        cut_from: None,
    };
    backend.queue.publish_dead_letter(letter).await.unwrap();
    store.put_agent(agent(&format!("a{number}"), "h1", json!({"name": "小智"}))).await.unwrap();
    store.put_workflow(workflow(&format!("w{number}"), "x")).await.unwrap();
    if path.is_none_or(|path| path.contains("owner_session")) {
        store.put_session_plan(plan(&format!("p{number}"), "s1", "一"), "planner").await.unwrap();
    }
    let source = Source::new(&format!("a{number}"), "kb/a.md", "退货", Origin::Added, clock::now()).unwrap();
    store.put_knowledge(source).await.unwrap();
    let process = Process {
        process_id: format!("p{number}"),
        started_at: Some(clock::now()).filter(|_| number.is_multiple_of(2)),
        ..Process::default()
    };
    store.announce(process).await.unwrap();
}

fn key(entry: &Value, names: &[&str]) -> String {
    names.iter().map(|name| entry[*name].to_string()).collect::<Vec<_>>().join(" ")
}

fn keys(page: &Value, field: &str, names: &[&str]) -> Vec<String> {
    page[field].as_array().unwrap().iter().map(|entry| key(entry, names)).collect()
}

impl Gateway {
    async fn page(&self, path: &str, limit: usize, after: Option<&str>) -> (Value, usize) {
        let asked = self.client.get(format!("{}{path}", self.base)).query(&[("limit", limit)]);
        let asked = asked.query(&after.map(|after| ("after", after)).into_iter().collect::<Vec<_>>());
        let response = asked.send().await.unwrap();
        assert_eq!(response.status(), 200, "{path} {after:?}");
        let body = response.bytes().await.unwrap();
        (serde_json::from_slice(&body).unwrap(), body.len())
    }
}

async fn each_entry_is_in_one_page_also_while_entries_are_added(backend: Backend) {
    let gateway = Gateway::start(&backend.queue, &backend.store, &backend.settings).await;
    let mut numbers = 1..;
    for number in numbers.by_ref().take(FIRST as usize) {
        add(&backend, number, None).await;
    }
    for (path, field, names) in LISTINGS {
        let (all, _) = gateway.page(path, 1_000, None).await;
        assert!(all.get("next").is_none(), "{path}: {all}");
        let first = keys(&all, field, names);
        assert!(first.len() >= FIRST as usize, "{path}: {all}");
        let (mut seen, mut after) = (Vec::new(), None::<String>);
        loop {
            let (page, _) = gateway.page(path, 3, after.as_deref()).await;
            let found = keys(&page, field, names);
            assert!(found.len() <= 3, "{path}: {page}");
            seen.extend(found);
            add(&backend, numbers.next().unwrap(), Some(path)).await;
            after = page["next"].as_str().map(str::to_owned);
            if after.is_none() {
                break;
            }
            // Listings at whose end entries are added would never end.
            if first.iter().all(|entry| seen.contains(entry)) {
                break;
            }
        }
        let distinct: BTreeSet<&String> = seen.iter().collect();
        assert_eq!(distinct.len(), seen.len(), "{path}: {seen:?}");
        assert!(first.iter().all(|entry| distinct.contains(entry)), "{path}: {first:?} {seen:?}");
    }
}

async fn a_page_of_large_entries_ends_early_and_none_is_lost(backend: Backend) {
    let gateway = Gateway::start(&backend.queue, &backend.store, &backend.settings).await;
    let store = &backend.store;
    let large = "长".repeat(300_000);
    for number in 0..9 {
        // The fifth is larger than a page.
        let query = if number == 5 { large.repeat(6) } else { large.clone() };
        store.put_run(RunRecord { query, ..run(&format!("r{number}"), "w", RunStatus::Pending) }).await.unwrap();
    }
    for seq in 1..=9 {
        run_turn(store, "s1", seq, |change| {
            let message = UserMessage { text: large.clone(), ..UserMessage::default() };
            change.turn.job.body = JobBody::UserMessage(message);
            change.steps = match seq {
                1 => (0..9).map(|at| step(&format!("{at}/act"), json!(large))).collect(),
                _ => Vec::new(),
            };
        })
        .await;
    }
    for (path, field, names) in LISTINGS.iter().filter(|(_, field, _)| ["runs", "turns", "steps"].contains(field)) {
        let (mut seen, mut after, mut pages) = (BTreeSet::new(), None::<String>, 0);
        loop {
            let (page, bytes) = gateway.page(path, 1_000, after.as_deref()).await;
            let found = keys(&page, field, names);
            // Around the entries of a turn's steps is the turn itself.
            let around = 2 * large.len();
            assert!(found.len() == 1 || bytes <= MAX_PAGE_BYTES + around, "{path}: {} in {bytes}", found.len());
            assert!(!found.is_empty() && found.into_iter().all(|entry| seen.insert(entry)), "{path}");
            (after, pages) = (page["next"].as_str().map(str::to_owned), pages + 1);
            if after.is_none() {
                break;
            }
        }
        assert!(seen.len() == 9 && pages >= 3, "{path}: {pages} {seen:?}");
    }
}

/// GET endpoints that are no listings, although they respond with lists: what bounds them.
const NO_LISTINGS: [(&str, &str); 2] =
    [("doctor", "one finding for each check"), ("search_knowledge", "at most 50 passages of bounded size")];

#[tokio::test]
async fn every_listing_of_the_description_has_a_limit_and_a_cursor() {
    let backend = embedded().await;
    let document = Gateway::start(&backend.queue, &backend.store, &backend.settings).await.json("/openapi.json").await;
    let mut listings = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let operation = &item["get"];
        let id = operation["operationId"].as_str().unwrap_or_default();
        let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
        let schema = schema["$ref"].as_str().map_or(schema, |name| document.pointer(&name[1..]).unwrap());
        let Some(fields) = schema["properties"].as_object() else { continue };
        let lists = |field: &Value| field["type"] == "array";
        let is_list = fields.values().any(lists)
            && fields.iter().all(|(name, field)| lists(field) || ["next", "turns"].contains(&name.as_str()));
        let exempt = NO_LISTINGS.iter().any(|(exempt, _)| id.starts_with(exempt));
        if exempt || !(is_list || id.starts_with("list_")) {
            continue;
        }
        let parameters: Vec<&str> =
            operation["parameters"].as_array().into_iter().flatten().filter_map(|one| one["name"].as_str()).collect();
        assert!(parameters.contains(&"limit") && parameters.contains(&"after"), "{id} {path}: {parameters:?}");
        assert!(fields.contains_key("next"), "{id} {path} does not say where it goes on");
        listings.insert(id.to_owned());
    }
    assert!(listings.len() >= 12, "{listings:?}");
}

#[tokio::test]
async fn a_cursor_of_another_listing_is_refused() {
    let gateway = Gateway::idle(&embedded().await).await;
    for path in ["sessions?after=x", "runs?after=7", "dead?after=m-1", "timers?after=7/a", "sessions?after="] {
        let refused = gateway.get(&format!("/api/v1/{path}")).await;
        assert_eq!(refusal(refused).await, (400, "invalid_query".to_owned()), "{path}");
    }
}
