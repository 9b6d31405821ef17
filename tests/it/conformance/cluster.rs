//! All cases on NATS and MongoDB.

use super::{kit, queue_suite, store_suite};
use crate::support::servers::{ClusterHandles, cluster};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use turnwheel::queue::{Queue, nats::NatsQueue};
use turnwheel::store::{Store, mongo::MongoStore};
use turnwheel::tasks::Tasks;

async fn store() -> (Arc<dyn Store>, ClusterHandles) {
    let servers = cluster().await;
    let store = MongoStore::connect(&kit::settings(servers.settings()), &Tasks::new()).await.unwrap();
    (Arc::new(store), servers)
}

async fn queue() -> (Arc<dyn Queue>, ClusterHandles) {
    let servers = cluster().await;
    let queue = NatsQueue::connect(&kit::settings(servers.settings()), CancellationToken::new()).await.unwrap();
    (Arc::new(queue), servers)
}

mod mongo {
    super::store_suite!(super::store);
}

mod nats {
    super::queue_suite!(super::queue);
}
