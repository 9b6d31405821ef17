//! The rights of the program's own files and folders on this machine.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The mode of a file: only its user reads and writes it.
pub const FILE: u32 = 0o600;
/// The mode of a folder: only its user enters it.
pub const FOLDER: u32 = 0o700;

/// Creates a folder, and those above it, for this user only. An existing one stays as it is.
pub fn create_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER).create(folder)
}

/// Writes a file that only this user can read, in place of one that exists.
pub fn write_private(path: &Path, content: &str) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(FILE).open(path)?.write_all(content.as_bytes())
}

/// The mode of a file or folder that other users of the machine may use; `None` if they may not, or it does not exist.
pub fn open_to_others(path: &Path) -> Option<u32> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then_some(mode)
}

/// The warning about such a file, with the remedy.
pub fn finding(path: &Path, mode: u32) -> String {
    let path = path.display();
    format!("other users of this machine may read the conversations in {path} (mode {mode:o}); run `chmod 600 {path}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_file_replaces_one_that_others_can_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dev.json");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(open_to_others(&path), Some(0o644));
        write_private(&path, "new").unwrap();
        assert_eq!(open_to_others(&path), None);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    }
}
