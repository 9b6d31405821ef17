//! Connecting to MongoDB, and creating the indexes.

use super::audit::AUDIT;
use super::clock::ServerClock;
use super::days::DAYS;
use super::document::failed;
use super::processes::PROCESSES;
use super::runs::RUNS;
use super::session_listing::WAITING_FIELDS;
use super::versioned_collection::VersionedCollection;
use super::{Commands, Db, MongoStore};
use base::config::Settings;
use base::config::secrets::masked_address;
use base::tasks::{OnPanic, Tasks};
use bson::{Document, RawDocumentBuf, doc};
use futures::TryStreamExt;
use moka::future::Cache;
use mongodb::action::Find;
use mongodb::options::{ClientOptions, IndexOptions, ReadConcern, ReadPreference, SelectionCriteria, WriteConcern};
use mongodb::{Client, Cursor, IndexModel};
use serde::de::DeserializeOwned;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;
use storage::store::batcher::Batcher;
use storage::store::session_cache::SessionCache;
use storage::store::{Result, StoreError};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use types::page::{Page, PageBuilder};

/// How long a call waits for a primary before it fails.
const SELECTION_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval at which the driver checks each server. A server counts as down after this plus [`SELECTION_TIMEOUT`].
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// The interval at which the server's clock is read.
const CLOCK_INTERVAL: Duration = Duration::from_secs(10);
/// The number of concurrent bulk commands of one kind.
const IN_FLIGHT: usize = 2;

/// How long a plan is cached without reading the store.
const PLAN_CACHE_TTL: Duration = Duration::from_millis(100);

impl MongoStore {
    /// Connects, claims the database for the namespace, and creates missing indexes. While the server is unreachable,
    /// the call retries and logs each failure, until `tasks` stop.
    pub async fn connect(settings: &Settings, tasks: &Tasks) -> Result<Self> {
        let address = masked_address(&settings.mongodb.uri);
        let mut pause = Duration::from_millis(200);
        let stop = tasks.stop_token();
        let db = loop {
            let problem = match Db::open(settings).await {
                Ok(db) => break db,
                Err(StoreError::Unavailable(problem)) => problem,
                Err(error) => return Err(error),
            };
            warn!("MongoDB at mongodb.uri = {address} is unreachable, retrying in {pause:?}: {problem}");
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(Duration::from_secs(5)),
                () = stop.cancelled() => return Err(StoreError::Unavailable(problem)),
            }
        };
        info!("connected to MongoDB at {address}, database {}", settings.mongodb.database);
        tasks.spawn("server clock", OnPanic::Shutdown, db.clone().refresh_clock(tasks.stop_token()));
        let of = || db.clone();
        let (acquires, records, commits, reads, runs) = (of(), of(), of(), of(), of());
        Ok(Self {
            acquires: Batcher::start(tasks, "acquire", IN_FLIGHT, move |items| acquires.clone().acquire_all(items)),
            records: Batcher::start(tasks, "record", IN_FLIGHT, move |items| records.clone().record_all(items)),
            commits: Batcher::start(tasks, "commit", IN_FLIGHT, move |items| commits.clone().commit_all(items)),
            reads: Batcher::start(tasks, "sessions", IN_FLIGHT, move |items| reads.clone().read_all(items)),
            run_writes: Batcher::start(tasks, "runs", IN_FLIGHT, move |items| runs.clone().write_runs(items)),
            agents: VersionedCollection::open(&db, tasks),
            workflows: VersionedCollection::open(&db, tasks),
            plans: Cache::builder().max_capacity(1_000).time_to_live(PLAN_CACHE_TTL).build(),
            places: Default::default(),
            db,
        })
    }
}

impl Db {
    async fn open(settings: &Settings) -> Result<Self> {
        let client = client(settings).await?;
        let database = client.database(&settings.mongodb.database);
        let clock = ServerClock::read(&client).await?;
        let commands = Commands::new(database.clone(), settings.mongodb.timeout.0);
        let (cache, retention, probed) = (SessionCache::default(), settings.retention.turns.0, Arc::default());
        let plan_retention = retention.max(settings.retention.idle.0);
        let audit_retention = settings.retention.audit.0;
        let db = Self { client, database, commands, retention, plan_retention, audit_retention, cache, clock, probed };
        db.claim(settings).await?;
        db.migrate().await?;
        Ok(db)
    }

