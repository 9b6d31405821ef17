//! MySQL and MariaDB.

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
use sqlx::mysql::{MySqlArguments, MySqlConnectOptions, MySqlConnection, MySqlDatabaseError, MySqlRow};
use sqlx::{
    Arguments, AssertSqlSafe, Column, ConnectOptions, Connection, Executor, Row, SqlSafeStr, Statement, TypeInfo,
    ValueRef,
};
use std::sync::Arc;

/// The prepared statements that a connection keeps.
const KEPT_STATEMENTS: usize = 16;

/// Error numbers of the servers.
const READ_ONLY: [u16; 2] = [1290, 1792];
const TIMED_OUT: [u16; 3] = [1317, 1969, 3024];
const TRANSIENT: [u16; 4] = [1040, 1205, 1213, 1226];
const LOGIN: [u16; 3] = [1044, 1045, 1049];

pub(crate) struct Mysql {
    pool: Arc<Pool<MysqlServer>>,
    read_only: bool,
}

struct MysqlServer(MySqlConnectOptions);

impl Mysql {
    pub(crate) fn new(url: &DatabaseUrl, read_only: bool, tasks: Tasks) -> Result<Self, ConnectorError> {
        let options: MySqlConnectOptions = url.text.parse().map_err(|error: sqlx::Error| {
            ConnectorError::new(ErrorKind::Unknown, format!("its address cannot be read: {error}; correct it"))
        })?;
        let options = options.statement_cache_capacity(KEPT_STATEMENTS).disable_statement_logging();
        Ok(Self { pool: Pool::new(MysqlServer(options), tasks), read_only })
    }
}

#[async_trait]
impl Opener for MysqlServer {
    type Connection = MySqlConnection;

    async fn open(&self) -> Result<MySqlConnection, ConnectorError> {
        self.0.connect().await.map_err(failed)
    }

    async fn is_alive(&self, connection: &mut MySqlConnection) -> bool {
        connection.ping().await.is_ok()
    }
}

#[async_trait]
impl Driver for Mysql {
    async fn run(&self, statement: &Bound, limits: Limits) -> Result<Rows, ConnectorError> {
        let mut lease = self.pool.lease().await?;
        let connection = &mut lease.connection;
        limit_time(connection, limits).await;
        let begin = if self.read_only { "START TRANSACTION READ ONLY" } else { "START TRANSACTION" };
        connection.execute(sqlx::raw_sql(begin)).await.map_err(failed)?;
        let rows = execute(connection, statement, limits).await?;
        // After a truncated result further rows are on their way, so its connection is closed. That rolls back.
        if rows.truncated {
            return Ok(rows);
        }
        let end = if self.read_only { "ROLLBACK" } else { "COMMIT" };
        connection.execute(sqlx::raw_sql(end)).await.map_err(failed)?;
        // A lock by name would outlive the statement.
        if connection.execute(sqlx::raw_sql("DO RELEASE_ALL_LOCKS()")).await.is_ok() {
            lease.keep();
        }
        Ok(rows)
    }

    async fn examine(&self) -> Result<Examined, ConnectorError> {
        let mut lease = self.pool.lease().await?;
        let connection = &mut lease.connection;
        let row = connection.fetch_one(sqlx::raw_sql("SELECT VERSION()")).await.map_err(failed)?;
        let version: String = row.try_get_unchecked(0).map_err(failed)?;
        let enforces_read_only = if self.read_only {
            connection.execute(sqlx::raw_sql("START TRANSACTION READ ONLY")).await.map_err(failed)?;
            // The server refuses it before it looks for the table, which does not exist.
            let written = connection.execute(sqlx::raw_sql("DELETE FROM turnwheel_examined_nothing")).await;
            Some(written.map_err(failed).is_err_and(|error| error.kind == ErrorKind::ReadOnly))
        } else {
            None
        };
        let grants = connection.fetch_all(sqlx::raw_sql("SHOW GRANTS")).await.unwrap_or_default();
        let may_files = grants.iter().filter_map(|row| row.try_get_unchecked::<String, _>(0).ok()).any(|grant| {
            grant.starts_with("GRANT ALL PRIVILEGES ON *.*") || grant.contains(" FILE,") || grant.contains(" FILE ON")
        });
        let advice =
            may_files.then_some("its account may read files of the server: use one with the right SELECT only");
        Ok(Examined { version: format!("MySQL {version}"), enforces_read_only, advice })
    }

    fn tables(&self) -> &'static str {
        "SELECT table_name AS name, column_name AS field FROM information_schema.columns \
         WHERE table_schema = DATABASE() ORDER BY table_name, ordinal_position"
    }
}

/// Sets the server's own limit on the time of a statement. MySQL limits statements that read, MariaDB all statements. A
/// server has only one of the two variables.
async fn limit_time(connection: &mut MySqlConnection, limits: Limits) {
    let mysql = format!("SET SESSION max_execution_time = {}", limits.timeout.as_millis());
    if connection.execute(sqlx::raw_sql(AssertSqlSafe(mysql))).await.is_err() {
        let mariadb = format!("SET SESSION max_statement_time = {}", limits.timeout.as_secs_f64());
        let _ = connection.execute(sqlx::raw_sql(AssertSqlSafe(mariadb))).await;
    }
}

