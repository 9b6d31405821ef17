//! Queue and store, as the settings name them.

use super::EngineError;
use crate::base::config::{Backend, Settings};
use crate::base::tasks::Tasks;
use crate::cluster::mongo::MongoStore;
use crate::cluster::nats::NatsQueue;
use crate::embedded::queue::EmbeddedQueue;
use crate::embedded::store as embedded;
use crate::embedded::store::{EmbeddedFile, EmbeddedStore};
use crate::storage::queue::Queue;
use crate::storage::store::Store;
use std::sync::Arc;

/// A queue and a store.
pub type Opened = (Arc<dyn Queue>, Arc<dyn Store>);

/// Opens the backend that the settings name. The cluster's servers are waited for, with a log line while they are away.
pub async fn open(settings: &Settings, tasks: &Tasks) -> Result<Opened, EngineError> {
    match settings.backend {
        Backend::Embedded => on_file(EmbeddedFile::open(&embedded::path(settings))?, settings, tasks).await,
        Backend::Cluster => {
            let queue = NatsQueue::connect(settings, tasks.stop_token()).await?;
            let store = MongoStore::connect(settings, tasks).await?;
            Ok((Arc::new(queue), Arc::new(store)))
        }
    }
}

/// Both in one embedded file.
pub(super) async fn on_file(
    file: Arc<EmbeddedFile>,
    settings: &Settings,
    tasks: &Tasks,
) -> Result<Opened, EngineError> {
    file.ends(tasks);
    let queue = EmbeddedQueue::new(Arc::clone(&file), settings, tasks).await?;
    Ok((queue, EmbeddedStore::new(file, settings)?))
}
