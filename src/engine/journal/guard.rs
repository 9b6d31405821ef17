//! The check before each step: whether the worker still holds the lease, and whether the turn is cancelled.

use async_trait::async_trait;
use std::future::pending;
use std::sync::Arc;
use storage::store::StoreError;
use tokio_util::sync::CancellationToken;

/// A lease on a lane.
#[async_trait]
pub trait LeaseCheck: Send + Sync {
    /// Returns false if another worker holds the lane. Asks the store if the lease may have expired.
    async fn holds(&self) -> Result<bool, StoreError>;
}

/// Checks whether a turn may continue. A worker that was paused may have lost its lease; its turn then starts no
/// further step and publishes nothing. The guard also carries the operator's cancellation of the turn.
#[derive(Clone, Default)]
pub struct Guard {
    lease: Option<Arc<dyn LeaseCheck>>,
    cancelled: Option<CancellationToken>,
}

impl Guard {
    /// A guard for a turn whose lane no other worker can take. It never fails.
    pub fn always() -> Self {
        Self::default()
    }

    /// A guard that asks `lease` each time.
    pub fn new(lease: impl LeaseCheck + 'static) -> Self {
        Self { lease: Some(Arc::new(lease)), cancelled: None }
    }

    /// The same guard for a turn that the token `cancelled` cancels.
    pub(crate) fn cancelled_by(self, cancelled: CancellationToken) -> Self {
        Self { cancelled: Some(cancelled), ..self }
    }

    /// Whether the turn is cancelled, so that no further step may start.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.as_ref().is_some_and(CancellationToken::is_cancelled)
    }

    /// Returns when the turn is cancelled.
    pub async fn cancelled(&self) {
        match &self.cancelled {
            Some(cancelled) => cancelled.cancelled().await,
            None => pending().await,
        }
    }

    /// Returns false if another worker holds the lane.
    pub async fn holds(&self) -> Result<bool, StoreError> {
        match &self.lease {
            Some(lease) => lease.holds().await,
            None => Ok(true),
        }
    }
}

/// The lease of a read-only journal: it is never held.
pub(super) struct NoLease;

#[async_trait]
impl LeaseCheck for NoLease {
    async fn holds(&self) -> Result<bool, StoreError> {
        Ok(false)
    }
}
