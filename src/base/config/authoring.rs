//! Settings of an authoring agent on another server.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// The authoring agent that workers call. Without an endpoint, they do its work themselves.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authoring {
    /// Address of the gRPC server, such as `https://agent.internal:8081`; none unless given.
    pub endpoint: Option<String>,
    /// Bearer token for the server; none unless given.
    pub token: Option<String>,
    /// Path of the CA certificates in PEM that verify the server; the system's certificates unless given.
    pub ca: Option<PathBuf>,
}

impl fmt::Debug for Authoring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| super::mask::MASK);
        f.debug_struct("Authoring")
            .field("endpoint", &self.endpoint)
            .field("token", &token)
            .field("ca", &self.ca)
            .finish()
    }
}
