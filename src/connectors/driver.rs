//! The interface of the kinds of databases.

use crate::connector::Examined;
use crate::error::{ConnectorError, ErrorKind};
use crate::rows::{Collector, Rows};
use crate::statement::Bound;
use crate::url::DatabaseUrl;
use async_trait::async_trait;
use base::config::ConnectorKind;
use base::tasks::Tasks;
use futures::stream::{BoxStream, TryStreamExt};
use serde_json::Value;
use sqlx::{Column, Database, Either, Row};
use std::time::Duration;

/// The limits of one statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_rows: u64,
    /// The server breaks the statement off after this time, if it can.
    pub(crate) timeout: Duration,
}

/// One database.
#[async_trait]
pub(crate) trait Driver: Send + Sync {
    /// Executes a statement. Dropping the future breaks it off.
    async fn run(&self, statement: &Bound, limits: Limits) -> Result<Rows, ConnectorError>;

    /// Checks the connection and the enforcement of `read_only`.
    async fn examine(&self) -> Result<Examined, ConnectorError>;

    /// A statement whose rows have the columns `name` and `field`: the tables with their columns.
    fn tables(&self) -> &'static str;
}

/// The driver of a kind.
pub(crate) fn open(
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

/// The number of placeholders of a prepared statement.
pub(crate) fn count<T>(parameters: Option<Either<&[T], usize>>) -> usize {
    match parameters {
        Some(Either::Left(types)) => types.len(),
        Some(Either::Right(count)) => count,
        None => 0,
    }
}

/// The rows and the ends of statements.
type Results<'s, DB> = BoxStream<'s, Result<Either<<DB as Database>::QueryResult, <DB as Database>::Row>, sqlx::Error>>;

/// Reads the result of a statement. `values` makes JSON of a row, and `affected` returns the number of changed rows.
pub(crate) async fn collect<DB: Database>(
    mut stream: Results<'_, DB>,
    max_rows: u64,
    has_columns: bool,
    affected: impl Fn(&DB::QueryResult) -> u64,
    values: impl Fn(&DB::Row) -> Result<Vec<Value>, ConnectorError>,
    failed: impl Fn(sqlx::Error) -> ConnectorError,
) -> Result<Rows, ConnectorError> {
    let mut collector = Collector::new(max_rows);
    while let Some(item) = stream.try_next().await.map_err(&failed)? {
        match item {
            Either::Left(done) => collector.changed(affected(&done)),
            Either::Right(row) => {
                if !collector.add(row.columns().iter().map(Column::name), values(&row)?)? {
                    break;
                }
            }
        }
    }
    Ok(collector.finish(has_columns))
}
