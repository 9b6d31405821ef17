//! The steps whose operations run now, and since when.

use super::lock;
use base::clock::{Clock, Moment};
use std::collections::HashMap;
use std::sync::Mutex;
use types::timestamp::Timestamp;

/// The begin of a step's operation.
pub(crate) type Begin = (Moment, Timestamp);

/// The steps of a turn whose operations run now, by full key.
#[derive(Default)]
pub(super) struct UnderWay(Mutex<HashMap<String, Begin>>);

/// An operation that runs; it ends when this is dropped.
pub(super) struct Operation<'u> {
    steps: &'u UnderWay,
    key: &'u str,
}

impl UnderWay {
    pub(super) fn begin<'u>(&'u self, key: &'u str, clock: &Clock) -> Operation<'u> {
        lock(&self.0).insert(key.to_owned(), (clock.moment(), clock.now()));
        Operation { steps: self, key }
    }

    pub(super) fn since(&self, key: &str) -> Option<Begin> {
        lock(&self.0).get(key).copied()
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        lock(&self.steps.0).remove(self.key);
    }
}
