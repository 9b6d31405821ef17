//! Why a message is refused.

use thiserror::Error;
use types::authoring::ConfigError;

/// A value that is not allowed in a message.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Invalid {
    /// A field has a value that is not allowed.
    #[error("{field} is `{found}`; {remedy}")]
    Field {
        /// Path of the field.
        field: String,
        /// The value.
        found: String,
        /// The accepted values.
        remedy: String,
    },
    /// A setting of the conversation is outside its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl Invalid {
    /// The error for a field with this path and this value.
    pub fn field(field: &str, found: &(impl ToString + ?Sized), remedy: impl Into<String>) -> Self {
        Self::Field { field: field.to_owned(), found: found.to_string(), remedy: remedy.into() }
    }
}
