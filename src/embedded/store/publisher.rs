//! The interface by which a commit publishes its outbox to the queue in the same file.

use super::fault::FileFault;
use super::tables::Tables;
use types::event::OutEvent;

/// A stored event: its session and its sequence.
pub type StoredEvent = (String, u64);

/// The queue in the same file, as the store's commits use it.
pub trait Publisher: Send + Sync {
    /// Stores events in the current commit, except for duplicates. Returns the stored events.
    fn emit(&self, tables: &mut Tables<'_>, events: &[OutEvent]) -> Result<Vec<StoredEvent>, FileFault>;

    /// Notifies the readers of these events. Called after the commit is on disk.
    fn notify_emitted(&self, stored: &[StoredEvent]);
}
