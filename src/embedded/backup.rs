//! Backups of a file that no process uses, and their restoration. A running process copies its file itself, with
//! [`EmbeddedFile::copy_file`].

use crate::store::{EmbeddedFile, FILE_NAME, LAYOUT, OpenError, finish, with_ending};
use base::error::SharedError;
use redb::{Database, DatabaseError};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use storage::backup::{Archive, BackupError, EMBEDDED_FILE, FileCopy, Result, Source};

/// The ending of the file that a restored one has replaced.
const FORMER: &str = ".before-restore";
/// The ending of a file that is not complete yet.
const INCOMPLETE: &str = ".incomplete";

/// Copies the file at `path`, which no process may have open.
pub fn copy(path: &Path) -> Result<FileCopy> {
    if !path.exists() {
        let problem = format!("there is nothing to back up: {} does not exist", path.display());
        let hint = "set data_dir to the folder of the file, as in --set data_dir=…, or set `backend = \"cluster\"`";
        return Err(BackupError::refused(problem, hint));
    }
    let file = EmbeddedFile::open(path).map_err(|error| match error {
        OpenError::InUse(_) => in_use(path),
        error => BackupError::backend("the file cannot be copied", error),
    })?;
    let copied = file.copy_file().map_err(|error| BackupError::backend("the file cannot be copied", error))?;
    copied.ok_or_else(|| BackupError::backend("the file cannot be copied", SharedError::from("it has no size")))
}

/// Restores the file of a backup to `path`. Refuses if there is a file, unless `force`; the former file is then kept
/// under the returned name. On a failure the former file stays.
pub fn restore(archive: &Archive, path: &Path, force: bool) -> Result<Option<PathBuf>> {
    archive.expect(Source::Embedded)?;
    if let Some(layout) = archive.manifest().layout.filter(|layout| *layout > LAYOUT) {
        let problem = format!(
            "the file in the backup has layout {layout}, and this version of turnwheel reads layouts up to {LAYOUT}"
        );
        let hint = format!("use turnwheel {} or later", archive.manifest().version);
        return Err(BackupError::refused(problem, hint));
    }
    let is_there = path.exists();
    if is_there {
        is_free(path)?;
        if !force {
            let problem = format!("{} exists already", path.display());
            let hint = "restore into another folder with --set data_dir=…, or replace the file with --force, which keeps \
                        it under another name";
            return Err(BackupError::refused(problem, hint));
        }
    }
    let incomplete = with_ending(path, INCOMPLETE);
    let extracted = extract(archive, &incomplete).and_then(|()| opens(&incomplete));
    if let Err(error) = extracted {
        let _ = fs::remove_file(&incomplete);
        return Err(error);
    }
    let former = with_ending(path, FORMER);
    if is_there {
        fs::rename(path, &former).map_err(|source| BackupError::file(&former, source))?;
    }
    finish(&incomplete, path).map_err(|error| BackupError::backend("the file cannot be moved to its place", error))?;
    Ok(is_there.then_some(former))
}

fn extract(archive: &Archive, target: &Path) -> Result<()> {
    let failed = |source| BackupError::file(target, source);
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder).map_err(|source| BackupError::file(folder, source))?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file: File = options.open(target).map_err(failed)?;
    io::copy(&mut archive.content(EMBEDDED_FILE)?, &mut file).map_err(failed)?;
    file.sync_all().map_err(failed)
}

/// Fails unless the file is a database.
fn opens(path: &Path) -> Result<()> {
    let opened = Database::open(path).map(drop);
    opened.map_err(|error| BackupError::backend(format!("the {FILE_NAME} of the backup cannot be opened"), error))
}

/// Fails if a process has the file open. A damaged file may be replaced.
fn is_free(path: &Path) -> Result<()> {
    match Database::open(path) {
        Err(DatabaseError::DatabaseAlreadyOpen) => Err(in_use(path)),
        _ => Ok(()),
    }
}

fn in_use(path: &Path) -> BackupError {
    let problem = format!("{} is open in another process, probably a running `turnwheel dev`", path.display());
    let hint = "stop that process; a backup of a running `dev` goes through its gateway, which has to respond";
    BackupError::refused(problem, hint)
}
