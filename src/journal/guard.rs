//! Whether a turn may still act.

use crate::store::StoreError;
use async_trait::async_trait;
use std::sync::Arc;

/// A hold on a lane.
#[async_trait]
pub trait Holding: Send + Sync {
    /// False when the lane is somebody else's by now. When it may be, the store is asked.
    async fn holds(&self) -> Result<bool, StoreError>;
}

/// Says whether a turn's lane is surely still its worker's. A worker that was paused may find that it is not: then its turn
/// begins nothing and publishes nothing any more.
#[derive(Clone, Default)]
pub struct Guard(Option<Arc<dyn Holding>>);

impl Guard {
    /// For a turn whose lane nobody else can take.
    pub fn always() -> Self {
        Self(None)
    }

    /// As `holding` says at the moment.
    pub fn new(holding: impl Holding + 'static) -> Self {
        Self(Some(Arc::new(holding)))
    }

    /// False when the lane is somebody else's by now.
    pub async fn holds(&self) -> Result<bool, StoreError> {
        match &self.0 {
            Some(holding) => holding.holds().await,
            None => Ok(true),
        }
    }
}
