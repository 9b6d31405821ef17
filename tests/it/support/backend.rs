//! A fresh backend for each test.

use super::engine::{Backend, quick};
use base::clock::Clock;
use base::config::Settings;
use base::tasks::Tasks;
use cluster::mongo::MongoStore;
use cluster::nats::NatsQueue;
use embedded::queue::EmbeddedQueue;
use embedded::store::{EmbeddedFile, EmbeddedStore};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use types::duration::Text;

/// The embedded backend in memory.
pub async fn embedded() -> Backend {
    embedded_with(Settings::default()).await
}

/// The embedded backend in memory, with these settings.
pub async fn embedded_with(settings: Settings) -> Backend {
    embedded_of(quick(settings), Clock::system()).await
}

/// The embedded backend in memory, with lanes that hold one user message in addition to the reserve for commands.
pub async fn embedded_with_short_lanes() -> Backend {
    let mut settings = Settings::default();
    settings.lane.max_depth = 1;
    embedded_with(settings).await
}

/// The embedded backend in memory, with this clock and lease duration.
pub async fn embedded_by(clock: Clock, settings: Settings, lease: Duration) -> Backend {
    let mut settings = quick(settings);
    settings.worker.ack_wait = Text(lease);
    embedded_of(settings, clock).await
}

/// The embedded backend and its file, from which a test can open another store.
pub async fn embedded_file() -> (Arc<EmbeddedFile>, Backend) {
    on_file(quick(Settings::default()), Clock::system()).await
}

async fn embedded_of(settings: Settings, clock: Clock) -> Backend {
    on_file(settings, clock).await.1
}

async fn on_file(settings: Settings, clock: Clock) -> (Arc<EmbeddedFile>, Backend) {
    let settings = Settings { backend: base::config::Backend::Embedded, ..settings };
    let file = EmbeddedFile::in_memory_by(clock).unwrap();
    let backend = Backend {
        queue: EmbeddedQueue::new(Arc::clone(&file), &settings, &Tasks::new()).await.unwrap(),
        store: EmbeddedStore::new(Arc::clone(&file), &settings).unwrap(),
        settings,
    };
    (file, backend)
}

/// NATS and MongoDB, with a namespace and a database for this test.
pub async fn cluster() -> Backend {
    cluster_with(|_| ()).await
}

/// NATS and MongoDB. `change` adjusts the settings before streams and collections are created.
pub async fn cluster_with(change: impl FnOnce(&mut Settings)) -> Backend {
    let mut settings = quick(super::servers::cluster().await.settings());
    change(&mut settings);
    cluster_of(settings).await
}

/// NATS and MongoDB, with lanes that hold one user message in addition to the reserve for commands.
pub async fn cluster_with_short_lanes() -> Backend {
    cluster_with(|settings| settings.lane.max_depth = 1).await
}

/// NATS and MongoDB on the servers that the settings name.
pub async fn cluster_of(settings: Settings) -> Backend {
    let tasks = Tasks::new();
    Backend {
        queue: Arc::new(NatsQueue::connect(&settings, CancellationToken::new()).await.unwrap()),
        store: Arc::new(MongoStore::connect(&settings, &tasks).await.unwrap()),
        settings,
    }
}
