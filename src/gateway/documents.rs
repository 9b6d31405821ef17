//! The parts of responses that agents and workflows have in common.

use axum::http::header::ETAG;
use axum::http::{HeaderName, HeaderValue};
use commands::documents::versions::VersionSummary;
use commands::paging::Listing;
use serde::{Deserialize, Serialize};

/// Why a version is stored or applied.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub(super) struct NoteParam {
    /// Why it is changed, for the list of versions: at most 1,000 characters.
    #[serde(default)]
    pub(super) note: Option<String>,
}

/// The versions of an agent or workflow.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct VersionList {
    versions: Vec<VersionSummary>,
    /// The cursor of the next page: give it as `after`. Missing at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl From<Listing<VersionSummary>> for VersionList {
    fn from(listing: Listing<VersionSummary>) -> Self {
        let Listing { items: versions, next } = listing;
        Self { versions, next }
    }
}

/// The header `ETag`.
pub(super) type ETag = [(HeaderName, HeaderValue); 1];

/// The header with the hash of the document in a response.
pub(super) fn etag(hash: &str) -> ETag {
    // A stored hash has only letters and digits. Another one is no tag that a client could send back.
    let value = HeaderValue::from_str(&format!("\"{hash}\"")).unwrap_or_else(|_| HeaderValue::from_static("\"\""));
    [(ETAG, value)]
}
