//! PostgreSQL.

use super::servers;
use super::*;
use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;
use std::sync::atomic::{AtomicU32, Ordering};

/// The URL of a new database with these statements, and of one of its roles that may do everything in it.
async fn database(statements: &str) -> Option<String> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let server = servers::url("TURNWHEEL_TEST_POSTGRES")?;
    let name = format!("t_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let (before, _) = server.rsplit_once('/').unwrap();
    let (scheme, rest) = before.split_once("://").unwrap();
    let host = rest.rsplit_once('@').unwrap().1;
    execute(&server, &format!("CREATE ROLE {name} LOGIN PASSWORD 'pass/{name}'")).await;
    execute(&server, &format!("CREATE DATABASE {name} OWNER {name}")).await;
    let url = format!("{scheme}://{name}:pass%2F{name}@{host}/{name}");
    execute(&url, statements).await;
    Some(url)
}

/// Executes statements on the tests' own connection.
async fn execute(url: &str, statements: &str) {
    let mut connection = url.parse::<PgConnectOptions>().unwrap().connect().await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(statements.to_owned())).execute(&mut connection).await.unwrap();
}

const SALES: &str = "CREATE TABLE sales (month TEXT, amount INTEGER, day DATE, sold NUMERIC(20, 4))";

#[tokio::test]
async fn postgres_keeps_values_data_and_refuses_writes() {
    let Some(url) = database(SALES).await else { return };
    let all = both(ConnectorKind::Postgres, &url);
    injections_stay_data(&all).await;
    writes_are_refused(&all).await;
    results_have_limits(&all).await;
    endless_statements_end(&all).await;
}

#[tokio::test]
async fn the_server_of_postgres_refuses_writes_itself() {
    let Some(url) = database(&format!("{SALES}; CREATE SEQUENCE counter")).await else { return };
    let all = both(ConnectorKind::Postgres, &url);
    for sql in [
        "WITH gone AS (DELETE FROM sales RETURNING 1) SELECT * FROM gone",
        "EXPLAIN ANALYZE DELETE FROM sales",
        "SELECT * INTO other FROM sales",
        "SELECT month FROM sales FOR UPDATE",
        "SELECT nextval('counter')",
        "SELECT set_config('transaction_read_only', 'off', false)",
    ] {
        let error = all.refusal("r", sql, &[]).await;
        assert!(["READ_ONLY", "DATABASE"].contains(&error.code()) && !error.transient, "{sql}: {error}");
    }
    assert_eq!(all.refusal("r", "SELECT * INTO other FROM sales", &[]).await.code(), "READ_ONLY");
    assert_eq!(all.refusal("r", "SHOW nothing_at_all", &[]).await.code(), "DATABASE");
    // Settings do not outlive their statement.
    all.write("SELECT set_config('search_path', 'nowhere', false)", &[]).await;
    for _ in 0..4 {
        assert_eq!(all.write("SELECT * FROM sales", &[]).await.row_count, 0);
    }
}

#[tokio::test]
async fn parameters_of_postgres_fit_the_types_of_the_statement() {
    let Some(url) = database(SALES).await else { return };
    let all = both(ConnectorKind::Postgres, &url);
    let row = [json!(5), json!("42"), json!("2026-05-01"), json!("12.5000")];
    all.write("INSERT INTO sales VALUES ({}, {}, {}, {})", &row).await;
    for (sql, value) in [
        ("amount = {}", json!("42")),
        ("amount = {}", json!(42)),
        ("amount = {}", json!(42.0)),
        ("month = {}", json!(5)),
        ("day = {}", json!("2026-05-01")),
        ("day = {}", json!("2026-05-01T10:00:00Z")),
        ("sold = {}", json!(12.5)),
        ("sold < {}", json!("1e3")),
        ("amount = ANY({})", json!([41, "42", null])),
        ("{} IS NULL OR amount = 42", json!(null)),
        ("amount + {} = 43", json!(1)),
        ("month LIKE '%' || {} || '%'", json!("5")),
        ("day > CAST({} AS timestamptz)", json!("2026-04-30 12:00:00+02:00")),
    ] {
        // A reference without a type needs a cast, as the error says.
        let sql = sql.replace("{} IS NULL", "CAST({} AS text) IS NULL");
        let rows = all.read(&format!("SELECT amount FROM sales WHERE {sql}"), std::slice::from_ref(&value)).await;
        assert_eq!(rows.data, [json!({"amount": 42})], "{sql} {value}");
    }
    for (sql, value, part) in [
        ("amount = {}", json!("many"), "`many`, and the statement needs the type `INT4`"),
        ("amount = {}", json!(1.5), "`1.5`"),
        ("amount = {}", json!(5_000_000_000_i64), "`5000000000`"),
        ("day = {}", json!("tomorrow"), "`DATE`"),
        ("amount = ANY({})", json!(7), "is no list"),
        ("month = {}", json!("a\u{0}b"), "NUL"),
        ("{} IS NULL", json!(1), "CAST(${x} AS text)"),
    ] {
        let error = all.refusal("r", &format!("SELECT 1 FROM sales WHERE {sql}"), &[value]).await;
        assert!(error.code() == "DATABASE" && error.message.contains(part), "{sql}: {error}");
    }
}

