//! The address of a database.

use crate::error::{ConnectorError, ErrorKind};
use base::config::mask::Masker;
use base::config::secrets::in_address;
use base::config::{Connector, ConnectorKind, Environment};

/// The URL of a connector. Only its driver sees it.
#[derive(Clone)]
pub(crate) struct DatabaseUrl {
    pub(crate) text: String,
}

/// Names no part of the URL, because it may have a password.
impl std::fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DatabaseUrl")
    }
}

impl DatabaseUrl {
    /// Reads the variable that `url_env` names. The error names the variable, never its value.
    pub(crate) fn read(name: &str, settings: &Connector, env: &Environment) -> Result<Self, ConnectorError> {
        let variable = &settings.url_env;
        let unknown = |problem: String| ConnectorError::new(ErrorKind::Unknown, problem);
        let Some(text) = env.get(variable) else {
            let message = format!(
                "the connector `{name}` has no address: the environment variable `{variable}` is not set; set it, as \
                 `connectors.{name}.url_env` names it"
            );
            return Err(unknown(message));
        };
        match settings.kind.check_url(text) {
            Ok(()) => Ok(Self { text: text.to_owned() }),
            Err(remedy) => Err(unknown(format!(
                "the connector `{name}` has an address of another kind in the environment variable `{variable}`; {remedy}"
            ))),
        }
    }

    /// The path of the file of SQLite.
    #[cfg_attr(not(feature = "sqlite"), allow(dead_code, reason = "only SQLite has a file"))]
    pub(crate) fn path(&self) -> String {
        let path = self.text.strip_prefix(ConnectorKind::SQLITE_SCHEME).unwrap_or_default();
        percent_encoding::percent_decode_str(path).decode_utf8_lossy().into_owned()
    }

    /// Hides the URL and its secrets in texts.
    pub(crate) fn masker(&self) -> Masker {
        Masker::new(in_address(&self.text).into_iter().chain([self.text.clone()]))
    }
}
