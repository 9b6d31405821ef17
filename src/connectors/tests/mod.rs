//! Connectors on real databases: a file of SQLite, and the servers that `tests/run` starts.

mod mysql;
mod postgres;
mod servers;
mod sqlite;

use crate::{Connector, ConnectorError, Connectors, ErrorKind, Part, Query, Rows};
use base::config::{self, ConnectorKind, Environment};
use base::tasks::Tasks;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tempfile::TempDir;
use types::duration::Text;

/// The settings of a connector whose URL is in `URL`.
fn settings(kind: ConnectorKind, read_only: bool) -> config::Connector {
    let (url_env, timeout) = ("URL".into(), Text(Duration::from_secs(20)));
    config::Connector { kind, url_env, read_only, max_rows: 1_000, timeout }
}

/// Two connectors on one database: `r` reads, `w` writes.
fn both(kind: ConnectorKind, url: &str) -> Connectors {
    let of = |name: &str, read_only| (name.to_owned(), settings(kind, read_only));
    connectors(&[of("r", true), of("w", false)].into(), url)
}

fn connectors(settings: &BTreeMap<String, config::Connector>, url: &str) -> Connectors {
    Connectors::new(settings, &[("URL", url)].into_iter().collect(), &Tasks::new())
}

/// A statement in which `{}` stands for the next value.
fn query(sql: &str, values: &[Value]) -> Query {
    let mut parts = Vec::new();
    for (at, text) in sql.split("{}").enumerate() {
        parts.extend(at.checked_sub(1).map(|at| Part::Value(values[at].clone())));
        parts.push(Part::Text(text.to_owned()));
    }
    Query { parts, ..Query::default() }
}

impl Connectors {
    fn named(&self, name: &str) -> &Connector {
        self.find(Some(name), &|_| true).unwrap()
    }

    async fn read(&self, sql: &str, values: &[Value]) -> Rows {
        self.named("r").run(&query(sql, values)).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    async fn write(&self, sql: &str, values: &[Value]) -> Rows {
        self.named("w").run(&query(sql, values)).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    async fn refusal(&self, name: &str, sql: &str, values: &[Value]) -> ConnectorError {
        match self.named(name).run(&query(sql, values)).await {
            Ok(rows) => panic!("{sql}: {rows:?}"),
            Err(error) => error,
        }
    }
}

/// The values of the first row.
fn first(rows: &Rows) -> Value {
    rows.data.first().cloned().unwrap_or_default()
}

/// Fills a table `sales`, which exists, and checks that nothing which a value says is executed.
async fn injections_stay_data(all: &Connectors) {
    for (month, amount) in [("2026-01", 10), ("2026-02", 20), ("'; DROP TABLE sales; --", 30), ("一月", 40)] {
        all.write("INSERT INTO sales (month, amount) VALUES ({}, {})", &[json!(month), json!(amount)]).await;
    }
    let found = |month: &str| {
        let values = [json!(month)];
        async move { all.read("SELECT amount FROM sales WHERE month = {}", &values).await }
    };
    for attack in ["x' OR '1'='1", "x'; DELETE FROM sales; --", "\\' OR 1=1 -- ", "\" OR 1=1", "${query}", "?", "$1"] {
        assert_eq!(found(attack).await.row_count, 0, "{attack}");
    }
    assert_eq!(first(&found("'; DROP TABLE sales; --").await), json!({"amount": 30}));
    assert_eq!(first(&found("一月").await), json!({"amount": 40}));
    // Within quotes a reference is text, and no parameter.
    let error = all.refusal("r", "SELECT * FROM sales WHERE month = '{}'", &[json!("x")]).await;
    assert!(error.code() == "DATABASE" && error.message.contains("within quotes"), "{error}");
    assert_eq!(first(&all.read("SELECT COUNT(*) AS n FROM sales", &[]).await), json!({"n": 4}));
}

/// Checks that a read-only connector changes nothing, and that others execute one statement.
async fn writes_are_refused(all: &Connectors) {
    for write in [
        "DELETE FROM sales",
        "INSERT INTO sales (month) VALUES ('x')",
        "UPDATE sales SET amount = 0",
        "DROP TABLE sales",
        "CREATE TABLE other (a INTEGER)",
        "/* SELECT */ DELETE FROM sales",
        "BEGIN",
        "COMMIT",
        "SET x = 1",
    ] {
        assert_eq!(all.refusal("r", write, &[]).await.code(), "READ_ONLY", "{write}");
    }
    for several in ["SELECT 1; DELETE FROM sales", "DELETE FROM sales; SELECT 1"] {
        for name in ["r", "w"] {
            let code = all.refusal(name, several, &[]).await.code();
            assert!(["READ_ONLY", "REFUSED", "DATABASE"].contains(&code), "{several}: {code}");
        }
    }
    assert_eq!(first(&all.read("SELECT COUNT(*) AS n FROM sales", &[]).await), json!({"n": 4}));
}

/// Checks the limits on rows and bytes.
async fn results_have_limits(all: &Connectors) {
    let numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) SELECT i FROM n";
    let limited = Query { max_rows: Some(3), ..Query::text(numbers) };
    for _ in 0..3 {
        let rows = all.named("r").run(&limited).await.unwrap();
        assert_eq!(rows.data, [json!({"i": 1}), json!({"i": 2}), json!({"i": 3})]);
        assert!(rows.truncated && rows.row_count == 3);
    }
    let exact = Query { max_rows: Some(500), ..Query::text(numbers) };
    let rows = all.named("r").run(&exact).await.unwrap();
    assert!(!rows.truncated && rows.row_count == 500);
    let written = all.write("UPDATE sales SET amount = amount + 0 WHERE amount > {}", &[json!(15)]).await;
    assert!(written.data.is_empty() && !written.truncated, "{written:?}");
}

/// Checks that a statement without end is broken off, and leaves room for others.
async fn endless_statements_end(all: &Connectors) {
    let endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT COUNT(*) AS c FROM n";
    let endless = Query { timeout: Some(Duration::from_millis(300)), ..Query::text(endless) };
    // More than a connector has connections.
    for _ in 0..6 {
        let error = all.named("r").run(&endless).await.unwrap_err();
        assert_eq!((error.code(), error.transient), ("TIMEOUT", true), "{error}");
    }
    assert_eq!(first(&all.read("SELECT 1 AS one", &[]).await), json!({"one": 1}));
}

#[test]
fn connectors_are_found_by_name_or_alone() {
    let all = |names: &[&str]| {
        let of = |name: &&str| ((*name).to_owned(), settings(ConnectorKind::Sqlite, true));
        Connectors::new(&names.iter().map(of).collect(), &Environment::default(), &Tasks::new())
    };
    let found = |names: &[&str], name| all(names).find(name, &|_| true).map(|found| found.name().to_owned());
    assert_eq!(found(&["sales"], None).unwrap(), "sales");
    assert_eq!(found(&["default", "sales"], None).unwrap(), "default");
    assert_eq!(found(&["a", "sales"], Some("sales")).unwrap(), "sales");
    for (names, name) in [(&["a", "b"][..], None), (&[][..], None), (&["a"][..], Some("b"))] {
        assert_eq!(found(names, name).unwrap_err().code(), "CONNECTOR_UNKNOWN");
    }
    let several = all(&["a", "b", "default"]);
    let among = |allowed: &'static [&str], name| {
        several.find(name, &|name| allowed.contains(&name)).map(|found| found.name().to_owned())
    };
    assert_eq!(among(&["b"], None).unwrap(), "b");
    assert_eq!(among(&["b"], Some("a")).unwrap_err().code(), "REFUSED");
    assert_eq!(among(&[], None).unwrap_err().code(), "CONNECTOR_UNKNOWN");
}

