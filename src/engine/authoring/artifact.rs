//! The documents of a dialogue: the source, and the document that the model writes, which is stored as a draft.

use super::Workbench;
use crate::execution::stored as definitions;
use crate::rehearsal::{RehearsalTest, TestError, tests};
use ::definitions::agent::AgentRecord;
use ::definitions::agent::load::AgentError;
use ::definitions::workflow::definition::WorkflowRecord;
use ::definitions::workflow::read::WorkflowError;
use decisions::authoring::answer::Generation;
use decisions::authoring::{NewDraft, Unusable, workflow_id};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use storage::store::{Definition, DraftVersion, Store, StoreError, VersionLabel};
use thiserror::Error;
use types::authoring::message::{Debugging, TestResults};
use types::authoring::{Artifact, Origin, StoredState};
use types::timestamp::Timestamp;
use types::{canonical, depth, ids};

/// The largest document, in bytes of canonical JSON.
pub const MAX_DOCUMENT: usize = 1024 * 1024;
/// The largest number of tests that the model writes.
pub const MAX_TESTS: usize = 6;
/// The largest number of messages in a test.
pub const MAX_TURNS: usize = 4;
/// The largest size of all tests, in bytes.
const MAX_TEST_BYTES: usize = 128 * 1024;

/// The source of a dialogue: the document that it edits, copies or has published.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// The id of the agent or workflow.
    pub id: String,
    /// The hash of the document.
    pub hash: String,
    /// The document.
    pub document: Value,
}

/// Why an id cannot be that of a new artefact.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IdProblem {
    /// The id is taken.
    #[error(
        "there is a {kind} `{id}` already; set `preferences.target_id` to a free id, or edit it in another session"
    )]
    Taken {
        /// The kind of the existing artefact.
        kind: &'static str,
        /// The id.
        id: String,
    },
    /// The id is no legal id.
    #[error("{0}")]
    Illegal(String),
}

/// Returns the source of the next draft: the document that the dialogue edits or copies, or the one that it has
/// published. It is read again for each draft. After a change by another user, the next draft therefore starts from
/// that change.
pub async fn source(store: &dyn Store, stored: &StoredState) -> Result<Option<Source>, StoreError> {
    let context = &stored.state.workflow_context;
    let own = workflow_id(stored);
    let id = match context.origin {
        _ if stored.published.is_some() || is_in_use(store, stored, &own).await? => own.as_str(),
        Origin::Create => return Ok(None),
        Origin::Edit | Origin::Copy => context.source_workflow_id.as_str(),
    };
    current(store, stored.artifact, id).await
}

/// True if the last draft of a new artefact is in use, and the state does not say so: it was published while a turn was
/// going on.
async fn is_in_use(store: &dyn Store, stored: &StoredState, id: &str) -> Result<bool, StoreError> {
    let (Some(draft), true) = (&stored.draft, is_new(stored)) else { return Ok(false) };
    let user = &stored.state.user_id;
    let is_theirs = !user.is_empty() && store.owner(stored.artifact, id).await?.as_ref() == Some(user);
    Ok(is_theirs && current(store, stored.artifact, id).await?.is_some_and(|source| source.hash == draft.hash))
}

/// Returns the document that is in use under an id; the compiled-in one, if none is stored.
pub async fn current(store: &dyn Store, artifact: Artifact, id: &str) -> Result<Option<Source>, StoreError> {
    let found = match artifact {
        Artifact::Workflow => {
            let workflow = definitions::workflow(store, id).await?.filter(|workflow| workflow.owner_session.is_none());
            workflow.map(|workflow| (workflow.hash.clone(), workflow.document.clone()))
        }
        Artifact::Agent => {
            let agent = definitions::agent(store, id).await?;
            agent.map(|agent| (agent.hash.clone(), agent.document.clone()))
        }
    };
    Ok(found.map(|(hash, document)| Source { id: id.to_owned(), hash, document }))
}

