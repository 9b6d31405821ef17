//! SQLite.

use super::*;
use std::fs;

const SALES: &str = "CREATE TABLE sales (month TEXT, amount NUMERIC)";

#[tokio::test]
async fn sqlite_keeps_values_data_and_refuses_writes() {
    let (_folder, url) = file(SALES).await;
    let all = both(ConnectorKind::Sqlite, &url);
    injections_stay_data(&all).await;
    writes_are_refused(&all).await;
    // The file itself refuses these.
    for write in
        ["WITH x AS (SELECT 1) DELETE FROM sales", "WITH x AS (SELECT 1) INSERT INTO sales SELECT 'm', 1 FROM x"]
    {
        assert_eq!(all.refusal("r", write, &[]).await.code(), "READ_ONLY", "{write}");
    }
    results_have_limits(&all).await;
}

#[tokio::test]
async fn sqlite_breaks_endless_statements_off_and_ends_their_threads() {
    let (_folder, url) = file(SALES).await;
    let all = both(ConnectorKind::Sqlite, &url);
    endless_statements_end(&all).await;
    // The name of a thread on Linux has at most 15 bytes.
    let threads = || {
        let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.starts_with("sqlx-sqlite")).count()
    };
    tokio::time::timeout(Duration::from_secs(20), async {
        // One connection is kept.
        while threads() > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{} threads are left", threads()));
}

#[tokio::test]
async fn a_dropped_statement_is_broken_off() {
    let (_folder, url) = file(SALES).await;
    let all = both(ConnectorKind::Sqlite, &url);
    let endless = Query::text("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT COUNT(*) FROM n");
    for _ in 0..6 {
        let run = all.named("r").run(&endless);
        assert!(tokio::time::timeout(Duration::from_millis(50), run).await.is_err());
    }
    assert_eq!(first(&all.read("SELECT 1 AS one", &[]).await), json!({"one": 1}));
}

#[tokio::test]
async fn sqlite_reaches_one_file_only() {
    let (folder, url) = file(SALES).await;
    let all = both(ConnectorKind::Sqlite, &url);
    let other = folder.path().join("other.db");
    let other = other.to_str().unwrap();
    for sql in [
        &format!("ATTACH '{other}' AS o"),
        &format!("VACUUM INTO '{other}'"),
        &format!("/* SELECT */ ATTACH '{other}' AS o"),
        &format!("SELECT 1; ATTACH '{other}' AS o"),
        "PRAGMA query_only = OFF",
        "PRAGMA journal_mode = DELETE",
        "VACUUM",
        "DETACH main",
    ] {
        let (of_reader, of_writer) = (all.refusal("r", sql, &[]).await, all.refusal("w", sql, &[]).await);
        assert!(["READ_ONLY", "REFUSED"].contains(&of_reader.code()), "{sql}: {of_reader}");
        assert_eq!(of_writer.code(), "REFUSED", "{sql}: {of_writer}");
    }
    for sql in ["SELECT load_extension('x')", "SELECT readfile('/etc/passwd')", "SELECT writefile('/tmp/x', 'y')"] {
        assert_eq!(all.refusal("w", sql, &[]).await.code(), "DATABASE", "{sql}");
    }
    assert!(!fs::exists(other).unwrap());
    // The library itself attaches nothing, in case a statement passed the check.
    let name = [json!("MAX_ATTACHED=0")];
    assert_eq!(all.read("SELECT 1 WHERE sqlite_compileoption_used({})", &name).await.row_count, 1);
}

#[tokio::test]
async fn values_of_sqlite_become_json() {
    let types = "CREATE TABLE v (i INTEGER, r REAL, t TEXT, b BLOB, y BOOLEAN, d DATE, n NUMERIC)";
    let (_folder, url) = file(types).await;
    let all = both(ConnectorKind::Sqlite, &url);
    let values = [
        json!(9_007_199_254_740_993_i64),
        json!(0.1),
        json!("中文 \u{0}end"),
        json!(true),
        json!("2026-05-01"),
        json!({"a": [1]}),
    ];
    all.write("INSERT INTO v VALUES ({}, {}, {}, x'00ff', {}, {}, {})", &values).await;
    all.write("INSERT INTO v (i, r, t) VALUES ({}, {}, {})", &[json!("text"), json!(1e300), json!(null)]).await;
    let rows = all.read("SELECT * FROM v ORDER BY rowid", &[]).await;
    let whole = json!({"i": 9_007_199_254_740_993_i64, "r": 0.1, "t": "中文 \u{0}end", "b": "AP8=", "y": true,
        "d": "2026-05-01", "n": "{\"a\":[1]}"});
    assert_eq!(rows.data[0], whole);
    assert_eq!(rows.data[1]["i"], "text");
    assert_eq!((&rows.data[1]["t"], &rows.data[1]["r"]), (&json!(null), &json!(1e300)));
    let row = first(&all.read("SELECT 1 AS a, 2 AS a, CAST(x'ff41' AS TEXT) AS bad, 9e999 AS big", &[]).await);
    assert_eq!(row, json!({"a": 1, "a_2": 2, "bad": "\u{fffd}A", "big": "inf"}));
}

#[tokio::test]
async fn huge_cells_of_sqlite_are_a_failure() {
    let (_folder, url) = file(SALES).await;
    let all = both(ConnectorKind::Sqlite, &url);
    for sql in ["SELECT hex(zeroblob(1000000)) AS x", "SELECT zeroblob(900000) AS x UNION ALL SELECT zeroblob(900001)"]
    {
        let error = all.refusal("r", sql, &[]).await;
        assert_eq!((error.code(), error.transient), ("OUTPUT_TOO_LARGE", false), "{error}");
    }
    // Beyond 64 MiB the library itself refuses.
    assert_eq!(all.refusal("r", "SELECT length(randomblob(100000000))", &[]).await.code(), "DATABASE");
    let nul = all.refusal("r", "SELECT '\u{0}'", &[]).await;
    assert!(nul.code() == "REFUSED" && nul.message.contains("NUL"), "{nul}");
}

#[tokio::test]
async fn placeholders_in_the_text_take_params() {
    let (_folder, url) = file(SALES).await;
    let all = both(ConnectorKind::Sqlite, &url);
    let with = |params: &[Value]| Query { params: params.to_vec(), ..Query::text("SELECT ? AS a, ? AS b") };
    assert_eq!(first(&all.named("r").run(&with(&[json!("x"), json!(2)])).await.unwrap()), json!({"a": "x", "b": 2}));
    let error = all.named("r").run(&with(&[json!("x")])).await.unwrap_err();
    assert!(error.message.contains("2 placeholders for 1 values"), "{error}");
    let error = all.refusal("r", "SELECT :name", &[json!(1)]).await;
    assert_eq!(error.code(), "DATABASE", "{error}");
}

#[tokio::test]
async fn the_file_must_exist_and_be_one_of_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing.db");
    for read_only in [true, false] {
        let settings = BTreeMap::from([("a".to_owned(), settings(ConnectorKind::Sqlite, read_only))]);
        let all = connectors(&settings, &format!("sqlite://{}", path.display()));
        let error = all.find(None, &|_| true).unwrap().run(&Query::text("SELECT 1")).await.unwrap_err();
        assert_eq!(error.code(), "CONNECTION");
        assert!(error.message.starts_with("connector `a`") && !error.message.contains("missing.db"), "{error}");
        assert!(!path.exists());
    }
    fs::write(&path, "no database at all, but a text of more than a hundred bytes ".repeat(40)).unwrap();
    let all = both(ConnectorKind::Sqlite, &format!("sqlite://{}", path.display()));
    assert_eq!(all.refusal("r", "SELECT * FROM sqlite_schema", &[]).await.code(), "CONNECTION");
}

#[tokio::test]
async fn sqlite_is_examined_and_described() {
    let (folder, url) =
        file("CREATE TABLE sales (month TEXT, amount); CREATE VIEW best AS SELECT month FROM sales").await;
    let all = both(ConnectorKind::Sqlite, &url);
    let examined = all.named("r").examine().await.unwrap();
    assert!(examined.version.starts_with("SQLite 3."), "{examined:?}");
    assert_eq!((examined.enforces_read_only, examined.advice), (Some(true), None));
    assert_eq!(all.named("w").examine().await.unwrap().enforces_read_only, None);
    let described = all.describe(|name| name == "r").await;
    let texts: Vec<_> = described.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["`r` (sqlite, read-only): best(month); sales(month, amount)"]);
    drop(folder);
    assert!(all.named("r").examine().await.is_err());
}
