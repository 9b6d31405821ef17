//! Reading an archive.

use super::writer::{Hashed, hex};
use super::{BackupError, Entry, FORMAT, MANIFEST, Manifest, Result, Source};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Take};
use std::path::{Path, PathBuf};

/// The largest manifest that is read.
const MAX_MANIFEST: u64 = 256 * 1024 * 1024;

/// An archive that is complete, and whose entries have the checksums of its manifest.
#[derive(Debug)]
pub struct Archive {
    path: PathBuf,
    manifest: Manifest,
    /// Where the content of each entry begins.
    places: HashMap<String, u64>,
}

/// An entry as it is in the file.
struct Found {
    place: u64,
    bytes: u64,
    sha256: String,
}

impl Archive {
    /// Opens an archive and reads all of it. Fails with [`BackupError::Damaged`] unless it is complete and unchanged.
    /// Blocks for that time.
    pub fn open(path: &Path) -> Result<Self> {
        let damaged = |problem: String| BackupError::Damaged { path: path.to_owned(), problem };
        let file = File::open(path).map_err(|source| BackupError::file(path, source))?;
        let mut archive = tar::Archive::new(BufReader::with_capacity(1 << 20, file));
        let broken = |error: io::Error| damaged(format!("it is no tar archive, or is cut off ({error})"));
        let (mut found, mut manifest) = (HashMap::new(), None);
        for entry in archive.entries().map_err(broken)? {
            let mut entry = entry.map_err(broken)?;
            let name = entry.path().map_err(broken)?.to_string_lossy().into_owned();
            if name == MANIFEST {
                let mut text = Vec::new();
                entry.by_ref().take(MAX_MANIFEST).read_to_end(&mut text).map_err(broken)?;
                manifest = Some(text);
                continue;
            }
            let (place, bytes) = (entry.raw_file_position(), entry.size());
            let mut hashed = Hashed { inner: entry, hash: Sha256::new(), bytes: 0 };
            let read = io::copy(&mut hashed, &mut io::sink()).map_err(broken)?;
            if read != bytes {
                return Err(damaged(format!("the entry {name} is cut off")));
            }
            found.insert(name, Found { place, bytes, sha256: hex(&hashed.hash.finalize()) });
        }
        let text = manifest.ok_or_else(|| {
            damaged(format!("it has no {MANIFEST}, which is written last: the backup was interrupted"))
        })?;
        let manifest = Self::read_manifest(&text).map_err(damaged)?;
        let places = Self::compare(&manifest, &found).map_err(damaged)?;
        Ok(Self { path: path.to_owned(), manifest, places })
    }

    fn read_manifest(text: &[u8]) -> std::result::Result<Manifest, String> {
        #[derive(serde::Deserialize)]
        struct Head {
            format: u32,
            version: String,
        }
        let unreadable = |error: serde_json::Error| format!("its {MANIFEST} cannot be read: {error}");
        let Head { format, version } = serde_json::from_slice(text).map_err(unreadable)?;
        if format > FORMAT {
            return Err(format!(
                "it has the form {format}, and this version of turnwheel reads forms up to {FORMAT}; use version \
                 {version} or later"
            ));
        }
        serde_json::from_slice(text).map_err(unreadable)
    }

