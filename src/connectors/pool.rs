//! The few connections of a connector. They are opened when a statement needs one, and closed when they were idle.

use crate::error::{ConnectorError, ErrorKind};
use async_trait::async_trait;
use base::tasks::{OnPanic, Tasks};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The most connections of one connector in a process.
const MAX_CONNECTIONS: usize = 4;
/// How long an unused connection stays open.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a database may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens and tests connections.
#[async_trait]
pub(crate) trait Opener: Send + Sync + 'static {
    /// A connection. Dropping it closes it.
    type Connection: Send;

    async fn open(&self) -> Result<Self::Connection, ConnectorError>;

    /// True if the connection still works.
    async fn is_alive(&self, connection: &mut Self::Connection) -> bool;
}

/// The connections of one connector.
pub(crate) struct Pool<O: Opener> {
    pub(crate) opener: O,
    permits: Semaphore,
    idle: Mutex<Vec<(O::Connection, Instant)>>,
    sweeping: AtomicBool,
    tasks: Tasks,
}

/// A connection in use. It is closed unless [`Lease::keep`] is called: after an error, a timeout or a cancellation it may
/// still execute a statement.
pub(crate) struct Lease<'p, O: Opener> {
    pub(crate) connection: O::Connection,
    pool: &'p Arc<Pool<O>>,
    _permit: Option<SemaphorePermit<'p>>,
}

impl<O: Opener> Pool<O> {
    pub(crate) fn new(opener: O, tasks: Tasks) -> Arc<Self> {
        let (permits, idle, sweeping) = (Semaphore::new(MAX_CONNECTIONS), Mutex::default(), AtomicBool::new(false));
        Arc::new(Self { opener, permits, idle, sweeping, tasks })
    }

    /// A connection. Waits while [`MAX_CONNECTIONS`] are in use.
    pub(crate) async fn lease(self: &Arc<Self>) -> Result<Lease<'_, O>, ConnectorError> {
        // The semaphore is never closed.
        let permit = self.permits.acquire().await.ok();
        loop {
            let idle = self.idle().pop();
            let Some((mut connection, _)) = idle else { break };
            if self.opener.is_alive(&mut connection).await {
                return Ok(Lease { connection, pool: self, _permit: permit });
            }
        }
        let opened = tokio::time::timeout(CONNECT_TIMEOUT, self.opener.open()).await.unwrap_or_else(|_| {
            let message = format!("the database has accepted no connection within {} s", CONNECT_TIMEOUT.as_secs());
            Err(ConnectorError::new(ErrorKind::Connection, message))
        });
        Ok(Lease { connection: opened?, pool: self, _permit: permit })
    }

    fn give_back(self: &Arc<Self>, connection: O::Connection) {
        self.idle().push((connection, Instant::now()));
        if self.sweeping.swap(true, Ordering::AcqRel) {
            return;
        }
        let pool = Arc::clone(self);
        self.tasks.spawn("connector-idle", OnPanic::Log, async move { pool.sweep().await });
    }

    /// Closes idle connections after their timeout. Returns when no idle connection remains.
    async fn sweep(&self) {
        let stop = self.tasks.stop_token();
        loop {
            tokio::select! {
                () = stop.cancelled() => {
                    self.idle().clear();
                    return;
                }
                () = tokio::time::sleep(IDLE_TIMEOUT / 4) => {}
            }
            let mut idle = self.idle();
            idle.retain(|(_, since)| since.elapsed() < IDLE_TIMEOUT);
            if idle.is_empty() {
                // Under the lock, so that the next returned connection finds it unset.
                self.sweeping.store(false, Ordering::Release);
                return;
            }
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(O::Connection, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<O: Opener> Lease<'_, O> {
    /// Keeps the connection for other statements.
    pub(crate) fn keep(self) {
        self.pool.give_back(self.connection);
    }
}
