//! The settings of a connector: a database on which DATABASE nodes run statements.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;
use types::duration::Text;

/// The kind of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectorKind {
    /// A file of SQLite.
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// MySQL or MariaDB.
    Mysql,
}

impl ConnectorKind {
    /// The beginning of the URL of a file of SQLite. An absolute path follows.
    pub const SQLITE_SCHEME: &str = "sqlite://";

    /// The name in settings and cargo features.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
        }
    }

    /// Checks that a URL belongs to this kind. The error is the remedy; it does not quote the URL, which may have a
    /// password.
    pub fn check_url(self, url: &str) -> Result<(), &'static str> {
        let begins =
            |schemes: &[&str]| schemes.iter().any(|scheme| url.len() > scheme.len() && url.starts_with(scheme));
        match self {
            Self::Sqlite => match url.strip_prefix(Self::SQLITE_SCHEME) {
                Some(path) if path.starts_with('/') && !path.contains(['?', '#']) => Ok(()),
                _ => Err(
                    "write `sqlite://` and an absolute path, such as `sqlite:///var/lib/sales.db`, without parameters",
                ),
            },
            Self::Postgres if begins(&["postgres://", "postgresql://"]) => Ok(()),
            Self::Postgres => Err("write it as `postgres://user:password@host:5432/database`"),
            Self::Mysql if begins(&["mysql://", "mariadb://"]) => Ok(()),
            Self::Mysql => Err("write it as `mysql://user:password@host:3306/database`"),
        }
    }
}

impl fmt::Display for ConnectorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A database of DATABASE nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connector {
    /// The kind of the database.
    pub kind: ConnectorKind,
    /// Name of the environment variable that has the URL with the login.
    #[serde(default)]
    pub url_env: String,
    /// True if only statements that read are accepted, which the server enforces, too. True unless given.
    #[serde(default = "yes")]
    pub read_only: bool,
    /// The most rows of a result; 1,000 unless given.
    #[serde(default = "rows")]
    pub max_rows: u64,
    /// The longest time of a statement, at most 300 s; 30 s unless given.
    #[serde(default = "timeout")]
    pub timeout: Text,
}

const fn yes() -> bool {
    true
}

const fn rows() -> u64 {
    1_000
}

const fn timeout() -> Text {
    Text(Duration::from_secs(30))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_belongs_to_its_kind() {
        let fits = |kind: ConnectorKind, url: &str| kind.check_url(url).is_ok();
        assert!(fits(ConnectorKind::Sqlite, "sqlite:///a/b.db") && fits(ConnectorKind::Postgres, "postgresql://h/d"));
        assert!(fits(ConnectorKind::Mysql, "mariadb://h/d"));
        for url in [
            "sqlite://a.db",
            "sqlite:a.db",
            "sqlite::memory:",
            "sqlite:///a?mode=rwc",
            "/a.db",
            "postgres://",
            "mysql://h",
        ] {
            assert!(!fits(ConnectorKind::Sqlite, url) && !fits(ConnectorKind::Postgres, url), "{url}");
        }
    }
}
