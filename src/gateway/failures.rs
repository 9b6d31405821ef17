//! Failed attempts to name a token, by client address. Each refusal of an address that keeps failing takes longer, so that
//! no one tries out many tokens. A valid token never waits: many clients may share the address of a proxy.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The pause before a refusal.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// The longest pause before a refusal.
const LONGEST_DELAY: Duration = Duration::from_secs(5);
/// The failures of an address before its pauses grow.
const FREE_FAILURES: u32 = 20;
/// An address is forgotten this long after its last failure.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// The addresses that are remembered. Beyond them, the one that failed the longest ago is forgotten.
const MAX_ADDRESSES: usize = 10_000;

/// The address of the client, in a request's extensions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) IpAddr);

/// The failures of each address. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures(Arc<Mutex<HashMap<IpAddr, (u32, Instant)>>>);

impl Failures {
    /// Counts a failure of an address, and returns the pause before its refusal.
    pub(super) fn count(&self, address: Option<IpAddr>) -> Duration {
        let Some(address) = address.map(|address| address.to_canonical()) else { return FIRST_DELAY };
        let now = Instant::now();
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= MAX_ADDRESSES && !failures.contains_key(&address) {
            failures.retain(|_, (_, last)| now.duration_since(*last) < FORGOTTEN_AFTER);
            let oldest = failures.iter().min_by_key(|(_, (_, last))| *last).map(|(address, _)| *address);
            if let Some(oldest) = oldest.filter(|_| failures.len() >= MAX_ADDRESSES) {
                failures.remove(&oldest);
            }
        }
        let (count, last) = failures.entry(address).or_insert((0, now));
        if now.duration_since(*last) >= FORGOTTEN_AFTER {
            *count = 0;
        }
        (*count, *last) = (count.saturating_add(1), now);
        let doublings = count.saturating_sub(FREE_FAILURES).min(16);
        (FIRST_DELAY * 2_u32.pow(doublings)).min(LONGEST_DELAY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(number: u32) -> Option<IpAddr> {
        Some(IpAddr::from(Ipv4Addr::from(number)))
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_keeps_failing_waits_longer_and_the_others_do_not() {
        let failures = Failures::default();
        for _ in 0..FREE_FAILURES {
            assert_eq!(failures.count(address(1)), FIRST_DELAY);
        }
        assert_eq!(failures.count(address(1)), FIRST_DELAY * 2);
        for _ in 0..40 {
            failures.count(address(1));
        }
        assert_eq!(failures.count(address(1)), LONGEST_DELAY);
        assert_eq!(failures.count(address(2)), FIRST_DELAY);
        tokio::time::advance(FORGOTTEN_AFTER).await;
        assert_eq!(failures.count(address(1)), FIRST_DELAY);
    }

    #[tokio::test(start_paused = true)]
    async fn the_memory_is_bounded() {
        let failures = Failures::default();
        for number in 0..12_000 {
            failures.count(address(number));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let known = failures.0.lock().unwrap();
        assert!(known.len() <= MAX_ADDRESSES && known.contains_key(&address(11_999).unwrap()));
    }
}
