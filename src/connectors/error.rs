//! The reasons for which a statement fails.

use thiserror::Error;

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// There is no such connector, or its settings do not lead to a database.
    Unknown,
    /// A statement that writes, on a read-only connector.
    ReadOnly,
    /// A statement that no connector accepts.
    Refused,
    /// The database has refused the statement, or a value cannot be sent or read.
    Database,
    /// The statement took too long and was broken off.
    Timeout,
    /// The database cannot be reached.
    Connection,
    /// The result is too large.
    TooLarge,
}

impl ErrorKind {
    /// The error code in events and records.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Unknown => "CONNECTOR_UNKNOWN",
            Self::ReadOnly => "READ_ONLY",
            Self::Refused => "REFUSED",
            Self::Database => "DATABASE",
            Self::Timeout => "TIMEOUT",
            Self::Connection => "CONNECTION",
            Self::TooLarge => "OUTPUT_TOO_LARGE",
        }
    }
}

/// The failure of a statement. Its text has no secrets.
///
/// The error of the driver is not kept as its source: it may contain the URL, and a printed chain would show it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct ConnectorError {
    /// The kind.
    pub kind: ErrorKind,
    /// What failed, and the remedy.
    pub message: String,
    /// True if another attempt may succeed.
    pub transient: bool,
}

impl ConnectorError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let transient = matches!(kind, ErrorKind::Timeout | ErrorKind::Connection);
        Self { kind, message: message.into(), transient }
    }

    pub(crate) fn database(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Database, message)
    }

    /// The error code in events and records.
    pub const fn code(&self) -> &'static str {
        self.kind.code()
    }

    /// The error of the driver. `of_database` gives the kind of a database's own error, and whether another attempt may
    /// succeed.
    pub(crate) fn of_driver(
        error: sqlx::Error,
        of_database: impl FnOnce(&dyn sqlx::error::DatabaseError) -> (ErrorKind, bool),
    ) -> Self {
        match error {
            sqlx::Error::Database(error) => {
                let (kind, transient) = of_database(error.as_ref());
                Self { transient, ..Self::new(kind, error.message()) }
            }
            sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::WorkerCrashed => {
                Self::new(ErrorKind::Connection, error.to_string())
            }
            other => Self::database(other.to_string()),
        }
    }
}
