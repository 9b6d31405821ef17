//! Remembers the jobs that are published while sessions are read.
//!
//! A job that is published and processed meanwhile is no longer in its stream when the stream is read again, and the
//! session that it belongs to may have been read before. The server also sends every job to plain subscribers.

use super::stream::StoredMessage;
use super::{CAPTURED, Streams};
use async_nats::Subscriber;
use futures::{FutureExt, StreamExt};
use std::io::Write;
use std::sync::atomic::Ordering;
use storage::backup::writer::Chunks;
use storage::backup::{ArchiveWriter, BackupError, Result};

/// The jobs that have been published since the subscription.
pub(super) struct Capture<'s> {
    streams: &'s Streams,
    jobs: Subscriber,
    chunks: Chunks,
    /// The number of connections that the client had made before.
    connects: u64,
}

impl<'s> Capture<'s> {
    /// Begins. On return the server sends jobs.
    pub(super) async fn begin(streams: &'s Streams) -> Result<Self> {
        let failed = |error| BackupError::backend("cannot subscribe to jobs", error);
        let jobs = streams.client.subscribe(streams.jobs.subject.clone()).await;
        let jobs = jobs.map_err(|error| failed(base::error::SharedError::from(error)))?;
        streams.client.flush().await.map_err(|error| failed(error.into()))?;
        let connects = streams.client.statistics().connects.load(Ordering::Relaxed);
        Ok(Self { streams, jobs, chunks: Chunks::new(CAPTURED), connects })
    }

    /// Writes the jobs that have arrived. To be called often: the client keeps only so many.
    pub(super) fn drain<W: Write>(&mut self, archive: &mut ArchiveWriter<W>) -> Result<()> {
        while let Some(Some(message)) = self.jobs.next().now_or_never() {
            let stored = StoredMessage::published(&message);
            self.chunks.push(archive, &stored.encode()?)?;
        }
        Ok(())
    }

    /// Ends. Fails if the connection was lost meanwhile, since jobs may be missing then.
    pub(super) async fn finish<W: Write>(mut self, archive: &mut ArchiveWriter<W>) -> Result<u64> {
        self.streams
            .client
            .flush()
            .await
            .map_err(|error| BackupError::backend("the connection to NATS is lost", error))?;
        self.drain(archive)?;
        if self.streams.client.statistics().connects.load(Ordering::Relaxed) != self.connects {
            return Err(BackupError::refused(
                "the connection to NATS was lost while sessions were read, so jobs may be missing",
                "repeat the backup when NATS is stable",
            ));
        }
        self.chunks.finish(archive)
    }
}
