//! Cases for jobs, events and hints.

use super::kit::DEADLINE;
use crate::support::eventually;
use bytes::Bytes;
use futures::future::join_all;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::queue::{CancelHint, Delivery, From, Publish, Published, Queue, QueueError, Result, StreamEvent};
use types::event::{EventType, OutEvent};

/// The ack wait of [`super::kit::settings`].
const ACK_WAIT: Duration = Duration::from_millis(300);
/// How long a test waits to see that nothing happens.
const QUIET: Duration = Duration::from_millis(150);

type Jobs = Arc<dyn Queue>;

async fn send(queue: &Jobs, session: &str, payload: impl Into<Bytes>) -> Published {
    let job = Publish { session_id: session.into(), msg_id: None, payload: payload.into() };
    queue.publish(job).await.unwrap()
}

async fn send_as(queue: &Jobs, session: &str, msg_id: &str) -> Published {
    let job = Publish { session_id: session.into(), msg_id: Some(msg_id.into()), payload: "{}".into() };
    queue.publish(job).await.unwrap()
}

/// Waits for the next delivery.
async fn next(queue: &Jobs) -> Delivery {
    eventually(DEADLINE, "a delivery comes", || async { queue.pull(1, DEADLINE).await.unwrap().pop() }).await
}

async fn nothing_comes(queue: &Jobs) {
    assert!(queue.pull(10, QUIET).await.unwrap().is_empty());
}

pub async fn a_job_is_delivered_as_published_and_gone_when_acknowledged(queue: Jobs) {
    let first = send_as(&queue, "会话-一", "会话-一:消息").await;
    let delivery = next(&queue).await;
    let message = &delivery.message;
    assert_eq!((message.session_id.as_str(), message.seq), ("会话-一", first.seq));
    assert_eq!((message.msg_id.as_deref(), &message.payload[..]), (Some("会话-一:消息"), &b"{}"[..]));
    assert!(message.default_id.ends_with(&format!("-{}", first.seq)), "{}", message.default_id);
    assert!(types::ids::is_legal(&message.default_id));
    queue.ack(&delivery.token).await.unwrap();
    assert!(queue.pull(10, ACK_WAIT * 2).await.unwrap().is_empty());
    let second = send(&queue, "会话-一", "{}").await;
    assert!(second.seq > first.seq);
    let again = next(&queue).await.message;
    assert_eq!((again.seq, again.msg_id), (second.seq, None));
    assert_ne!(again.default_id, delivery.message.default_id);
}

pub async fn a_delivery_tells_whether_others_wait_behind_it(queue: Jobs) {
    for session in ["a", "b", "c"] {
        send(&queue, session, "{}").await;
    }
    let first = next(&queue).await;
    assert!(first.more_pending, "two others wait");
    let rest = queue.pull(10, Duration::ZERO).await.unwrap();
    assert_eq!(
        rest.iter().map(|delivery| delivery.more_pending).next_back(),
        Some(false),
        "no message follows the last one"
    );
    send(&queue, "d", "{}").await;
    assert!(!next(&queue).await.more_pending, "messages in flight do not count");
}

pub async fn any_bytes_are_a_payload(queue: Jobs) {
    let odd: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    for payload in [odd, Vec::new(), "{\"text\":\"你好，世界\"}".into()] {
        send(&queue, "s", payload.clone()).await;
        let delivery = next(&queue).await;
        assert_eq!(delivery.message.payload, payload);
        queue.ack(&delivery.token).await.unwrap();
    }
}

pub async fn a_repeat_of_a_message_id_is_dropped(queue: Jobs) {
    let published = join_all((0..10).map(|_| send_as(&queue, "s", "s:m-1"))).await;
    assert_eq!(published.iter().filter(|one| !one.duplicate).count(), 1);
    assert!(published.iter().all(|one| one.seq == published[0].seq));
    let delivery = next(&queue).await;
    queue.ack(&delivery.token).await.unwrap();
    assert!(send_as(&queue, "s", "s:m-1").await.duplicate, "a processed message is deduplicated, too");
    nothing_comes(&queue).await;
    assert!(!send_as(&queue, "s", "s:m-2").await.duplicate);
    assert!(!send(&queue, "s", "{}").await.duplicate && !send(&queue, "s", "{}").await.duplicate);
}

pub async fn a_pull_without_a_wait_answers_what_is_there(queue: Jobs) {
    assert!(queue.pull(10, Duration::ZERO).await.unwrap().is_empty());
    for session in ["a", "b", "c"] {
        send(&queue, session, "{}").await;
    }
    let first = next(&queue).await.message;
    let mut seen: Vec<String> = vec![first.session_id];
    let more = queue.pull(10, Duration::ZERO).await.unwrap();
    seen.extend(more.into_iter().map(|delivery| delivery.message.session_id));
    seen.sort();
    assert_eq!(seen, ["a", "b", "c"], "one pull returns all messages");
}

