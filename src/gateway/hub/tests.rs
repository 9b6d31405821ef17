use super::*;
use axum::body::Bytes;
use types::event::EventType;

fn event(seq: u64) -> Item {
    let payload = Bytes::from(vec![b'x'; 1_000]);
    let (channel, session_id, event_type) = ("web".to_owned(), "s1".to_owned(), EventType::Status);
    Item::Event(Arc::new(SharedEvent::new(LoggedEvent { seq, channel, session_id, event_type, payload })))
}

fn feed(before: u64, kept: usize, bytes: usize) -> Arc<Feed> {
    let limits = Limits { events_kept: kept, event_bytes_kept: bytes, ..Limits::new(&Default::default()) };
    let stopping = CancellationToken::new().drop_guard();
    Arc::new(Feed { ring: Mutex::new(Ring::new(before, &limits)), end: watch::Sender::new(0), _stopping: stopping })
}

fn reader(feed: &Arc<Feed>, after: u64) -> Reader {
    Reader { feed: Arc::clone(feed), end: feed.end.subscribe(), next: 0, after, first: None }
}

/// What a reader can take without waiting: sequences, and gaps as pairs.
fn taken(reader: &mut Reader) -> Vec<(u64, u64)> {
    std::iter::from_fn(|| reader.take())
        .map(|item| match item {
            Item::Event(event) => (event.logged.seq, event.logged.seq),
            Item::Gap { from, to } => (from, to),
        })
        .collect()
}

#[test]
fn a_reader_gets_what_follows_its_position() {
    let feed = feed(10, 100, usize::MAX);
    [11, 12, 15].into_iter().for_each(|seq| feed.push(event(seq)));
    let (mut from_start, mut from_middle, mut from_now) = (reader(&feed, 10), reader(&feed, 12), reader(&feed, 15));
    assert_eq!(taken(&mut from_start), [(11, 11), (12, 12), (15, 15)]);
    assert_eq!(taken(&mut from_middle), [(15, 15)]);
    assert_eq!(taken(&mut from_now), []);
    feed.push(event(16));
    for reader in [&mut from_start, &mut from_middle, &mut from_now] {
        assert_eq!(taken(reader), [(16, 16)]);
    }
}

#[test]
fn what_a_reader_misses_is_one_gap_and_it_goes_on_behind_it() {
    let feed = feed(10, 3, usize::MAX);
    let (mut slow, mut early) = (reader(&feed, 11), reader(&feed, 2));
    (11..=20).for_each(|seq| feed.push(event(seq)));
    assert_eq!(taken(&mut slow), [(12, 17), (18, 18), (19, 19), (20, 20)]);
    assert_eq!(taken(&mut early), [(3, 17), (18, 18), (19, 19), (20, 20)]);
    // The ring is bounded by bytes, too, but its last item stays.
    let feed = super::tests::feed(0, 100, 10);
    (1..=3).for_each(|seq| feed.push(event(seq)));
    assert_eq!(taken(&mut reader(&feed, 0)), [(1, 2), (3, 3)]);
}

#[test]
fn a_gap_of_the_queue_reaches_the_readers_that_it_concerns() {
    let feed = feed(10, 100, usize::MAX);
    feed.push(event(11));
    feed.push(Item::Gap { from: 12, to: 19 });
    feed.push(event(20));
    assert_eq!(taken(&mut reader(&feed, 10)), [(11, 11), (12, 19), (20, 20)]);
    assert_eq!(taken(&mut reader(&feed, 15)), [(16, 19), (20, 20)]);
    assert_eq!(taken(&mut reader(&feed, 19)), [(20, 20)]);
}

#[tokio::test]
async fn readers_end_with_the_feed() {
    let feed = feed(0, 100, usize::MAX);
    let mut reader = reader(&feed, 0);
    feed.push(event(1));
    feed.close();
    assert!(matches!(reader.next().await, Some(Item::Event(_))), "what is there is read first");
    assert!(reader.next().await.is_none());
}
