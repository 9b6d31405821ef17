//! Publishing the messages of a backup into new streams.

use super::documents::split;
use super::jobs::{BATCH, Jobs, recorded};
use super::stream::{MSG_ID, StoredMessage};
use super::{CLOCK_SKEW, EVENTS, LETTERS, Name, Streams};
use async_nats::jetstream::context::PublishErrorKind;
use mongodb::Database;
use serde::Deserialize;
use std::collections::HashSet;
use storage::backup::{Archive, BackupError, Result};
use types::event::EventType;
use types::timestamp::Timestamp;

/// The messages that wait for their acknowledgements at the same time.
const IN_FLIGHT: usize = 512;

impl Streams {
    /// Publishes the events whose turns are recorded, and those of runs. An event of a turn that is not recorded is
    /// published again by its turn.
    pub(super) async fn replay_events(&self, archive: &Archive, database: &Database, last_seq: u64) -> Result<u64> {
        let since = archive.manifest().started_at.minus(CLOCK_SKEW);
        let mut kept = Vec::new();
        for entry in archive.folder(EVENTS) {
            kept.extend(kept_events(&decoded(&archive.bytes(&entry.name)?)?, database, since).await?);
        }
        let dropped: HashSet<u64> = kept.iter().filter(|(_, keep)| !keep).map(|(seq, _)| *seq).collect();
        let keep = |event: &StoredMessage| event.seq().is_none_or(|seq| !dropped.contains(&seq));
        self.replay(&self.out, archive, EVENTS, last_seq, (kept.len() - dropped.len()) as u64, keep).await
    }

    /// Publishes the dead letters, except those of jobs that are processed again.
    pub(super) async fn replay_letters(&self, archive: &Archive, jobs: &Jobs, last_seq: u64) -> Result<u64> {
        let keep = |letter: &StoredMessage| !is_of_open_job(letter, jobs);
        let mut count = 0;
        for entry in archive.folder(LETTERS) {
            count += decoded(&archive.bytes(&entry.name)?)?.iter().filter(|letter| keep(letter)).count() as u64;
        }
        self.replay(&self.dead, archive, LETTERS, last_seq, count, keep).await
    }

    /// Publishes the jobs.
    pub(super) async fn replay_jobs(&self, jobs: &Jobs) -> Result<u64> {
        for messages in jobs.messages.chunks(IN_FLIGHT) {
            self.publish(&self.jobs, messages.iter()).await?;
        }
        Ok(jobs.messages.len() as u64)
    }

    /// Publishes messages into an empty stream. The last one gets the sequence of the last one in the backup, so that a
    /// reader that remembers a sequence misses nothing; it may see some events before it again.
    async fn replay(
        &self,
        name: &Name,
        archive: &Archive,
        folder: &str,
        last_seq: u64,
        count: u64,
        keep: impl Fn(&StoredMessage) -> bool,
    ) -> Result<u64> {
        let first = (last_seq + 1).saturating_sub(count);
        if first > 1 {
            let stream = self.context.get_stream_no_info(&name.stream).await.map_err(|error| refused(name, error))?;
            stream.purge().sequence(first).await.map_err(|error| refused(name, error))?;
        }
        for entry in archive.folder(folder) {
            let messages = decoded(&archive.bytes(&entry.name)?)?;
            let kept: Vec<_> = messages.iter().filter(|message| keep(message)).collect();
            for messages in kept.chunks(IN_FLIGHT) {
                self.publish(name, messages.iter().copied()).await?;
            }
        }
        Ok(count)
    }

    async fn publish<'m>(&self, name: &Name, messages: impl Iterator<Item = &'m StoredMessage>) -> Result<()> {
        let mut acks = Vec::new();
        for message in messages {
            let payload = message.payload.bytes.clone().into();
            let sent = self.context.publish_with_headers(message.subject.clone(), message.header_map(), payload).await;
            acks.push(sent.map_err(|error| refused(name, error))?);
        }
        for ack in acks {
            ack.await.map_err(|error| match error.kind() {
                PublishErrorKind::Other if error.to_string().contains("maximum") => BackupError::refused(
                    format!("the stream {} does not take all messages of the backup: {error}", name.stream),
                    "raise lane.max_depth and streams.*_max_mib for the restore, and repeat it with --force",
                ),
                _ => refused(name, error),
            })?;
        }
        Ok(())
    }
}

/// The sequences of events, each with whether the event is kept.
async fn kept_events(events: &[StoredMessage], database: &Database, since: Timestamp) -> Result<Vec<(u64, bool)>> {
    let mut kept = Vec::with_capacity(events.len());
    for events in events.chunks(BATCH) {
        let turns: Vec<_> = events.iter().map(|event| turn_of(event).filter(|_| event.at() >= since)).collect();
        let asked: HashSet<String> = turns.iter().flatten().cloned().collect();
        let known = match asked.is_empty() {
            true => HashSet::new(),
            false => recorded(database, asked.into_iter().collect()).await?,
        };
        let keep = |turn: &Option<String>| turn.as_ref().is_none_or(|turn| known.contains(turn));
        kept.extend(events.iter().zip(&turns).filter_map(|(event, turn)| Some((event.seq()?, keep(turn)))));
    }
    Ok(kept)
}

/// The turn of an event, `<session>/<turn>`; `None` for the event of a run.
fn turn_of(event: &StoredMessage) -> Option<String> {
    #[derive(Deserialize)]
    struct OfTurn {
        turn_id: String,
    }
    let mut parts = event.subject.rsplit('.');
    let (event_type, session_id) = (EventType::from_token(parts.next()?)?, parts.next()?);
    if event_type == EventType::Run {
        return None;
    }
    let OfTurn { turn_id } = serde_json::from_slice(&event.payload.bytes).ok()?;
    Some(format!("{session_id}/{turn_id}"))
}

/// Whether a dead letter belongs to a job that is processed again. Its id has the sequence of the job:
/// `<creation time of the stream>-<sequence>@<time>/<cause>`.
fn is_of_open_job(letter: &StoredMessage, jobs: &Jobs) -> bool {
    let seq = letter.header(MSG_ID).and_then(|id| id.split_once('@')?.0.split_once('-')?.1.parse().ok());
    let session_id = letter.header("Tw-Subject").and_then(|subject| subject.rsplit('.').next());
    let id = session_id.zip(letter.header("Tw-Job-Id")).map(|(session, job)| (session.to_owned(), job.to_owned()));
    seq.is_some_and(|seq| jobs.open_seqs.contains(&seq)) || id.is_some_and(|id| jobs.open_ids.contains(&id))
}

fn decoded(bytes: &[u8]) -> Result<Vec<StoredMessage>> {
    split(bytes).map(|document| StoredMessage::decode(document?.as_bytes())).collect()
}

fn refused(name: &Name, error: impl Into<base::error::SharedError>) -> BackupError {
    BackupError::backend(format!("the stream {} does not take a message", name.stream), error)
}
