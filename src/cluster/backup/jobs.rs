//! Finds the jobs that are processed again: their sessions, as the backup has them, do not know them.

use super::documents::{EPOCH_STEP, split};
use super::stream::{MSG_ID, StoredMessage};
use super::{CAPTURED, CLOCK_SKEW, LATE, Name, WAITING};
use base::error::SharedError;
use bson::{DateTime, Document, doc};
use bytes::Bytes;
use futures::TryStreamExt;
use mongodb::Database;
use serde::Deserialize;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use storage::backup::{Archive, BackupError, Result};
use storage::queue::Message;
use types::session::RECENT_JOBS;
use types::timestamp::Timestamp;

/// The number of documents in one query.
pub(super) const BATCH: usize = 500;

/// The jobs to publish, in the order of their lanes.
pub(super) struct Jobs {
    pub(super) messages: Vec<StoredMessage>,
    /// The sequences, in the former stream, of the jobs that no session has processed.
    pub(super) open_seqs: HashSet<u64>,
    /// The same as (session, job id).
    pub(super) open_ids: HashSet<(String, String)>,
}

/// A job with its identity.
struct Job {
    session_id: String,
    job_id: String,
    message: StoredMessage,
}

/// The fields of a restored session that say which jobs it has processed.
#[derive(Debug, Default, Deserialize)]
struct Known {
    _id: String,
    #[serde(default)]
    last_seq: i64,
    #[serde(default)]
    stream: Option<DateTime>,
    #[serde(default)]
    recent_jobs: Vec<String>,
    #[serde(default)]
    epoch: i64,
}

impl Known {
    /// Whether the session has processed a turn or job that was recorded under this epoch.
    fn has_done(&self, id: &str, epoch: Option<i64>) -> bool {
        let is_full = self.recent_jobs.len() >= RECENT_JOBS;
        // A full list has dropped older jobs. Their turns were recorded under earlier epochs.
        self.recent_jobs.iter().any(|known| known == id)
            || (is_full && epoch.is_some_and(|epoch| epoch < self.epoch.saturating_sub(EPOCH_STEP)))
    }
}

/// Reads the jobs of the backup, and compares them with the sessions, which have been stored.
pub(super) async fn read(archive: &Archive, database: &Database, jobs: &Name, created: Timestamp) -> Result<Jobs> {
    let found = all(archive, jobs, created)?;
    let lanes: HashSet<&str> = found.iter().map(|job| job.session_id.as_str()).collect();
    let sessions = sessions(database, lanes.into_iter().map(str::to_owned).collect()).await?;
    let full = |job: &&Job| sessions.get(&job.session_id).is_some_and(|known| known.recent_jobs.len() >= RECENT_JOBS);
    let asked = found.iter().filter(full).map(|job| format!("{}/{}", job.session_id, job.job_id)).collect();
    let epochs = epochs(database, asked).await?;
    let (mut messages, mut open_seqs, mut open_ids) = (Vec::new(), HashSet::new(), HashSet::new());
    for job in found {
        let (known, seq) = (sessions.get(&job.session_id), job.message.seq());
        let is_recent = known.is_some_and(|known| known.recent_jobs.contains(&job.job_id));
        let epoch = epochs.get(&format!("{}/{}", job.session_id, job.job_id)).copied();
        let is_done = known.is_some_and(|known| {
            let same = known.stream.is_some_and(|stream| stream.timestamp_millis() == created.as_millis());
            let passed = seq.is_some_and(|seq| i64::try_from(seq).is_ok_and(|seq| seq <= known.last_seq));
            (same && passed) || known.has_done(&job.job_id, epoch)
        });
        if is_done && !is_recent {
            // The session would not know it again.
            continue;
        }
        if !is_done {
            open_seqs.extend(seq);
            open_ids.insert((job.session_id, job.job_id));
        }
        messages.push(job.message);
    }
    Ok(Jobs { messages, open_seqs, open_ids })
}

