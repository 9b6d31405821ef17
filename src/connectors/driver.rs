//! The interface of the kinds of databases.

use crate::error::ConnectorError;
use crate::rows::{Collector, Rows};
use crate::statement::Bound;
use async_trait::async_trait;
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

/// The result of an examination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Examined {
    /// The version of the server.
    pub version: String,
    /// True if the server itself refuses writes; `None` for a connector that may write.
    pub enforces_read_only: Option<bool>,
    /// A dangerous right of the account, with the remedy.
    pub advice: Option<&'static str>,
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