async fn execute(connection: &mut MySqlConnection, statement: &Bound, limits: Limits) -> Result<Rows, ConnectorError> {
    let sql = AssertSqlSafe(statement.sql.clone()).into_sql_str();
    let prepared = connection.prepare(sql).await.map_err(failed)?;
    statement.check_count(count(prepared.parameters()))?;
    let mut arguments = MySqlArguments::default();
    for value in &statement.values {
        let added = match value {
            Value::Null => arguments.add(None::<String>),
            Value::Bool(truth) => arguments.add(*truth),
            Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(whole), ..) => arguments.add(whole),
                (None, Some(whole), _) => arguments.add(whole),
                (None, None, Some(float)) => arguments.add(float),
                (None, None, None) => arguments.add(number.to_string()),
            },
            Value::String(_) | Value::Array(_) | Value::Object(_) => arguments.add(json::as_text(value)),
        };
        added.map_err(|error| ConnectorError::database(error.to_string()))?;
    }
    let has_columns = !prepared.columns().is_empty();
    let stream = connection.fetch_many(prepared.query_with(arguments));
    collect::<sqlx::MySql>(stream, limits.max_rows, has_columns, |done| done.rows_affected(), values, failed).await
}

fn values(row: &MySqlRow) -> Result<Vec<Value>, ConnectorError> {
    (0..row.columns().len()).map(|at| value(row, at).map_err(failed)).collect()
}

fn value(row: &MySqlRow, at: usize) -> Result<Value, sqlx::Error> {
    if row.try_get_raw(at)?.is_null() {
        return Ok(Value::Null);
    }
    let bytes = || row.try_get_unchecked::<&[u8], _>(at);
    Ok(match row.columns()[at].type_info().name() {
        "BOOLEAN" => match row.try_get_unchecked::<i8, _>(at)? {
            truth @ (0 | 1) => Value::Bool(truth == 1),
            number => number.into(),
        },
        "TINYINT" | "SMALLINT" | "MEDIUMINT" | "INT" | "BIGINT" => row.try_get_unchecked::<i64, _>(at)?.into(),
        "TINYINT UNSIGNED" | "SMALLINT UNSIGNED" | "MEDIUMINT UNSIGNED" | "INT UNSIGNED" | "BIGINT UNSIGNED"
        | "YEAR" | "BIT" => row.try_get_unchecked::<u64, _>(at)?.into(),
        "FLOAT" => json::single(row.try_get_unchecked(at)?),
        "DOUBLE" => json::float(row.try_get_unchecked(at)?),
        "DECIMAL" => json::decimal(&String::from_utf8_lossy(bytes()?)),
        "DATE" | "DATETIME" => Value::String(date_time(bytes()?)),
        // The driver sets the time zone of its sessions to UTC.
        "TIMESTAMP" => Value::String(format!("{}Z", date_time(bytes()?))),
        "TIME" => Value::String(time(bytes()?)),
        "JSON" => json::json(&String::from_utf8_lossy(bytes()?)),
        "BINARY" | "VARBINARY" | "TINYBLOB" | "BLOB" | "MEDIUMBLOB" | "LONGBLOB" | "GEOMETRY" => json::bytes(bytes()?),
        _ => json::text(bytes()?),
    })
}

/// A date with or without a time, in the server's binary format: the number of bytes, year, month, day, hours, minutes,
/// seconds, microseconds. The server omits zeros at the end.
fn date_time(bytes: &[u8]) -> String {
    let at = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let date = format!("{:04}-{:02}-{:02}", u16::from_le_bytes([at(1), at(2)]), at(3), at(4));
    if at(0) <= 4 {
        return date;
    }
    let micros = u32::from_le_bytes([at(8), at(9), at(10), at(11)]);
    format!("{date}T{:02}:{:02}:{:02}{}", at(5), at(6), at(7), fraction(micros))
}

/// A time in the server's binary format: the number of bytes, the sign, days, hours, minutes, seconds, microseconds.
fn time(bytes: &[u8]) -> String {
    let at = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let sign = if at(1) == 1 { "-" } else { "" };
    let hours = u64::from(u32::from_le_bytes([at(2), at(3), at(4), at(5)])) * 24 + u64::from(at(6));
    let micros = u32::from_le_bytes([at(9), at(10), at(11), at(12)]);
    format!("{sign}{hours:02}:{:02}:{:02}{}", at(7), at(8), fraction(micros))
}

fn fraction(micros: u32) -> String {
    if micros == 0 { String::new() } else { format!(".{micros:06}").trim_end_matches('0').to_owned() }
}

fn failed(error: sqlx::Error) -> ConnectorError {
    ConnectorError::of_driver(error, |error| {
        match error.try_downcast_ref::<MySqlDatabaseError>().map_or(0, MySqlDatabaseError::number) {
            number if READ_ONLY.contains(&number) => (ErrorKind::ReadOnly, false),
            number if TIMED_OUT.contains(&number) => (ErrorKind::Timeout, true),
            number if LOGIN.contains(&number) => (ErrorKind::Connection, false),
            number => (ErrorKind::Database, TRANSIENT.contains(&number)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_times_are_read() {
        assert_eq!(date_time(&[4, 0xEA, 0x07, 5, 1]), "2026-05-01");
        assert_eq!(date_time(&[7, 0xEA, 0x07, 5, 1, 9, 8, 7]), "2026-05-01T09:08:07");
        assert_eq!(date_time(&[11, 0xEA, 0x07, 5, 1, 9, 8, 7, 0x20, 0xA1, 7, 0]), "2026-05-01T09:08:07.5");
        assert_eq!(date_time(&[0]), "0000-00-00");
        assert_eq!(time(&[8, 1, 1, 0, 0, 0, 2, 3, 4]), "-26:03:04");
        assert_eq!(time(&[0]), "00:00:00");
    }
}
