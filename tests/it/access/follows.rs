//! `GET /api/v1/events`: the events of all sessions, for one caller each.

use super::Guarded;
use crate::support::engine::{Backend, DEADLINE};
use crate::support::{background, eventually};
use futures::StreamExt;
use futures::stream::BoxStream;
use gateway::{GatewayState, Limits};
use reqwest::Method;
use serde_json::{Value, json};
use sse_stream::{Sse, SseStream};
use std::collections::BTreeSet;
use std::sync::Arc;
use storage::queue::Queue;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use types::event::{EventType, OutEvent};

fn entries() -> [Value; 4] {
    [
        json!({"name": "web", "role": "channel", "channels": ["web"]}),
        json!({"name": "shop", "role": "channel", "session_prefix": "shop-"}),
        json!({"name": "support", "role": "viewer", "agents": ["support"]}),
        json!({"name": "author", "role": "author"}),
    ]
}

fn event(session: &str, channel: &str, event_type: EventType, n: usize) -> OutEvent {
    let payload = json!({"session_id": session, "text": format!("第{n}"), "turn_id": "m-1", "agent_id": "sales"});
    OutEvent {
        channel: channel.into(),
        session_id: session.into(),
        event_type,
        msg_id: Some(format!("{session}/m-1/{event_type:?}/{n}")),
        payload: payload.to_string().into(),
    }
}

async fn emit(queue: &Arc<dyn Queue>, session: &str, numbers: std::ops::Range<usize>) {
    queue.emit(numbers.map(|n| event(session, "web", EventType::Reply, n)).collect()).await.unwrap();
}

