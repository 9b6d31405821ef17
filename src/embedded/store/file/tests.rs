//! Tests of the file.

use super::*;
use redb::ReadableTable;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

#[tokio::test]
async fn a_file_has_one_process_and_can_be_opened_again_once_closed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data").join("turnwheel.redb");
    let file = EmbeddedFile::open(&path).unwrap();
    let again = EmbeddedFile::open(&path).unwrap_err().to_string();
    assert!(again.contains("turnwheel.redb is open in another process") && again.contains("turnwheel dev"), "{again}");
    file.write(|tables| Ok(tables.meta.insert("n", 7)?.map(|_| ()))).await.unwrap();
    drop(file);
    let file = EmbeddedFile::open(&path).unwrap();
    let n = file.read(|t| Ok(t.open_table(tables::META)?.get("n")?.map(|n| n.value()))).unwrap();
    assert_eq!(n, Some(7));
}

#[tokio::test]
async fn a_file_that_is_none_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("turnwheel.redb");
    std::fs::write(&path, "not a database").unwrap();
    let refused = EmbeddedFile::open(&path).unwrap_err().to_string();
    assert!(refused.contains("turnwheel.redb cannot be opened"), "{refused}");
}

#[tokio::test]
async fn what_arrives_during_a_commit_shares_the_next_one_in_order() {
    let file = EmbeddedFile::in_memory().unwrap();
    let writes = (0..500).map(|_| {
        file.write(|tables| {
            let n = tables.meta.get("n")?.map_or(0, |n| n.value()) + 1;
            tables.meta.insert("n", n)?;
            Ok(n)
        })
    });
    let mut seen = futures::future::try_join_all(writes).await.unwrap();
    seen.sort_unstable();
    assert_eq!(seen, (1..=500).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_operation_that_is_refused_does_not_harm_its_neighbours() {
    let file = EmbeddedFile::in_memory().unwrap();
    let (bad, good) = tokio::join!(
        file.write::<(), _>(|_| Err(FileFault::Refused("no".into()))),
        file.write(|tables| Ok(tables.meta.insert("n", 1)?.map(|_| ())))
    );
    assert!(matches!(bad, Err(FileFault::Refused(_))));
    good.unwrap();
    file.check().unwrap();
}

/// A disk that becomes full on demand.
#[derive(Debug)]
struct Disk {
    memory: redb::backends::InMemoryBackend,
    full: Arc<AtomicBool>,
}

impl Disk {
    fn check(&self) -> io::Result<()> {
        if self.full.load(Ordering::SeqCst) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl redb::StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        self.memory.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.memory.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check().and_then(|()| self.memory.set_len(len))
    }
    fn sync_data(&self) -> io::Result<()> {
        self.check().and_then(|()| self.memory.sync_data())
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check().and_then(|()| self.memory.write(offset, data))
    }
}

#[tokio::test]
async fn a_full_disk_fails_every_write_with_the_remedy_and_ends_the_process() {
    let full = Arc::new(AtomicBool::new(false));
    let disk = Disk { memory: redb::backends::InMemoryBackend::new(), full: Arc::clone(&full) };
    let file =
        EmbeddedFile::start(Path::new("turnwheel.redb"), Builder::new().create_with_backend(disk), Clock::system())
            .unwrap();
    let tasks = Tasks::new();
    file.stop_on_failure(&tasks);
    let put = |n: u64| file.write(move |tables| Ok(tables.meta.insert("n", n)?.map(|_| ())));
    put(1).await.unwrap();
    full.store(true, Ordering::SeqCst);
    for outcome in futures::future::join_all((2..20).map(put)).await {
        let fault = outcome.unwrap_err().to_string();
        assert!(fault.contains("turnwheel.redb cannot be written") && fault.contains("restart"), "{fault}");
    }
    let ended = tasks.failure().unwrap();
    assert!(tasks.stop_token().is_cancelled() && ended.contains("cannot be written"), "{ended}");
    full.store(false, Ordering::SeqCst);
    // Memory may be ahead of the file now, so nothing further is written.
    put(30).await.unwrap_err();
    file.check().unwrap_err();
}
