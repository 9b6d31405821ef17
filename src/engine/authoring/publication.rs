//! Publishes a draft: only if its hash is that of the last draft, the source has not changed, and the tests passed.

use super::artifact::{IdProblem, check_id, current, draft, is_new};
use super::{Workbench, checks};
use crate::admission;
use crate::definition_files::{self, FileError, PublishError};
use decisions::authoring::{Publication, workflow_id};
use serde_json::Value;
use storage::store::{Definition, DraftVersion, Over, PublishDefinition, PublishEnd, StoreError, VersionLabel};
use thiserror::Error;
use tracing::warn;
use types::authoring::{Artifact, Published, StoredState};

/// A request to publish a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order<'a> {
    /// The hash of the draft that the caller means.
    pub hash: &'a str,
    /// Who publishes it.
    pub by: &'a str,
    /// The owner after the publication. Operators and anonymous callers own nothing.
    pub owner: Option<&'a str>,
    /// Publishes the draft although its tests have not passed. The publication records this.
    pub force: bool,
}

/// A draft that was published.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// The publication, for the state of the dialogue.
    pub published: Published,
    /// False if the same document was in use already.
    pub changed: bool,
    /// Findings that are probably mistakes.
    pub warnings: Vec<Value>,
}

/// Why a draft is not published.
#[derive(Debug, Error)]
pub enum Refusal {
    /// There is no draft.
    #[error("the dialogue has no draft yet")]
    NoDraft,
    /// The hash is not that of the last draft.
    #[error("the last draft has the hash {0}; check it, and publish this hash")]
    StaleHash(String),
    /// The document that the draft replaces has changed.
    #[error(
        "`{id}` has changed since the draft was made: it was {}, and is {}; continue the dialogue, which then begins with \
         the new version",
        word(base),
        word(now)
    )]
    SourceChanged {
        /// The agent or workflow.
        id: String,
        /// The hash that the draft was made from.
        base: Option<String>,
        /// The hash of the current version.
        now: Option<String>,
    },
    /// The draft has not passed its checks.
    #[error("the draft has not passed its tests: {}; correct it in the dialogue, or publish it with `force`", .0.join("; "))]
    TestsFailed(Vec<String>),
    /// The id is taken.
    #[error(transparent)]
    Id(IdProblem),
    /// The document cannot work, whatever its tests say.
    #[error("the document cannot work: {}", .problems.join("; "))]
    Invalid {
        /// Its kind.
        artifact: Artifact,
        /// The errors.
        problems: Vec<String>,
    },
    /// There are too many versions.
    #[error("`{0}` has {1} stored versions, which is the limit (`quotas.versions`)")]
    Quota(String, u64),
    /// The file of the document cannot be written, which `dev` would apply again.
    #[error(transparent)]
    File(FileError),
}

fn word(hash: &Option<String>) -> &str {
    hash.as_deref().unwrap_or("absent")
}

impl Refusal {
    /// The code in HTTP errors.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoDraft => "no_draft",
            Self::StaleHash(_) => "stale_hash",
            Self::SourceChanged { .. } => "source_changed",
            Self::TestsFailed(_) => "tests_failed",
            Self::Id(IdProblem::Taken { .. }) => "id_taken",
            Self::Id(IdProblem::Illegal(_)) => "invalid_id",
            Self::Invalid { artifact: Artifact::Agent, .. } => "invalid_agent",
            Self::Invalid { artifact: Artifact::Workflow, .. } => "invalid_workflow",
            Self::Quota(..) => "quota_exceeded",
            Self::File(error) => error.code(),
        }
    }
}

