//! Whether a turn may still act.

use async_trait::async_trait;
use std::future::pending;
use std::sync::Arc;
use storage::store::StoreError;
use tokio_util::sync::CancellationToken;

/// A hold on a lane.
#[async_trait]
pub trait Holding: Send + Sync {
    /// False when the lane is somebody else's by now. When it may be, the store is asked.
    async fn holds(&self) -> Result<bool, StoreError>;
}

/// Says whether a turn's lane is surely still its worker's. A worker that was paused may find that it is not: then its turn
/// begins nothing and publishes nothing any more. It also says whether an operator has cancelled the turn.
#[derive(Clone, Default)]
pub struct Guard {
    holding: Option<Arc<dyn Holding>>,
    cancelled: Option<CancellationToken>,
}

impl Guard {
    /// For a turn whose lane nobody else can take.
    pub fn always() -> Self {
        Self::default()
    }

    /// As `holding` says at the moment.
    pub fn new(holding: impl Holding + 'static) -> Self {
        Self { holding: Some(Arc::new(holding)), cancelled: None }
    }

    /// The same for a turn that `cancelled` ends.
    pub fn cancelled_by(self, cancelled: CancellationToken) -> Self {
        Self { cancelled: Some(cancelled), ..self }
    }

    /// True when the turn is to begin nothing more.
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

    /// False when the lane is somebody else's by now.
    pub async fn holds(&self) -> Result<bool, StoreError> {
        match &self.holding {
            Some(holding) => holding.holds().await,
            None => Ok(true),
        }
    }
}

/// For a turn that is only looked at.
pub(super) struct Nobody;

#[async_trait]
impl Holding for Nobody {
    async fn holds(&self) -> Result<bool, StoreError> {
        Ok(false)
    }
}