pub async fn a_pull_waits_for_a_job_and_takes_no_more_than_asked(queue: Jobs) {
    let start = Instant::now();
    nothing_comes(&queue).await;
    assert!(start.elapsed() >= QUIET);
    let waiting = {
        let queue = Arc::clone(&queue);
        async move { queue.pull(2, DEADLINE).await.unwrap() }
    };
    let sending = async {
        for session in ["a", "b", "c"] {
            send(&queue, session, "{}").await;
        }
    };
    let (first, ()) = tokio::join!(waiting, sending);
    assert!(start.elapsed() < DEADLINE && (1..=2).contains(&first.len()));
    let mut seen = first;
    while seen.len() < 3 {
        seen.extend(queue.pull(2, DEADLINE).await.unwrap());
    }
    let mut sessions: Vec<String> = seen.into_iter().map(|delivery| delivery.message.session_id).collect();
    sessions.sort();
    sessions.dedup();
    assert_eq!(sessions, ["a", "b", "c"]);
}

pub async fn a_lane_is_read_in_order_whoever_was_woken(queue: Jobs) {
    let mut seqs = Vec::new();
    for n in 0..5 {
        seqs.push(send(&queue, "甲", format!("甲{n}")).await.seq);
        send(&queue, "乙", format!("乙{n}")).await;
    }
    let mut after = 0;
    for (n, seq) in seqs.iter().enumerate() {
        let message = queue.next_in_lane("甲", after, *seq).await.unwrap().unwrap();
        assert_eq!((message.seq, message.session_id.as_str()), (*seq, "甲"));
        assert_eq!(message.payload, format!("甲{n}"));
        after = message.seq;
    }
    assert!(queue.next_in_lane("甲", after, 0).await.unwrap().is_none());
    assert!(queue.next_in_lane("丙", 0, 0).await.unwrap().is_none());
    let delivery = next(&queue).await;
    assert_eq!(delivery.message.seq, seqs[0], "the oldest message is delivered first");
    queue.ack(&delivery.token).await.unwrap();
    eventually(DEADLINE, "the jobs are redelivered", || async {
        let message = queue.next_in_lane("甲", 0, 0).await.unwrap();
        message.map(|message| message.seq) == Some(seqs[1])
    })
    .await;
}

pub async fn what_is_not_acknowledged_comes_again(queue: Jobs) {
    send(&queue, "s", "{}").await;
    let first = next(&queue).await;
    let start = Instant::now();
    let again = next(&queue).await;
    assert!(start.elapsed() >= ACK_WAIT / 2, "the redelivery waits for the ack wait");
    assert_eq!(first.message, again.message);
    queue.ack(&again.token).await.unwrap();
    assert!(queue.pull(1, ACK_WAIT * 2).await.unwrap().is_empty());
}

pub async fn progress_keeps_a_delivery_from_coming_again(queue: Jobs) {
    send(&queue, "a", "{}").await;
    send(&queue, "b", "{}").await;
    let held = [next(&queue).await, next(&queue).await];
    let tokens = held.clone().map(|delivery| delivery.token);
    let start = Instant::now();
    while start.elapsed() < ACK_WAIT * 3 {
        queue.progress(&tokens).await.unwrap();
        let came = queue.pull(10, ACK_WAIT / 6).await.unwrap();
        assert!(came.is_empty(), "{came:?}");
    }
    let again = [next(&queue).await, next(&queue).await];
    let mut sessions = again.map(|delivery| delivery.message.session_id);
    sessions.sort();
    assert_eq!(sessions, ["a", "b"], "without progress they are redelivered");
}

pub async fn a_refused_delivery_comes_again_after_its_delay(queue: Jobs) {
    send(&queue, "s", "{}").await;
    let first = next(&queue).await;
    let start = Instant::now();
    queue.nak(&first.token, ACK_WAIT * 3).await.unwrap();
    let second = next(&queue).await;
    assert!(start.elapsed() >= ACK_WAIT * 2, "{:?}", start.elapsed());
    assert_eq!(second.message.seq, first.message.seq);
    queue.nak(&second.token, Duration::ZERO).await.unwrap();
    assert_eq!(next(&queue).await.message.seq, first.message.seq);
}

