//! The log of the demo API: recent calls, and the effects by idempotency key. Bounded: the oldest entries are dropped.

use base::clock;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, VecDeque};
use types::timestamp::Timestamp;

const MAX_CALLS: usize = 500;
const MAX_KEYS: usize = 10_000;
/// Maximum number of characters of a logged text.
const MAX_TEXT: usize = 200;

/// One call.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LoggedCall {
    number: u64,
    at: Timestamp,
    endpoint: &'static str,
    about: String,
    idempotency_key: Option<String>,
    /// True if the key was known, so the call had no second effect.
    repeat: bool,
    /// `None` until the response is sent, and for good if the caller disconnected before.
    status: Option<u16>,
}

impl LoggedCall {
    pub(super) fn new(endpoint: &'static str, key: Option<&str>, about: &str) -> Self {
        let cut = |text: &str| text.chars().take(MAX_TEXT).collect::<String>();
        let idempotency_key = key.map(cut);
        Self { number: 0, at: clock::now(), endpoint, about: cut(about), idempotency_key, repeat: false, status: None }
    }
}

/// Number of calls of an endpoint, and of their effects.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Count {
    calls: u64,
    effects: u64,
}

/// The calls and effects of the demo API.
#[derive(Debug, Default)]
pub(super) struct Log {
    last: u64,
    calls: VecDeque<LoggedCall>,
    counts: BTreeMap<&'static str, Count>,
    answers: HashMap<(&'static str, String), (u16, Value)>,
    keys: VecDeque<(&'static str, String)>,
}

impl Log {
    /// Records a call. Returns its number.
    pub(super) fn begin_call(&mut self, call: LoggedCall) -> u64 {
        self.last += 1;
        self.counts.entry(call.endpoint).or_default().calls += 1;
        if self.calls.len() == MAX_CALLS {
            self.calls.pop_front();
        }
        self.calls.push_back(LoggedCall { number: self.last, ..call });
        self.last
    }

    pub(super) fn end(&mut self, number: u64, status: u16) {
        self.change(number, |call| call.status = Some(status));
    }

    pub(super) fn repeated(&mut self, number: u64) {
        self.change(number, |call| call.repeat = true);
    }

    fn change(&mut self, number: u64, change: impl FnOnce(&mut LoggedCall)) {
        // Searches backwards, because most changes concern recent calls.
        if let Some(call) = self.calls.iter_mut().rev().find(|call| call.number == number) {
            change(call);
        }
    }

    /// The response that this key got before.
    pub(super) fn earlier(&self, endpoint: &'static str, key: Option<&str>) -> Option<(u16, Value)> {
        self.answers.get(&(endpoint, key?.to_owned())).cloned()
    }

    /// Number of the endpoint's next effect.
    pub(super) fn next_effect(&self, endpoint: &'static str) -> u64 {
        self.counts.get(endpoint).map_or(0, |count| count.effects) + 1
    }

    pub(super) fn took_effect(&mut self, endpoint: &'static str, key: Option<&str>, status: u16, answer: &Value) {
        self.counts.entry(endpoint).or_default().effects += 1;
        let Some(key) = key else { return };
        if self.keys.len() == MAX_KEYS
            && let Some(oldest) = self.keys.pop_front()
        {
            self.answers.remove(&oldest);
        }
        self.keys.push_back((endpoint, key.to_owned()));
        self.answers.insert((endpoint, key.to_owned()), (status, answer.clone()));
    }

    /// The counts, and the recent calls, newest first.
    pub(super) fn show(&self) -> Value {
        json!({"counts": self.counts, "calls": self.calls.iter().rev().collect::<Vec<_>>()})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_stays_bounded() {
        let mut log = Log::default();
        for number in 0..MAX_KEYS + 10 {
            let key = format!("k{number}");
            log.begin_call(LoggedCall::new("POST /x", Some(&key), &"长".repeat(1_000)));
            log.took_effect("POST /x", Some(&key), 201, &json!(number));
        }
        assert_eq!((log.calls.len(), log.keys.len(), log.answers.len()), (MAX_CALLS, MAX_KEYS, MAX_KEYS));
        assert!(log.earlier("POST /x", Some("k0")).is_none());
        assert_eq!(log.earlier("POST /x", Some("k10")), Some((201, json!(10))));
        assert_eq!(log.next_effect("POST /x"), MAX_KEYS as u64 + 11);
        assert!(log.calls.iter().all(|call| call.about.chars().count() == MAX_TEXT));
    }
}
