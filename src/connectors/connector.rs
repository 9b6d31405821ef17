//! One connector: a database with its limits.

use crate::driver::{Driver, Examined, Limits};
use crate::error::{ConnectorError, ErrorKind};
use crate::rows::Rows;
use crate::statement::Query;
use crate::url::DatabaseUrl;
use base::config::mask::Masker;
use base::config::{self, ConnectorKind, Environment};
use base::metrics::{GaugeGuard, metrics};
use base::tasks::Tasks;
use moka::future::Cache;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use types::duration;

/// How long the tables of a description are kept.
const TABLES_KEPT: Duration = Duration::from_secs(60);
/// How long a description waits for the tables.
const TABLES_TIMEOUT: Duration = Duration::from_secs(5);
/// The most columns of all tables in a description.
const MAX_COLUMNS: u64 = 500;

/// A database of the settings.
pub struct Connector {
    name: String,
    settings: config::Connector,
    /// The driver, or the error that kept it from being made.
    driver: Result<Box<dyn Driver>, ConnectorError>,
    masker: Masker,
    tables: Cache<(), Option<Arc<Vec<Table>>>>,
}

/// A table with its columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The name, with its schema if that is not the default one.
    pub name: String,
    /// The names of the columns.
    pub columns: Vec<String>,
}

/// A connector in a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The name.
    pub name: String,
    /// The dialect of its SQL.
    pub kind: ConnectorKind,
    /// True if it refuses writes.
    pub read_only: bool,
    /// The tables; `None` if the database does not respond.
    pub tables: Option<Arc<Vec<Table>>>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("name", &self.name).field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Connector {
    pub(crate) fn new(name: &str, settings: &config::Connector, env: &Environment, tasks: Tasks) -> Self {
        let url = DatabaseUrl::read(name, settings, env);
        let masker = url.as_ref().map(DatabaseUrl::masker).unwrap_or_default();
        let opened = url.and_then(|url| open(settings.kind, &url, settings.read_only, tasks));
        let driver = opened.map_err(|error| masked(&masker, name, error));
        let tables = Cache::builder().max_capacity(1).time_to_live(TABLES_KEPT).build();
        Self { name: name.to_owned(), settings: settings.clone(), driver, masker, tables }
    }

    /// The name in the settings.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True if it refuses writes.
    pub fn is_read_only(&self) -> bool {
        self.settings.read_only
    }

    /// Executes one statement. Dropping the future breaks the statement off.
    pub async fn run(&self, query: &Query) -> Result<Rows, ConnectorError> {
        let _running = GaugeGuard::increment(&metrics().statements_running);
        let ended = self.execute(query).await;
        metrics().statement(ended.as_ref().map_or_else(ConnectorError::code, |_| "ok"));
        ended.map_err(|error| masked(&self.masker, &self.name, error))
    }

    async fn execute(&self, query: &Query) -> Result<Rows, ConnectorError> {
        let config::Connector { kind, read_only, max_rows, timeout, .. } = &self.settings;
        let driver = self.driver.as_ref().map_err(ConnectorError::clone)?;
        let bound = query.bound(*kind, *read_only)?;
        let limits = Limits {
            max_rows: query.max_rows.unwrap_or(*max_rows).min(*max_rows),
            timeout: query.timeout.unwrap_or(timeout.0).min(timeout.0),
        };
        // The time of a server, which no clock of a test moves.
        tokio::time::timeout(limits.timeout, driver.run(&bound, limits)).await.unwrap_or_else(|_| {
            let message = format!(
                "the statement took longer than {}; select less, or raise the timeout of the node or `connectors.{}.timeout`",
                duration::format(limits.timeout),
                self.name
            );
            Err(ConnectorError::new(ErrorKind::Timeout, message))
        })
    }

    /// Connects and checks whether the server enforces `read_only`.
    pub async fn examine(&self) -> Result<Examined, ConnectorError> {
        let examined = match &self.driver {
            Ok(driver) => driver.examine().await,
            Err(error) => return Err(error.clone()),
        };
        examined.map_err(|error| masked(&self.masker, &self.name, error))
    }

    /// The description for a prompt. The tables are kept for a minute, and so is a failure to read them.
    pub async fn describe(&self) -> Description {
        let tables = self.tables.get_with((), async { self.read_tables().await.ok() }).await;
        let (name, kind, read_only) = (self.name.clone(), self.settings.kind, self.settings.read_only);
        Description { name, kind, read_only, tables }
    }

    async fn read_tables(&self) -> Result<Arc<Vec<Table>>, ConnectorError> {
        let driver = self.driver.as_ref().map_err(ConnectorError::clone)?;
        let bound = Query::text(driver.tables()).bound(self.settings.kind, true)?;
        let limits = Limits { max_rows: MAX_COLUMNS, timeout: TABLES_TIMEOUT };
        let unavailable = || ConnectorError::new(ErrorKind::Timeout, "no tables in time");
        let asked = tokio::time::timeout(TABLES_TIMEOUT, driver.run(&bound, limits)).await;
        Ok(Arc::new(tables(&asked.map_err(|_| unavailable())??)))
    }
}

/// The driver of a kind.
fn open(
    kind: ConnectorKind,
    url: &DatabaseUrl,
    read_only: bool,
    tasks: Tasks,
) -> Result<Box<dyn Driver>, ConnectorError> {
    match kind {
        #[cfg(feature = "sqlite")]
        ConnectorKind::Sqlite => Ok(Box::new(crate::sqlite::Sqlite::new(url, read_only, tasks))),
        #[cfg(feature = "postgres")]
        ConnectorKind::Postgres => Ok(Box::new(crate::postgres::Postgres::new(url, read_only, tasks)?)),
        #[cfg(feature = "mysql")]
        ConnectorKind::Mysql => Ok(Box::new(crate::mysql::Mysql::new(url, read_only, tasks)?)),
        #[allow(unreachable_patterns, reason = "a build with all kinds has no others")]
        other => {
            let _ = (url, read_only, tasks);
            let message = format!(
                "this program was built without connectors of the kind `{other}`; build it with the cargo feature `{other}`"
            );
            Err(ConnectorError::new(ErrorKind::Unknown, message))
        }
    }
}

/// The rows of the statement of [`Driver::tables`] as tables.
fn tables(rows: &Rows) -> Vec<Table> {
    let mut found: Vec<Table> = Vec::new();
    for row in &rows.data {
        let text = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (name, column) = (text("name"), text("field"));
        match found.last_mut().filter(|last| last.name == name) {
            Some(last) => last.columns.push(column),
            None => found.push(Table { name, columns: vec![column] }),
        }
    }
    found
}

/// The error with the connector's name and without secrets.
fn masked(masker: &Masker, name: &str, error: ConnectorError) -> ConnectorError {
    let ConnectorError { kind, message, transient } = error;
    let message = masker.mask(&message);
    let message =
        if message.contains(&format!("`{name}`")) { message } else { format!("connector `{name}`: {message}") };
    ConnectorError { kind, message, transient }
}

impl fmt::Display for Description {
    /// Name, dialect and tables in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = if self.read_only { "read-only" } else { "may write" };
        write!(f, "`{}` ({}, {mode})", self.name, self.kind)?;
        let Some(tables) = self.tables.as_ref().filter(|tables| !tables.is_empty()) else { return Ok(()) };
        let table = |table: &Table| format!("{}({})", table.name, table.columns.join(", "));
        write!(f, ": {}", tables.iter().map(table).collect::<Vec<_>>().join("; "))
    }
}
