//! Writing an archive.

use super::{BackupError, Entry, MANIFEST, Manifest, Result};
use sha2::{Digest, Sha256};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use tar::{Builder, Header};

/// Documents are collected until they have this size, and then written as one entry.
const CHUNK_BYTES: usize = 4 * 1024 * 1024;

/// Writes an archive. Without [`ArchiveWriter::finish`] the archive has no manifest, and readers treat it as
/// incomplete.
pub struct ArchiveWriter<W: Write> {
    archive: Builder<W>,
    manifest: Manifest,
    /// The archive, as errors name it.
    path: PathBuf,
}

impl<W: Write> ArchiveWriter<W> {
    /// Begins an archive. `path` is its name in errors.
    pub fn new(target: W, path: &Path, manifest: Manifest) -> Self {
        Self { archive: Builder::new(target), manifest, path: path.to_owned() }
    }

    /// The manifest, whose fields can be changed until the end.
    pub fn manifest(&mut self) -> &mut Manifest {
        &mut self.manifest
    }

    /// Writes an entry of `bytes` bytes.
    pub fn append(&mut self, name: &str, bytes: u64, content: impl Read) -> Result<()> {
        let mut header = self.header(bytes);
        let mut hashed = Hashed { inner: content, hash: Sha256::new(), bytes: 0 };
        self.archive
            .append_data(&mut header, name, &mut hashed)
            .map_err(|source| BackupError::file(&self.path, source))?;
        if hashed.bytes != bytes {
            let problem = format!("the entry {name} has {} bytes instead of {bytes}", hashed.bytes);
            return Err(BackupError::Damaged { path: self.path.clone(), problem });
        }
        let sha256 = hex(&hashed.hash.finalize());
        self.manifest.entries.push(Entry { name: name.to_owned(), bytes, sha256 });
        Ok(())
    }

    /// Writes the manifest, and returns it with the target.
    pub fn finish(mut self) -> Result<(Manifest, W)> {
        self.manifest.completed_at = base::clock::now();
        let failed = |source: io::Error| BackupError::file(&self.path, source);
        let mut text = serde_json::to_vec_pretty(&self.manifest).map_err(|error| failed(error.into()))?;
        text.push(b'\n');
        let mut header = self.header(text.len() as u64);
        self.archive.append_data(&mut header, MANIFEST, text.as_slice()).map_err(failed)?;
        let target = self.archive.into_inner().map_err(failed)?;
        Ok((self.manifest, target))
    }

    fn header(&self, bytes: u64) -> Header {
        let mut header = Header::new_gnu();
        header.set_size(bytes);
        // The archive contains messages of users, so only this user may read it.
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(self.manifest.started_at.as_millis() / 1_000).unwrap_or(0));
        header
    }
}

/// Collects documents of one kind for an archive, in entries `<name>/000001`, `<name>/000002`, ….
pub struct Chunks {
    name: String,
    number: u32,
    buffer: Vec<u8>,
    count: u64,
}

impl Chunks {
    /// No documents yet. `name` is that of the folder in the archive; its last part names the count in the manifest.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), number: 0, buffer: Vec::new(), count: 0 }
    }

    /// Adds an encoded document.
    pub fn push<W: Write>(&mut self, archive: &mut ArchiveWriter<W>, document: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(document);
        self.count += 1;
        if self.buffer.len() >= CHUNK_BYTES { self.flush(archive) } else { Ok(()) }
    }

    /// The number of documents so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Writes the rest, and the count into the manifest.
    pub fn finish<W: Write>(mut self, archive: &mut ArchiveWriter<W>) -> Result<u64> {
        if !self.buffer.is_empty() {
            self.flush(archive)?;
        }
        archive.manifest().counts.insert(self.name, self.count);
        Ok(self.count)
    }

    fn flush<W: Write>(&mut self, archive: &mut ArchiveWriter<W>) -> Result<()> {
        self.number += 1;
        let name = format!("{}/{:06}", self.name, self.number);
        archive.append(&name, self.buffer.len() as u64, self.buffer.as_slice())?;
        self.buffer.clear();
        Ok(())
    }
}

/// Computes the checksum of the written bytes.
pub(super) struct Hashed<R> {
    pub(super) inner: R,
    pub(super) hash: Sha256,
    pub(super) bytes: u64,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hash.update(buffer.get(..read).unwrap_or_default());
        self.bytes += read as u64;
        Ok(read)
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a text does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
