//! Files of SQLite. Each connection has a thread of its own, which the driver starts and ends.

use crate::driver::{Driver, Examined, Limits, collect, count};
use crate::error::{ConnectorError, ErrorKind};
use crate::json;
use crate::pool::{Opener, Pool};
use crate::rows::Rows;
use crate::statement::Bound;
use crate::url::DatabaseUrl;
use async_trait::async_trait;
use base::tasks::Tasks;
use serde_json::Value;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{
    Arguments, AssertSqlSafe, Column, ConnectOptions, Connection, Executor, Row, SqlSafeStr, Statement, TypeInfo,
    ValueRef,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a statement waits for a lock of another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The instructions of SQLite's machine between two looks at the flag that breaks a statement off.
const INSTRUCTIONS: i32 = 10_000;
/// The prepared statements that a connection keeps.
const KEPT_STATEMENTS: usize = 16;

/// Result codes of SQLite: the lowest byte of an extended code.
const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const READONLY: i32 = 8;
const INTERRUPT: i32 = 9;
const CANTOPEN: i32 = 14;
const NOTADB: i32 = 26;

pub(crate) struct Sqlite {
    pool: Arc<Pool<SqliteFile>>,
}

struct SqliteFile {
    path: PathBuf,
    options: SqliteConnectOptions,
    read_only: bool,
}

/// Breaks a statement off when it is dropped, unless [`Interrupt::disarm`] was called: its thread sees the flag and stops.
/// Otherwise a statement without end would keep its thread.
struct Interrupt(Option<Arc<AtomicBool>>);

impl Interrupt {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        if let Some(flag) = &self.0 {
            flag.store(true, Ordering::Release);
        }
    }
}

impl Sqlite {
    pub(crate) fn new(url: &DatabaseUrl, read_only: bool, tasks: Tasks) -> Self {
        let path = PathBuf::from(url.path());
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .create_if_missing(false)
            .read_only(read_only)
            .busy_timeout(BUSY_TIMEOUT)
            .statement_cache_capacity(KEPT_STATEMENTS)
            // The schema of the file may be written by others, so its functions must not have side effects.
            .pragma("trusted_schema", "OFF")
            .disable_statement_logging();
        let options = if read_only { options.pragma("query_only", "ON") } else { options };
        Self { pool: Pool::new(SqliteFile { path, options, read_only }, tasks) }
    }
}

#[async_trait]
impl Opener for SqliteFile {
    type Connection = SqliteConnection;

    async fn open(&self) -> Result<SqliteConnection, ConnectorError> {
        self.options.connect().await.map_err(failed)
    }

    async fn is_alive(&self, connection: &mut SqliteConnection) -> bool {
        // After a removal the open connections would still show the old content.
        self.path.exists() && connection.ping().await.is_ok()
    }
}

#[async_trait]
impl Driver for Sqlite {
    async fn run(&self, statement: &Bound, limits: Limits) -> Result<Rows, ConnectorError> {
        let mut lease = self.pool.lease().await?;
        let flag = Arc::new(AtomicBool::new(false));
        let interrupt = Interrupt(Some(Arc::clone(&flag)));
        let mut handle = lease.connection.lock_handle().await.map_err(failed)?;
        handle.set_progress_handler(INSTRUCTIONS, move || !flag.load(Ordering::Acquire));
        drop(handle);
        let rows = execute(&mut lease.connection, statement, limits).await?;
        // After a truncated result the thread may still compute further rows.
        if !rows.truncated {
            interrupt.disarm();
            lease.keep();
        }
        Ok(rows)
    }

