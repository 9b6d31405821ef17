//! PostgreSQL. `encode` sends values as the types that the statement needs, `decode` reads the columns, and `decimal` both
//! sends and reads decimals.

mod decimal;
mod decode;
mod encode;

use crate::driver::{Driver, Examined, Limits, collect, count};
use crate::error::{ConnectorError, ErrorKind};
use crate::pool::{Opener, Pool};
use crate::rows::Rows;
use crate::statement::Bound;
use crate::url::DatabaseUrl;
use async_trait::async_trait;
use base::tasks::Tasks;
use serde_json::Value;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgConnection, PgDatabaseError, PgRow, PgTypeInfo};
use sqlx::{
    Arguments, AssertSqlSafe, Column, ConnectOptions, Connection, Either, Executor, Row, SqlSafeStr, Statement,
    ValueRef,
};
use std::sync::Arc;

/// The prepared statements that a connection keeps.
const KEPT_STATEMENTS: usize = 16;

/// Ends the traces of a statement in its session: settings, temporary tables, and locks by number.
const RESET: &str = "RESET ALL; DISCARD TEMP; SELECT pg_catalog.pg_advisory_unlock_all()";

pub(crate) struct Postgres {
    pool: Arc<Pool<PostgresServer>>,
    read_only: bool,
}

struct PostgresServer(PgConnectOptions);

impl Postgres {
    pub(crate) fn new(url: &DatabaseUrl, read_only: bool, tasks: Tasks) -> Result<Self, ConnectorError> {
        let options: PgConnectOptions = url.text.parse().map_err(|error: sqlx::Error| {
            ConnectorError::new(ErrorKind::Unknown, format!("its address cannot be read: {error}; correct it"))
        })?;
        let options = options.statement_cache_capacity(KEPT_STATEMENTS).disable_statement_logging();
        Ok(Self { pool: Pool::new(PostgresServer(options), tasks), read_only })
    }
}

#[async_trait]
impl Opener for PostgresServer {
    type Connection = PgConnection;

    async fn open(&self) -> Result<PgConnection, ConnectorError> {
        self.0.connect().await.map_err(failed)
    }

    async fn is_alive(&self, connection: &mut PgConnection) -> bool {
        connection.ping().await.is_ok()
    }
}

#[async_trait]
impl Driver for Postgres {
    async fn run(&self, statement: &Bound, limits: Limits) -> Result<Rows, ConnectorError> {
        let mut lease = self.pool.lease().await?;
        let connection = &mut lease.connection;
        let mode = if self.read_only { "READ ONLY" } else { "READ WRITE" };
        // The server's timeout ends the statement if this process dies. 0 would mean no limit.
        let millis = limits.timeout.as_millis().clamp(1, 86_400_000);
        let begin = format!("BEGIN {mode}; SET LOCAL statement_timeout = {millis}");
        connection.execute(sqlx::raw_sql(AssertSqlSafe(begin))).await.map_err(failed)?;
        let rows = execute(connection, statement, limits).await?;
        // After a truncated result further rows are on their way, so its connection is closed. That rolls back.
        if rows.truncated {
            return Ok(rows);
        }
        let end = if self.read_only { "ROLLBACK" } else { "COMMIT" };
        connection.execute(sqlx::raw_sql(end)).await.map_err(failed)?;
        if connection.execute(sqlx::raw_sql(RESET)).await.is_ok() {
            lease.keep();
        }
        Ok(rows)
    }

    async fn examine(&self) -> Result<Examined, ConnectorError> {
        let mut lease = self.pool.lease().await?;
        let connection = &mut lease.connection;
        let mode = if self.read_only { "BEGIN READ ONLY" } else { "BEGIN" };
        connection.execute(sqlx::raw_sql(mode)).await.map_err(failed)?;
        let facts = "SELECT current_setting('server_version'), current_setting('transaction_read_only'), \
                     current_setting('is_superuser')";
        let row = connection.fetch_one(sqlx::raw_sql(facts)).await.map_err(failed)?;
        let fact = |at: usize| row.try_get_unchecked::<String, _>(at).map_err(failed);
        let enforces_read_only = if self.read_only { Some(fact(1)? == "on") } else { None };
        let advice = (fact(2)? == "on").then_some(
            "its account is a superuser, which reads files and starts programs on the server: use an account with the right \
             SELECT only",
        );
        Ok(Examined { version: format!("PostgreSQL {}", fact(0)?), enforces_read_only, advice })
    }

    fn tables(&self) -> &'static str {
        "SELECT CASE table_schema WHEN current_schema() THEN table_name ELSE table_schema || '.' || table_name END AS name, \
         column_name AS field FROM information_schema.columns \
         WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, ordinal_position"
    }
}

async fn execute(connection: &mut PgConnection, statement: &Bound, limits: Limits) -> Result<Rows, ConnectorError> {
    let sql = AssertSqlSafe(statement.sql.clone()).into_sql_str();
    let prepared = connection.prepare(sql).await.map_err(failed)?;
    let parameters = prepared.parameters();
    statement.check_count(count(parameters))?;
    let types: &[PgTypeInfo] = match parameters {
        Some(Either::Left(types)) => types,
        Some(Either::Right(_)) | None => &[],
    };
    let mut arguments = PgArguments::default();
    for (at, (value, of)) in statement.values.iter().zip(types).enumerate() {
        let encoded = encode::value(value, of)
            .map_err(|problem| ConnectorError::database(format!("the value {} of the statement {problem}", at + 1)))?;
        arguments.add(encoded).map_err(|error| ConnectorError::database(error.to_string()))?;
    }
    let has_columns = !prepared.columns().is_empty();
    let stream = connection.fetch_many(prepared.query_with(arguments));
    collect::<sqlx::Postgres>(stream, limits.max_rows, has_columns, |done| done.rows_affected(), values, failed).await
}

fn values(row: &PgRow) -> Result<Vec<Value>, ConnectorError> {
    let value = |(at, column): (usize, &sqlx::postgres::PgColumn)| {
        let cell = row.try_get_raw(at).map_err(failed)?;
        if cell.is_null() {
            return Ok(Value::Null);
        }
        let bytes = cell.as_bytes().map_err(|error| ConnectorError::database(error.to_string()))?;
        decode::value(bytes, column.type_info()).ok_or_else(|| {
            ConnectorError::database(format!(
                "the column `{name}` has the type `{of}`, which cannot be read; select it as text: `{name}::text`",
                name = column.name(),
                of = column.type_info()
            ))
        })
    };
    row.columns().iter().enumerate().map(value).collect()
}

fn failed(error: sqlx::Error) -> ConnectorError {
    let mut advice = String::new();
    let error = ConnectorError::of_driver(error, |error| {
        if let Some(hint) = error.try_downcast_ref::<PgDatabaseError>().and_then(PgDatabaseError::hint) {
            advice = format!(" ({hint})");
        }
        match error.code().as_deref().unwrap_or_default() {
            "25006" => (ErrorKind::ReadOnly, false),
            "57014" => (ErrorKind::Timeout, true),
            "42P18" => {
                advice = "; give the reference a type, such as `CAST(${x} AS text)`".to_owned();
                (ErrorKind::Database, false)
            }
            code if code.starts_with("28") || code == "3D000" => (ErrorKind::Connection, false),
            // Deadlocks and conflicts, lack of resources, a server that stops, locks.
            code if ["40", "53", "57P", "55P"].iter().any(|class| code.starts_with(class)) => {
                (ErrorKind::Database, true)
            }
            _ => (ErrorKind::Database, false),
        }
    });
    ConnectorError { message: format!("{}{advice}", error.message), ..error }
}
