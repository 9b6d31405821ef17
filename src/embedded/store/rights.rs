//! The rights of the file and its folder. The file holds conversations, so only the user of the process may read it.

use base::config::rights::{self, open_to_others};
use std::fs::{OpenOptions, Permissions, set_permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use tracing::{info, warn};

/// The names that a folder of this program has.
const OWN_NAMES: [&str; 2] = ["turnwheel.redb", "dev.json"];

/// Creates the folder and the file where they are missing, for this user only. An earlier version created them for all
/// users: a folder that has nothing but our files is closed to the others, and another one is named in the log.
pub(super) fn prepare(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        rights::create_folder(folder)?;
        close(folder, path);
    }
    // If it cannot be created, opening it fails with the same error.
    let _ = create_file(path);
    Ok(())
}

/// Creates an empty file for this user only. Does nothing if it exists.
pub(super) fn create_file(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(rights::FILE).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => created.map(|_| ()),
    }
}

fn close(folder: &Path, path: &Path) {
    let Some(mode) = open_to_others(folder) else { return };
    let is_ours = |name: &str| OWN_NAMES.iter().any(|own| name.starts_with(own));
    let mut names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let has_file = path.exists();
    if has_file && names.all(|name| name.to_str().is_some_and(is_ours)) {
        match set_permissions(folder, Permissions::from_mode(rights::FOLDER)) {
            Ok(()) => info!("closed {} to other users of this machine, because it has conversations", folder.display()),
            Err(error) => warn!("{} is open to other users (mode {mode:o}): {error}", folder.display()),
        }
    } else if let Some(mode) = open_to_others(path) {
        warn!("{}", rights::finding(path, mode));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_created_is_for_this_user_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/turnwheel.redb");
        prepare(&path).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        prepare(&path).unwrap();
    }

    #[test]
    fn a_folder_of_an_earlier_version_is_closed_and_one_with_other_files_is_left_alone() {
        for (other, expected) in [(None, 0o700), (Some("notes.txt"), 0o755)] {
            let dir = tempfile::tempdir().unwrap();
            let folder = dir.path().join("data");
            fs::create_dir(&folder).unwrap();
            let path = folder.join("turnwheel.redb");
            fs::write(&path, "").unwrap();
            other.map(|name| fs::write(folder.join(name), ""));
            set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
            prepare(&path).unwrap();
            assert_eq!(mode(&folder), expected, "{other:?}");
        }
    }
}