    /// Reads the server's clock periodically. When a reading fails, the last one stays.
    async fn refresh_clock(self, stop: CancellationToken) {
        let keep = async {
            loop {
                tokio::time::sleep(CLOCK_INTERVAL).await;
                if let Err(error) = self.clock.refresh(&self.client).await {
                    debug!("reading the server's clock failed, keeping the last reading: {error}");
                }
            }
        };
        stop.run_until_cancelled(keep).await;
    }

    /// Awaits an operation of the driver, within the time limit; see [`Commands::in_time`].
    pub(super) async fn in_time<T>(&self, asked: impl IntoFuture<Output = mongodb::error::Result<T>>) -> Result<T> {
        self.commands.in_time(asked).await
    }

    /// Returns the first `limit` documents of a query. MongoDB itself reads a limit of 0 as no limit.
    pub(super) async fn first<T>(&self, find: Find<'_, T>, limit: usize) -> Result<Vec<T>>
    where
        T: DeserializeOwned + Unpin + Send + Sync,
    {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let find = find.limit(i64::try_from(limit).unwrap_or(i64::MAX));
        self.in_time(async { find.await?.try_collect().await }).await
    }

    /// Reads a page: the documents of a cursor that asks for at least one more than `limit`, in their stored sizes.
    pub(super) async fn page(
        &self,
        found: impl IntoFuture<Output = mongodb::error::Result<Cursor<RawDocumentBuf>>>,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Page<RawDocumentBuf>> {
        let mut page = PageBuilder::new(limit, max_bytes);
        if limit == 0 {
            return Ok(page.finish());
        }
        self.in_time(async {
            let mut found = found.await?;
            while let Some(raw) = found.try_next().await? {
                let bytes = raw.as_bytes().len();
                if !page.push(raw, bytes) {
                    break;
                }
            }
            Ok(page.finish())
        })
        .await
    }

    pub(super) async fn ensure_indexes(&self) -> Result<()> {
        super::authoring::ensure_validator(&self.database).await?;
        for (collection, keys, options) in indexes() {
            let index = IndexModel::builder().keys(keys).options(options).build();
            self.database.collection::<Document>(collection).create_index(index).await.map_err(failed)?;
        }
        // An earlier version listed sessions by this index. Without it every commit writes less.
        let _ = self.database.collection::<Document>("sessions").drop_index("updated_at_-1").await;
        Ok(())
    }
}

/// The value for MongoDB's `$limit` with which a page of `limit` documents sees whether there are more.
pub(super) fn one_more(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1)
}

/// Creates a client for the servers in the settings. It writes with the majority, and reads majority-committed data
/// from the primary, whatever the URI says: a secondary may lag behind a lease that its reader has just taken.
pub async fn client(settings: &Settings) -> Result<Client> {
    let mut options = ClientOptions::parse(&settings.mongodb.uri).await.map_err(failed)?;
    options.app_name = Some("turnwheel".into());
    options.server_selection_timeout = Some(SELECTION_TIMEOUT);
    // A frozen or partitioned primary refuses nothing. Commands to it hang until the driver finds it down.
    options.heartbeat_freq.get_or_insert(HEARTBEAT_INTERVAL);
    options.connect_timeout.get_or_insert(SELECTION_TIMEOUT);
    let mut durable = WriteConcern::majority();
    durable.w_timeout = Some(settings.mongodb.timeout.0);
    options.write_concern = Some(durable);
    options.read_concern = Some(ReadConcern::majority());
    options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
    Client::with_options(options).map_err(failed)
}

/// Returns the read preference in the URI if it is one that is ignored.
pub async fn unused_preference(settings: &Settings) -> Option<&'static str> {
    match ClientOptions::parse(&settings.mongodb.uri).await.ok()?.selection_criteria? {
        SelectionCriteria::ReadPreference(ReadPreference::Secondary { .. }) => Some("secondary"),
        SelectionCriteria::ReadPreference(ReadPreference::SecondaryPreferred { .. }) => Some("secondaryPreferred"),
        SelectionCriteria::ReadPreference(ReadPreference::PrimaryPreferred { .. }) => Some("primaryPreferred"),
        SelectionCriteria::ReadPreference(ReadPreference::Nearest { .. }) => Some("nearest"),
        _ => None,
    }
}

