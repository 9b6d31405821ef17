//! The file, and the single thread that writes to it.
//!
//! Operations that arrive during a commit share the next one (group commit). So a busy engine needs one sync for
//! hundreds of operations, and an idle engine does not wait.

use super::fault::FileFault;
use super::first_failure::FirstFailure;
use super::open_error::OpenError;
use super::publisher::Publisher;
use super::tables::{self, Tables};
use super::{copy, migrate, pending_rows, rights};
use base::clock::Clock;
use base::error::SharedError;
use base::metrics::{metrics, observe_items};
use base::tasks::{Tasks, panic_text};
use prometheus::Histogram;
use redb::{Builder, Database, DatabaseError, Durability, ReadTransaction, ReadableDatabase};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use storage::backup::FileCopy;
use tokio::sync::oneshot;
use tracing::error;

/// The size of the page cache in bytes. The operating system caches the rest.
const CACHE_BYTES: usize = 64 * 1024 * 1024;
/// The largest number of operations in one commit, so that the first of them does not wait long.
const MAX_BATCH: usize = 2_048;
/// How long an operation without a waiting caller may wait for others.
const LAZY_WRITE_DELAY: Duration = Duration::from_millis(100);

/// Sends the outcome of a commit to the caller of one operation.
type Answer = Box<dyn FnOnce(Result<(), FileFault>) + Send>;
type Work = Box<dyn FnOnce(&mut Tables<'_>) -> Applied + Send>;

struct Applied {
    /// A storage error, which fails the whole batch: the tables may hold half of an operation.
    fatal: Option<FileFault>,
    answer: Answer,
}

struct Operation {
    work: Work,
    /// True when no caller waits for the operation.
    lazy: bool,
}

/// One file that holds the queue and the store of one process. A write is synced to disk before it returns.
pub struct EmbeddedFile {
    clock: Clock,
    database: Arc<Database>,
    operations: Mutex<Option<Sender<Operation>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    publisher: Mutex<Option<Arc<dyn Publisher>>>,
    broken: Arc<FirstFailure>,
    path: PathBuf,
    copying: Mutex<()>,
}

impl std::fmt::Debug for EmbeddedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedFile").field("broken", &self.broken.get()).finish_non_exhaustive()
    }
}

impl EmbeddedFile {
    /// Opens the file at `path`. Creates the file and its folder when they are missing, and migrates a file of an earlier
    /// layout.
    pub fn open(path: &Path) -> Result<Arc<Self>, OpenError> {
        Self::open_with(path, &mut |_| ())
    }

    /// Like [`Self::open`]. Calls `progress` with each part of a migration.
    pub fn open_with(path: &Path, progress: &mut dyn FnMut(&str)) -> Result<Arc<Self>, OpenError> {
        rights::prepare(path).map_err(|source| OpenError::Folder { path: path.to_owned(), source })?;
        let open = || Builder::new().set_cache_size(CACHE_BYTES).create(path);
        let unusable = |fault: FileFault| OpenError::unusable(path, fault);
        let database = match open() {
            Ok(database) => migrate::up_to_date(path, database, open, progress).map_err(unusable)?,
            failed => failed,
        };
        let database = match database {
            Ok(database) => copy::without_deleted(path, database, open).map_err(unusable)?,
            failed => failed,
        };
        Self::start(path, database, Clock::system())
    }

    /// Writes a copy of the committed state to `target`, synced, while the file is in use. Returns the size of the copy.
    /// Blocks for the time of the copy.
    pub fn copy_to(&self, target: &Path) -> Result<u64, FileFault> {
        copy::write(&self.database.begin_read()?, target)
    }

    /// Returns a copy of the committed state; `None` for a file in memory. Blocks for the time of the copy, and lets one
    /// caller copy at a time.
    pub fn copy_file(&self) -> Result<Option<FileCopy>, FileFault> {
        let _one = self.copying.lock().unwrap_or_else(PoisonError::into_inner);
        if self.bytes().is_none() { Ok(None) } else { copy::open(&self.database.begin_read()?, &self.path).map(Some) }
    }

    /// Creates a file in memory, for tests.
    pub fn in_memory() -> Result<Arc<Self>, OpenError> {
        Self::in_memory_by(Clock::system())
    }

