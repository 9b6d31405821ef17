//! Checks of MongoDB: connection, version, replica set, journal, old versions of documents, indexes, clock, and the
//! scheduler's leadership.

use super::authoring::{partial_filter, validation};
use super::initiate::{is_uninitiated, not_initiated, uninitiated};
use super::{Finding, in_time, version};
use base::clock;
use base::config::Settings;
use base::config::secrets::masked_address;
use bson::{Bson, Document, doc};
use cluster::mongo::connect::{HISTORY_WINDOW, ask_admin, client, indexes, unused_preference};
use cluster::mongo::meta;
use cluster::mongo::schema::{FoundSchema, SCHEMA, Standing, UPGRADE_REMEDY};
use futures::TryStreamExt;
use mongodb::options::IndexOptions;
use mongodb::{Client, Database, IndexModel};
use std::time::{Duration, Instant};
use types::format;
use types::timestamp::Timestamp;

/// The oldest version that has all commands in use.
const MIN_VERSION: (u32, u32) = (5, 0);
/// The differences between the clocks that are worth advice, and that delay the takeover of lanes.
const NOTABLE_SKEW: Duration = Duration::from_millis(500);
const HARMFUL_SKEW: Duration = Duration::from_secs(5);

/// The largest number of sessions that are counted.
const MAX_COUNTED: u64 = 10_000;

/// Runs all checks of MongoDB. Also returns whether all indexes exist.
pub(super) async fn examine(settings: &Settings) -> (Vec<Finding>, bool) {
    let place = format!("mongodb.uri = {}", masked_address(&settings.mongodb.uri));
    let opened = async {
        let client = client(settings).await?;
        let (begun, sent) = (Instant::now(), clock::now());
        let hello = ask_admin(&client, doc! {"hello": 1}).await?;
        let middle = sent.plus(begun.elapsed() / 2);
        Ok::<_, storage::store::StoreError>((client, hello, middle))
    };
    let (client, hello, here) = match in_time(opened).await {
        Ok(opened) => opened,
        Err(_) if uninitiated(settings).await => return (vec![not_initiated(&place)], false),
        Err(error) => {
            let remedy = "start mongod as a replica set, or correct mongodb.uri (MONGODB_URI)";
            return (vec![Finding::problem(place, error, remedy)], false);
        }
    };
    if is_uninitiated(&hello) {
        return (vec![not_initiated(&place)], false);
    }
    let mut findings = vec![build(&client, &place).await];
    findings.extend(replica_set(&client, &hello).await);
    findings.push(storage(&client).await);
    findings.extend(history(&client).await);
    findings.extend(clocks(&hello, here));
    findings.extend(preference(settings).await);
    let database = client.database(&settings.mongodb.database);
    if let Some(foreign) = foreign(settings, &database).await {
        findings.push(foreign);
        return (findings, false);
    }
    let (of_schema, usable) = schema(&database).await;
    findings.extend(of_schema);
    if !usable {
        return (findings, false);
    }
    let (of_indexes, complete) = index_findings(&database, &settings.mongodb.database).await;
    findings.extend(of_indexes);
    findings.extend(validation(&database).await);
    if complete {
        findings.push(leader(&database, &hello).await);
    }
    (findings, complete)
}

/// Advises against a read preference in `mongodb.uri`. The store reads only from the primary, since a secondary may lag
/// behind a write.
async fn preference(settings: &Settings) -> Option<Finding> {
    let preference = unused_preference(settings).await?;
    let what = format!("mongodb.uri asks for readPreference={preference}, which is ignored: reads go to the primary");
    Some(Finding::advice("reads", what, "remove readPreference from mongodb.uri"))
}

/// Reports a database that belongs to another namespace.
async fn foreign(settings: &Settings, database: &Database) -> Option<Finding> {
    let owner = in_time(meta::owner(database)).await.ok()??;
    if owner == settings.namespace {
        return None;
    }
    let remedy = format!("set mongodb.database to a database of its own, or namespace to `{owner}`");
    Some(Finding::problem(&settings.mongodb.database, meta::foreign(settings, &owner), remedy))
}