struct Followed(BoxStream<'static, Sse>);

impl Followed {
    async fn next(&mut self) -> (Option<u64>, String, Value) {
        let next = tokio::time::timeout(DEADLINE, self.0.next()).await.expect("an event within the deadline");
        let next = next.expect("the stream does not end");
        let data = serde_json::from_str(next.data.as_deref().unwrap()).unwrap();
        (next.id.map(|id| id.parse().unwrap()), next.event.unwrap(), data)
    }

    /// The texts of the next events.
    async fn texts(&mut self, count: usize) -> Vec<String> {
        let mut texts = Vec::new();
        while texts.len() < count {
            let (_, kind, data) = self.next().await;
            assert_ne!(kind, "gap", "{data}");
            texts.push(format!("{} {}", data["session_id"].as_str().unwrap(), data["event"]["text"].as_str().unwrap()));
        }
        texts
    }
}

impl Guarded {
    /// Opens the stream. Returns it with its `as_of`.
    async fn follow(&self, caller: &str, query: &str) -> (Followed, u64) {
        let response = self.ask(caller, Method::GET, &format!("/api/v1/events{query}"), None).await;
        assert_eq!(response.status(), 200, "{query}");
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let events = SseStream::from_bytes_stream(response.bytes_stream());
        let mut events = Followed(events.filter_map(|event| std::future::ready(event.ok())).boxed());
        let (_, kind, data) = events.next().await;
        assert_eq!(kind, "open");
        (events, data["as_of"].as_u64().unwrap())
    }
}

async fn a_reader_gets_all_sessions_and_continues_where_it_was(backend: Backend) {
    let guarded = Guarded::start(&backend, &entries()).await;
    emit(&backend.queue, "before", 0..2).await;
    let (mut live, as_of) = guarded.follow("root", "").await;
    assert_eq!(as_of, 2);
    backend
        .queue
        .emit([event("甲", "web", EventType::Status, 0), event("乙", "sms", EventType::Reply, 0)].into())
        .await
        .unwrap();
    let (first, kind, data) = live.next().await;
    assert_eq!((first, kind.as_str()), (Some(3), "status"));
    assert_eq!(
        (&data["session_id"], &data["channel"], &data["event"]["text"]),
        (&json!("甲"), &json!("web"), &json!("第0"))
    );
    let (last, kind, data) = live.next().await;
    assert_eq!((last, kind.as_str(), &data["agent_id"]), (Some(4), "reply", &json!("sales")));

    // A client that was away gets what it has missed, also when nobody has followed meanwhile.
    drop(live);
    emit(&backend.queue, "甲", 1..4).await;
    let (mut again, as_of) = guarded.follow("root", "?after=4").await;
    assert_eq!(as_of, 7);
    assert_eq!(again.texts(3).await, ["甲 第1", "甲 第2", "甲 第3"]);
    let (mut second, _) = guarded.follow("root", "?after=5").await;
    assert_eq!(second.texts(2).await, ["甲 第2", "甲 第3"]);
    emit(&backend.queue, "甲", 4..5).await;
    for reader in [&mut again, &mut second] {
        assert_eq!(reader.texts(1).await, ["甲 第4"]);
    }

    // What is in a listing and what follows from its `as_of` is everything.
    for path in ["/api/v1/sessions", "/api/v1/runs", "/api/v1/timers", "/api/v1/dead"] {
        assert_eq!(guarded.get("root", path).await.1["as_of"], 8, "{path}");
    }
}

async fn a_position_that_is_no_longer_kept_is_a_gap(backend: Backend) {
    let guarded = Guarded::start(&backend, &entries()).await;
    emit(&backend.queue, "s", 0..3).await;
    // A reader from now on has begun the feed, so what was before is not in it.
    let (_now, as_of) = guarded.follow("root", "").await;
    let (mut early, _) = guarded.follow("root", "?after=1").await;
    let (id, kind, data) = early.next().await;
    assert_eq!((id, kind.as_str(), data), (Some(as_of), "gap", json!({"from": 2, "to": 3})));
    // A position beyond the end belongs to another stream.
    let (mut beyond, _) = guarded.follow("root", "?after=1000").await;
    let (_, kind, data) = beyond.next().await;
    assert_eq!((kind.as_str(), &data["to"]), ("gap", &json!(3)));
    emit(&backend.queue, "s", 3..4).await;
    for reader in [&mut early, &mut beyond] {
        assert_eq!(reader.texts(1).await, ["s 第3"]);
    }
    for (query, code) in
        [("after=x", "invalid_event_id"), ("types=reply,words", "invalid_query"), ("session_id=a.b", "invalid_id")]
    {
        let (status, body) = guarded.get("root", &format!("/api/v1/events?{query}")).await;
        assert_eq!((status, super::code(&body)), (400, code), "{query}");
    }
}

async fn a_reader_chooses_types_sessions_agents_and_channels(backend: Backend) {
    let guarded = Guarded::start(&backend, &entries()).await.with_sales().await;
    guarded.begin("s1", "web").await;
    let mut readers = Vec::new();
    for query in
        ["?types=status,%20step", "?session_id=s1", "?channel=sms", "?agent_id=sales&types=status", "?agent_id=support"]
    {
        readers.push(guarded.follow("root", query).await.0);
    }
    let events = [
        event("s1", "web", EventType::Reply, 1),
        event("s1", "web", EventType::Status, 2),
        event("s2", "sms", EventType::Reply, 3),
        event("s2", "web", EventType::Step, 4),
        event("s1", "sms", EventType::Status, 5),
    ];
    let last = OutEvent {
        payload: json!({"text": "end", "agent_id": "support"}).to_string().into(),
        ..event("s1", "sms", EventType::Reply, 6)
    };
    backend.queue.emit(events.into_iter().chain([last]).collect()).await.unwrap();
    let expected: [&[&str]; 5] = [
        &["s1 第2", "s2 第4", "s1 第5"],
        &["s1 第1", "s1 第2", "s1 第5", "s1 end"],
        &["s2 第3", "s1 第5", "s1 end"],
        &["s1 第2", "s1 第5"],
        &["s1 end"],
    ];
    for (reader, expected) in readers.iter_mut().zip(expected) {
        assert_eq!(reader.texts(expected.len()).await, expected);
    }
}

async fn a_limited_token_sees_its_own_sessions_only(backend: Backend) {
    let guarded = Guarded::start(&backend, &entries()).await.with_sales().await;
    // No worker has seen these sessions yet: the first message says whose they are.
    for (session, channel) in [("w-1", "web"), ("x-1", "sms"), ("shop-1", "web")] {
        guarded.begin(session, channel).await;
    }
    let (mut web, _) = guarded.follow("web", "").await;
    let (mut shop, _) = guarded.follow("shop", "").await;
    let (mut root, _) = guarded.follow("root", "").await;
    let (mut support, _) = guarded.follow("support", "").await;
    let (mut named, _) = guarded.follow("web", "?session_id=x-1").await;
    // A run without a session belongs to nobody, and the channel of an event is not that of its session.
    let events =
        [("x-1", "sms"), ("x-1", "web"), ("run-1", "web"), ("w-1", "web"), ("shop-1", "web"), ("unknown", "web")];
    let events =
        events.into_iter().enumerate().map(|(n, (session, channel))| event(session, channel, EventType::Reply, n));
    backend.queue.emit(events.collect()).await.unwrap();
    assert_eq!(web.texts(2).await, ["w-1 第3", "shop-1 第4"]);
    assert_eq!(shop.texts(1).await, ["shop-1 第4"]);
    assert_eq!(root.texts(6).await.len(), 6);
    guarded.begin("w-2", "web").await;
    backend
        .queue
        .emit([event("x-1", "web", EventType::Status, 7), event("w-2", "web", EventType::Status, 8)].into())
        .await
        .unwrap();
    assert_eq!(web.texts(1).await, ["w-2 第8"]);
    for reader in [&mut support, &mut named] {
        let more = tokio::time::timeout(std::time::Duration::from_millis(200), reader.0.next()).await;
        assert!(more.is_err(), "{more:?}");
    }
    assert_eq!(guarded.get("author", "/api/v1/events").await.0, 403);
}

/// A gateway that keeps few events, without tokens.
async fn forgetful(backend: &Backend, events_kept: usize) -> (std::net::SocketAddr, CancellationToken) {
    let settings = backend.settings.clone();
    let limits = Limits { events_kept, ..Limits::new(&settings) };
    let state = GatewayState::new(Arc::clone(&backend.queue), Arc::clone(&backend.store), Arc::new(settings));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    let (state, token) = (state.with_limits(limits), stop.clone());
    background(async move { gateway::serve(listener, state, token).await.unwrap() });
    (address, stop)
}

async fn a_slow_reader_is_told_what_it_has_missed(backend: Backend) {
    const EVENTS: u64 = 400;
    let (address, stop) = forgetful(&backend, 16).await;
    let mut slow = TcpStream::connect(address).await.unwrap();
    slow.write_all(b"GET /api/v1/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").await.unwrap();
    let mut lines = BufReader::with_capacity(1_024, slow);
    let mut line = String::new();
    while !line.contains("\"as_of\":0") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).await.unwrap(), 0);
    }
    // More than the buffers of both sides of the connection take.
    let payload = json!({"text": "x".repeat(64 * 1024)}).to_string();
    for n in 0..EVENTS {
        let event = event("s", "web", EventType::Reply, usize::try_from(n).unwrap());
        backend.queue.emit([OutEvent { payload: payload.clone().into(), ..event }].into()).await.unwrap();
    }
    // Every sequence is an event or within a gap, in order.
    let read = async {
        let (mut seen, mut id, mut gaps, mut bytes) = (0, 0, 0, Vec::new());
        while seen < EVENTS {
            bytes.clear();
            assert_ne!(lines.read_until(b'\n', &mut bytes).await.unwrap(), 0, "the stream does not end");
            let line = String::from_utf8_lossy(&bytes);
            if let Some(named) = line.strip_prefix("id: ") {
                id = named.trim().parse().unwrap();
            } else if let Some(gap) = line.strip_prefix("data: {\"from\":") {
                let (from, to) = gap.trim().trim_end_matches('}').split_once(",\"to\":").unwrap();
                assert_eq!(from.parse::<u64>().unwrap(), seen + 1);
                (seen, gaps) = (to.parse().unwrap(), gaps + 1);
            } else if line.starts_with("data: ") {
                assert_eq!(id, seen + 1);
                seen = id;
            }
        }
        gaps
    };
    let gaps = tokio::time::timeout(DEADLINE, read).await.expect("the rest within the deadline");
    assert!(gaps > 0, "the reader was fast enough");
    stop.cancel();
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(DEADLINE, lines.read_to_end(&mut rest)).await;
}

