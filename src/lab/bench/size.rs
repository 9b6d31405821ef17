//! Size of the data in queue and store.

use super::test_cluster::TestNamespace;
use base::config::Backend;
use bson::{Bson, Document, doc};
use cluster::nats;

/// Bytes in queue and store. On the embedded backend all data is in one file, so all fields except `streams` have the
/// file's size.
pub(super) struct Size {
    /// Documents of the sessions.
    pub(super) sessions: u64,
    /// All data: documents, indexes and streams.
    pub(super) all: u64,
    /// All documents of the store. Indexes are excluded, because mongod extends their files at arbitrary times.
    pub(super) documents: u64,
    /// The streams; 0 on the embedded backend.
    pub(super) streams: u64,
    /// All data as files on disk.
    pub(super) disk: u64,
}

impl Size {
    pub(super) async fn measure(namespace: &TestNamespace) -> anyhow::Result<Self> {
        let settings = &namespace.settings;
        if settings.backend == Backend::Embedded {
            let bytes = std::fs::metadata(embedded::store::path(settings))?.len();
            return Ok(Self { sessions: bytes, all: bytes, documents: bytes, streams: 0, disk: bytes });
        }
        let database = mongodb::Client::with_uri_str(&settings.mongodb.uri).await?.database(&settings.mongodb.database);
        let number = |document: &Document, field: &str| match document.get(field) {
            Some(Bson::Int32(number)) => u64::try_from(*number).unwrap_or(0),
            Some(Bson::Int64(number)) => u64::try_from(*number).unwrap_or(0),
            Some(Bson::Double(number)) => *number as u64,
            _ => 0,
        };
        let all = database.run_command(doc! {"dbStats": 1}).await?;
        let sessions = database.run_command(doc! {"collStats": "sessions"}).await?;
        let jetstream = async_nats::jetstream::new(nats::connect(settings).await?);
        let mut streams = 0;
        for stream in ["JOBS", "OUT", "DEAD"] {
            let stream = jetstream.get_stream(format!("{}_{stream}", settings.namespace.to_uppercase())).await?;
            streams += stream.cached_info().state.bytes;
        }
        Ok(Self {
            sessions: number(&sessions, "size"),
            streams,
            documents: number(&all, "dataSize"),
            all: number(&all, "dataSize") + number(&all, "indexSize") + streams,
            disk: number(&all, "storageSize") + number(&all, "indexSize") + streams,
        })
    }
}
