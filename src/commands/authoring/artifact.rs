//! The document of a dialogue: its current text, its differences from the source, and its publication.

use super::{Author, Dialogue, busy};
use crate::error::{CommandError, ErrorKind};
use decisions::authoring::workflow_id;
use definitions::difference::Difference;
use engine::authoring::artifact::{self, current};
use engine::authoring::publication::{self, Done, Order, Refusal};
use engine::authoring::{Workbench, artifact::Source};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;
use storage::store::Store;
use storage::store::authoring::{SaveAuthoring, Saved};
use tracing::warn;
use types::authoring::{Artifact, Published, Stage, TestCounts};
use types::ids::Id;
use types::timestamp::Timestamp;

/// The time limit for a publication to wait for a turn that has begun after its first check.
const MAX_WAIT: Duration = Duration::from_secs(20);
/// The pause between two attempts to save it.
const PAUSE: Duration = Duration::from_millis(100);

/// The current document of a dialogue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DialogueStatus {
    /// The session.
    #[schemars(with = "Id")]
    pub session_id: String,
    /// Where the dialogue stands.
    pub stage: Stage,
    /// True if there is a document.
    pub has_workflow: bool,
    /// The artefact, once it has an id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<String>,
    /// The published document, else the draft.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_data: Option<Value>,
    /// Failed checks since the requirements were last agreed on.
    pub debug_loop_count: u32,
    /// When the dialogue last changed.
    pub last_updated: Timestamp,
}

/// A draft.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DraftDetails {
    /// The artefact.
    pub workflow_id: String,
    /// Its kind.
    pub artifact: Artifact,
    /// The hash of the document.
    pub hash: String,
    /// The hash of the document that it was made from.
    pub base_hash: Option<String>,
    /// The document.
    pub document: Value,
    /// Why it failed its checks, one sentence for each reason. Only of the last draft.
    pub findings: Vec<String>,
    /// The results of its tests. Only of the last draft.
    pub tests: TestCounts,
    /// True if it passed its checks, false if it failed, absent until it is checked.
    pub ok: Option<bool>,
    /// True if this document is the one that the dialogue has published last.
    pub published: bool,
}

/// A publication.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PublishRequest {
    /// The hash of the draft to publish, which must be the last one.
    pub hash: String,
    /// Publishes a draft that has not passed its tests. For operators; the publication says so.
    #[serde(default)]
    pub force: bool,
}

/// A draft that is in use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PublishedDraft {
    /// The artefact.
    pub workflow_id: String,
    /// The hash of the document.
    pub hash: String,
    /// False if the same document was in use already.
    pub changed: bool,
    /// Findings that are probably mistakes.
    pub warnings: Vec<Value>,
}

/// The document with which a draft is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Against {
    /// The document from which the draft was made.
    #[default]
    Base,
    /// The published document with the id of the draft.
    Published,
}

impl Against {
    /// Parses the name. Without a name it is `base`.
    pub fn parse(name: Option<&str>) -> Result<Self, CommandError> {
        match name {
            None | Some("" | "base") => Ok(Self::Base),
            Some("published") => Ok(Self::Published),
            Some(other) => {
                let message = format!("against is `{other}`; it must be `base` or `published`");
                Err(CommandError::invalid("invalid_request", message, "without `against` it is `base`"))
            }
        }
    }
}

/// Shows the document of a dialogue.
pub async fn status(store: &dyn Store, dialogue: Dialogue) -> Result<DialogueStatus, CommandError> {
    let state = dialogue.state;
    let hash = state.published.as_ref().map(|published| published.hash.as_str());
    let document = artifact::draft(store, &state, hash).await?.map(|version| version.document);
    Ok(DialogueStatus {
        has_workflow: state.has_workflow(),
        stage: state.state.stage,
        workflow_id: state.state.workflow_id,
        workflow_data: document,
        debug_loop_count: state.state.debug_loop_count,
        last_updated: state.state.updated_at,
        session_id: state.state.session_id,
    })
}

/// Shows a draft: the last one, or the version with this hash.
pub async fn draft(store: &dyn Store, dialogue: &Dialogue, hash: Option<&str>) -> Result<DraftDetails, CommandError> {
    let state = &dialogue.state;
    let version = artifact::draft(store, state, hash).await?.ok_or_else(|| no_draft(dialogue))?;
    let last = state.draft.clone().filter(|draft| draft.hash == version.hash).unwrap_or_default();
    let published = state.published.as_ref().is_some_and(|published| published.hash == version.hash);
    Ok(DraftDetails {
        workflow_id: version.id,
        artifact: version.artifact,
        hash: version.hash,
        base_hash: last.base_hash,
        document: version.document,
        findings: last.problems,
        tests: last.tests,
        ok: last.ok,
        published,
    })
}

