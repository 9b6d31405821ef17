//! The version of the schema: of the collections, the indexes, and the fields that every process relies on. The
//! collection `meta` has it under the id `schema`.
//!
//! A process that finds an older schema brings it up to date when it starts: every step of [`Db::migrate`] is safe while
//! older processes run. A process that finds a newer one works on with it if the record's `minimum` allows that.

use super::Db;
use super::connect::indexes;
use super::document::failed;
use bson::{Document, doc};
use mongodb::{Collection, Database, IndexModel};
use storage::store::{Result, StoreError};
use tracing::{info, warn};

/// The version of this program's schema. 1: the databases of versions that kept no record. 2: the record itself, and the
/// index on `sessions.format`. 3: `workflow_agent_states` with its validator and indexes.
pub const SCHEMA: i64 = 3;
/// The lowest version of the schema whose programs work with this one.
pub const MINIMUM: i64 = 1;

const COLLECTION: &str = "meta";
/// The id of the record.
const RECORD: &str = "schema";

/// The schema that a database has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSchema {
    /// Its version; 1 for a database without a record.
    pub version: i64,
    /// The lowest version of the schema whose programs work with it.
    pub minimum: i64,
    /// The version of Turnwheel that last migrated it; empty without a record.
    pub by: String,
}

/// How a schema compares with that of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The next process that starts migrates it.
    Older,
    /// It is that of this program.
    Current,
    /// A newer version migrated it, and this program works with it.
    NewerCompatible,
    /// A newer version migrated it, and this program does not work with it.
    NewerIncompatible,
}

impl FoundSchema {
    /// Reads the schema of a database.
    pub async fn read(database: &Database) -> Result<Self> {
        let found = collection(database).find_one(doc! {"_id": RECORD}).await.map_err(failed)?;
        Ok(found.map_or(Self { version: 1, minimum: 1, by: String::new() }, |found| Self::from_document(&found)))
    }

    fn from_document(found: &Document) -> Self {
        let number = |name: &str| found.get_i64(name).ok().or_else(|| found.get_i32(name).ok().map(i64::from));
        let version = number("version").unwrap_or(1);
        let by = found.get_str("by").unwrap_or_default().to_owned();
        // Without a minimum, only programs of that version are known to work.
        Self { version, minimum: number("minimum").unwrap_or(version), by }
    }

    /// Compares it with the schema of this program.
    pub fn standing(&self) -> Standing {
        match self.version.cmp(&SCHEMA) {
            std::cmp::Ordering::Less => Standing::Older,
            std::cmp::Ordering::Equal => Standing::Current,
            std::cmp::Ordering::Greater if self.minimum <= SCHEMA => Standing::NewerCompatible,
            std::cmp::Ordering::Greater => Standing::NewerIncompatible,
        }
    }

    /// Describes a newer schema.
    pub fn newer(&self, database: &str) -> String {
        let Self { version, minimum, by } = self;
        format!(
            "the database `{database}` has schema {version}, written by Turnwheel {by}; this is Turnwheel {own} with schema \
             {SCHEMA}, and the database needs at least {minimum}",
            own = env!("CARGO_PKG_VERSION"),
        )
    }
}

/// What to do about a newer schema that this program does not work with.
pub const UPGRADE_REMEDY: &str =
    "run the newer version of Turnwheel here, too, or restore the backup from before its upgrade";

impl Db {
    /// Brings the schema up to date. May be interrupted and repeated. Leaves a newer schema as it is, and fails with
    /// `Refused` if this program does not work with it.
    pub(super) async fn migrate(&self) -> Result<()> {
        let found = FoundSchema::read(&self.database).await?;
        let name = self.database.name();
        match found.standing() {
            Standing::NewerIncompatible => Err(StoreError::refused(format!("{}; {UPGRADE_REMEDY}", found.newer(name)))),
            Standing::NewerCompatible => {
                warn!(
                    "{}; this process works on, and leaves what only newer versions can read to them",
                    found.newer(name)
                );
                Ok(())
            }
            Standing::Current => self.ensure_indexes().await,
            Standing::Older => {
                self.ensure_indexes().await?;
                record(&self.database).await?;
                info!("the database `{name}` is migrated from schema {} to {SCHEMA}", found.version);
                Ok(())
            }
        }
    }
}

/// Migrates a database like a process that starts, and calls `progress` before each step. Returns the schema from before.
pub async fn migrate(database: &Database, mut progress: impl FnMut(String)) -> Result<FoundSchema> {
    let found = FoundSchema::read(database).await?;
    if !matches!(found.standing(), Standing::Older | Standing::Current) {
        return Ok(found);
    }
    progress("validator of workflow_agent_states".to_owned());
    super::authoring::ensure_validator(database).await?;
    let all = indexes();
    let count = all.len();
    for (number, (collection, keys, options)) in (1..).zip(all) {
        progress(format!("index {number} of {count}: {collection} {keys}"));
        let index = IndexModel::builder().keys(keys).options(options).build();
        database.collection::<Document>(collection).create_index(index).await.map_err(failed)?;
    }
    if found.standing() == Standing::Older {
        progress(format!("record of schema {SCHEMA}"));
        record(database).await?;
    }
    Ok(found)
}

/// Records this program's schema, unless a newer one is recorded.
async fn record(database: &Database) -> Result<()> {
    let fields = doc! {"version": SCHEMA, "minimum": MINIMUM, "by": env!("CARGO_PKG_VERSION")};
    let update = doc! {"$set": fields, "$currentDate": {"at": true}};
    let older = doc! {"_id": RECORD, "version": {"$not": {"$gte": SCHEMA}}};
    match collection(database).update_one(older, update).upsert(true).await.map_err(failed) {
        Ok(_) => Ok(()),
        // Another process has recorded it meanwhile: then the upsert is a duplicate.
        Err(error) => match FoundSchema::read(database).await?.standing() {
            Standing::Older => Err(error),
            _ => Ok(()),
        },
    }
}

fn collection(database: &Database) -> Collection<Document> {
    database.collection(COLLECTION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_schema_is_used_only_as_far_as_it_says() {
        let standing = |found: Document| FoundSchema::from_document(&found).standing();
        assert_eq!(standing(doc! {"version": 1}), Standing::Older);
        assert_eq!(standing(doc! {"version": SCHEMA, "minimum": MINIMUM}), Standing::Current);
        assert_eq!(standing(doc! {"version": SCHEMA + 1, "minimum": SCHEMA}), Standing::NewerCompatible);
        assert_eq!(standing(doc! {"version": SCHEMA + 2, "minimum": SCHEMA + 1}), Standing::NewerIncompatible);
        assert_eq!(standing(doc! {"version": SCHEMA + 1}), Standing::NewerIncompatible, "nothing is promised");
    }
}
