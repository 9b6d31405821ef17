//! Migration of files of earlier layouts.
//!
//! The rows go to a new file, which then takes the place of the old one. So a migration that is interrupted leaves the
//! old file, and the next start begins again. The old file is kept next to the new one, for a return to the old version.

use super::copy::{self, INCOMPLETE, with_ending};
use super::fault::FileFault;
use super::layout_1;
use super::open_error::OpenError;
use super::rights;
use super::tables::{self, LAYOUT, META};
use redb::{Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, TableError};
use std::path::{Path, PathBuf};
use tracing::{info, warn};

/// The name in the table `meta` of the lowest layout whose programs can use the file.
const MINIMUM_NAME: &str = "layout_minimum";
/// That layout for files of this version.
const MINIMUM: u64 = 2;

/// The layout of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLayout {
    /// Its number.
    pub layout: u64,
    /// The lowest layout whose programs can use the file.
    pub minimum: u64,
}

impl FoundLayout {
    /// Reads the layout of a file without changing it; `None` for a file without tables.
    fn read(database: &Database) -> Result<Option<Self>, FileFault> {
        let read = database.begin_read()?;
        let meta = match read.open_table(META) {
            Ok(meta) => meta,
            Err(TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let number = |name| Ok::<_, FileFault>(meta.get(name)?.map(|number| number.value()));
        // The first layout had no entry.
        let layout = number(tables::LAYOUT_NAME)?.unwrap_or(1);
        // Without a minimum, only programs of that layout are known to work.
        Ok(Some(Self { layout, minimum: number(MINIMUM_NAME)?.unwrap_or(layout) }))
    }

    /// True when this program migrates the file before it uses it.
    pub const fn is_older(&self) -> bool {
        self.layout < LAYOUT
    }

    /// True when only a newer program can use the file.
    pub const fn is_too_new(&self) -> bool {
        self.layout > LAYOUT && self.minimum > LAYOUT
    }
}

/// The layout that this program writes.
pub const CURRENT_LAYOUT: u64 = LAYOUT;

/// Reads the layout of the file at `path`; `None` when there is no file, or it is empty.
pub fn found(path: &Path) -> Result<Option<FoundLayout>, OpenError> {
    if !path.exists() {
        return Ok(None);
    }
    let database = Database::open(path).map_err(|error| OpenError::from_database(path, error))?;
    FoundLayout::read(&database).map_err(|fault| OpenError::unusable(path, fault))
}

/// The place of a file of an earlier layout once it is migrated.
pub fn kept_path(path: &Path, layout: u64) -> PathBuf {
    with_ending(path, &format!(".layout-{layout}"))
}

/// Migrates the file if its layout is older, and calls `progress` before each table. Returns the open database.
pub(super) fn up_to_date(
    path: &Path,
    database: Database,
    open: impl Fn() -> Result<Database, DatabaseError>,
    progress: &mut dyn FnMut(&str),
) -> Result<Result<Database, DatabaseError>, FileFault> {
    let Some(found) = FoundLayout::read(&database)?.filter(FoundLayout::is_older) else { return Ok(Ok(database)) };
    let kept = kept_path(path, found.layout);
    info!("migrating {} from layout {} to {LAYOUT}", path.display(), found.layout);
    let incomplete = with_ending(path, INCOMPLETE);
    let _ = std::fs::remove_file(&incomplete);
    fill(&database, &incomplete, progress)?;
    drop(database);
    keep(path, &kept)?;
    copy::finish(&incomplete, path)?;
    info!("{} has layout {LAYOUT} now; the file from before is {}", path.display(), kept.display());
    Ok(open())
}

fn fill(from: &Database, path: &Path, progress: &mut dyn FnMut(&str)) -> Result<(), FileFault> {
    rights::create_file(path).map_err(|error| copy::failed(path, error))?;
    let to = Database::create(path).map_err(|error| copy::failed(path, error))?;
    let mut transaction = to.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    layout_1::convert(&from.begin_read()?, &transaction, progress)?;
    {
        let mut meta = transaction.open_table(META)?;
        meta.insert(tables::LAYOUT_NAME, LAYOUT)?;
        meta.insert(MINIMUM_NAME, MINIMUM)?;
    }
    Ok(transaction.commit()?)
}

/// Gives the old file a second name, under which it stays.
fn keep(path: &Path, kept: &Path) -> Result<(), FileFault> {
    let _ = std::fs::remove_file(kept);
    // Not every file system has hard links.
    let linked = std::fs::hard_link(path, kept).or_else(|_| std::fs::copy(path, kept).map(drop));
    linked.map_err(|error| copy::failed(kept, error))
}

/// Checks the layout of an open file, and records that of a new one. Fails with the layout when only a newer program can
/// use the file.
pub(super) fn check(path: &Path, database: &Database) -> Result<Result<(), FoundLayout>, FileFault> {
    let transaction = database.begin_write()?;
    {
        let mut meta = transaction.open_table(META)?;
        if meta.first()?.is_none() {
            meta.insert(tables::LAYOUT_NAME, LAYOUT)?;
            meta.insert(MINIMUM_NAME, MINIMUM)?;
        }
    }
    transaction.commit()?;
    let Some(found) = FoundLayout::read(database)? else { return Ok(Ok(())) };
    if found.is_too_new() || found.is_older() {
        return Ok(Err(found));
    }
    if found.layout > LAYOUT {
        let (path, layout) = (path.display(), found.layout);
        warn!("{path} has layout {layout} of a newer version of Turnwheel; this one uses it as layout {LAYOUT}");
    }
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::EmbeddedQueue;
    use crate::store::tables::{DEAD, JOBS, STEPS, TIMERS, Text};
    use crate::store::{EmbeddedFile, EmbeddedStore};
    use base::config::Settings;
    use base::tasks::Tasks;
    use futures::StreamExt;
    use redb::WriteTransaction;
    use serde_json::json;
    use std::time::Duration;
    use storage::queue::{From, Queue};
    use storage::store::Store;

    const AT: i64 = 1_700_000_000_000;
    const TIME: &str = "2099-01-01T00:00:00.000Z";

    /// Writes a file as a version with the first layout left it: a session with two entries, a turn with a step, a
    /// pending timer, a job that waits, an event and a dead letter.
    fn write_first_layout(path: &Path) {
        let database = Database::create(path).unwrap();
        let transaction = database.begin_write().unwrap();
        fill_first_layout(&transaction);
        transaction.commit().unwrap();
    }

    fn fill_first_layout(transaction: &WriteTransaction) {
        let meta = [("jobs_created", AT.unsigned_abs()), ("jobs_last", 7), ("events_last", 4), ("dead_last", 1)];
        for (name, number) in meta {
            transaction.open_table(META).unwrap().insert(name, number).unwrap();
        }
        let session = json!({
            "session_id": "s1", "kind": "chat", "agent_id": "sales", "user_id": "u1", "channel": "web", "epoch": 3,
            "pending_seq": 0, "last_seq": 6, "workflow_state": {"status": "ready", "hash": "h", "need_greeting": false},
            "history": [], "timer_generation": 1, "recent_jobs": ["m-1"], "created_at": TIME, "updated_at": TIME,
            "timers": [{"timer_id": "t-1", "generation": 1, "name": "hello", "due_at": TIME}],
        });
        let session = session.to_string();
        transaction.open_table(layout_1::SESSIONS).unwrap().insert("s1", (AT, 3, session.as_bytes())).unwrap();
        for (number, role, text) in [(5, "user", "你好"), (6, "assistant", "您好")] {
            let entry = json!({"role": role, "text": text, "at": TIME, "turn_id": "m-1"}).to_string();
            transaction.open_table(layout_1::HISTORY).unwrap().insert(("s1", number), entry.as_bytes()).unwrap();
        }
        let job = json!({"type": "user_message", "session_id": "s1", "job_id": "m-1", "text": "你好"});
        let turn = json!({
            "session_id": "s1", "turn_id": "m-1", "job": job, "statuses": [], "outcome": "answered", "reason": null,
            "attempts": 1, "started_at": TIME, "committed_at": TIME, "hash": "h",
        });
        transaction
            .open_table(layout_1::TURNS)
            .unwrap()
            .insert(("s1", "m-1"), (AT, turn.to_string().as_bytes()))
            .unwrap();
        transaction.open_table(layout_1::TURN_AGES).unwrap().insert((AT, "s1", "m-1"), ()).unwrap();
        let step = json!({
            "key": "1/decide", "kind": "decide", "target": "", "input_hash": "h", "output": {"a": 1}, "ok": true, "ms": 5,
            "at": TIME,
        });
        let step = step.to_string();
        transaction.open_table(STEPS).unwrap().insert(("s1", "m-1", "1/decide"), step.as_bytes()).unwrap();
        transaction.open_table(TIMERS).unwrap().insert((AT, "s1", "t-1"), ()).unwrap();
        let waiting = json!({"type": "user_message", "session_id": "s1", "job_id": "m-2", "text": "在吗"}).to_string();
        let id: Option<Text> = Some("m-2");
        transaction.open_table(JOBS).unwrap().insert(7, (AT, "s1", id, waiting.as_bytes())).unwrap();
        transaction.open_table(layout_1::JOB_IDS).unwrap().insert(7, (AT, "m-2")).unwrap();
        let (now, event) = (base::clock::now().as_millis(), &b"{\"text\":\"x\"}"[..]);
        transaction.open_table(layout_1::EVENTS).unwrap().insert(4, ("web", "reply", event)).unwrap();
        transaction.open_table(layout_1::EVENT_INDEX).unwrap().insert(4, (now, "s1", None)).unwrap();
        let headers = json!({"Tw-Cause": "invalid", "Tw-Reason": "bad", "Tw-Subject": "tw.jobs.s1", "Tw-Attempts": 1})
            .to_string();
        transaction.open_table(DEAD).unwrap().insert(1, (AT, "d-1", headers.as_bytes(), &b"x"[..])).unwrap();
    }

    #[tokio::test]
    async fn a_file_of_the_first_layout_is_migrated_with_all_that_it_holds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("turnwheel.redb");
        write_first_layout(&path);
        assert_eq!(found(&path).unwrap(), Some(FoundLayout { layout: 1, minimum: 1 }));
        // The file of an interrupted migration is replaced.
        std::fs::write(with_ending(&path, INCOMPLETE), "half").unwrap();
        let mut parts = Vec::new();
        let file = EmbeddedFile::open_with(&path, &mut |part| parts.push(part.to_owned())).unwrap();
        assert!(parts.len() > 3, "{parts:?}");
        let (settings, tasks) = (Settings::default(), Tasks::new());
        let store = EmbeddedStore::new(std::sync::Arc::clone(&file), &settings).unwrap();
        let queue = EmbeddedQueue::new(file, &settings, &tasks).await.unwrap();

        let session = store.session("s1").await.unwrap().unwrap();
        let said: Vec<_> = session.history.iter().map(|entry| entry.text.as_str()).collect();
        assert_eq!((said, session.last_seq, session.timers.len()), (vec!["你好", "您好"], 6, 1));
        assert_eq!(store.turn("s1", "m-1").await.unwrap().unwrap().attempts, 1);
        assert_eq!(store.steps("s1", "m-1").await.unwrap()[0].output, json!({"a": 1}));
        let pulled = queue.pull(10, Duration::from_secs(5)).await.unwrap();
        assert_eq!(pulled.iter().map(|one| one.message.job().unwrap().job_id).collect::<Vec<_>>(), ["m-2"]);
        let event = queue.events("s1", From::After(0)).await.unwrap().next().await.unwrap().unwrap();
        assert_eq!((event.seq, &event.payload[..]), (4, &b"{\"text\":\"x\"}"[..]));
        let letters = queue.dead_letters(0, 10).await.unwrap();
        assert_eq!(letters.iter().map(|kept| kept.letter.reason.as_str()).collect::<Vec<_>>(), ["bad"]);
        tasks.shutdown(Duration::from_secs(5)).await;
        drop((store, queue));

        let kept = kept_path(&path, 1);
        assert_eq!(found(&kept).unwrap(), Some(FoundLayout { layout: 1, minimum: 1 }), "the file from before");
        assert_eq!(found(&path).unwrap(), Some(FoundLayout { layout: LAYOUT, minimum: MINIMUM }));
    }

    fn set_meta(path: &Path, name: &str, number: u64) {
        let database = Database::open(path).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction.open_table(META).unwrap().insert(name, number).unwrap();
        transaction.commit().unwrap();
    }

    #[test]
    fn a_file_of_a_newer_layout_is_used_if_it_says_so_and_is_otherwise_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("turnwheel.redb");
        drop(EmbeddedFile::open(&path).unwrap());
        set_meta(&path, tables::LAYOUT_NAME, LAYOUT + 1);
        let file = EmbeddedFile::open(&path).unwrap();
        let copied = file.copy_to(&folder.path().join("copy")).unwrap_err().to_string();
        assert!(copied.contains("layout 3"), "it may have tables that a copy would lose: {copied}");
        drop(file);
        set_meta(&path, MINIMUM_NAME, LAYOUT + 1);
        for _ in 0..2 {
            let refused = EmbeddedFile::open(&path).unwrap_err().to_string();
            assert!(refused.contains("layout 3") && refused.contains("newer version"), "{refused}");
        }
        let left = FoundLayout { layout: LAYOUT + 1, minimum: LAYOUT + 1 };
        assert_eq!(found(&path).unwrap(), Some(left));
    }
}