/// Compares the last draft with the document from which it was made, or with the published one of its id. If that
/// document does not exist, everything in the draft is new.
pub async fn difference(store: &dyn Store, dialogue: &Dialogue, against: Against) -> Result<Difference, CommandError> {
    let state = &dialogue.state;
    let version = artifact::draft(store, state, None).await?.ok_or_else(|| no_draft(dialogue))?;
    let base = match against {
        Against::Base => base(store, dialogue).await?,
        Against::Published => current(store, state.artifact, &version.id).await?.map(|source| source.document),
    };
    Ok(Difference::between(&base.unwrap_or_else(|| Value::Object(Default::default())), &version.document))
}

/// Returns the document from which the draft was made, also if another user has changed it since.
async fn base(store: &dyn Store, dialogue: &Dialogue) -> Result<Option<Value>, CommandError> {
    let state = &dialogue.state;
    let Some(hash) = state.draft.as_ref().and_then(|draft| draft.base_hash.as_deref()) else { return Ok(None) };
    let own = workflow_id(state);
    for id in [own.as_str(), state.state.workflow_context.source_workflow_id.as_str()] {
        if id.is_empty() {
            continue;
        }
        if let Some(document) = store.version_document(state.artifact, id, hash).await? {
            return Ok(Some(document));
        }
    }
    // The store has no version of a compiled-in document.
    let source: Option<Source> = artifact::source(store, state).await?;
    Ok(source.filter(|source| source.hash == hash).map(|source| source.document))
}

/// Publishes the last draft. Durable on return.
pub async fn publish(
    bench: &Workbench,
    author: &Author,
    dialogue: Dialogue,
    request: &PublishRequest,
) -> Result<PublishedDraft, CommandError> {
    let session_id = dialogue.session.session_id.clone();
    if dialogue.is_busy() {
        return Err(busy(&session_id));
    }
    let owner = match author {
        Author::User(name) => Some(name.as_str()),
        Author::Operator(_) => None,
    };
    if request.force && owner.is_some() {
        let hint = "correct the draft in the dialogue, or ask an operator";
        return Err(CommandError::new(ErrorKind::Forbidden, "forbidden", "`force` is for operators", hint));
    }
    let order = Order { hash: &request.hash, by: author.name(), owner, force: request.force };
    let done = publication::publish(bench, &dialogue.state, order).await?.map_err(refused)?;
    let Done { published, changed, warnings } = done;
    let workflow_id = workflow_id(&dialogue.state);
    remember(bench, dialogue, published, &workflow_id).await?;
    Ok(PublishedDraft { workflow_id, hash: request.hash.clone(), changed, warnings })
}

/// Saves that the draft is published, once the turns that have begun meanwhile have ended. Keeps the changes of
/// these turns.
async fn remember(
    bench: &Workbench,
    dialogue: Dialogue,
    published: Published,
    workflow_id: &str,
) -> Result<(), CommandError> {
    let (store, mut state) = (bench.store.as_ref(), dialogue.state);
    let (session_id, known, id) = (dialogue.session.session_id, state.published.clone(), state.id.clone());
    let until = bench.clock.moment() + MAX_WAIT;
    while known.as_ref() != Some(&published) {
        state.published = Some(published.clone());
        state.state.workflow_id = Some(workflow_id.to_owned());
        state.state.updated_at = bench.clock.now();
        if let Saved::Saved(_) = store.save_authoring(SaveAuthoring { state, epoch: None }).await? {
            break;
        }
        if bench.clock.moment() >= until {
            // The document is in use all the same, so this is no refusal.
            warn!(session_id, "a turn goes on for long: its dialogue does not know that its draft was published");
            break;
        }
        bench.clock.sleep(PAUSE).await;
        match store.authoring(&session_id).await?.map(|loaded| loaded.state) {
            Some(newer) if newer.id == id && newer.published == known => state = newer,
            // Deleted meanwhile, or published once more.
            _ => break,
        }
    }
    Ok(())
}

pub(super) fn no_draft(dialogue: &Dialogue) -> CommandError {
    let message = format!("session `{}` has no such draft", dialogue.session.session_id);
    CommandError::new(
        ErrorKind::NotFound,
        "no_draft",
        message,
        "the dialogue writes one once its requirements are agreed on",
    )
}

fn refused(refusal: Refusal) -> CommandError {
    let (kind, hint) = match refusal {
        Refusal::NoDraft => (ErrorKind::NotFound, "the dialogue writes one once its requirements are agreed on"),
        Refusal::StaleHash(_) => (ErrorKind::Conflict, "…/draft has the last draft and its hash"),
        Refusal::SourceChanged { .. } => (ErrorKind::Conflict, "…/diff?against=published has the differences"),
        Refusal::TestsFailed(_) => (ErrorKind::Conflict, "…/draft has the findings"),
        Refusal::Id(_) => (ErrorKind::Conflict, "set `preferences.target_id` in `config` to a free id"),
        Refusal::Invalid { .. } => (ErrorKind::Unprocessable, "describe the change in the dialogue"),
        Refusal::File(error) => return error.into(),
        Refusal::Quota(..) => (ErrorKind::Conflict, "delete old versions, or raise `quotas.versions`"),
    };
    CommandError::new(kind, refusal.code(), refusal.to_string(), hint)
}