#[tokio::test]
async fn values_of_postgres_become_json() {
    let Some(url) = database("CREATE TYPE mood AS ENUM ('好', 'bad'); CREATE DOMAIN small AS INTEGER").await else {
        return;
    };
    let all = both(ConnectorKind::Postgres, &url);
    let sql = "SELECT 1::int2 AS a, 9007199254740993::int8 AS b, 0.1::float4 AS c, 'NaN'::float8 AS d, 1.50::numeric AS e, \
        12345678901234567890.123::numeric AS f, 'x'::char(3) AS g, true AS h, '2026-05-01'::date AS i, \
        '09:00:00.5'::time AS j, '2026-05-01 09:00+08'::timestamptz AS k, '2026-05-01 09:00'::timestamp AS l, \
        '\\x00ff'::bytea AS m, '{\"a\": [1]}'::jsonb AS n, '[2]'::json AS o, \
        'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid AS p, ARRAY[[1,2],[3,NULL]] AS q, '好'::mood AS r, 7::small AS s, \
        '1 day 02:00'::interval AS t, '10.0.0.1'::inet AS u, NULL::int AS v, '{}'::text[] AS w, '09:00+08'::timetz AS x, \
        0.000::numeric AS y, 'infinity'::timestamptz AS z";
    let expected = json!({"a": 1, "b": 9_007_199_254_740_993_i64, "c": 0.1, "d": "NaN", "e": 1.5,
        "f": "12345678901234567890.123", "g": "x  ", "h": true, "i": "2026-05-01", "j": "09:00:00.500",
        "k": "2026-05-01T01:00:00Z", "l": "2026-05-01T09:00:00", "m": "AP8=", "n": {"a": [1]}, "o": [2],
        "p": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "q": [[1, 2], [3, null]], "r": "好", "s": 7, "t": "P1DT7200S",
        "u": "10.0.0.1", "v": null, "w": [], "x": "09:00:00+08:00", "y": 0.0, "z": "infinity"});
    let found = first(&all.named("r").run(&Query::text(sql)).await.unwrap());
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&found[name], value, "{name}");
    }
    let error = all.refusal("r", "SELECT point(1, 2) AS place", &[]).await;
    assert!(error.message.contains("`place::text`"), "{error}");
    let values = [
        json!("bad"),
        json!({"k": ["中"]}),
        json!("AP8="),
        json!("a0eebc999c0b4ef8bb6d6bb9bd380a11"),
        json!(["a,\"b", null]),
    ];
    let sql = "SELECT {}::mood AS a, {}::jsonb AS b, {}::bytea AS c, {}::uuid AS d, {}::text[] AS e";
    let expected = json!({"a": "bad", "b": {"k": ["中"]}, "c": "AP8=", "d": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "e": ["a,\"b", null]});
    assert_eq!(first(&all.read(sql, &values).await), expected);
}

#[tokio::test]
async fn a_stopped_statement_of_postgres_ends_on_the_server() {
    let Some(url) = database(SALES).await else { return };
    let all = both(ConnectorKind::Postgres, &url);
    let slow =
        Query { timeout: Some(Duration::from_millis(200)), ..Query::text("SELECT 1 AS slow FROM pg_sleep(600)") };
    assert_eq!(all.named("r").run(&slow).await.unwrap_err().code(), "TIMEOUT");
    let running = "SELECT COUNT(*) AS n FROM pg_stat_activity WHERE query LIKE '%AS slow%' AND state = 'active' \
                   AND pid <> pg_backend_pid()";
    tokio::time::timeout(Duration::from_secs(20), async {
        while first(&all.read(running, &[]).await) != json!({"n": 0}) {}
    })
    .await
    .unwrap();
    let huge = all.refusal("r", "SELECT repeat('x', 2000000) AS x", &[]).await;
    assert_eq!(huge.code(), "OUTPUT_TOO_LARGE");
}

fn port(url: &str) -> &str {
    url.rsplit_once(':').unwrap().1.split_once('/').unwrap().0
}

#[tokio::test]
async fn errors_of_postgres_have_no_login() {
    let Some(url) = database(SALES).await else { return };
    let name = url.rsplit_once('/').unwrap().1;
    for (wrong, code) in [
        (url.replace("pass%2F", "wrong%2F"), "CONNECTION"),
        (url.replace(&format!("/{name}"), "/nothing"), "CONNECTION"),
        (url.replacen(&format!("/{name}"), "/x?sslmode=odd", 1), "CONNECTOR_UNKNOWN"),
        (url.replace(port(&url), "1"), "CONNECTION"),
        (url.replace(port(&url), "many"), "CONNECTOR_UNKNOWN"),
    ] {
        let error = both(ConnectorKind::Postgres, &wrong).refusal("r", "SELECT 1", &[]).await;
        let password = if wrong.contains("wrong") { format!("wrong/{name}") } else { format!("pass/{name}") };
        assert!(!error.message.contains(&password) && !error.message.contains("://"), "{error}");
        assert_eq!(error.code(), code, "{error}");
    }
    let all = both(ConnectorKind::Postgres, &url);
    let error = all.refusal("r", &format!("SELECT CAST('pass/{name}' AS integer)"), &[]).await;
    assert!(error.message.contains("***"), "{error}");
}

#[tokio::test]
async fn postgres_is_examined_and_described() {
    let Some(url) = database("CREATE TABLE b (x int, y int); CREATE SCHEMA s; CREATE TABLE s.a (z int)").await else {
        return;
    };
    let all = both(ConnectorKind::Postgres, &url);
    let examined = all.named("r").examine().await.unwrap();
    assert!(examined.version.starts_with("PostgreSQL "), "{examined:?}");
    assert_eq!((examined.enforces_read_only, examined.advice), (Some(true), None));
    assert_eq!(all.named("r").describe().await.to_string(), "`r` (postgres, read-only): b(x, y); s.a(z)");
    let server = servers::url("TURNWHEEL_TEST_POSTGRES").unwrap();
    let all = both(ConnectorKind::Postgres, &server);
    assert!(all.named("r").examine().await.unwrap().advice.unwrap().contains("superuser"));
}
