//! Opens the queue and the store of the configured backend.

use super::EngineError;
use base::config::{Backend, Settings};
use base::tasks::Tasks;
use cluster::mongo::MongoStore;
use cluster::nats::NatsQueue;
use embedded::queue::EmbeddedQueue;
use embedded::store::{self, EmbeddedFile, EmbeddedStore, SharedDefinitions};
use std::sync::Arc;
use storage::queue::Queue;
use storage::store::Store;

/// A queue and a store.
pub type Opened = (Arc<dyn Queue>, Arc<dyn Store>);

/// Opens the backend that the settings name. Waits until the servers of a cluster are reachable, and logs while it
/// waits.
pub async fn open(settings: &Settings, tasks: &Tasks) -> Result<Opened, EngineError> {
    match settings.backend {
        Backend::Embedded => {
            let file = EmbeddedFile::open(&store::path(settings))?;
            on_file(file, settings, tasks, SharedDefinitions::default()).await
        }
        Backend::Cluster => {
            let queue = NatsQueue::connect(settings, tasks.stop_token()).await?;
            let store = MongoStore::connect(settings, tasks).await?;
            Ok((Arc::new(queue), Arc::new(store)))
        }
    }
}

/// Opens the queue and the store in one embedded file. The store also has the shared definitions.
pub(super) async fn on_file(
    file: Arc<EmbeddedFile>,
    settings: &Settings,
    tasks: &Tasks,
    shared: SharedDefinitions,
) -> Result<Opened, EngineError> {
    file.stop_on_failure(tasks);
    let queue = EmbeddedQueue::new(Arc::clone(&file), settings, tasks).await?;
    Ok((queue, EmbeddedStore::with_shared(file, settings, shared)?))
}