/// All jobs of the backup, each once, in the order of their publication: the jobs that waited first, then the jobs that
/// were published meanwhile.
fn all(archive: &Archive, jobs: &Name, created: Timestamp) -> Result<Vec<Job>> {
    let (mut found, mut seen): (Vec<Job>, _) = (Vec::new(), HashMap::new());
    for folder in [WAITING, CAPTURED, LATE] {
        for entry in archive.folder(folder) {
            let bytes = archive.bytes(&entry.name)?;
            for document in split(&bytes) {
                let message = StoredMessage::decode(document?.as_bytes())?;
                let Some(job) = identified(message, jobs, created) else { continue };
                match seen.entry((job.session_id.clone(), job.job_id.clone())) {
                    Entry::Vacant(new) => {
                        new.insert(found.len());
                        found.push(job);
                    }
                    // A job that was seen when it was published and still waited afterwards has its sequence now.
                    Entry::Occupied(known) => {
                        if let Some(known) = found.get_mut(*known.get()) {
                            known.message.seq = known.message.seq.or(job.message.seq);
                        }
                    }
                }
            }
        }
    }
    Ok(found)
}

/// A job with the id that a worker gives it. A job without any id of its own got one from its sequence, which is kept
/// as its message id. `None` for such a job if its sequence is unknown: it is in the backup a second time if it still
/// waited afterwards.
fn identified(mut message: StoredMessage, jobs: &Name, created: Timestamp) -> Option<Job> {
    let session_id = message.subject.strip_prefix(jobs.subject.strip_suffix('*')?)?.to_owned();
    let default_id = message.seq().map(|seq| format!("{}-{seq}", created.as_millis()));
    let as_delivered = Message {
        session_id: session_id.clone(),
        seq: message.seq().unwrap_or(0),
        stream: created,
        payload: Bytes::copy_from_slice(&message.payload.bytes),
        msg_id: message.header(MSG_ID).map(str::to_owned),
        default_id: default_id.clone().unwrap_or_default(),
        at: message.at(),
        trace: None,
    };
    let job_id = match (as_delivered.job(), &default_id) {
        (Ok(job), _) if !job.job_id.is_empty() => job.job_id,
        (_, Some(_)) => as_delivered.job_id(),
        (_, None) => return None,
    };
    if let (None, Some(id)) = (message.header(MSG_ID), default_id) {
        message.headers.push((MSG_ID.to_owned(), id));
    }
    Some(Job { session_id, job_id, message })
}

/// Removes the records that are newer than the sessions: turns that their sessions do not know, and runs whose jobs are not in the
/// backup.
pub(super) async fn remove_newer(database: &Database, started: Timestamp, jobs: &Jobs) -> Result<()> {
    #[derive(Deserialize)]
    struct Turn {
        _id: String,
        session_id: String,
        turn_id: String,
        #[serde(default)]
        epoch: i64,
    }
    let since = DateTime::from_millis(started.minus(CLOCK_SKEW).as_millis());
    let collection = database.collection::<Turn>("turns");
    let find = collection.find(doc! {"committed_at": {"$gte": since}});
    let find = find.projection(doc! {"session_id": 1, "turn_id": 1, "epoch": 1});
    let turns: Vec<Turn> = async { find.await?.try_collect().await }.await.map_err(failed)?;
    for turns in turns.chunks(BATCH) {
        let ids: HashSet<String> = turns.iter().map(|turn| turn.session_id.clone()).collect();
        let sessions = sessions(database, ids.into_iter().collect()).await?;
        let is_newer = |turn: &&Turn| {
            let job_id = turn.turn_id.split('@').next().unwrap_or_default();
            !sessions.get(&turn.session_id).is_some_and(|known| known.has_done(job_id, Some(turn.epoch)))
        };
        let newer: Vec<&str> = turns.iter().filter(is_newer).map(|turn| turn._id.as_str()).collect();
        collection.delete_many(doc! {"_id": {"$in": newer}}).await.map_err(failed)?;
    }
    let lanes: Vec<&str> = jobs.open_ids.iter().map(|(session_id, _)| session_id.as_str()).collect();
    let orphans = doc! {"status": "pending", "created_at": {"$gte": since}, "lane": {"$nin": lanes}};
    database.collection::<Document>("workflow_runs").delete_many(orphans).await.map_err(failed)?;
    Ok(())
}