/// Checks that a new artefact may have an id: agents, workflows and flows share one set of ids.
pub async fn check_id(bench: &Workbench, id: &str) -> Result<Result<(), IdProblem>, StoreError> {
    if let Err(problem) = ids::check("target_id", id) {
        return Ok(Err(IdProblem::Illegal(problem.to_string())));
    }
    let taken = |kind| Ok(Err(IdProblem::Taken { kind, id: id.to_owned() }));
    if bench.flows.iter().chain(bench.known.flows()).any(|flow| flow == id) {
        return taken("flow or workflow");
    }
    let store = bench.store.as_ref();
    let is_known = |found: Result<bool, StoreError>| match found {
        // The document cannot be decoded, but the id is taken.
        Err(StoreError::Damaged { .. } | StoreError::Newer { .. }) => Ok(true),
        found => found,
    };
    if is_known(definitions::workflow(store, id).await.map(|found| found.is_some()))? {
        return taken("workflow");
    }
    if is_known(definitions::agent(store, id).await.map(|found| found.is_some()))? {
        return taken("agent");
    }
    Ok(Ok(()))
}

/// True if the next publication makes a new agent or workflow.
pub fn is_new(stored: &StoredState) -> bool {
    stored.published.is_none() && stored.state.workflow_context.origin != Origin::Edit
}

/// True if a user may read the stored texts of the dialogue's agent: it is theirs, or they may change it.
/// An id alone gives no right: until the publication it can be that of anything.
pub async fn reads_texts(store: &dyn Store, stored: &StoredState, user: &str) -> Result<bool, StoreError> {
    if !is_new(stored) {
        return Ok(true);
    }
    let owner = store.owner(Artifact::Agent, &workflow_id(stored)).await?;
    Ok(owner.as_deref().is_some_and(|owner| owner == user))
}

/// A document with its tests.
#[derive(Clone, Debug, PartialEq)]
pub struct Made {
    /// The document.
    pub version: DraftVersion,
    /// The facts about the draft for the machine.
    pub draft: NewDraft,
}

/// Parses the document and the tests in the model's answer. The engine sets the id, and ignores the model's id. This
/// function only checks that the answer is a document; the checks of the draft decide whether it can work. `base_hash`
/// is that of the [`source`] in the model's prompt.
pub fn make(stored: &StoredState, answer: &Generation, base_hash: Option<&str>) -> Result<Made, Unusable> {
    let artifact = stored.artifact;
    let field = artifact.as_str();
    let document = answer
        .document(artifact)
        .ok_or_else(|| Unusable(vec![format!("`{field}` must be an object: the document")]))?;
    let (mut document, id) = (document.clone(), workflow_id(stored));
    document["id"] = json!(id);
    if artifact == Artifact::Workflow && document.get("type").is_none() && document.get("nodes").is_some() {
        document["type"] = json!("graph");
    }
    let mut problems = Vec::new();
    if !depth::is_legal(&document) {
        problems.push(format!("`{field}` is nested more than {} levels deep", depth::MAX_DEPTH));
        return Err(Unusable(problems));
    }
    let bytes = canonical::to_string(&document).len();
    if bytes > MAX_DOCUMENT {
        problems.push(format!("`{field}` has {bytes} bytes; it may have {MAX_DOCUMENT}"));
    }
    let cases = read_cases(artifact, &answer.tests).unwrap_or_else(|problem| {
        problems.push(problem);
        Vec::new()
    });
    if !problems.is_empty() {
        return Err(Unusable(problems));
    }
    let hash = canonical::hash(&document);
    // One of the allowed tests is reserved for the engine's own.
    let tests = u32::try_from(cases.len() + 1).unwrap_or(u32::MAX);
    let draft = NewDraft { hash: hash.clone(), base_hash: base_hash.map(str::to_owned), tests, cases };
    let version = DraftVersion { artifact, id, hash, document, label: VersionLabel::default() };
    Ok(Made { version, draft })
}

fn read_cases(artifact: Artifact, found: &[Value]) -> Result<Vec<String>, String> {
    if found.is_empty() {
        return Ok(Vec::new());
    }
    if found.len() > MAX_TESTS {
        return Err(format!("there are {} tests; write at most {MAX_TESTS}", found.len()));
    }
    let tests = tests(&Value::Array(found.to_vec())).map_err(|problem| problem.to_string())?;
    check_kind(artifact, &tests).map_err(|problem| problem.to_string())?;
    if let Some(long) = tests.iter().find(|test| test.turns.len() > MAX_TURNS) {
        return Err(format!("the test `{}` has {} turns; a test may have {MAX_TURNS}", long.name, long.turns.len()));
    }
    let texts: Vec<String> = found.iter().map(Value::to_string).collect();
    let bytes: usize = texts.iter().map(String::len).sum();
    if bytes > MAX_TEST_BYTES {
        return Err(format!("the tests have {bytes} bytes; they may have {MAX_TEST_BYTES}"));
    }
    Ok(texts)
}

