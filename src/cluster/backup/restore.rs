//! Restoring a backup into an empty cluster.

use super::documents::load_collections;
use super::save::collections;
use super::{Streams, Tell, jobs};
use crate::mongo::MongoStore;
use crate::mongo::connect::client;
use crate::nats::NatsQueue;
use base::clock;
use base::config::Settings;
use base::error::SharedError;
use base::tasks::Tasks;
use bson::{DateTime, Document, doc};
use futures::TryStreamExt;
use mongodb::Database;
use storage::backup::{Archive, BackupError, Result, Source};

/// The numbers of restored messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Jobs that sessions process again or for the first time.
    pub open_jobs: u64,
    /// Events.
    pub events: u64,
    /// Dead letters.
    pub letters: u64,
}

/// Restores a backup, and tells the progress. Refuses if the database or the streams have content, unless `force`
/// deletes it first, and while processes are running.
pub async fn restore(
    settings: &Settings,
    archive: &Archive,
    force: bool,
    tasks: &Tasks,
    tell: Tell<'_>,
) -> Result<Restored> {
    archive.expect(Source::Cluster)?;
    let manifest = archive.manifest();
    let positions = manifest.streams.as_ref().ok_or_else(|| BackupError::Damaged {
        path: archive.path().to_owned(),
        problem: "its manifest has no positions of streams".to_owned(),
    })?;
    same_namespace(settings, &manifest.namespace)?;
    let streams = Box::pin(Streams::connect(settings)).await?;
    let database = client(settings).await.map_err(BackupError::servers)?.database(&settings.mongodb.database);
    nobody_is_running(&database).await?;
    make_room(&streams, &database, force).await?;
    // Creates the streams.
    Box::pin(NatsQueue::connect(settings, tasks.stop_token())).await.map_err(BackupError::servers)?;
    load_collections(&database, archive, tell).await?;
    let jobs = jobs::read(archive, &database, &streams.jobs, positions.jobs_created_at).await?;
    jobs::remove_newer(&database, manifest.started_at, &jobs).await?;
    let events = streams.replay_events(archive, &database, positions.out_last_seq).await?;
    let letters = streams.replay_letters(archive, &jobs, positions.dead_last_seq).await?;
    // Creates the indexes, before there is work that needs them.
    Box::pin(MongoStore::connect(settings, tasks)).await.map_err(BackupError::servers)?;
    let published = streams.replay_jobs(&jobs).await?;
    tell(format!("{events} events, {letters} dead letters, {published} jobs"));
    Ok(Restored { open_jobs: jobs.open_ids.len() as u64, events, letters })
}

fn same_namespace(settings: &Settings, found: &str) -> Result<()> {
    if settings.namespace == found {
        return Ok(());
    }
    let problem =
        format!("the backup is of the namespace `{found}`, and the settings have namespace = `{}`", settings.namespace);
    let hint = format!("set `namespace = \"{found}\"`, as in --set namespace={found}: subjects and ids contain it");
    Err(BackupError::refused(problem, hint))
}

/// Refuses while processes are announced in the database.
async fn nobody_is_running(database: &Database) -> Result<()> {
    let now = DateTime::from_millis(clock::now().as_millis());
    let processes = database.collection::<Document>("processes");
    let find = processes.find(doc! {"expires_at": {"$gt": now}});
    let running: Vec<Document> = async { find.await?.try_collect().await }.await.map_err(unreadable)?;
    if running.is_empty() {
        return Ok(());
    }
    let problem = format!("{} processes run on the database `{}`", running.len(), database.name());
    let hint = "stop all workers, schedulers and gateways first; a killed process counts as running for 20 s";
    Err(BackupError::refused(problem, hint))
}

/// Makes sure that there is nothing else: deletes it if `force`, or refuses.
async fn make_room(streams: &Streams, database: &Database, force: bool) -> Result<()> {
    let mut content = Vec::new();
    for name in collections(database).await? {
        let collection = database.collection::<Document>(&name);
        if force {
            collection.drop().await.map_err(unreadable)?;
        } else if name != "meta" && collection.find_one(doc! {}).await.map_err(unreadable)?.is_some() {
            content.push(format!("`{name}`"));
        }
    }
    for name in [&streams.jobs, &streams.out, &streams.dead] {
        // A stream that does not exist has no content.
        let Ok(stream) = streams.context.get_stream(&name.stream).await else { continue };
        if force {
            let deleted = streams.context.delete_stream(&name.stream).await;
            deleted.map_err(|error| BackupError::backend("a stream cannot be deleted", error))?;
        } else if stream.cached_info().state.last_sequence > 0 {
            content.push(format!("the stream {}", name.stream));
        }
    }
    if content.is_empty() {
        return Ok(());
    }
    let problem = format!("the database `{}` or its streams are not empty: {}", database.name(), content.join(", "));
    let hint = "restore into an empty database and an empty NATS, or delete this content with --force";
    Err(BackupError::refused(problem, hint))
}

fn unreadable(error: mongodb::error::Error) -> BackupError {
    BackupError::backend("MongoDB cannot be read or written", SharedError::from(error))
}