    async fn examine(&self) -> Result<Examined, ConnectorError> {
        let mut lease = self.pool.lease().await?;
        let connection = &mut lease.connection;
        let row = connection.fetch_one(sqlx::raw_sql("SELECT sqlite_version()")).await.map_err(failed)?;
        let version: String = row.try_get(0).map_err(failed)?;
        let enforces_read_only = if self.pool.opener.read_only {
            // The connection is closed afterwards, which rolls back.
            let write = sqlx::raw_sql("BEGIN; CREATE TABLE turnwheel_examined (a)");
            let written = connection.execute(write).await.map_err(failed);
            Some(written.is_err_and(|error| error.kind == ErrorKind::ReadOnly))
        } else {
            None
        };
        Ok(Examined { version: format!("SQLite {version}"), enforces_read_only, advice: None })
    }

    fn tables(&self) -> &'static str {
        r"SELECT m.name AS name, p.name AS field FROM sqlite_schema AS m JOIN pragma_table_info(m.name) AS p
          WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY m.name, p.cid"
    }
}

async fn execute(connection: &mut SqliteConnection, statement: &Bound, limits: Limits) -> Result<Rows, ConnectorError> {
    let sql = AssertSqlSafe(statement.sql.clone()).into_sql_str();
    let prepared = connection.prepare(sql).await.map_err(failed)?;
    statement.check_count(count(prepared.parameters()))?;
    let mut arguments = SqliteArguments::default();
    for value in &statement.values {
        let added = match value {
            Value::Null => arguments.add(None::<String>),
            Value::Bool(truth) => arguments.add(*truth),
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(whole), _) => arguments.add(whole),
                (None, Some(float)) => arguments.add(float),
                (None, None) => arguments.add(number.to_string()),
            },
            Value::String(_) | Value::Array(_) | Value::Object(_) => arguments.add(json::as_text(value)),
        };
        added.map_err(|error| ConnectorError::database(error.to_string()))?;
    }
    let stream = connection.fetch_many(prepared.query_with(arguments));
    let has_columns = !prepared.columns().is_empty();
    collect::<sqlx::Sqlite>(stream, limits.max_rows, has_columns, |done| done.rows_affected(), values, failed).await
}

fn values(row: &SqliteRow) -> Result<Vec<Value>, ConnectorError> {
    (0..row.columns().len()).map(|at| value(row, at).map_err(failed)).collect()
}

/// The value of a cell. Its own type decides, since columns of SQLite accept values of all types; the declared type tells
/// truth values and JSON.
fn value(row: &SqliteRow, at: usize) -> Result<Value, sqlx::Error> {
    let cell = row.try_get_raw(at)?;
    if cell.is_null() {
        return Ok(Value::Null);
    }
    let declared = row.columns()[at].type_info().name().to_owned();
    Ok(match cell.type_info().name() {
        "INTEGER" => match row.try_get_unchecked::<i64, _>(at)? {
            truth @ (0 | 1) if declared == "BOOLEAN" => Value::Bool(truth == 1),
            number => number.into(),
        },
        "REAL" => json::float(row.try_get_unchecked(at)?),
        "BLOB" => json::bytes(row.try_get_unchecked(at)?),
        _ => json::text(row.try_get_unchecked(at)?),
    })
}

fn failed(error: sqlx::Error) -> ConnectorError {
    let error = ConnectorError::of_driver(error, |error| {
        let code = error.code().and_then(|code| code.parse::<i32>().ok()).unwrap_or(0) & 0xff;
        match code {
            READONLY => (ErrorKind::ReadOnly, false),
            INTERRUPT => (ErrorKind::Timeout, true),
            CANTOPEN => (ErrorKind::Connection, true),
            NOTADB => (ErrorKind::Connection, false),
            BUSY | LOCKED => (ErrorKind::Database, true),
            _ => (ErrorKind::Database, false),
        }
    });
    let remedy = match error.kind {
        ErrorKind::Connection => "; correct the path in the variable of `url_env`",
        ErrorKind::ReadOnly => "; set the connector's `read_only` to false, or change the statement",
        _ => "",
    };
    ConnectorError { message: format!("{}{remedy}", error.message), ..error }
}
