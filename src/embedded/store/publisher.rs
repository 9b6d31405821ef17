//! The queue in the same file, as a commit sees it.

use super::fault::Fault;
use super::tables::Tables;
use types::event::OutEvent;

/// (Session, sequence) of an event.
pub type StoredEvent = (String, u64);

/// The queue in the same file, to which a commit gives what it has to publish.
pub trait Publisher: Send + Sync {
    /// Stores events but for repeats; answers those stored.
    fn emit(&self, tables: &mut Tables<'_>, events: &[OutEvent]) -> Result<Vec<StoredEvent>, Fault>;

    /// They are on the disk.
    fn emitted(&self, stored: &[StoredEvent]);
}
