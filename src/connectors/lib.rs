//! Connectors: databases of the settings, on which single SQL statements run. It knows no workflow.
//!
//! - [`Connectors`] has all of them by name, and [`connector`] one of them: its limits, its description for prompts and
//!   its examination for `doctor`. [`error`] has the reasons for which a statement fails.
//! - [`statement`] makes one prepared statement of texts and values, and refuses statements of other kinds; `lexer` finds
//!   its first word and its end. `rows` collects the result within the limits, and `json` makes JSON of values.
//! - `driver` is the interface of the kinds: `sqlite`, `postgres` and `mysql`, each behind a cargo feature. `url` reads the
//!   address of a database, and `pool` keeps its few connections.

#![cfg_attr(
    not(any(feature = "sqlite", feature = "postgres", feature = "mysql")),
    allow(dead_code, reason = "a build without any kind executes nothing")
)]

pub mod connector;
mod driver;
pub mod error;
mod json;
mod lexer;
#[cfg(feature = "mysql")]
mod mysql;
mod pool;
#[cfg(feature = "postgres")]
mod postgres;
mod rows;
#[cfg(feature = "sqlite")]
mod sqlite;
pub mod statement;
#[cfg(test)]
mod tests;
mod url;

pub use connector::{Connector, Description, Table};
pub use driver::Examined;
pub use error::{ConnectorError, ErrorKind};
pub use rows::{MAX_RESULT_BYTES, Rows};
pub use statement::{Part, Query};

use base::config::{self, Environment};
use base::tasks::Tasks;
use futures::future::join_all;
use std::collections::BTreeMap;

/// The name of the connector that a statement without a name uses, if there are several.
pub const DEFAULT: &str = "default";

/// The connectors of a process, by name.
#[derive(Debug, Default)]
pub struct Connectors {
    by_name: BTreeMap<String, Connector>,
}

impl Connectors {
    /// The connectors of the settings. Opens no connection. The URLs come from `env`. `tasks` holds a task that closes
    /// idle connections.
    pub fn new(settings: &BTreeMap<String, config::Connector>, env: &Environment, tasks: &Tasks) -> Self {
        let connector = |(name, settings): (&String, &config::Connector)| {
            (name.clone(), Connector::new(name, settings, env, tasks.clone()))
        };
        Self { by_name: settings.iter().map(connector).collect() }
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// All connectors, in order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Connector> {
        self.by_name.values()
    }

    /// The connector with this name, if `is_allowed` accepts it. Without a name: the only allowed one, else the one named
    /// `default`.
    pub fn find(&self, name: Option<&str>, is_allowed: &dyn Fn(&str) -> bool) -> Result<&Connector, ConnectorError> {
        let mut allowed = self.iter().filter(|connector| is_allowed(connector.name()));
        if let Some(name) = name {
            let found = self.by_name.get(name).ok_or_else(|| self.unknown(Some(name), is_allowed))?;
            return if is_allowed(name) {
                Ok(found)
            } else {
                let message = format!("the connector `{name}` is not allowed here; name another one");
                Err(ConnectorError::new(ErrorKind::Refused, message))
            };
        }
        match (allowed.next(), allowed.next()) {
            (Some(only), None) => Ok(only),
            _ => {
                self.by_name.get(DEFAULT).filter(|_| is_allowed(DEFAULT)).ok_or_else(|| self.unknown(None, is_allowed))
            }
        }
    }

    fn unknown(&self, name: Option<&str>, is_allowed: &dyn Fn(&str) -> bool) -> ConnectorError {
        let known: Vec<_> = self.names().filter(|name| is_allowed(name)).map(|name| format!("`{name}`")).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let message = match name {
            Some(name) => {
                format!(
                    "there is no connector `{name}`; known are {known}; add it to the settings as `connectors.{name}`"
                )
            }
            None => format!("no connector is named, and known are {known}; name one of them as `connection`"),
        };
        ConnectorError::new(ErrorKind::Unknown, message)
    }

    /// Describes the connectors that `is_allowed` accepts, with their tables, for a prompt. A database that does not
    /// respond has no tables in its description. Either is kept for a minute.
    pub async fn describe(&self, is_allowed: impl Fn(&str) -> bool) -> Vec<Description> {
        join_all(self.iter().filter(|connector| is_allowed(connector.name())).map(Connector::describe)).await
    }
}