    /// Creates a file in memory whose leases, deliveries and timers follow `clock`.
    pub fn in_memory_by(clock: Clock) -> Result<Arc<Self>, OpenError> {
        let backend = redb::backends::InMemoryBackend::new();
        let database = Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(backend);
        Self::start(Path::new("(memory)"), database, clock)
    }

    fn start(path: &Path, database: Result<Database, DatabaseError>, clock: Clock) -> Result<Arc<Self>, OpenError> {
        let unusable = |source: SharedError| OpenError::unusable(path, source);
        let database = Arc::new(database.map_err(|error| OpenError::from_database(path, error))?);
        let known = migrate::check(path, &database).map_err(|fault| unusable(fault.into()))?;
        known.map_err(|found| OpenError::Layout { path: path.to_owned(), found: found.layout })?;
        tables::prepare(&database).map_err(|fault| unusable(fault.into()))?;
        let (sender, receiver) = mpsc::channel();
        let broken = Arc::new(FirstFailure::from_path(path));
        let sizes = metrics().batch_size("file");
        let writer =
            Writer { database: Arc::clone(&database), broken: Arc::clone(&broken), clock: clock.clone(), sizes };
        // A thread and not a task, because syncing a file blocks. It ends when the last handle of the file is dropped.
        let writer = std::thread::Builder::new()
            .name("embedded-file".into())
            .spawn(move || writer.run_or_break(&receiver))
            .map_err(|error| unusable(error.into()))?;
        let (operations, writer) = (Mutex::new(Some(sender)), Mutex::new(Some(writer)));
        let (publisher, path, copying) = (Mutex::default(), path.to_owned(), Mutex::default());
        Ok(Arc::new(Self { clock, database, operations, writer, publisher, broken, path, copying }))
    }

    /// Makes a read or write failure of the file end these tasks, since nothing works without the file.
    pub fn stop_on_failure(&self, tasks: &Tasks) {
        self.broken.stop_on_failure(tasks);
    }

    /// The clock of queue and store.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Sets the queue to which commits publish their outboxes.
    pub(crate) fn set_publisher(&self, publisher: Arc<dyn Publisher>) {
        *self.publisher.lock().unwrap_or_else(PoisonError::into_inner) = Some(publisher);
    }

