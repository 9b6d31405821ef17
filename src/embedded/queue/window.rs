//! The ids of recent messages, for deduplication.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use types::timestamp::Timestamp;

/// How long the id of a message is remembered; that of an event at most as long as events are retained.
pub(super) const DUPLICATE_WINDOW: Duration = Duration::from_secs(3_600);

/// The ids within the window. Only a keyed hash of 128 bits is kept for each, since a busy hour has millions.
#[derive(Debug)]
pub(super) struct DuplicateWindow {
    length: Duration,
    keys: [RandomState; 2],
    seqs: HashMap<(u64, u64), u64>,
    ages: VecDeque<(Timestamp, (u64, u64))>,
}

impl Default for DuplicateWindow {
    fn default() -> Self {
        Self::new(DUPLICATE_WINDOW)
    }
}

impl DuplicateWindow {
    pub(super) fn new(length: Duration) -> Self {
        Self { length, keys: Default::default(), seqs: HashMap::new(), ages: VecDeque::new() }
    }

    fn key(&self, id: &str) -> (u64, u64) {
        (self.keys[0].hash_one(id), self.keys[1].hash_one(id))
    }

    /// The earliest time that is within the window.
    pub(super) fn start(&self, now: Timestamp) -> Timestamp {
        now.minus(self.length)
    }

    /// Returns the sequence of the message that was stored under `id` within the window before `now`.
    pub(super) fn find(&mut self, id: &str, now: Timestamp) -> Option<u64> {
        let oldest = self.start(now);
        while let Some((at, key)) = self.ages.front().copied()
            && at < oldest
        {
            self.ages.pop_front();
            self.seqs.remove(&key);
        }
        self.seqs.get(&self.key(id)).copied()
    }

    /// Remembers the message that was stored under `id`. The id must be unknown.
    pub(super) fn insert(&mut self, id: &str, seq: u64, at: Timestamp) {
        let key = self.key(id);
        self.seqs.insert(key, seq);
        self.ages.push_back((at, key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_forgotten_when_the_window_has_passed() {
        let (mut window, start) = (DuplicateWindow::default(), Timestamp::from_millis(1_000));
        window.insert("会话:m-1", 7, start);
        assert_eq!(window.find("会话:m-1", start.plus(DUPLICATE_WINDOW)), Some(7));
        assert_eq!(window.find("会话:m-2", start), None);
        assert_eq!(window.find("会话:m-1", start.plus(DUPLICATE_WINDOW + Duration::from_millis(1))), None);
        assert!(window.seqs.is_empty() && window.ages.is_empty());
    }
}
