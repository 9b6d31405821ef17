//! One prepared statement, made of texts and values.

use crate::error::{ConnectorError, ErrorKind};
use crate::lexer;
use base::config::ConnectorKind;
use serde_json::Value;
use std::time::Duration;

/// The most bound parameters of a statement. MySQL and PostgreSQL have this limit, too.
const MAX_BOUND: usize = 32_000;

/// Words of statements that read, by kind.
const READS: &[&str] = &["SELECT", "WITH", "VALUES", "EXPLAIN"];
const POSTGRES_READS: &[&str] = &["TABLE", "SHOW"];
const MYSQL_READS: &[&str] = &["TABLE", "SHOW", "DESCRIBE", "DESC"];
/// Words of statements that write, by kind.
const WRITES: &[&str] = &["INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP"];
const SQLITE_WRITES: &[&str] = &["REPLACE", "REINDEX", "ANALYZE"];
const POSTGRES_WRITES: &[&str] = &["MERGE", "TRUNCATE", "REFRESH", "CALL"];
const MYSQL_WRITES: &[&str] = &["REPLACE", "TRUNCATE", "CALL"];

/// A statement with its limits.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// The text of the statement, with values between its parts. Each value becomes a bound parameter.
    pub parts: Vec<Part>,
    /// The values of the placeholders in the text: `?`, or `$1` for PostgreSQL. A statement has either these or values
    /// between its parts.
    pub params: Vec<Value>,
    /// The most rows; the connector's `max_rows` if `None` or more than it.
    pub max_rows: Option<u64>,
    /// The longest time; the connector's `timeout` if `None` or longer than it.
    pub timeout: Option<Duration>,
}

/// A part of a statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Text.
    Text(String),
    /// The value of a bound parameter.
    Value(Value),
}

/// A statement for the server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bound {
    /// The text with placeholders.
    pub(crate) sql: String,
    /// The values of the placeholders, in order.
    pub(crate) values: Vec<Value>,
}

impl Query {
    /// A statement without values between its parts.
    pub fn text(sql: impl Into<String>) -> Self {
        Self { parts: vec![Part::Text(sql.into())], ..Self::default() }
    }

    /// The statement for a server of this kind. Fails if a read-only connector, or any connector, refuses it.
    pub(crate) fn bound(&self, kind: ConnectorKind, read_only: bool) -> Result<Bound, ConnectorError> {
        let refused = |message: &str| Err(ConnectorError::new(ErrorKind::Refused, message));
        let (mut sql, mut values) = (String::new(), Vec::new());
        for part in &self.parts {
            match part {
                Part::Text(text) => sql.push_str(text),
                Part::Value(value) => {
                    values.push(value.clone());
                    // With spaces, so that a sign before or after it does not become a part of the placeholder.
                    sql.push_str(&match kind {
                        ConnectorKind::Sqlite => format!(" ?{} ", values.len()),
                        ConnectorKind::Postgres => format!(" ${} ", values.len()),
                        ConnectorKind::Mysql => " ? ".to_owned(),
                    });
                }
            }
        }
        if sql.contains('\0') {
            return refused("the statement has a NUL character; remove it");
        }
        if !values.is_empty() && !self.params.is_empty() {
            return refused("the statement has references and `params`; put the references into `params`");
        }
        if values.is_empty() {
            values.clone_from(&self.params);
        }
        if values.len() > MAX_BOUND {
            return refused("the statement has more than 32,000 values; pass a list as one value");
        }
        check(&sql, kind, read_only)?;
        Ok(Bound { sql, values })
    }
}

impl Bound {
    /// Compares the number of values with the number of placeholders that the server has found.
    pub(crate) fn check_count(&self, found: usize) -> Result<(), ConnectorError> {
        if found == self.values.len() {
            return Ok(());
        }
        Err(ConnectorError::database(format!(
            "the statement has {found} placeholders for {} values; a reference within quotes or a comment is none: write \
             `WHERE month = ${{input.month}}` without quotes, and join texts as in `'%' || ${{input.word}} || '%'`",
            self.values.len()
        )))
    }
}

