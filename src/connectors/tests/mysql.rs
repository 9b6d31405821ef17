//! MySQL and MariaDB.

use super::servers;
use super::*;
use sqlx::ConnectOptions;
use sqlx::mysql::MySqlConnectOptions;
use std::sync::atomic::{AtomicU32, Ordering};

/// The URL of a new database with these statements.
async fn database(statements: &str) -> Option<String> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let server = servers::url("TURNWHEEL_TEST_MYSQL")?;
    let name = format!("t_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let (before, _) = server.rsplit_once('/').unwrap();
    let url = format!("{before}/{name}");
    execute(&server, &format!("CREATE DATABASE {name} CHARACTER SET utf8mb4")).await;
    execute(&url, statements).await;
    Some(url)
}

/// Executes statements on the tests' own connection.
async fn execute(url: &str, statements: &str) {
    let mut connection = url.parse::<MySqlConnectOptions>().unwrap().connect().await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(statements.to_owned())).execute(&mut connection).await.unwrap();
}

const SALES: &str = "CREATE TABLE sales (month VARCHAR(200), amount INTEGER)";

#[tokio::test]
async fn mysql_keeps_values_data_and_refuses_writes() {
    let Some(url) = database(SALES).await else { return };
    let all = both(ConnectorKind::Mysql, &url);
    injections_stay_data(&all).await;
    writes_are_refused(&all).await;
    results_have_limits(&all).await;
    for sql in [
        "SELECT month FROM sales INTO OUTFILE '/tmp/turnwheel-never'",
        "SELECT 1 /*!50000 INTO DUMPFILE '/tmp/turnwheel-never' */",
        "LOAD DATA INFILE '/etc/passwd' INTO TABLE sales",
        "/*!50000 DELETE FROM sales */",
        "# SELECT\nDELETE FROM sales",
    ] {
        let error = all.refusal("r", sql, &[]).await;
        assert!(["READ_ONLY", "REFUSED"].contains(&error.code()), "{sql}: {error}");
    }
}

#[tokio::test]
async fn mysql_breaks_long_statements_off() {
    let Some(url) = database(SALES).await else { return };
    let all = both(ConnectorKind::Mysql, &url);
    let slow = Query { timeout: Some(Duration::from_millis(300)), ..Query::text("SELECT 1 AS slow, SLEEP(600)") };
    for _ in 0..6 {
        let ended = all.named("r").run(&slow).await;
        // The server ends the sleep with a row.
        assert!(ended.as_ref().is_ok_and(|rows| rows.row_count == 1) || ended.unwrap_err().code() == "TIMEOUT");
    }
    let huge = all.refusal("r", "SELECT REPEAT('x', 2000000) AS x", &[]).await;
    assert_eq!(huge.code(), "OUTPUT_TOO_LARGE", "{huge}");
}

#[tokio::test]
async fn values_of_mysql_become_json() {
    let types = "CREATE TABLE v (a TINYINT(1), b BIGINT UNSIGNED, c FLOAT, d DOUBLE, e DECIMAL(10, 4), f DATE, g DATETIME(3), \
        h TIMESTAMP, i TIME, j YEAR, k BLOB, l JSON, m ENUM('好', 'bad'), n SET('x', 'y'), o TEXT, p BIT(3), q INT, r BINARY(2))";
    let Some(url) = database(types).await else { return };
    let all = both(ConnectorKind::Mysql, &url);
    let values =
        [json!(true), json!(u64::MAX), json!(0.1), json!(0.1), json!("1.5000"), json!("2026-05-01"), json!("中\u{0}")];
    let sql = "INSERT INTO v VALUES ({}, {}, {}, {}, {}, {}, '2026-05-01 09:00:00.5', '2026-05-01 09:00:00', '-26:03:04', 2026, \
        x'00ff', '[1]', '好', 'x,y', {}, b'101', NULL, x'0102')";
    assert_eq!(all.write(sql, &values).await.row_count, 1);
    let found = first(&all.read("SELECT * FROM v", &[]).await);
    let expected = json!({"a": true, "b": u64::MAX, "c": 0.1, "d": 0.1, "e": 1.5, "f": "2026-05-01",
        "g": "2026-05-01T09:00:00.5", "h": "2026-05-01T09:00:00Z", "i": "-26:03:04", "j": 2026, "k": "AP8=", "m": "好",
        "n": "x,y", "o": "中\u{0}", "p": 5, "q": null, "r": "AQI="});
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&found[name], value, "{name}");
    }
}

#[tokio::test]
async fn mysql_is_examined_and_described() {
    let Some(url) = database("CREATE TABLE b (x INT, y INT)").await else { return };
    let all = both(ConnectorKind::Mysql, &url);
    let examined = all.named("r").examine().await.unwrap();
    assert_eq!(examined.enforces_read_only, Some(true), "{examined:?}");
    assert_eq!(all.named("r").describe().await.to_string(), "`r` (mysql, read-only): b(x, y)");
    let wrong = url.replace("tests-only", "wrong-pass");
    let error = both(ConnectorKind::Mysql, &wrong).refusal("r", "SELECT 1", &[]).await;
    assert!(error.code() == "CONNECTION" && !error.message.contains("wrong-pass"), "{error}");
}
