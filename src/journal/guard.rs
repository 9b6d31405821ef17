//! Whether a turn may still act.

use std::fmt;
use std::sync::Arc;

/// Says whether a turn's lane is surely still its worker's. A worker that was paused may find that it is not: then its turn
/// begins nothing and publishes nothing any more.
#[derive(Clone)]
pub struct Guard(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Guard {
    /// For a turn whose lane nobody else can take.
    pub fn always() -> Self {
        Self(None)
    }

    /// As `holds` says at the moment.
    pub fn new(holds: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(holds)))
    }

    /// False when the lane may be somebody else's by now.
    pub fn holds(&self) -> bool {
        self.0.as_ref().is_none_or(|holds| holds())
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.holds()).finish()
    }
}
