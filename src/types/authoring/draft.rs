//! The last document of a dialogue, with the results of its checks and its publication.

use crate::timestamp::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The last document that was written. It is not published, or this dialogue has published it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Draft {
    /// The hash. The store has the document as a version of the artefact.
    pub hash: String,
    /// The hash of the document from which it was made.
    pub base_hash: Option<String>,
    /// True if it passed the checks, false if it failed, absent until it is checked.
    pub ok: Option<bool>,
    /// The results of its tests.
    pub tests: TestCounts,
    /// Why it failed the checks, one sentence for each reason.
    pub problems: Vec<String>,
    /// The changes that the model has announced after a failed check.
    pub changes: Vec<String>,
    /// The tests that the model wrote, as JSON texts: as a text, a JSON object may have keys that the store does not
    /// permit.
    pub cases: Vec<String>,
    /// The report of the checks, as a JSON text: the `data` of a `workflow_debugging` event.
    pub report: Option<String>,
}

/// Numbers of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TestCounts {
    /// Tests that passed.
    pub passed: u32,
    /// Tests that failed.
    pub failed: u32,
    /// Tests that did not run.
    pub not_run: u32,
}

/// The last publication.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Published {
    /// The hash of the published document.
    pub hash: String,
    /// The time.
    pub at: Timestamp,
    /// The user or operator who published it.
    pub by: String,
    /// True if it was published in spite of failed tests.
    #[serde(default)]
    pub forced: bool,
}
