//! Writing a backup.

use super::capture::Capture;
use super::documents::save_collection;
use super::stream::created_at;
use super::{EVENTS, LATE, LETTERS, OF_PROCESSES, Streams, Tell, WAITING};
use crate::mongo::connect::client;
use base::config::Settings;
use mongodb::Database;
use std::io::Write;
use std::path::Path;
use storage::backup::{ArchiveWriter, BackupError, Manifest, Result, Source, StreamPositions};

const SESSIONS: &str = "sessions";
const STEPS: &str = "steps";

/// Writes a backup of the running cluster to `target`, and tells the progress. `path` is the name of the target in
/// errors.
pub async fn save<W: Write>(settings: &Settings, target: W, path: &Path, tell: Tell<'_>) -> Result<(Manifest, W)> {
    let streams = Box::pin(Streams::connect(settings)).await?;
    let database = client(settings).await.map_err(BackupError::servers)?.database(&settings.mongodb.database);
    let mut archive = ArchiveWriter::new(target, path, Manifest::begin(Source::Cluster, &settings.namespace, None));
    sessions_with_jobs(&streams, &database, &mut archive, tell).await?;
    for name in collections(&database).await? {
        if name != SESSIONS && name != STEPS {
            let count = save_collection(&database, &name, &mut archive, None).await?;
            tell(format!("{name}: {count} documents"));
        }
    }
    let (out, dead) = (streams.info(&streams.out).await?, streams.info(&streams.dead).await?);
    if let Some(positions) = &mut archive.manifest().streams {
        positions.out_last_seq = out.state.last_sequence;
        positions.dead_last_seq = dead.state.last_sequence;
    }
    let events = streams.save_all(&streams.out, EVENTS, out.state.last_sequence, &mut archive).await?;
    let letters = streams.save_all(&streams.dead, LETTERS, dead.state.last_sequence, &mut archive).await?;
    tell(format!("{events} events, {letters} dead letters"));
    archive.finish()
}

/// Writes the sessions and the steps, and every job that its session has not processed, in the order that the module
/// describes.
async fn sessions_with_jobs<W: Write>(
    streams: &Streams,
    database: &Database,
    archive: &mut ArchiveWriter<W>,
    tell: Tell<'_>,
) -> Result<()> {
    let mut capture = Capture::begin(streams).await?;
    let jobs = streams.info(&streams.jobs).await?;
    archive.manifest().streams =
        Some(StreamPositions { jobs_created_at: created_at(&jobs), out_last_seq: 0, dead_last_seq: 0 });
    let waiting = streams.save_singly(&streams.jobs, WAITING, 0, archive).await?;
    let sessions = save_collection(database, SESSIONS, archive, Some(&mut capture)).await?;
    tell(format!("{SESSIONS}: {sessions} documents"));
    // Before the end of the capture: a step may name jobs that its turn has merged.
    let steps = save_collection(database, STEPS, archive, Some(&mut capture)).await?;
    tell(format!("{STEPS}: {steps} documents"));
    let late = streams.save_singly(&streams.jobs, LATE, jobs.state.last_sequence, archive).await?;
    let captured = capture.finish(archive).await?;
    let after = streams.info(&streams.jobs).await?;
    if created_at(&after) != created_at(&jobs) {
        let problem = format!("the stream {} was created again during the backup", streams.jobs.stream);
        return Err(BackupError::refused(problem, "repeat the backup"));
    }
    tell(format!("{waiting} waiting jobs, {captured} accepted and {late} waiting since the beginning"));
    Ok(())
}

/// The collections that belong into a backup, by name.
pub(super) async fn collections(database: &Database) -> Result<Vec<String>> {
    let names = database.list_collection_names().await;
    let mut names = names.map_err(|error| BackupError::backend("MongoDB's collections cannot be listed", error))?;
    names.retain(|name| !name.starts_with("system.") && !OF_PROCESSES.contains(&name.as_str()));
    names.sort_unstable();
    Ok(names)
}
