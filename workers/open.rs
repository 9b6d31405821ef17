//! Opening what the settings name, for commands that look and order.

use base::config::Settings;
use base::tasks::Tasks;
use turnwheel as engine;

pub use turnwheel::Opened;

/// Opens the backend that the settings name. The cluster's servers are waited for, with a log line while they are away.
pub async fn backend(settings: &Settings, tasks: &Tasks) -> anyhow::Result<Opened> {
    Ok(engine::open(settings, tasks).await?)
}
