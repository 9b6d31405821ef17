//! What time it is on the server.

use super::connect::ask_admin;
use base::clock::{Moment, moment};
use bson::doc;
use mongodb::Client;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use storage::store::{Result, StoreError};
use types::timestamp::Timestamp;

/// How long a reading of the server's clock may take to be trusted.
const PRECISE: Duration = Duration::from_millis(100);
/// How old the best reading may get before a worse one replaces it: the primary may be another one by now, with another clock.
const FRESH: Duration = Duration::from_secs(60);
/// How often it is read again at the start for one that can be.
const READINGS: u32 = 5;

/// The server's clock, asked for now and then, and in between by how much time has passed here since. How long the question
/// took says how far off it may be: [`Self::latest`] makes no timer early and no lease short that it sets, and
/// [`Self::earliest`] no timer that it fires.
#[derive(Clone)]
pub(super) struct ServerClock {
    asked: Arc<Mutex<Reading>>,
}

/// What the server's clock was, and when that was here.
#[derive(Clone, Copy)]
struct Reading {
    at: Timestamp,
    since: Moment,
    /// How long the question took.
    off: Duration,
}

impl ServerClock {
    pub(super) async fn ask(client: &Client) -> Result<Self> {
        let mut best = reading(client).await?;
        for _ in 0..READINGS {
            if best.off <= PRECISE {
                break;
            }
            let another = reading(client).await?;
            best = if another.off < best.off { another } else { best };
        }
        Ok(Self { asked: Arc::new(Mutex::new(best)) })
    }

    /// Reads it anew. A reading that took long, since somebody was paused meanwhile, is worse than the one before, unless
    /// that one is old: where every reading takes long, the first one must not count for ever.
    pub(super) async fn ask_again(&self, client: &Client) -> Result<()> {
        let reading = reading(client).await?;
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if reading.replaces(&asked) {
            *asked = reading;
        }
        Ok(())
    }

    /// The time is this or later.
    pub(super) fn earliest(&self) -> Timestamp {
        let reading = self.reading();
        reading.at.plus(reading.since.elapsed())
    }

    /// The time is this or earlier.
    pub(super) fn latest(&self) -> Timestamp {
        let reading = self.reading();
        // The reading is in whole milliseconds.
        reading.at.plus(reading.since.elapsed() + reading.off + Duration::from_millis(1))
    }

    fn reading(&self) -> Reading {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading {
    fn replaces(&self, old: &Self) -> bool {
        self.off <= PRECISE || self.off < old.off || old.since.until(self.since) > FRESH
    }
}

async fn reading(client: &Client) -> Result<Reading> {
    let begun = moment();
    let answer = ask_admin(client, doc! {"hello": 1}).await?;
    let (since, off) = (moment(), begun.elapsed());
    let at = answer.get_datetime("localTime").map_err(|error| StoreError::Unavailable(error.to_string()))?;
    Ok(Reading { at: Timestamp::from_millis(at.timestamp_millis()), since, off })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_reading_replaces_only_a_slower_or_an_old_one() {
        let first = moment();
        let reading = |after: u64, off: u64| Reading {
            at: Timestamp::from_millis(0),
            since: first + Duration::from_secs(after),
            off: Duration::from_millis(off),
        };
        assert!(reading(10, 90).replaces(&reading(0, 5)), "it is precise");
        assert!(reading(10, 300).replaces(&reading(0, 400)), "it is better");
        assert!(!reading(10, 400).replaces(&reading(0, 300)), "somebody was paused");
        assert!(reading(61, 400).replaces(&reading(0, 300)), "the old one may be another server's");
    }
}