    /// The queue in this file, if it is opened.
    pub fn publisher(&self) -> Option<Arc<dyn Publisher>> {
        self.publisher.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs `work` on the tables and returns when its changes are on disk. `work` must not hold a handle of the file.
    /// When the caller drops the future, `work` still runs.
    pub async fn write<T, W>(&self, work: W) -> Result<T, FileFault>
    where
        T: Send + 'static,
        W: FnOnce(&mut Tables<'_>) -> Result<T, FileFault> + Send + 'static,
    {
        self.write_then(work, |_| ()).await
    }

    /// Like [`Self::write`]. Also runs `then` after the commit, in the order of the commits, even when the caller has
    /// dropped the future.
    pub async fn write_then<T, W, N>(&self, work: W, then: N) -> Result<T, FileFault>
    where
        T: Send + 'static,
        W: FnOnce(&mut Tables<'_>) -> Result<T, FileFault> + Send + 'static,
        N: FnOnce(&T) + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        self.send(false, work, move |outcome| {
            if let Ok(value) = &outcome {
                then(value);
            }
            // Sending fails only when the caller has dropped the future.
            let _ = answer.send(outcome);
        });
        answered.await.unwrap_or_else(|_| Err(self.fault()))
    }

    /// Runs `work` within [`LAZY_WRITE_DELAY`]. Its changes are lost when the process dies before.
    pub(crate) fn write_lazily<W>(&self, work: W)
    where
        W: FnOnce(&mut Tables<'_>) -> Result<(), FileFault> + Send + 'static,
    {
        self.send(true, work, |_| ());
    }

    fn send<T, W, A>(&self, lazy: bool, work: W, answer: A)
    where
        T: Send + 'static,
        W: FnOnce(&mut Tables<'_>) -> Result<T, FileFault> + Send + 'static,
        A: FnOnce(Result<T, FileFault>) + Send + 'static,
    {
        let work: Work = Box::new(move |tables| {
            let result = work(tables);
            let fatal = match &result {
                Err(fault @ FileFault::Storage(_)) => Some(fault.clone()),
                _ => None,
            };
            Applied { fatal, answer: Box::new(move |committed| answer(committed.and(result))) }
        });
        if let Some(operations) = &*self.operations.lock().unwrap_or_else(PoisonError::into_inner) {
            // Sending fails only when the writer has ended. The answer is then dropped, and the caller gets an error.
            let _ = operations.send(Operation { work, lazy });
        }
    }

    /// Reads the committed state.
    pub(crate) fn read<T>(&self, work: impl FnOnce(&ReadTransaction) -> Result<T, FileFault>) -> Result<T, FileFault> {
        let read = self.database.begin_read().map_err(FileFault::from).and_then(|read| work(&read));
        read.map_err(|fault| {
            if matches!(fault, FileFault::Storage(_)) { self.broken.record_failure("read", &fault) } else { fault }
        })
    }

    /// The size of the file in bytes; `None` for a file in memory.
    pub(crate) fn bytes(&self) -> Option<u64> {
        std::fs::metadata(&self.path).ok().map(|file| file.len())
    }

    /// Fails when reading or writing the file has failed before.
    pub(crate) fn check(&self) -> Result<(), FileFault> {
        if self.broken.get().is_some() { Err(self.fault()) } else { Ok(()) }
    }

    fn fault(&self) -> FileFault {
        FileFault::Storage(self.broken.get().cloned().unwrap_or_else(|| "the embedded file is closed".into()))
    }
}

impl Drop for EmbeddedFile {
    // Joins the writer, so that the file can be reopened as soon as its last handle is dropped.
    fn drop(&mut self) {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take()
            && writer.thread().id() != std::thread::current().id()
            && writer.join().is_err()
        {
            error!("the writer of the embedded file panicked");
        }
    }
}

struct Writer {
    database: Arc<Database>,
    broken: Arc<FirstFailure>,
    clock: Clock,
    sizes: Histogram,
}

impl Writer {
    /// Runs until the file is closed. A panic in the storage library counts as a failure of the file.
    fn run_or_break(self, operations: &Receiver<Operation>) {
        let broken = Arc::clone(&self.broken);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.run(operations))) {
            broken.record_failure("written", &FileFault::Storage(panic_text(panic.as_ref()).into()));
        }
    }

    fn run(self, operations: &Receiver<Operation>) {
        let mut batch: Vec<Operation> = Vec::new();
        loop {
            let next = if batch.is_empty() {
                operations.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                operations.recv_timeout(LAZY_WRITE_DELAY)
            };
            let mut hurry = match &next {
                Ok(operation) => !operation.lazy,
                Err(_) => true,
            };
            let ended = matches!(next, Err(RecvTimeoutError::Disconnected));
            batch.extend(next.ok());
            while batch.len() < MAX_BATCH
                && let Ok(operation) = operations.try_recv()
            {
                hurry |= !operation.lazy;
                batch.push(operation);
            }
            if hurry || batch.len() >= MAX_BATCH {
                self.commit(std::mem::take(&mut batch));
            }
            if ended {
                return;
            }
        }
    }

    fn commit(&self, batch: Vec<Operation>) {
        // After a failed write, memory and file may differ, so nothing is written until the process restarts.
        if batch.is_empty() || self.broken.get().is_some() {
            return;
        }
        observe_items(&self.sizes, batch.len());
        let mut answers = Vec::with_capacity(batch.len());
        // The failure drops the remaining operations at the end of this function. By then their callers can get its
        // reason.
        let mut batch = batch.into_iter();
        let outcome =
            self.transact(&mut batch, &mut answers).map_err(|fault| self.broken.record_failure("written", &fault));
        for answer in answers {
            answer(outcome.clone());
        }
    }

    fn transact(&self, batch: &mut std::vec::IntoIter<Operation>, answers: &mut Vec<Answer>) -> Result<(), FileFault> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut tables = Tables::open(&transaction, &self.clock)?;
            for operation in batch {
                let applied = (operation.work)(&mut tables);
                answers.push(applied.answer);
                if let Some(fault) = applied.fatal {
                    return Err(fault);
                }
            }
            pending_rows::write(&mut tables)?;
        }
        Ok(transaction.commit()?)
    }
}

#[cfg(test)]
mod tests;