    fn compare(
        manifest: &Manifest,
        found: &HashMap<String, Found>,
    ) -> std::result::Result<HashMap<String, u64>, String> {
        let place = |Entry { name, bytes, sha256 }: &Entry| match found.get(name) {
            None => Err(format!("the entry {name} is missing")),
            Some(entry) if entry.bytes != *bytes || entry.sha256 != *sha256 => {
                Err(format!("the entry {name} does not have its checksum"))
            }
            Some(entry) => Ok((name.clone(), entry.place)),
        };
        manifest.entries.iter().map(place).collect()
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The path of the archive.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fails unless the backup was made of this backend.
    pub fn expect(&self, wanted: Source) -> Result<()> {
        let found = self.manifest.backend;
        if found == wanted {
            return Ok(());
        }
        let problem = format!(
            "{} is a backup of the {} backend, and the settings name the {} backend",
            self.path.display(),
            found.as_str(),
            wanted.as_str()
        );
        let hint = format!(
            "set `backend = \"{}\"` (`turnwheel config` shows the settings); a backup of one backend cannot be restored \
             to the other",
            found.as_str()
        );
        Err(BackupError::refused(problem, hint))
    }

    /// The entries of a folder, in their order.
    pub fn folder(&self, name: &str) -> Vec<&Entry> {
        let is_inside = |entry: &&Entry| entry.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
        self.manifest.entries.iter().filter(is_inside).collect()
    }

    /// The content of an entry.
    pub fn content(&self, name: &str) -> Result<Take<File>> {
        let missing = || BackupError::Damaged { path: self.path.clone(), problem: format!("it has no entry {name}") };
        let entry = self.manifest.entries.iter().find(|entry| entry.name == name).ok_or_else(missing)?;
        let place = self.places.get(name).ok_or_else(missing)?;
        let failed = |source| BackupError::file(&self.path, source);
        let mut file = File::open(&self.path).map_err(failed)?;
        file.seek(SeekFrom::Start(*place)).map_err(failed)?;
        Ok(file.take(entry.bytes))
    }

    /// The content of an entry, as bytes.
    pub fn bytes(&self, name: &str) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.content(name)?.read_to_end(&mut bytes).map_err(|source| BackupError::file(&self.path, source))?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::writer::{ArchiveWriter, Chunks};
    use super::*;

    fn written(path: &Path) -> Manifest {
        let file = File::create(path).unwrap();
        let mut archive = ArchiveWriter::new(file, path, Manifest::begin(Source::Cluster, "tw", None));
        archive.append("turnwheel.redb", 3, b"abc".as_slice()).unwrap();
        let mut chunks = Chunks::new("mongodb/sessions");
        for _ in 0..3 {
            chunks.push(&mut archive, &vec![7; 3 << 20]).unwrap();
        }
        assert_eq!(chunks.finish(&mut archive).unwrap(), 3);
        archive.finish().unwrap().0
    }

    #[test]
    fn what_was_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.tar");
        let manifest = written(&path);
        let archive = Archive::open(&path).unwrap();
        assert_eq!(archive.manifest(), &manifest);
        assert_eq!(archive.bytes("turnwheel.redb").unwrap(), b"abc");
        let chunks = archive.folder("mongodb/sessions");
        let sizes: Vec<u64> = chunks.iter().map(|entry| entry.bytes).collect();
        assert_eq!(sizes, [6 << 20, 3 << 20]);
        assert!(archive.bytes(&chunks[1].name).unwrap().iter().all(|byte| *byte == 7));
        assert_eq!(manifest.counts["mongodb/sessions"], 3);
        let other = archive.expect(Source::Embedded).unwrap_err();
        assert!(other.to_string().contains("backup of the cluster backend"), "{other}");
    }

    #[test]
    fn a_file_that_is_cut_off_or_changed_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.tar");
        written(&path);
        let whole = std::fs::read(&path).unwrap();
        let refused = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Archive::open(&path).unwrap_err().to_string()
        };
        for length in [0, 100, 700, 5 << 20, whole.len() - 4_096] {
            let problem = refused(&whole[..length]);
            assert!(problem.contains("is not a complete backup"), "{length}: {problem}");
        }
        let mut changed = whole.clone();
        changed[4 << 20] = 8;
        let problem = refused(&changed);
        assert!(problem.contains("sessions/000001 does not have its checksum"), "{problem}");
        let problem = refused(b"something else, which is no archive");
        assert!(problem.contains("is not a complete backup"), "{problem}");
        let text = String::from_utf8_lossy(&whole).replace("\"format\": 1", "\"format\": 9");
        assert_eq!(text.len(), whole.len());
        let problem = refused(text.as_bytes());
        assert!(problem.contains("form 9"), "{problem}");
    }
}
