//! Opens a backend for commands that access a cluster directly.

use base::config::Settings;
use base::tasks::Tasks;
use turnwheel as engine;

pub use turnwheel::Opened;

/// Opens the backend that the settings name. Waits until the servers of a cluster are reachable, and logs while it
/// waits.
pub async fn backend(settings: &Settings, tasks: &Tasks) -> anyhow::Result<Opened> {
    Ok(engine::open(settings, tasks).await?)
}
