//! The messages of a stream: reading them, and their form in the archive, which is BSON.

use super::{Name, Streams};
use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{Info, RawMessageErrorKind};
use base::clock;
use bson::spec::BinarySubtype;
use bson::{Binary, DateTime};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use std::io::Write;
use storage::backup::writer::Chunks;
use storage::backup::{ArchiveWriter, BackupError, Result};
use types::timestamp::Timestamp;

/// The header with a message's id.
pub(super) const MSG_ID: &str = "Nats-Msg-Id";

/// A message as the archive has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredMessage {
    /// The sequence in its stream; missing if it was seen when it was published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) seq: Option<i64>,
    /// When its stream stored it, or when it was seen.
    pub(super) at: DateTime,
    pub(super) subject: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) payload: Binary,
}

impl StoredMessage {
    /// A message that was published just now.
    pub(super) fn published(message: &async_nats::Message) -> Self {
        let at = clock::now();
        Self::new(None, at, message.subject.as_str(), message.headers.as_ref(), &message.payload)
    }

    fn stored(message: &StreamMessage) -> Self {
        let at = millis(message.time.unix_timestamp_nanos());
        Self::new(Some(message.sequence), at, message.subject.as_str(), Some(&message.headers), &message.payload)
    }

    fn new(seq: Option<u64>, at: Timestamp, subject: &str, headers: Option<&HeaderMap>, payload: &[u8]) -> Self {
        let lines = headers.into_iter().flat_map(HeaderMap::iter);
        let headers = lines
            .flat_map(|(name, values)| values.iter().map(move |value| (name.to_string(), value.as_str().to_owned())));
        Self {
            seq: seq.and_then(|seq| i64::try_from(seq).ok()),
            at: DateTime::from_millis(at.as_millis()),
            subject: subject.to_owned(),
            // Expectations of the publisher concern the former stream.
            headers: headers.filter(|(name, _)| !name.starts_with("Nats-Expected")).collect(),
            payload: Binary { subtype: BinarySubtype::Generic, bytes: payload.to_vec() },
        }
    }

    pub(super) fn seq(&self) -> Option<u64> {
        self.seq.and_then(|seq| u64::try_from(seq).ok())
    }

    pub(super) fn at(&self) -> Timestamp {
        Timestamp::from_millis(self.at.timestamp_millis())
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(super) fn header_map(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            headers.append(name.as_str(), value.as_str());
        }
        headers
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        bson::serialize_to_vec(self).map_err(|error| BackupError::backend("a message cannot be encoded", error))
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        bson::deserialize_from_slice(bytes)
            .map_err(|error| BackupError::backend("a message of the backup cannot be decoded", error))
    }
}

fn millis(nanos: i128) -> Timestamp {
    Timestamp::from_millis(i64::try_from(nanos / 1_000_000).unwrap_or(0))
}

/// When a stream was created.
pub(super) fn created_at(info: &Info) -> Timestamp {
    millis(info.created.unix_timestamp_nanos())
}

impl Streams {
    /// Returns the state of a stream, from its leader.
    pub(super) async fn info(&self, name: &Name) -> Result<Info> {
        let stream = self.context.get_stream(&name.stream).await.map_err(|error| unreadable(name, error))?;
        Ok(stream.cached_info().clone())
    }

    /// Writes the messages after a sequence, each read from the leader: a replica may not know the last ones yet. For
    /// the stream of jobs, which allows only one consumer.
    pub(super) async fn save_singly<W: Write>(
        &self,
        name: &Name,
        folder: &str,
        after: u64,
        archive: &mut ArchiveWriter<W>,
    ) -> Result<u64> {
        let stream = self.context.get_stream_no_info(&name.stream).await.map_err(|error| unreadable(name, error))?;
        let (mut chunks, mut after) = (Chunks::new(folder), after);
        loop {
            let next = stream.raw_message_builder().sequence(after + 1).next_by_subject(name.subject.clone());
            match next.send().await {
                Ok(message) => {
                    after = message.sequence;
                    chunks.push(archive, &StoredMessage::stored(&message).encode()?)?;
                }
                // Any other error proves nothing about the message.
                Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => return chunks.finish(archive),
                Err(error) => return Err(unreadable(name, error)),
            }
        }
    }

    /// Writes the messages up to a sequence.
    pub(super) async fn save_all<W: Write>(
        &self,
        name: &Name,
        folder: &str,
        last: u64,
        archive: &mut ArchiveWriter<W>,
    ) -> Result<u64> {
        let stream = self.context.get_stream(&name.stream).await.map_err(|error| unreadable(name, error))?;
        let mut chunks = Chunks::new(folder);
        let config = pull::OrderedConfig { deliver_policy: DeliverPolicy::All, ..pull::OrderedConfig::default() };
        let mut consumer = stream.create_consumer(config).await.map_err(|error| unreadable(name, error))?;
        if consumer.info().await.map_err(|error| unreadable(name, error))?.num_pending == 0 {
            return chunks.finish(archive);
        }
        let mut messages = consumer.messages().await.map_err(|error| unreadable(name, error))?;
        while let Some(message) = messages.next().await {
            let message = message.map_err(|error| unreadable(name, error))?;
            let info = message.info().map_err(|error| unreadable(name, error))?;
            let (seq, at) = (info.stream_sequence, millis(info.published.unix_timestamp_nanos()));
            if seq <= last {
                let headers = message.headers.as_ref();
                let stored = StoredMessage::new(Some(seq), at, message.subject.as_str(), headers, &message.payload);
                chunks.push(archive, &stored.encode()?)?;
            }
            // The last message may have been deleted meanwhile.
            if seq >= last || info.pending == 0 {
                break;
            }
        }
        chunks.finish(archive)
    }
}

fn unreadable(name: &Name, error: impl Into<base::error::SharedError>) -> BackupError {
    BackupError::backend(format!("the stream {} cannot be read", name.stream), error)
}