pub async fn a_full_lane_refuses_while_others_go_on(queue: Jobs) {
    let job = |session: &str| Publish { session_id: session.into(), msg_id: None, payload: "{}".into() };
    let mut published = Vec::new();
    for _ in 0..30 {
        published.push(queue.publish_message(job("flood")).await);
    }
    assert_eq!(published.iter().filter(|one| one.is_ok()).count(), 20);
    assert!(queue.publish(job("flood")).await.is_ok(), "other jobs may use the reserve");
    for refused in published.into_iter().filter_map(std::result::Result::err) {
        assert!(matches!(refused, QueueError::Full(_)), "{refused:?}");
        assert!(refused.to_string().contains("lane.max_depth"), "{refused}");
    }
    send(&queue, "calm", "{}").await;
    let delivery = next(&queue).await;
    assert_eq!(delivery.message.session_id, "flood");
    queue.ack(&delivery.token).await.unwrap();
    queue.ack(&next(&queue).await.token).await.unwrap();
    eventually(DEADLINE, "the lane takes messages again", || async {
        queue.publish_message(job("flood")).await.is_ok()
    })
    .await;
}

pub async fn concurrent_publishers_get_distinct_rising_sequences(queue: Jobs) {
    let sessions: Vec<String> = (0..100).map(|i| format!("s-{i}")).collect();
    let published = join_all(sessions.iter().map(|session| {
        let queue = &queue;
        async move { [send(queue, session, "1").await.seq, send(queue, session, "2").await.seq] }
    }))
    .await;
    let mut all: Vec<u64> = published.iter().flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 200);
    assert!(published.iter().all(|[first, second]| 0 < *first && first < second));
    let mut seen = Vec::new();
    while seen.len() < 200 {
        for delivery in queue.pull(64, DEADLINE).await.unwrap() {
            queue.ack(&delivery.token).await.unwrap();
            seen.push(delivery.message.seq);
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, all);
}

fn event(session: &str, n: usize) -> OutEvent {
    OutEvent {
        channel: "web".into(),
        session_id: session.into(),
        event_type: if n.is_multiple_of(2) { EventType::Reply } else { EventType::Status },
        msg_id: Some(format!("{session}/m-1/{n}")),
        payload: format!("{session} 第{n}").into(),
    }
}

async fn read(stream: &mut BoxStream<'static, Result<StreamEvent>>, count: usize) -> Vec<StreamEvent> {
    let taken = async {
        let mut events = Vec::new();
        while events.len() < count {
            events.push(stream.next().await.expect("the event stream does not end").unwrap());
        }
        events
    };
    tokio::time::timeout(DEADLINE, taken).await.expect("events within the deadline")
}

async fn quiet(stream: &mut BoxStream<'static, Result<StreamEvent>>) {
    let more = tokio::time::timeout(QUIET, stream.next()).await;
    assert!(more.is_err(), "{more:?}");
}

fn texts(events: &[StreamEvent]) -> Vec<String> {
    events.iter().map(|event| String::from_utf8(event.payload.to_vec()).unwrap()).collect()
}