/// Checks the kind of a statement. The server refuses writes on a read-only connector; this check also refuses statements
/// that leave the transaction or reach files, which a read-only server accepts.
fn check(sql: &str, kind: ConnectorKind, read_only: bool) -> Result<(), ConnectorError> {
    let word = lexer::first_word(sql, kind);
    let (reads, writes) = match kind {
        ConnectorKind::Sqlite => (&[][..], SQLITE_WRITES),
        ConnectorKind::Postgres => (POSTGRES_READS, POSTGRES_WRITES),
        ConnectorKind::Mysql => (MYSQL_READS, MYSQL_WRITES),
    };
    let is_one_of = |lists: [&[&str]; 2]| lists.concat().contains(&word.as_str());
    let shown = if word.is_empty() { "an unknown word".to_owned() } else { format!("`{word}`") };
    if read_only && !is_one_of([READS, reads]) {
        let allowed = [READS, reads].concat().join(", ");
        let message = format!(
            "the statement begins with {shown}, and the connector is read-only: it accepts {allowed}; change the statement, \
             or set the connector's `read_only` to false"
        );
        return Err(ConnectorError::new(ErrorKind::ReadOnly, message));
    }
    if !is_one_of([READS, reads]) && !is_one_of([WRITES, writes]) {
        let allowed = [READS, reads, WRITES, writes].concat().join(", ");
        let message = format!("the statement begins with {shown}; connectors accept {allowed}; change the statement");
        return Err(ConnectorError::new(ErrorKind::Refused, message));
    }
    if kind == ConnectorKind::Sqlite && lexer::has_second_statement(sql) {
        let message = "the text has several statements; give one, and another node for each further one";
        return Err(ConnectorError::new(ErrorKind::Refused, message));
    }
    if kind == ConnectorKind::Mysql {
        return check_files(sql);
    }
    Ok(())
}

/// MySQL writes files in read-only transactions, if the account may. The words are searched everywhere, since MySQL also
/// executes the text of some comments.
fn check_files(sql: &str) -> Result<(), ConnectorError> {
    let upper = sql.to_ascii_uppercase();
    match ["OUTFILE", "DUMPFILE"].iter().find(|word| upper.contains(*word)) {
        Some(word) => {
            let message = format!("the statement has the word `{word}`, which writes files on the server; remove it");
            Err(ConnectorError::new(ErrorKind::Refused, message))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ConnectorKind::{Mysql, Postgres, Sqlite};
    use serde_json::json;

    fn with_values() -> Query {
        let text = |text: &str| Part::Text(text.to_owned());
        let parts = vec![text("SELECT a"), Part::Value(json!(1)), text("5, b="), Part::Value(json!("x' OR 1"))];
        Query { parts, ..Query::default() }
    }

    #[test]
    fn values_become_placeholders_of_the_kind() {
        let sql = |kind| with_values().bound(kind, true).unwrap().sql;
        assert_eq!(sql(Sqlite), "SELECT a ?1 5, b= ?2 ");
        assert_eq!(sql(Postgres), "SELECT a $1 5, b= $2 ");
        assert_eq!(sql(Mysql), "SELECT a ? 5, b= ? ");
        assert_eq!(with_values().bound(Sqlite, true).unwrap().values, [json!(1), json!("x' OR 1")]);
        let mixed = Query { params: vec![json!(1)], ..with_values() };
        assert_eq!(mixed.bound(Sqlite, true).unwrap_err().code(), "REFUSED");
    }

    #[test]
    fn only_known_kinds_of_statements_are_accepted() {
        let code = |sql: &str, kind, read_only| match Query::text(sql).bound(kind, read_only) {
            Ok(_) => "",
            Err(error) => error.code(),
        };
        for sql in ["SELECT 1", "with x as (select 1) select * from x", "(SELECT 1)", "EXPLAIN DELETE FROM t"] {
            for kind in [Sqlite, Postgres, Mysql] {
                assert_eq!(code(sql, kind, true), "", "{sql}");
            }
        }
        for sql in [
            "DELETE FROM t",
            "ATTACH 'x' AS y",
            "PRAGMA query_only = 0",
            "VACUUM INTO 'x'",
            "COPY t TO PROGRAM 'x'",
            "COMMIT",
            "SET x = 1",
            "DO 1",
            "",
        ] {
            for kind in [Sqlite, Postgres, Mysql] {
                assert_eq!(code(sql, kind, true), "READ_ONLY", "{sql}");
            }
        }
        for sql in [
            "ATTACH 'x' AS y",
            "PRAGMA user_version = 1",
            "VACUUM",
            "BEGIN",
            "COPY t FROM '/x'",
            "LOAD DATA INFILE 'x' INTO TABLE t",
            "SET x = 1",
        ] {
            for kind in [Sqlite, Postgres, Mysql] {
                assert_eq!(code(sql, kind, false), "REFUSED", "{sql}");
            }
        }
        assert_eq!(code("INSERT INTO t VALUES (1)", Postgres, false), "");
        assert_eq!(code("SELECT 1; DELETE FROM t", Sqlite, false), "REFUSED");
        assert_eq!(code("SELECT 1 INTO /*!50000 outfile */ '/tmp/x'", Mysql, true), "REFUSED");
        assert_eq!(code("SELECT '\0'", Sqlite, true), "REFUSED");
    }
}
