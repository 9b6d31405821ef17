//! An estimate of the server's clock.
//!
//! Leases, timers and expiry dates are times of the server's clock, since all processes share it. The process computes
//! them before it sends an update, although its own clock may be wrong.
//!
//! The process therefore reads the server's clock every few seconds, with the command `hello`. The server takes its
//! time at some moment between the request and the response. When the response arrives, the server's clock thus shows
//! the time in the response, plus at most the duration of the call. From then on the process adds the time that has
//! passed on its own monotonic clock. This yields two bounds, and the true time lies between them:
//!
//! - [`ServerClock::earliest`] decides whether something is due or expired, so that nothing happens too early.
//! - [`ServerClock::latest`] is written into documents as the start of leases and delays, so that no lease is too short
//!   and no timer is due too early.
//!
//! A slow call widens the gap between the bounds. It never makes them wrong.

use super::connect::ask_admin;
use base::clock::{Moment, moment};
use bson::doc;
use mongodb::Client;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use storage::store::lane::TimeBounds;
use storage::store::{Result, StoreError};
use types::timestamp::Timestamp;

/// A call that took at most this long is precise enough to replace any earlier reading.
const PRECISE_CALL: Duration = Duration::from_millis(100);
/// The age at which any new reading replaces the old one. The primary may be another server by now, with another clock.
const MAX_READING_AGE: Duration = Duration::from_secs(60);
/// How often the clock is read again at the start until a reading is precise.
const MAX_INITIAL_RETRIES: u32 = 5;

/// The estimated clock of the server. Cheap to clone: clones share the last reading. The module documentation explains
/// the bounds.
#[derive(Clone)]
pub(super) struct ServerClock {
    last: Arc<Mutex<Reading>>,
}

/// One reading of the server's clock, and when its response arrived here.
#[derive(Clone, Copy)]
struct Reading {
    at: Timestamp,
    since: Moment,
    /// How long the call took: the server's clock may be ahead of the estimate by this much.
    uncertainty: Duration,
}

impl ServerClock {
    pub(super) async fn read(client: &Client) -> Result<Self> {
        let mut best = reading(client).await?;
        for _ in 0..MAX_INITIAL_RETRIES {
            if best.uncertainty <= PRECISE_CALL {
                break;
            }
            let another = reading(client).await?;
            best = if another.uncertainty < best.uncertainty { another } else { best };
        }
        Ok(Self { last: Arc::new(Mutex::new(best)) })
    }

    /// Reads the clock again. A reading that took long, because a process or the network was paused, does not replace a
    /// better one. It replaces an old one: where every reading takes long, the first must not stay forever.
    pub(super) async fn refresh(&self, client: &Client) -> Result<()> {
        let reading = reading(client).await?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if reading.replaces(&last) {
            *last = reading;
        }
        Ok(())
    }

    /// A lower bound of the current server time.
    pub(super) fn earliest(&self) -> Timestamp {
        let reading = self.reading();
        reading.at.plus(reading.since.elapsed())
    }

    /// An upper bound of the current server time.
    pub(super) fn latest(&self) -> Timestamp {
        let reading = self.reading();
        // The server reports whole milliseconds.
        reading.at.plus(reading.since.elapsed() + reading.uncertainty + Duration::from_millis(1))
    }

    /// Both bounds.
    pub(super) fn bounds(&self) -> TimeBounds {
        TimeBounds { earliest: self.earliest(), latest: self.latest() }
    }

    fn reading(&self) -> Reading {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading {
    fn replaces(&self, old: &Self) -> bool {
        self.uncertainty <= PRECISE_CALL
            || self.uncertainty < old.uncertainty
            || old.since.until(self.since) > MAX_READING_AGE
    }
}

async fn reading(client: &Client) -> Result<Reading> {
    let begun = moment();
    let answer = ask_admin(client, doc! {"hello": 1}).await?;
    let (since, uncertainty) = (moment(), begun.elapsed());
    let at = answer.get_datetime("localTime").map_err(StoreError::unavailable)?;
    Ok(Reading { at: Timestamp::from_millis(at.timestamp_millis()), since, uncertainty })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_reading_replaces_only_a_slower_or_an_old_one() {
        let first = moment();
        let reading = |after: u64, uncertainty: u64| Reading {
            at: Timestamp::from_millis(0),
            since: first + Duration::from_secs(after),
            uncertainty: Duration::from_millis(uncertainty),
        };
        assert!(reading(10, 90).replaces(&reading(0, 5)), "it is precise");
        assert!(reading(10, 300).replaces(&reading(0, 400)), "it is better");
        assert!(!reading(10, 400).replaces(&reading(0, 300)), "it is worse");
        assert!(reading(61, 400).replaces(&reading(0, 300)), "the old one may come from another server");
    }
}