/// Publishes the last draft of a dialogue. Durable on success: every turn and run that begins later uses it. Repeating
/// a publication that succeeded changes nothing. The caller saves the state with [`Done::published`].
pub async fn publish(
    bench: &Workbench,
    stored: &StoredState,
    order: Order<'_>,
) -> Result<Result<Done, Refusal>, StoreError> {
    let Some(last) = &stored.draft else { return Ok(Err(Refusal::NoDraft)) };
    if last.hash != order.hash {
        return Ok(Err(Refusal::StaleHash(last.hash.clone())));
    }
    let (store, id) = (bench.store.as_ref(), workflow_id(stored));
    let passed = last.ok == Some(true);
    let forced = !passed && order.force;
    let published = Published { hash: last.hash.clone(), at: bench.clock.now(), by: order.by.to_owned(), forced };
    // Read first: the publication then fails if a version is stored after this line.
    let over = stored_hash(bench, stored.artifact, &id).await?;
    let now = current(store, stored.artifact, &id).await?.map(|source| source.hash);
    if now.as_ref() == Some(&last.hash) {
        if let Err(refusal) = check_adoption(bench, stored, &id, order.owner).await? {
            return Ok(Err(refusal));
        }
        // The draft was published before: by an interrupted turn that did not save the state, or by another dialogue.
        let published = stored.published.clone().filter(|known| known.hash == last.hash).unwrap_or(published);
        return Ok(Ok(Done { published, changed: false, warnings: Vec::new() }));
    }
    if !passed && !order.force {
        return Ok(Err(Refusal::TestsFailed(last.problems.clone())));
    }
    if let Err(refusal) = check_place(bench, stored, &id, last.base_hash.as_ref(), now.as_ref()).await? {
        return Ok(Err(refusal));
    }
    let Some(version) = draft(store, stored, None).await? else { return Ok(Err(Refusal::NoDraft)) };
    // Secrets, workers and other definitions may have changed since the draft was checked.
    let (definition, warnings) = match admitted(bench, &version).await? {
        Ok(admitted) => admitted,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let over = over.map_or(Over::Nothing, Over::Version);
    Ok(match put_into_use(bench, definition, over, order).await? {
        Ok(PublishEnd::Published) => Ok(Done { published, changed: true, warnings }),
        // A concurrent publication of the same draft was first.
        Ok(PublishEnd::Moved(Some(now))) if now == last.hash => Ok(Done { published, changed: false, warnings }),
        Ok(PublishEnd::Unchanged) => Ok(Done { published, changed: false, warnings }),
        Ok(PublishEnd::Moved(now)) => Err(Refusal::SourceChanged { id, base: last.base_hash.clone(), now }),
        Err(refusal) => Err(refusal),
    })
}

/// Stores the definition as the current one and, in `dev`, writes its file.
async fn put_into_use(
    bench: &Workbench,
    definition: Definition,
    over: Over,
    order: Order<'_>,
) -> Result<Result<PublishEnd, Refusal>, StoreError> {
    let label = VersionLabel { by: Some(order.by.to_owned()), ..VersionLabel::default() };
    let order = PublishDefinition { definition, over, owner: order.owner.map(str::to_owned), label };
    match definition_files::publish(bench.store.as_ref(), bench.files.as_deref(), order).await {
        Ok(publication) => {
            if let Some(error) = publication.unwritten {
                // The document is in use all the same, so this is no refusal.
                warn!("{error}; {}", error.hint());
            }
            Ok(Ok(publication.end))
        }
        Err(PublishError::File(error)) => Ok(Err(Refusal::File(error))),
        Err(PublishError::Store(error)) => Err(error),
    }
}

/// Checks that a new artefact does not take over an equal document that another user has published under its id.
async fn check_adoption(
    bench: &Workbench,
    stored: &StoredState,
    id: &str,
    by: Option<&str>,
) -> Result<Result<(), Refusal>, StoreError> {
    if !is_new(stored) {
        return Ok(Ok(()));
    }
    let owner = bench.store.owner(stored.artifact, id).await?;
    let is_theirs = owner.as_deref() == by || owner.as_deref() == Some(&stored.state.user_id);
    let taken = || Refusal::Id(IdProblem::Taken { kind: stored.artifact.as_str(), id: id.to_owned() });
    Ok(if is_theirs || is_own(stored, id, owner.as_deref()) { Ok(()) } else { Err(taken()) })
}

/// True for what this dialogue has published without its state saying so, as while a turn was going on. Without a
/// `target_id` an artefact has the id of its dialogue, which nothing else gets by itself.
fn is_own(stored: &StoredState, id: &str, owner: Option<&str>) -> bool {
    id == stored.id && owner.is_none_or(|owner| owner == stored.state.user_id)
}

/// Checks that the publication replaces only the version from which the draft was made.
async fn check_place(
    bench: &Workbench,
    stored: &StoredState,
    id: &str,
    base: Option<&String>,
    now: Option<&String>,
) -> Result<Result<(), Refusal>, StoreError> {
    if is_new(stored) {
        let owner = bench.store.owner(stored.artifact, id).await?;
        let goes_on = now == base && owner.as_ref() == Some(&stored.state.user_id);
        if now.is_some() && (goes_on || is_own(stored, id, owner.as_deref())) {
            return Ok(Ok(()));
        }
        return Ok(check_id(bench, id).await?.map_err(Refusal::Id));
    }
    if now == base {
        return Ok(Ok(()));
    }
    Ok(Err(Refusal::SourceChanged { id: id.to_owned(), base: base.cloned(), now: now.cloned() }))
}

async fn admitted(
    bench: &Workbench,
    version: &DraftVersion,
) -> Result<Result<(Definition, Vec<Value>), Refusal>, StoreError> {
    let (definition, errors, warnings) = checks::validate(bench, version).await?;
    let Some(definition) = definition else {
        let text = |error: &Value, field: &str| error[field].as_str().unwrap_or_default().to_owned();
        let problems = errors.iter().map(|error| format!("{}: {}", text(error, "path"), text(error, "problem")));
        return Ok(Err(Refusal::Invalid { artifact: version.artifact, problems: problems.collect() }));
    };
    let store = bench.store.as_ref();
    let full = match version.artifact {
        Artifact::Agent => admission::full_agent(store, &bench.quotas, &version.id).await?,
        Artifact::Workflow => admission::full_workflow(store, &bench.quotas, &version.id).await?,
    };
    Ok(match full {
        Some(count) => Err(Refusal::Quota(version.id.clone(), count)),
        None => Ok((definition, warnings)),
    })
}

/// Returns the hash of the stored version; `None` also for a compiled-in definition that no stored version replaces.
async fn stored_hash(bench: &Workbench, artifact: Artifact, id: &str) -> Result<Option<String>, StoreError> {
    Ok(match artifact {
        Artifact::Agent => bench.store.agent(id).await?.map(|agent| agent.hash.clone()),
        Artifact::Workflow => bench.store.workflow(id).await?.map(|workflow| workflow.hash.clone()),
    })
}

/// Converts the result for the machine of the dialogue.
pub fn told(result: Result<Done, Refusal>) -> Publication {
    match result {
        Ok(done) => Publication::Done(done.published),
        Err(refusal) => Publication::Refused(refusal.to_string()),
    }
}
