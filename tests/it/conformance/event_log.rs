//! Cases for the events of all sessions.

use super::kit::DEADLINE;
use futures::StreamExt;
use futures::stream::BoxStream;
use std::sync::Arc;
use storage::queue::{LoggedEvent, Queue, Result};
use types::event::{EventType, OutEvent};

type Log = BoxStream<'static, Result<LoggedEvent>>;

fn event(session: &str, channel: &str, n: usize) -> OutEvent {
    OutEvent {
        channel: channel.into(),
        session_id: session.into(),
        event_type: EventType::Step,
        msg_id: Some(format!("{session}/m-1/{n}")),
        payload: format!("{session} 第{n}").into(),
    }
}

async fn read(log: &mut Log, count: usize) -> Vec<LoggedEvent> {
    let taken = async {
        let mut events = Vec::new();
        while events.len() < count {
            events.push(log.next().await.expect("the log does not end").unwrap());
        }
        events
    };
    tokio::time::timeout(DEADLINE, taken).await.expect("events within the deadline")
}

fn texts(events: &[LoggedEvent]) -> Vec<String> {
    events.iter().map(|event| String::from_utf8(event.payload.to_vec()).unwrap()).collect()
}

pub async fn the_log_has_the_events_of_all_sessions_in_order(queue: Arc<dyn Queue>) {
    let empty = queue.event_bounds().await.unwrap();
    assert_eq!((empty.first, empty.last), (1, 0));
    let mut live = queue.all_events(0).await.unwrap();
    queue.emit([event("甲", "web", 1), event("乙", "微信", 1), event("甲", "web", 2)].into()).await.unwrap();
    queue.emit([event("丙", "sms", 1)].into()).await.unwrap();
    let all = read(&mut live, 4).await;
    assert_eq!(texts(&all), ["甲 第1", "乙 第1", "甲 第2", "丙 第1"]);
    let second = &all[1];
    assert_eq!((second.session_id.as_str(), second.channel.as_str()), ("乙", "微信"));
    assert_eq!((second.seq, second.event_type), (2, EventType::Step));
    let bounds = queue.event_bounds().await.unwrap();
    assert_eq!((bounds.first, bounds.last), (1, 4));
    for after in 0..=4 {
        let mut log = queue.all_events(after).await.unwrap();
        let rest = usize::try_from(4 - after).unwrap();
        assert_eq!(read(&mut log, rest).await, all[4 - rest..]);
        let more = tokio::time::timeout(std::time::Duration::from_millis(100), log.next()).await;
        assert!(more.is_err(), "{more:?}");
    }
}

pub async fn a_reader_of_the_log_misses_nothing_while_events_are_emitted(queue: Arc<dyn Queue>) {
    const COUNT: usize = 600;
    let emit = async {
        for chunk in (0..COUNT).collect::<Vec<_>>().chunks(7) {
            let events = chunk.iter().map(|n| event(&format!("s{}", n % 5), "web", *n));
            queue.emit(events.collect()).await.unwrap();
        }
    };
    let follow = async {
        let first = read(&mut queue.all_events(0).await.unwrap(), COUNT / 3).await;
        let rest = queue.all_events(first.last().unwrap().seq).await;
        [first, read(&mut rest.unwrap(), COUNT - COUNT / 3).await].concat()
    };
    let ((), seen) = tokio::join!(emit, follow);
    assert_eq!(texts(&seen), (0..COUNT).map(|n| format!("s{} 第{n}", n % 5)).collect::<Vec<_>>());
}

pub async fn deleted_events_are_missing_in_the_log(queue: Arc<dyn Queue>) {
    let events = (0..300).flat_map(|n| [event("stays", "web", n), event("goes", "web", n)]);
    queue.emit(events.collect()).await.unwrap();
    queue.purge_events("goes").await.unwrap();
    let expected: Vec<String> = (0..300).map(|n| format!("stays 第{n}")).collect();
    let seen = read(&mut queue.all_events(0).await.unwrap(), 300).await;
    assert_eq!(texts(&seen), expected);
    assert!(seen.iter().enumerate().all(|(n, event)| event.seq == 2 * n as u64 + 1));
    assert_eq!(queue.event_bounds().await.unwrap().last, 600);
    // A reader that finds only deleted events waits for others.
    queue.purge_events("stays").await.unwrap();
    let mut log = queue.all_events(10).await.unwrap();
    queue.emit([event("new", "web", 0)].into()).await.unwrap();
    assert_eq!(texts(&read(&mut log, 1).await), ["new 第0"]);
}