async fn a_reader_keeps_up_with_a_thousand_events_a_second(backend: Backend) {
    const SECONDS: usize = 3;
    const BATCH: usize = 50;
    let guarded = Guarded::start(&backend, &entries()).await;
    let (mut reader, _) = guarded.follow("root", "").await;
    let queue = Arc::clone(&backend.queue);
    let emitted = async {
        let mut tick = tokio::time::interval(std::time::Duration::from_millis(1_000 * BATCH as u64 / 1_000));
        for batch in 0..SECONDS * 1_000 / BATCH {
            tick.tick().await;
            emit(&queue, "s", batch * BATCH..(batch + 1) * BATCH).await;
        }
    };
    let ((), texts) = tokio::join!(emitted, reader.texts(SECONDS * 1_000));
    assert!(texts.iter().enumerate().all(|(n, text)| *text == format!("s 第{n}")));
}

crate::scenarios::on_both_backends!(
    a_reader_gets_all_sessions_and_continues_where_it_was,
    a_position_that_is_no_longer_kept_is_a_gap,
    a_reader_chooses_types_sessions_agents_and_channels,
    a_limited_token_sees_its_own_sessions_only,
    a_slow_reader_is_told_what_it_has_missed,
    a_reader_keeps_up_with_a_thousand_events_a_second,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_readers_share_one_consumer_and_it_ends_with_them() {
    let backend = crate::support::backend::cluster().await;
    let guarded = Guarded::start(&backend, &entries()).await;
    let context = async_nats::jetstream::new(async_nats::connect(&backend.settings.nats.url).await.unwrap());
    let name = format!("{}_OUT", backend.settings.namespace.to_uppercase());
    let consumers = async || context.get_stream(&name).await.unwrap().cached_info().state.consumer_count;
    assert_eq!(consumers().await, 0);
    let mut readers = Vec::new();
    for _ in 0..5 {
        readers.push(guarded.follow("root", "").await.0);
    }
    assert_eq!(consumers().await, 1);
    emit(&backend.queue, "s", 0..1).await;
    let seen: BTreeSet<_> = futures::future::join_all(readers.iter_mut().map(|reader| reader.texts(1)))
        .await
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(seen.len(), 1);
    drop(readers);
    eventually(DEADLINE, "the consumer ends", || async { consumers().await == 0 }).await;
}