/// Checks the schema, and counts the sessions of newer versions. Also returns whether this version works with it.
async fn schema(database: &Database) -> (Vec<Finding>, bool) {
    let (name, place) = (database.name(), "schema");
    let found = match in_time(FoundSchema::read(database)).await {
        Ok(found) => found,
        Err(error) => return (vec![Finding::unknown(place, "its version", &error)], true),
    };
    let version = found.version;
    let mut findings = vec![match found.standing() {
        Standing::Current => Finding::ok(place, format!("version {version}")),
        Standing::Older => {
            let what =
                format!("the database `{name}` has schema {version}, and this version of Turnwheel has {SCHEMA}");
            Finding::advice(place, what, "the next process that starts migrates it; `turnwheel migrate` does so now")
        }
        Standing::NewerCompatible => {
            Finding::advice(place, found.newer(name), "finish the upgrade; this version works meanwhile")
        }
        Standing::NewerIncompatible => {
            return (vec![Finding::problem(place, found.newer(name), UPGRADE_REMEDY)], false);
        }
    }];
    let newer = doc! {"format": {"$gt": i64::from(format::current())}};
    let sessions = database.collection::<Document>("sessions");
    match in_time(async { sessions.count_documents(newer).limit(MAX_COUNTED).await }).await {
        Ok(0) => {}
        Ok(count) => {
            let what = format!(
                "{count} sessions have a format above {}: their messages wait for workers, and their timers for a \
                 scheduler, of the newer version",
                format::current()
            );
            findings.push(Finding::advice("newer sessions", what, "finish the upgrade, or start such processes again"));
        }
        Err(error) => findings.push(Finding::unknown("newer sessions", "they", &error)),
    }
    (findings, true)
}

async fn build(client: &Client, place: &str) -> Finding {
    match ask_admin(client, doc! {"buildInfo": 1}).await {
        Ok(build) => {
            let found = build.get_str("version").unwrap_or("?");
            if version(found) < MIN_VERSION {
                let (major, minor) = MIN_VERSION;
                let what = format!("mongod {found} is older than {major}.{minor}");
                return Finding::problem(place, what, format!("upgrade MongoDB to {major}.{minor} or newer"));
            }
            Finding::ok(place, format!("mongod {found} responds"))
        }
        Err(error) => Finding::unknown(place, "the version", &error),
    }
}

/// Checks the replica set. Turnwheel writes with `w: majority, j: true` whatever the URI says; the configuration of the
/// set decides how durable such a write is.
async fn replica_set(client: &Client, hello: &Document) -> Vec<Finding> {
    let place = "replica set";
    let Ok(name) = hello.get_str("setName") else {
        let what = "this mongod is not a member of a replica set: it refuses majority writes";
        let remedy = "start it with `--replSet rs0`, then `turnwheel doctor --initiate` once; one member is enough";
        return vec![Finding::problem(place, what, remedy)];
    };
    let count = |field: &str| hello.get_array(field).map_or(0, Vec::len);
    let (hosts, arbiters) = (count("hosts"), count("arbiters"));
    let mut findings = Vec::new();
    if hosts < 3 {
        let what = format!("`{name}` has {hosts} member(s) with data: the failure of one stops all writes");
        findings.push(Finding::advice(place, what, "run three members on machines that do not fail together"));
    }
    if arbiters > 0 {
        let what = format!("`{name}` has {arbiters} arbiter(s): an acknowledged write can be lost");
        findings.push(Finding::advice(place, what, "replace arbiters by members with data"));
    }
    match ask_admin(client, doc! {"replSetGetConfig": 1}).await {
        Ok(answer) => {
            let config = answer.get_document("config").cloned().unwrap_or_default();
            if !config.get_bool("writeConcernMajorityJournalDefault").unwrap_or(true) {
                let what = "writeConcernMajorityJournalDefault is false: a majority may hold a write in memory only";
                let remedy = "set it to true with rs.reconfig(), after replacing in-memory members";
                findings.push(Finding::problem(place, what, remedy));
            }
        }
        Err(error) => findings.push(Finding::unknown(place, "its configuration", &error)),
    }
    if findings.is_empty() {
        findings.push(Finding::ok(place, format!("`{name}` has {hosts} members; writes are durable by majority")));
    }
    findings
}

async fn storage(client: &Client) -> Finding {
    let place = "storage engine";
    match ask_admin(client, doc! {"serverStatus": 1, "repl": 0, "metrics": 0, "locks": 0}).await {
        Ok(status) => {
            let engine = status.get_document("storageEngine").cloned().unwrap_or_default();
            let name = engine.get_str("name").unwrap_or("?");
            if engine.get_bool("persistent").unwrap_or(true) {
                return Finding::ok(
                    place,
                    format!("{name}, with a journal: writes are synced before the acknowledgement"),
                );
            }
            let what = format!("{name} stores nothing on disk");
            Finding::problem(place, what, "start mongod with wiredTiger")
        }
        Err(error) => Finding::unknown(place, "it", &error),
    }
}

