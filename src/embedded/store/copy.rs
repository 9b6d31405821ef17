//! Copies of the whole file: for backups, and to leave deleted data behind.
//!
//! A database file keeps the bytes of deleted rows in free pages until it reuses these. A copy has only the rows.

use super::erasure::ERASED;
use super::fault::FileFault;
use super::rights;
use super::tables::{self, LAYOUT, META};
use base::error::SharedError;
use redb::{Database, DatabaseError, Durability, ReadTransaction, ReadableDatabase, TableError};
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use storage::backup::{FileCopy, Manifest, Source};
use tracing::info;

/// The ending of a copy that is not complete yet.
pub(super) const INCOMPLETE: &str = ".incomplete";
/// The ending of a copy for a backup.
const COPY: &str = ".copy";

/// Writes a copy of the committed state to `target`, synced. Replaces a file there, and only by a complete copy.
pub(super) fn write(read: &ReadTransaction, target: &Path) -> Result<u64, FileFault> {
    let layout = read.open_table(META)?.get(tables::LAYOUT_NAME)?.map_or(LAYOUT, |layout| layout.value());
    if layout > LAYOUT {
        // It may have tables that this version does not know.
        let reason = format!("the file has layout {layout} of a newer version of turnwheel; copy it with that version");
        return Err(FileFault::Refused(reason.into()));
    }
    let incomplete = with_ending(target, INCOMPLETE);
    let _ = std::fs::remove_file(&incomplete);
    let copied = fill(read, &incomplete).and_then(|()| finish(&incomplete, target));
    if copied.is_err() {
        let _ = std::fs::remove_file(&incomplete);
    }
    copied
}

/// Writes a copy next to `path`, opens it and removes its name: the copy vanishes when it is closed.
pub(super) fn open(read: &ReadTransaction, path: &Path) -> Result<FileCopy, FileFault> {
    // The name has no time: the next copy replaces one that a killed process left.
    let target = with_ending(path, COPY);
    let manifest = Manifest::begin(Source::Embedded, "", Some(LAYOUT));
    let bytes = write(read, &target)?;
    let file = File::open(&target).map_err(|error| failed(&target, error));
    std::fs::remove_file(&target).map_err(|error| failed(&target, error))?;
    Ok(FileCopy { file: file?, bytes, manifest })
}

fn fill(read: &ReadTransaction, path: &Path) -> Result<(), FileFault> {
    rights::create_file(path).map_err(|error| failed(path, error))?;
    let copy = Database::create(path).map_err(|error| failed(path, error))?;
    let mut transaction = copy.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    tables::copy_all(read, &transaction)?;
    transaction.open_table(META)?.remove(ERASED)?;
    Ok(transaction.commit()?)
}

/// Moves a complete file to its place, so that a crash leaves the old file or the new one. Returns its size.
pub fn finish(complete: &Path, target: &Path) -> Result<u64, FileFault> {
    let moved = File::open(complete).and_then(|file| {
        file.sync_all()?;
        std::fs::rename(complete, target)?;
        // The rename is durable with the folder.
        File::open(target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")))?
            .sync_all()?;
        Ok(file.metadata()?.len())
    });
    moved.map_err(|error| failed(target, error))
}

/// Writes the file again if data was deleted from it since it was last written, and this version can read it.
pub(super) fn without_deleted(
    path: &Path,
    database: Database,
    open: impl Fn() -> Result<Database, DatabaseError>,
) -> Result<Result<Database, DatabaseError>, FileFault> {
    let read = database.begin_read()?;
    let meta = match read.open_table(META) {
        Ok(meta) => meta,
        Err(TableError::TableDoesNotExist(_)) => return Ok(Ok(database)),
        Err(error) => return Err(error.into()),
    };
    let layout = meta.get(tables::LAYOUT_NAME)?.map(|layout| layout.value());
    if meta.get(ERASED)?.is_none() || layout != Some(LAYOUT) {
        return Ok(Ok(database));
    }
    info!("writing {} again, without the data that was deleted from it", path.display());
    write(&read, path)?;
    drop((meta, read, database));
    Ok(open())
}

/// The path with an ending added to its name.
pub fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

pub(super) fn failed(path: &Path, error: impl Into<SharedError>) -> FileFault {
    let error = error.into();
    FileFault::Refused(SharedError::explained(format!("{} cannot be written: {error}", path.display()), error))
}
