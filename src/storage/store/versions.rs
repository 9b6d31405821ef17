//! The versions of an agent or workflow as people see them: who stored them when, with which text and note.

use super::Result;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::authoring::Artifact;
use types::timestamp::Timestamp;

/// Stands in [`Drafts::put_draft`](super::Drafts::put_draft) for the session of a draft that no dialogue has made. No
/// session id begins with `$`.
pub const NO_DIALOGUE: &str = "$none";

/// The details that a person gives when storing a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionLabel {
    /// The text from which the document was parsed, with its comments.
    pub source: Option<String>,
    /// The person or token.
    pub by: Option<String>,
    /// Why the version was stored.
    pub note: Option<String>,
}

/// The stored fields of a version besides its document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredLabel {
    /// When the version was last put into use, or stored as a draft. Missing in versions of earlier programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Who did that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The text of the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// Why a version is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It becomes the current version.
    Applied,
    /// It is the current version already.
    Unchanged,
    /// It is stored as a draft.
    Draft,
    /// A run needs it, or it is stored again for another reason than a person's.
    Kept,
}

impl StoredLabel {
    /// The label after the version is written again. A text or note that is not given stays, since it is still true of
    /// the document.
    #[must_use]
    pub fn after(self, reason: Reason, given: &VersionLabel, now: Timestamp) -> Self {
        let is_edited = given.note.is_some() || (self.source.is_some() && given.is_another_text(&self));
        let (at, by) = match reason {
            Reason::Applied => (Some(now), given.by.clone()),
            Reason::Unchanged if is_edited => (Some(now), given.by.clone()),
            Reason::Draft => (Some(now), given.by.clone().or(self.by)),
            Reason::Unchanged | Reason::Kept => (self.at, self.by),
        };
        let source = match (reason, self.source) {
            (Reason::Kept, Some(source)) => Some(source),
            (_, source) => given.source.clone().or(source),
        };
        Self { at, by, note: given.note.clone().or(self.note), source }
    }
}

impl VersionLabel {
    /// The label of a document that was parsed from this text.
    pub fn of_text(source: Option<&str>) -> Self {
        Self { source: source.map(str::to_owned), ..Self::default() }
    }

    fn is_another_text(&self, stored: &StoredLabel) -> bool {
        self.source.is_some() && self.source != stored.source
    }
}

/// A version in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionEntry {
    /// The hash of the document.
    pub hash: String,
    /// When it was last put into use, or stored as a draft.
    pub at: Timestamp,
    /// Who did that.
    pub by: Option<String>,
    /// Why.
    pub note: Option<String>,
    /// True for a version that was never in use.
    pub is_draft: bool,
}

/// A version with its document. This program may be unable to decode the document as an agent or a workflow.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionDetails {
    /// The version as in a listing.
    pub entry: VersionEntry,
    /// The whole file.
    pub document: Value,
    /// The text of the document; `None` if it was given as JSON.
    pub source: Option<String>,
}

/// Reads versions.
#[async_trait]
pub trait Versions {
    /// Returns all versions of an agent or workflow, drafts included, without their documents, in no order.
    async fn versions(&self, artifact: Artifact, id: &str) -> Result<Vec<VersionEntry>>;

    /// Returns the version with this hash.
    async fn version_details(&self, artifact: Artifact, id: &str, hash: &str) -> Result<Option<VersionDetails>>;

    /// Returns the number of open conversations of an agent that last ran with another version than this one.
    async fn open_sessions_without(&self, agent_id: &str, hash: &str) -> Result<u64>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(source: Option<&str>, by: Option<&str>, note: Option<&str>) -> VersionLabel {
        let text = |text: Option<&str>| text.map(str::to_owned);
        VersionLabel { source: text(source), by: text(by), note: text(note) }
    }

    #[test]
    fn a_version_tells_who_put_it_into_use_last_and_keeps_its_text() {
        let at = Timestamp::from_millis;
        let first = given(Some("# 一"), Some("anna"), Some("first"));
        let stored = StoredLabel::default().after(Reason::Applied, &first, at(1));
        assert_eq!((stored.at, stored.by.as_deref()), (Some(at(1)), Some("anna")));
        let again = |reason, given: &VersionLabel| stored.clone().after(reason, given, at(2));
        let back = again(Reason::Applied, &given(None, Some("ben"), None));
        assert_eq!((back.at, back.by.as_deref(), back.note.as_deref()), (Some(at(2)), Some("ben"), Some("first")));
        assert_eq!(back.source.as_deref(), Some("# 一"), "the text is still that of the document");
        assert_eq!(again(Reason::Unchanged, &given(Some("# 一"), None, None)), stored, "nothing has changed");
        assert_eq!(again(Reason::Kept, &given(Some("# 二"), None, None)), stored);
        let comment = again(Reason::Unchanged, &given(Some("# 二"), None, None));
        assert_eq!((comment.source.as_deref(), comment.by), (Some("# 二"), None), "somebody has edited a comment");
        let untold = StoredLabel { source: None, ..stored.clone() };
        let told = untold.after(Reason::Unchanged, &given(Some("# 二"), None, None), at(2));
        assert_eq!((told.by.as_deref(), told.source.as_deref()), (Some("anna"), Some("# 二")));
    }
}