/// Returns those of the turns, `<session>/<turn>`, that are recorded.
pub(super) async fn recorded(database: &Database, ids: Vec<String>) -> Result<HashSet<String>> {
    Ok(epochs(database, ids).await?.into_keys().collect())
}

/// The epochs under which turns, `<session>/<turn>`, were recorded.
async fn epochs(database: &Database, ids: Vec<String>) -> Result<HashMap<String, i64>> {
    let mut found = HashMap::new();
    for ids in ids.chunks(BATCH) {
        let turns = database.collection::<Document>("turns");
        let find = turns.find(doc! {"_id": {"$in": ids}});
        let find = find.projection(doc! {"epoch": 1});
        let turns: Vec<Document> = async { find.await?.try_collect().await }.await.map_err(failed)?;
        let turn = |turn: Document| Some((turn.get_str("_id").ok()?.to_owned(), turn.get_i64("epoch").unwrap_or(0)));
        found.extend(turns.into_iter().filter_map(turn));
    }
    Ok(found)
}

async fn sessions(database: &Database, ids: Vec<String>) -> Result<HashMap<String, Known>> {
    let mut found = HashMap::new();
    for ids in ids.chunks(BATCH) {
        let sessions = database.collection::<Known>("sessions");
        let find = sessions.find(doc! {"_id": {"$in": ids}});
        let find = find.projection(doc! {"last_seq": 1, "stream": 1, "recent_jobs": 1, "epoch": 1});
        let sessions: Vec<Known> = async { find.await?.try_collect().await }.await.map_err(failed)?;
        found.extend(sessions.into_iter().map(|known| (known._id.clone(), known)));
    }
    Ok(found)
}

fn failed(error: mongodb::error::Error) -> BackupError {
    BackupError::backend("MongoDB cannot be read or written", SharedError::from(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::Binary;
    use bson::spec::BinarySubtype;

    fn message(seq: Option<i64>, payload: &str, id: Option<&str>) -> StoredMessage {
        StoredMessage {
            seq,
            at: DateTime::from_millis(5),
            subject: "tw.jobs.s1".into(),
            headers: id.map(|id| (MSG_ID.to_owned(), id.to_owned())).into_iter().collect(),
            payload: Binary { subtype: BinarySubtype::Generic, bytes: payload.as_bytes().to_vec() },
        }
    }

    #[test]
    fn a_job_keeps_the_id_that_a_worker_gave_it() {
        let jobs = Name { stream: "TW_JOBS".into(), subject: "tw.jobs.*".into() };
        let job = |message| identified(message, &jobs, Timestamp::from_millis(99));
        let says = r#"{"type":"user_message","session_id":"s1","agent_id":"a","text":"你好"}"#;
        let named = says.replace("\"text\"", "\"job_id\":\"m-1\",\"text\"");
        assert_eq!(job(message(Some(7), &named, None)).unwrap().job_id, "m-1");
        assert_eq!(job(message(None, &named, None)).unwrap().job_id, "m-1");
        assert_eq!(job(message(None, says, Some("id-1"))).unwrap().job_id, "id-1");
        let unnamed = job(message(Some(7), says, None)).unwrap();
        assert_eq!((unnamed.job_id.as_str(), unnamed.message.header(MSG_ID)), ("99-7", Some("99-7")));
        assert_eq!(job(message(Some(7), "no job", None)).unwrap().job_id, "99-7");
        for unknown in [says, "no job"] {
            assert!(job(message(None, unknown, None)).is_none());
        }
    }

    #[test]
    fn a_session_that_has_dropped_ids_knows_older_turns_by_their_epochs() {
        let jobs = |count: usize| (0..count).map(|number| format!("m-{number}")).collect::<Vec<_>>();
        let known = |count, epoch| Known { recent_jobs: jobs(count), epoch, ..Known::default() };
        let few = known(3, EPOCH_STEP + 5);
        assert!(few.has_done("m-2", None) && !few.has_done("m-3", Some(4)));
        let full = known(RECENT_JOBS, EPOCH_STEP + 5);
        assert!(full.has_done("x", Some(4)) && !full.has_done("x", Some(5)) && !full.has_done("x", None));
    }
}
