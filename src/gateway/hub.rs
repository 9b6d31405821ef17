//! The events of all sessions in this process: one consumer of the queue, whatever the number of readers, and none
//! without readers. The last events are kept in a ring. A reader that falls behind it, or begins before it, is told
//! which sequences it has missed.

use super::Limits;
use super::event_frames::SharedEvent;
use base::tasks::{OnPanic, Tasks};
use futures::StreamExt;
use futures::stream::BoxStream;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use storage::queue::{EventBounds, LoggedEvent, Queue, Result};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::warn;

/// First pause before the lost consumer is opened again; each further pause is twice as long.
const MIN_REOPEN_DELAY: Duration = Duration::from_millis(200);
const MAX_REOPEN_DELAY: Duration = Duration::from_secs(5);

/// What a reader gets.
#[derive(Clone)]
pub(super) enum Item {
    /// An event.
    Event(Arc<SharedEvent>),
    /// The reader has missed these sequences, both ends included.
    Gap {
        /// The first one.
        from: u64,
        /// The last one.
        to: u64,
    },
}

impl Item {
    /// The sequence up to which a reader has seen everything with this item.
    fn seq(&self) -> u64 {
        match self {
            Self::Event(event) => event.logged.seq,
            Self::Gap { to, .. } => *to,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Event(event) => event.bytes(),
            Self::Gap { .. } => 0,
        }
    }
}

/// The hub of one process. Cheap to clone.
#[derive(Clone)]
pub(super) struct Hub {
    queue: Arc<dyn Queue>,
    /// The feed of the present readers. It ends with the last of them.
    feed: Arc<tokio::sync::Mutex<Weak<Feed>>>,
    tasks: Tasks,
}

impl Hub {
    pub(super) fn new(queue: Arc<dyn Queue>) -> Self {
        Self { queue, feed: Arc::default(), tasks: Tasks::new() }
    }

    /// Opens a reader of the events after `after`, or from now on. Returns it with the last sequence of the stream.
    pub(super) async fn open(&self, after: Option<u64>, limits: &Limits) -> Result<(Reader, u64)> {
        let mut current = self.feed.lock().await;
        let bounds = self.queue.event_bounds().await?;
        let feed = match current.upgrade().filter(|feed| !feed.ring().closed) {
            Some(feed) => feed,
            None => {
                let feed = self.start(after, bounds, limits).await?;
                *current = Arc::downgrade(&feed);
                feed
            }
        };
        let end = feed.end.subscribe();
        let last = bounds.last;
        let reader = match after {
            // The position is of a former stream, so nothing is known about what it missed.
            Some(after) if after > last => {
                let gap = Item::Gap { from: bounds.first.min(last), to: last };
                Reader { feed, end, next: 0, after: last, first: Some(gap) }
            }
            _ => Reader { feed, end, next: 0, after: after.unwrap_or(last), first: None },
        };
        Ok((reader, last))
    }

    /// Starts the consumer for a first reader: at its position, if no more events follow it than the ring keeps.
    async fn start(&self, after: Option<u64>, bounds: EventBounds, limits: &Limits) -> Result<Arc<Feed>> {
        let oldest = bounds.last.saturating_sub(limits.events_kept as u64).max(bounds.first.saturating_sub(1));
        let begin = after.unwrap_or(bounds.last).clamp(oldest.min(bounds.last), bounds.last);
        let events = self.queue.all_events(begin).await?;
        let stop = CancellationToken::new();
        let ring = Ring::new(begin, limits);
        let (end, stopping) = (watch::Sender::new(0), stop.clone().drop_guard());
        let feed = Arc::new(Feed { ring: Mutex::new(ring), end, _stopping: stopping });
        let consumer = Consumer { queue: Arc::clone(&self.queue), feed: Arc::downgrade(&feed), after: begin };
        self.tasks.spawn("event hub", OnPanic::Log, async move {
            let followed = consumer.follow(events);
            // Without readers the consumer ends, whatever it waits for.
            stop.run_until_cancelled(followed).await;
        });
        Ok(feed)
    }
}

/// The events since the first of the present readers came. Its readers own it.
struct Feed {
    ring: Mutex<Ring>,
    /// The number of items so far.
    end: watch::Sender<u64>,
    _stopping: DropGuard,
}

impl Feed {
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, item: Item) {
        let end = self.ring().push(item);
        self.end.send_replace(end);
    }

    /// Ends all readers.
    fn close(&self) {
        self.ring().closed = true;
        self.end.send_modify(|_| {});
    }
}

/// The last items.
struct Ring {
    items: VecDeque<Item>,
    /// The number of the first item.
    first: u64,
    /// All events above this sequence are in the ring, or still to come.
    before: u64,
    bytes: usize,
    max_items: usize,
    max_bytes: usize,
    closed: bool,
}

