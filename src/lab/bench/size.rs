//! How much queue and store hold.

use super::site::Ground;
use base::config::Backend;
use bson::{Bson, Document, doc};
use cluster::nats;

/// See the module.
pub(super) struct Size {
    /// The sessions.
    pub(super) sessions: u64,
    /// Everything, as data.
    pub(super) all: u64,
    /// The documents in the store, without the indexes, whose files grow when the server takes its time to write them; on the
    /// embedded file, where all is one, everything.
    pub(super) documents: u64,
    /// The streams' part of everything; on the embedded file, where all is one, nothing.
    pub(super) streams: u64,
    /// Everything, as files.
    pub(super) disk: u64,
}

impl Size {
    pub(super) async fn of(ground: &Ground) -> anyhow::Result<Self> {
        let settings = &ground.settings;
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