pub async fn events_come_in_order_and_repeats_are_dropped(queue: Jobs) {
    queue.emit((0..10).map(|n| event("s", n)).collect()).await.unwrap();
    queue.emit((5..15).map(|n| event("s", n)).collect()).await.unwrap();
    queue.emit([].into()).await.unwrap();
    let mut stream = queue.events("s", From::After(0)).await.unwrap();
    let events = read(&mut stream, 15).await;
    assert_eq!(texts(&events), (0..15).map(|n| format!("s 第{n}")).collect::<Vec<_>>());
    assert!(events.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    assert_eq!((events[0].event_type, events[1].event_type), (EventType::Reply, EventType::Status));
    quiet(&mut stream).await;
    let nameless = OutEvent { msg_id: None, ..event("s", 99) };
    queue.emit([nameless.clone(), nameless].into()).await.unwrap();
    assert_eq!(texts(&read(&mut stream, 2).await), ["s 第99", "s 第99"]);
}

pub async fn a_reader_begins_where_it_asks_to(queue: Jobs) {
    queue.emit((0..4).map(|n| event("s", n)).collect()).await.unwrap();
    let all = read(&mut queue.events("s", From::After(0)).await.unwrap(), 4).await;
    let mut now = queue.events("s", From::Now).await.unwrap();
    let mut after = queue.events("s", From::After(all[1].seq)).await.unwrap();
    let mut beyond = queue.events("s", From::After(all[3].seq + 1_000)).await.unwrap();
    let mut end = queue.events("s", From::After(all[3].seq)).await.unwrap();
    assert_eq!(read(&mut after, 2).await, all[2..]);
    assert_eq!(read(&mut beyond, 4).await, all);
    quiet(&mut now).await;
    queue.emit([event("s", 4)].into()).await.unwrap();
    for stream in [&mut now, &mut after, &mut beyond, &mut end] {
        assert_eq!(texts(&read(stream, 1).await), ["s 第4"]);
    }
}

/// A worker's turns publish so: each sends all its events before it awaits their acknowledgements.
pub async fn many_callers_publish_many_events_concurrently(queue: Jobs) {
    const CALLERS: usize = 100;
    const EVENTS: usize = 150;
    let publish = |caller: usize| queue.emit((0..EVENTS).map(|n| event(&format!("s{caller}"), n)).collect());
    let published = tokio::time::timeout(DEADLINE, join_all((0..CALLERS).map(publish))).await;
    let published = published.expect("callers wait for one another");
    assert!(published.iter().all(Result::is_ok), "{:?}", published.iter().find(|one| one.is_err()));
    let mut last = queue.events("s99", From::After(0)).await.unwrap();
    let wanted: Vec<String> = (0..EVENTS).map(|n| format!("s99 第{n}")).collect();
    assert_eq!(texts(&read(&mut last, EVENTS).await), wanted);
}

pub async fn a_reader_misses_and_repeats_nothing_while_events_are_emitted(queue: Jobs) {
    const COUNT: usize = 500;
    let emit = async {
        for chunk in (0..COUNT).collect::<Vec<_>>().chunks(7) {
            queue.emit(chunk.iter().map(|n| event("s", *n)).collect()).await.unwrap();
        }
    };
    let readers = join_all((0..8_u64).map(|_| async {
        let mut stream = queue.events("s", From::After(0)).await.unwrap();
        let first = read(&mut stream, COUNT / 5).await;
        // Reconnects like a browser.
        let mut stream = queue.events("s", From::After(first.last().unwrap().seq)).await.unwrap();
        let rest = read(&mut stream, COUNT - COUNT / 5).await;
        [first, rest].concat()
    }));
    let ((), seen) = tokio::join!(emit, readers);
    for events in seen {
        assert_eq!(texts(&events), (0..COUNT).map(|n| format!("s 第{n}")).collect::<Vec<_>>());
    }
}

pub async fn sessions_do_not_see_each_other_s_events(queue: Jobs) {
    let mut live = queue.events("甲", From::Now).await.unwrap();
    for n in 0..20 {
        queue.emit([event("甲", n), event("乙", n), event("甲-1", n)].into()).await.unwrap();
    }
    let expected: Vec<String> = (0..20).map(|n| format!("甲 第{n}")).collect();
    assert_eq!(texts(&read(&mut live, 20).await), expected);
    let mut replay = queue.events("甲", From::After(0)).await.unwrap();
    assert_eq!(texts(&read(&mut replay, 20).await), expected);
    quiet(&mut replay).await;
}

pub async fn a_session_is_known_by_its_jobs_and_events(queue: Jobs) {
    assert!(!queue.has_session("by-job").await.unwrap() && !queue.has_session("by-event").await.unwrap());
    send(&queue, "by-job", "{}").await;
    queue.emit([event("by-event", 0)].into()).await.unwrap();
    assert!(queue.has_session("by-job").await.unwrap() && queue.has_session("by-event").await.unwrap());
    assert!(!queue.has_session("by").await.unwrap());
    let delivery = next(&queue).await;
    queue.ack(&delivery.token).await.unwrap();
    eventually(DEADLINE, "an acknowledged lane is forgotten", || async { !queue.has_session("by-job").await.unwrap() })
        .await;
}

pub async fn a_hint_of_a_cancellation_reaches_every_listener(queue: Jobs) {
    let hint = CancelHint { session_id: "会话".into(), seq: 7, deleted: false };
    queue.hint_cancel(hint.clone()).await.unwrap();
    let mut listeners = [queue.cancel_hints().await.unwrap(), queue.cancel_hints().await.unwrap()];
    for listener in &mut listeners {
        // A hint may get lost, so the test repeats it.
        let heard = eventually(DEADLINE, "the hint arrives", || {
            let heard = listener.next().now_or_never().flatten();
            let (queue, hint) = (&queue, hint.clone());
            async move {
                queue.hint_cancel(hint).await.unwrap();
                heard
            }
        });
        assert_eq!(heard.await, hint);
    }
}

pub async fn a_timer_hint_reaches_every_listener(queue: Jobs) {
    queue.notify_scheduler().await.unwrap();
    let mut listeners = [queue.timer_hints().await.unwrap(), queue.timer_hints().await.unwrap()];
    for listener in &mut listeners {
        // A hint may get lost, so the test repeats it.
        eventually(DEADLINE, "the hint arrives", || {
            let heard = listener.next().now_or_never().is_some();
            let queue = &queue;
            async move {
                queue.notify_scheduler().await.unwrap();
                heard
            }
        })
        .await;
    }
}