impl Ring {
    fn new(before: u64, limits: &Limits) -> Self {
        let (max_items, max_bytes) = (limits.events_kept, limits.event_bytes_kept);
        Self { items: VecDeque::new(), first: 0, before, bytes: 0, max_items, max_bytes, closed: false }
    }

    /// Adds an item, drops the oldest ones beyond the limits, and returns the number of items so far.
    fn push(&mut self, item: Item) -> u64 {
        self.bytes += item.bytes();
        self.items.push_back(item);
        // The last item stays, however large it is: readers that keep up get it.
        while self.items.len() > 1 && (self.items.len() > self.max_items || self.bytes > self.max_bytes) {
            let Some(dropped) = self.items.pop_front() else { break };
            self.bytes -= dropped.bytes();
            self.before = dropped.seq();
            self.first += 1;
        }
        self.first + self.items.len() as u64
    }

    fn get(&self, number: u64) -> Option<&Item> {
        self.items.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }
}

/// A reader of the feed.
pub(super) struct Reader {
    feed: Arc<Feed>,
    end: watch::Receiver<u64>,
    /// The number of the next item.
    next: u64,
    /// The last sequence that the reader has seen or was told to have missed.
    after: u64,
    /// An item before those of the feed.
    first: Option<Item>,
}

impl Reader {
    /// The next event or gap; `None` after the stream of events was replaced by another one: then the client begins
    /// again.
    pub(super) async fn next(&mut self) -> Option<Item> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            self.end.mark_unchanged();
            if let Some(item) = self.take() {
                return Some(item);
            }
            if self.feed.ring().closed {
                return None;
            }
            // Cannot fail: the sender lives in the feed, which this reader holds.
            self.end.changed().await.ok()?;
        }
    }

    /// The next event or gap, if there is one already.
    pub(super) fn take(&mut self) -> Option<Item> {
        let ring = self.feed.ring();
        if self.after < ring.before {
            let gap = Item::Gap { from: self.after + 1, to: ring.before };
            (self.after, self.next) = (ring.before, ring.first);
            return Some(gap);
        }
        self.next = self.next.max(ring.first);
        while let Some(item) = ring.get(self.next) {
            self.next += 1;
            if item.seq() > self.after {
                let item = match item {
                    Item::Gap { from, to } => Item::Gap { from: (*from).max(self.after + 1), to: *to },
                    event @ Item::Event(_) => event.clone(),
                };
                self.after = item.seq();
                return Some(item);
            }
        }
        None
    }
}

/// The task that fills a feed.
struct Consumer {
    queue: Arc<dyn Queue>,
    feed: Weak<Feed>,
    /// The last sequence in the feed.
    after: u64,
}

impl Drop for Consumer {
    fn drop(&mut self) {
        if let Some(feed) = self.feed.upgrade() {
            feed.close();
        }
    }
}

impl Consumer {
    async fn follow(mut self, mut events: BoxStream<'static, Result<LoggedEvent>>) {
        loop {
            let problem = match events.next().await {
                Some(Ok(event)) => {
                    self.pass(event).await;
                    continue;
                }
                Some(Err(problem)) => problem.to_string(),
                None => "the stream of events ended".to_owned(),
            };
            warn!("the stream of all events was interrupted, reopening it: {problem}");
            let Some(opened) = self.reopen().await else { return };
            events = opened;
        }
    }

    async fn pass(&mut self, event: LoggedEvent) {
        // Sequences of deleted sessions are missing, too. Only those before the oldest retained event are lost.
        if event.seq > self.after + 1 {
            let first = self.queue.event_bounds().await.map_or(event.seq, |bounds| bounds.first.min(event.seq));
            if first > self.after + 1 {
                self.push(Item::Gap { from: self.after + 1, to: first - 1 });
            }
        }
        self.after = event.seq;
        self.push(Item::Event(Arc::new(SharedEvent::new(event))));
    }

    fn push(&self, item: Item) {
        if let Some(feed) = self.feed.upgrade() {
            feed.push(item);
        }
    }

    /// Opens the stream again after the last event; `None` if it is another stream by now.
    async fn reopen(&self) -> Option<BoxStream<'static, Result<LoggedEvent>>> {
        let mut pause = MIN_REOPEN_DELAY;
        loop {
            tokio::time::sleep(pause).await;
            match self.queue.event_bounds().await {
                Ok(bounds) if bounds.last < self.after => return None,
                Ok(_) => match self.queue.all_events(self.after).await {
                    Ok(opened) => return Some(opened),
                    Err(problem) => warn!("the stream of all events cannot be opened: {problem}"),
                },
                Err(problem) => warn!("the stream of all events cannot be opened: {problem}"),
            }
            pause = (pause * 2).min(MAX_REOPEN_DELAY);
        }
    }
}

#[cfg(test)]
mod tests;