fn check_kind(artifact: Artifact, tests: &[RehearsalTest]) -> Result<(), TestError> {
    tests.iter().try_for_each(|test| test.check(artifact))
}

/// Stores a document as a draft of the dialogue. Durable on return.
pub async fn put_draft(store: &dyn Store, stored: &StoredState, made: &Made) -> Result<NewDraft, StoreError> {
    store.put_draft(made.version.clone(), &stored.state.session_id).await?;
    Ok(made.draft.clone())
}

/// Returns a version of the dialogue's artefact: the one with this hash, or the last draft.
pub async fn draft(
    store: &dyn Store,
    stored: &StoredState,
    hash: Option<&str>,
) -> Result<Option<DraftVersion>, StoreError> {
    let last = stored.draft.as_ref().map(|draft| draft.hash.as_str());
    let Some(hash) = hash.or(last) else { return Ok(None) };
    let (artifact, id) = (stored.artifact, workflow_id(stored));
    let document = store.version_document(artifact, &id, hash).await?;
    let label = VersionLabel::default();
    Ok(document.map(|document| DraftVersion { artifact, id, hash: hash.to_owned(), document, label }))
}

/// A draft for clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DraftView {
    /// The agent or workflow.
    pub workflow_id: String,
    /// Its kind.
    pub artifact: Artifact,
    /// The hash of the document.
    pub hash: String,
    /// The hash of the document from which it was made.
    pub base_hash: Option<String>,
    /// The document.
    pub document: Value,
    /// The errors and warnings of its checks; null for any but the last draft, and until that is checked.
    pub findings: Option<Findings>,
    /// The tests that the model wrote, without the engine's own; null for any but the last draft.
    pub tests: Option<Vec<Value>>,
    /// True if this document is the one that the dialogue has published last.
    pub published: bool,
}

/// The results of the checks of a draft.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Findings {
    /// Findings that make the document unusable.
    pub errors: Vec<Value>,
    /// Findings that do not.
    pub warnings: Vec<Value>,
    /// The results of the tests.
    pub tests: TestResults,
}

impl DraftView {
    /// Creates the view of a version.
    pub fn new(stored: &StoredState, version: DraftVersion) -> Self {
        let last = stored.draft.as_ref().filter(|last| last.hash == version.hash);
        let report = last.and_then(|last| serde_json::from_str::<Debugging>(last.report.as_deref()?).ok());
        let case = |text: &String| serde_json::from_str(text).ok();
        Self {
            base_hash: last.and_then(|last| last.base_hash.clone()),
            findings: report.map(|Debugging { errors, warnings, tests, .. }| Findings { errors, warnings, tests }),
            tests: last.map(|last| last.cases.iter().filter_map(case).collect()),
            published: stored.published.as_ref().is_some_and(|published| published.hash == version.hash),
            workflow_id: version.id,
            artifact: version.artifact,
            hash: version.hash,
            document: version.document,
        }
    }
}

/// Why a document cannot be read as an agent or a workflow.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The document is no agent.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The document is no workflow.
    #[error(transparent)]
    Workflow(#[from] WorkflowError),
}

/// Reads a draft as an agent or a workflow.
pub fn read(version: &DraftVersion, now: Timestamp) -> Result<Definition, ReadError> {
    let document = version.document.clone();
    Ok(match version.artifact {
        Artifact::Agent => Definition::Agent(AgentRecord::from_document(document, now)?),
        Artifact::Workflow => Definition::Workflow(WorkflowRecord::from_document(document, now)?),
    })
}

/// Why the document of an answer was not stored.
#[derive(Debug, Error)]
pub enum KeepError {
    /// The model is asked again.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Stores the document of an answer as a draft. Durable on return; repeating the call changes nothing.
pub async fn keep(store: &dyn Store, stored: &StoredState, answer: &Generation) -> Result<NewDraft, KeepError> {
    let base = source(store, stored).await?.map(|source| source.hash);
    let made = make(stored, answer, base.as_deref())?;
    Ok(put_draft(store, stored, &made).await?)
}
