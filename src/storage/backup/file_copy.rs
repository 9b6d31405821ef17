//! A copy of the embedded file.

use super::{ArchiveWriter, EMBEDDED_FILE, Manifest, Result};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// A consistent copy of the file that holds queue and store. It has no name, and vanishes when
/// it is closed.
#[derive(Debug)]
pub struct FileCopy {
    /// The copy, opened for reading.
    pub file: File,
    /// Its size.
    pub bytes: u64,
    /// Has the time of the copy.
    pub manifest: Manifest,
}

impl FileCopy {
    /// Writes an archive with the copy to `target`; `path` is its name in errors. Blocks for that time.
    pub fn save<W: Write>(self, target: W, path: &Path) -> Result<(Manifest, W)> {
        let mut archive = ArchiveWriter::new(target, path, self.manifest);
        archive.append(EMBEDDED_FILE, self.bytes, self.file)?;
        archive.finish()
    }
}
