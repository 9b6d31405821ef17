//! Settings of the console.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The web pages that the gateway serves under `/console/`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Console {
    /// Folder that is served instead of the files in the program.
    pub dir: Option<PathBuf>,
}