/// The server parameter for the number of seconds during which the server keeps old versions of documents.
pub const HISTORY_WINDOW: &str = "minSnapshotHistoryWindowInSeconds";

/// Returns every index: its collection, keys and options.
pub fn indexes() -> Vec<(&'static str, Document, Option<IndexOptions>)> {
    let sparse = IndexOptions::builder().sparse(true).build();
    let (of_sessions, of_named, of_formats) = (sparse.clone(), sparse.clone(), sparse.clone());
    // Listings of the sessions that wait for people read these.
    let of_waiting = WAITING_FIELDS.map(|field| ("sessions", doc! {field: 1}, Some(sparse.clone())));
    let of_users = IndexOptions::builder().partial_filter_expression(doc! {"user_id": {"$gt": ""}}).build();
    let a_time = doc! {"closed_at": {"$gt": bson::DateTime::from_millis(0)}};
    let of_closed = IndexOptions::builder().partial_filter_expression(a_time).build();
    let unique = IndexOptions::builder().unique(true).build();
    let expiring = IndexOptions::builder().expire_after(Duration::ZERO).build();
    let passing = IndexOptions::builder().expire_after(Duration::ZERO).sparse(true).build();
    let mut indexes = vec![
        ("sessions", doc! {"timers.due_at": 1}, Some(sparse.clone())),
        ("sessions", doc! {"lease.until": 1}, Some(sparse.clone())),
        ("sessions", doc! {"waiting_since": 1}, Some(sparse)),
        ("sessions", doc! {"updated_at": -1, "_id": -1}, None),
        // Only what needs a newer version than the first one has this field.
        ("sessions", doc! {"format": 1}, Some(of_formats)),
        // Only the sessions of runs have this field. Conversations do not expire.
        ("sessions", doc! {"expires_at": 1}, Some(passing.clone())),
        // Deletion finds the data of a user by it. Sessions without a user have an empty text.
        ("sessions", doc! {"user_id": 1}, Some(of_users)),
        // The expiry of closed conversations reads it.
        ("sessions", doc! {"closed_at": 1}, Some(of_closed)),
        // The expiry of versions finds open conversations that use one, and runs.
        ("sessions", doc! {"workflow_state.hash": 1, "closed_at": 1}, None),
        (RUNS, doc! {"hash": 1}, None),
        ("plan_cache", doc! {"workflow_id": 1, "hash": 1}, Some(unique)),
        ("workflows", doc! {"owner_session": 1, "used_at": -1}, None),
        // Only the plans of sessions have this field.
        ("workflows", doc! {"expires_at": 1}, Some(passing.clone())),
        ("workflow_versions", doc! {"expires_at": 1}, Some(passing)),
        // Only the plans of sessions have this field.
        ("workflow_versions", doc! {"owner_session": 1}, Some(of_sessions)),
        (RUNS, doc! {"user_id": 1}, Some(of_named)),
        ("knowledge", super::knowledge::listed(), None),
        ("turns", doc! {"expires_at": 1}, Some(expiring.clone())),
        ("steps", doc! {"expires_at": 1}, Some(expiring.clone())),
        (RUNS, doc! {"workflow_id": 1, "created_at": -1}, None),
        (RUNS, doc! {"status": 1, "created_at": -1}, None),
        (RUNS, doc! {"origin_session": 1, "created_at": -1}, None),
        (RUNS, doc! {"expires_at": 1}, Some(expiring.clone())),
        (DAYS, doc! {"expires_at": 1}, Some(expiring.clone())),
        (AUDIT, doc! {"expires_at": 1}, Some(expiring.clone())),
        (PROCESSES, doc! {"expires_at": 1}, Some(expiring)),
    ];
    indexes.extend(of_waiting);
    indexes.extend(super::authoring::indexes());
    indexes.extend(super::drafts::indexes());
    indexes.extend(super::handoffs::indexes());
    indexes
}

/// Sends a cheap command to the database `admin`. Fails with `Unavailable` when the server does not respond within 5 s.
pub async fn ask_admin(client: &Client, question: Document) -> Result<Document> {
    let admin = client.database("admin");
    match tokio::time::timeout(SELECTION_TIMEOUT, admin.run_command(question).into_future()).await {
        Ok(answer) => answer.map_err(failed),
        Err(_) => Err(StoreError::unavailable(format!("no response within {} s", SELECTION_TIMEOUT.as_secs()))),
    }
}