/// Advises against old versions of documents, since Turnwheel never reads at a past time. `None` when the server does
/// not report the parameter.
async fn history(client: &Client) -> Option<Finding> {
    let answer = ask_admin(client, doc! {"getParameter": 1, HISTORY_WINDOW: 1}).await.ok()?;
    let seconds = answer.get_i32(HISTORY_WINDOW).ok()?;
    let place = "old versions";
    if seconds == 0 {
        return Some(Finding::ok(place, "mongod keeps none"));
    }
    let what =
        format!("mongod keeps versions of documents for {seconds} s, which costs it time and which nothing here reads");
    let remedy = format!("start it with `--setParameter {HISTORY_WINDOW}=0`, unless another application needs them");
    Some(Finding::advice(place, what, remedy))
}

fn clocks(hello: &Document, here: Timestamp) -> Option<Finding> {
    let there = Timestamp::from_millis(hello.get_datetime("localTime").ok()?.timestamp_millis());
    let apart = here.until(there).max(there.until(here));
    let place = "clocks";
    if apart < NOTABLE_SKEW {
        return Some(Finding::ok(place, format!("this machine and MongoDB are {} ms apart", apart.as_millis())));
    }
    let what = format!("this machine and MongoDB are {:.1} s apart", apart.as_secs_f64());
    let remedy =
        "synchronize both with NTP; leases and timers follow MongoDB's clock, times in logs and turns this machine's";
    Some(if apart < HARMFUL_SKEW {
        Finding::advice(place, what, remedy)
    } else {
        Finding::problem(place, what, remedy)
    })
}

async fn index_findings(database: &Database, name: &str) -> (Vec<Finding>, bool) {
    let (mut findings, mut missing) = (Vec::new(), Vec::new());
    for (collection, keys, options) in indexes() {
        let found = in_time(existing(database, collection)).await;
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                findings.push(Finding::unknown(&format!("{name}.{collection}"), "the indexes", &error));
                continue;
            }
        };
        let shown = named(&keys);
        match found.into_iter().find(|index| named(&index.keys) == shown) {
            None => missing.push(format!("{collection} ({shown})")),
            Some(index) if !alike(index.options.as_ref(), options.as_ref()) => {
                let what = format!("the index ({shown}) has the wrong options");
                let remedy =
                    format!("drop it (`db.{collection}.dropIndex`); the next process that starts creates it again");
                findings.push(Finding::problem(format!("{name}.{collection}"), what, remedy));
            }
            Some(_) => {}
        }
    }
    if !missing.is_empty() {
        let what = format!("missing indexes: {}", missing.join(", "));
        findings.push(Finding::advice(name, what, "the first worker, scheduler or gateway creates them"));
    } else if findings.is_empty() {
        findings.push(Finding::ok(name, "all indexes exist"));
    }
    (findings, missing.is_empty())
}

/// Lists the indexes of a collection. Empty when the collection does not exist.
async fn existing(database: &Database, collection: &str) -> Result<Vec<IndexModel>, mongodb::error::Error> {
    let names = database.list_collection_names().await?;
    if !names.iter().any(|name| name == collection) {
        return Ok(Vec::new());
    }
    database.collection::<Document>(collection).list_indexes().await?.try_collect().await
}

/// Formats index keys as text, independent of the number types.
fn named(keys: &Document) -> String {
    let number = |value: &Bson| match value {
        Bson::Int32(number) => f64::from(*number),
        Bson::Double(number) => *number,
        #[allow(clippy::cast_precision_loss, reason = "1 or -1")]
        Bson::Int64(number) => *number as f64,
        _ => 0.0,
    };
    let keys: Vec<_> = keys.iter().map(|(key, value)| format!("{key}: {}", number(value))).collect();
    keys.join(", ")
}

fn alike(found: Option<&IndexOptions>, wanted: Option<&IndexOptions>) -> bool {
    let shown = |options: Option<&IndexOptions>| {
        options.map_or((false, false, None), |options| {
            (options.unique.unwrap_or(false), options.sparse.unwrap_or(false), options.expire_after)
        })
    };
    shown(found) == shown(wanted) && partial_filter(found) == partial_filter(wanted)
}

async fn leader(database: &Database, hello: &Document) -> Finding {
    let place = "scheduler";
    let leaders = database.collection::<Document>("leaders");
    let found = in_time(async { leaders.find_one(doc! {"_id": "scheduler"}).await }).await;
    let now = hello.get_datetime("localTime").ok().copied();
    match found {
        Ok(Some(leader)) if leader.get_datetime("until").ok().copied() > now => {
            Finding::ok(place, format!("{} leads", leader.get_str("owner").unwrap_or("one")))
        }
        Ok(_) => {
            let remedy = "start `turnwheel scheduler`, and a second one that stands by";
            Finding::problem(place, "no scheduler leads: no timer fires, and no abandoned lane is woken", remedy)
        }
        Err(error) => Finding::unknown(place, "the leader", &error),
    }
}
