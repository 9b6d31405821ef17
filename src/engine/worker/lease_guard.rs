//! The lease of a lane, and its check before each step of a turn.

use super::lanes::Lanes;
use crate::journal::LeaseCheck;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use storage::store::records::LeaseKey;
use storage::store::{Store, StoreError};

/// The lease of one lane, for the check before each step.
pub(super) struct LeaseGuard {
    pub(super) lanes: Arc<Lanes>,
    pub(super) store: Arc<dyn Store>,
    pub(super) held: LeaseKey,
    pub(super) ack_wait: Duration,
}

#[async_trait]
impl LeaseCheck for LeaseGuard {
    async fn holds(&self) -> Result<bool, StoreError> {
        if self.lanes.certainly_holds(&self.held) {
            return Ok(true);
        }
        // The worker was paused, or too busy to renew. It renews now: restarting the turn is only necessary if that
        // fails.
        let until = self.lanes.clock.moment() + self.ack_wait;
        let lost = self.store.renew(std::slice::from_ref(&self.held), self.ack_wait).await?;
        if !lost.is_empty() {
            return Ok(false);
        }
        self.lanes.lease_renewed(&self.held, until);
        Ok(self.lanes.certainly_holds(&self.held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::lanes::tests::delivery;
    use base::clock::Clock;
    use base::config::Settings;
    use embedded::store::{EmbeddedFile, EmbeddedStore};
    use storage::store::records::{Acquire, Acquired, NewSession};
    use types::timestamp::Timestamp;

    async fn taken(store: &Arc<dyn Store>, session_id: &str, owner: &str) -> Option<u64> {
        let acquire = Acquire {
            session_id: session_id.into(),
            seq: 1,
            stream: Timestamp::from_millis(1),
            rewind: None,
            job_id: "m-1".into(),
            owner: owner.into(),
            token: owner.into(),
            lease: Duration::ZERO,
            new_session: NewSession::default(),
            pin: None,
        };
        match store.acquire(acquire).await {
            Ok(Acquired::Granted(grant)) => Some(grant.session.epoch),
            _ => None,
        }
    }

    #[tokio::test]
    async fn a_lease_that_may_be_over_is_renewed_before_the_next_step_or_it_is_lost() {
        let file = EmbeddedFile::in_memory().unwrap();
        let store: Arc<dyn Store> = EmbeddedStore::new(file, &Settings::default()).unwrap();
        let lanes = Arc::new(Lanes::new(Clock::system()));
        let mut held = Vec::new();
        for session_id in ["a", "b"] {
            let epoch = taken(&store, session_id, "w1").await.unwrap();
            lanes.offer(delivery(session_id, 1));
            lanes.lease_acquired(session_id, epoch, Clock::system().moment());
            held.push(LeaseGuard {
                lanes: Arc::clone(&lanes),
                store: Arc::clone(&store),
                held: LeaseKey { session_id: session_id.into(), epoch },
                ack_wait: Duration::from_secs(60),
            });
        }
        assert!(taken(&store, "b", "w2").await.is_some(), "another worker acquires b meanwhile");
        let [a, b] = held.try_into().unwrap_or_else(|_| unreachable!());
        assert!(a.holds().await.unwrap() && lanes.certainly_holds(&a.held), "renewed");
        assert!(!b.holds().await.unwrap(), "its worker starts no step");
    }
}