#[tokio::test]
async fn every_end_of_a_statement_is_counted() {
    let (_folder, url) = file("CREATE TABLE t (a)").await;
    let all = both(ConnectorKind::Sqlite, &url);
    all.read("SELECT 1", &[]).await;
    all.refusal("r", "DELETE FROM t", &[]).await;
    let text = base::metrics::encode(&base::metrics::metrics().registry);
    for outcome in ["ok", "READ_ONLY"] {
        assert!(!text.contains(&format!("statements_total{{outcome=\"{outcome}\"}} 0")), "{text}");
    }
    for kind in [
        ErrorKind::Unknown,
        ErrorKind::ReadOnly,
        ErrorKind::Refused,
        ErrorKind::Database,
        ErrorKind::Timeout,
        ErrorKind::Connection,
        ErrorKind::TooLarge,
    ] {
        assert!(text.contains(&format!("statements_total{{outcome=\"{}\"}}", kind.code())), "{kind:?}");
    }
}

#[tokio::test]
async fn a_connector_without_its_url_names_the_variable() {
    let settings = BTreeMap::from([("a".to_owned(), settings(ConnectorKind::Sqlite, true))]);
    let all = Connectors::new(&settings, &Environment::default(), &Tasks::new());
    let error = all.find(None, &|_| true).unwrap().run(&Query::text("SELECT 1")).await.unwrap_err();
    assert_eq!(error.code(), "CONNECTOR_UNKNOWN");
    assert!(error.message.contains("variable `URL` is not set"), "{error}");
    let all = connectors(&settings, "postgres://me:hidden@h/d");
    let error = all.find(None, &|_| true).unwrap().run(&Query::text("SELECT 1")).await.unwrap_err();
    assert!(error.message.contains("sqlite://") && !error.message.contains("hidden"), "{error}");
    assert_eq!(all.find(None, &|_| true).unwrap().describe().await.tables, None);
    assert!(!format!("{all:?}").contains("hidden"));
}

/// A new file of SQLite, made by the tests' own connection.
async fn file(statements: &str) -> (TempDir, String) {
    use sqlx::ConnectOptions;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a b.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path).create_if_missing(true);
    let mut connection = options.connect().await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(statements.to_owned())).execute(&mut connection).await.unwrap();
    sqlx::Connection::close(connection).await.unwrap();
    let url = format!("sqlite://{}", path.to_str().unwrap().replace(' ', "%20"));
    (folder, url)
}
