//! The workshop of an installation: its store, prompts, names and knowledge.

use super::artifact;
use super::catalogue::Catalogue;
use super::checks::{self, CheckError, Subject};
use super::ports::{Prepared, Workshop, WorkshopError};
use super::prompt::{self, Facts};
use super::publication::{self, Order};
use crate::budget::{DayMeter, TokenMeter};
use crate::execution::{Services, stored};
use crate::journal::Journal;
use crate::knowledge::{Hit, Library};
use crate::model::{Models, PromptMessage};
use crate::prompt::{PromptError, Prompts};
use crate::rehearsal::DraftKnowledge;
use crate::workbench::Workbench;
use async_trait::async_trait;
use base::clock::Clock;
use base::config::Budget;
use decisions::authoring::answer::Generation;
use decisions::authoring::{Checked, NewDraft, Publication, Question};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use storage::store::{DraftVersion, Store, StoreError};
use types::agent::AgentConfig;
use types::authoring::{ErrorCode, Origin, Speaker, StoredState};

/// The agent of authoring dialogues: the applied one of this id, else the built-in one.
pub const AGENT_ID: &str = "authoring";

/// The largest number of passages of the agent's knowledge in a prompt.
const MAX_PASSAGES: usize = 5;

/// The workshop of this installation.
pub struct Installed<'a> {
    bench: &'a Workbench,
    prompts: &'a Prompts,
    knowledge: &'a Library,
    agent: &'a AgentConfig,
    /// The drafts of a dialogue that stores nothing.
    unsaved: Option<Unsaved>,
}

/// Drafts in memory, by their hashes. Cheap to clone: all clones share the drafts.
#[derive(Clone, Debug, Default)]
pub struct Unsaved(Arc<Mutex<HashMap<String, DraftVersion>>>);

impl Unsaved {
    /// Returns the document with this hash.
    pub fn document(&self, hash: &str) -> Option<Value> {
        self.get(hash).map(|version| version.document)
    }

    fn get(&self, hash: &str) -> Option<DraftVersion> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(hash).cloned()
    }

    fn put(&self, version: DraftVersion) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(version.hash.clone(), version);
    }
}

impl<'a> Installed<'a> {
    /// Creates a workshop for dialogues with this agent.
    pub fn new(bench: &'a Workbench, prompts: &'a Prompts, knowledge: &'a Library, agent: &'a AgentConfig) -> Self {
        Self { bench, prompts, knowledge, agent, unsaved: None }
    }

    /// Creates a workshop from the parts of a worker.
    pub fn of(services: &'a Services, agent: &'a AgentConfig) -> Self {
        Self::new(&services.workbench, &services.prompts, &services.knowledge, agent)
    }

    /// Keeps drafts in memory instead of in the store, and publishes nothing.
    #[must_use]
    pub fn unsaved(self, drafts: Unsaved) -> Self {
        Self { unsaved: Some(drafts), ..self }
    }

    /// Returns the current draft if it is in memory.
    fn unsaved_draft(&self, stored: &StoredState) -> Option<DraftVersion> {
        self.unsaved.as_ref()?.get(&stored.draft.as_ref()?.hash)
    }

    /// Returns the passages about the user's last message, in the stages that ask the user.
    async fn passages(&self, question: Question, stored: &StoredState) -> Result<Vec<Hit>, WorkshopError> {
        let asks =
            matches!(question, Question::Clarification | Question::Negotiation | Question::AlternativeGeneration);
        let said = stored.state.conversations.iter().rev().find(|entry| entry.role == Speaker::User);
        match said.filter(|_| asks && stored.config.enable_rag) {
            Some(said) => Ok(self.knowledge.ask(self.agent.id.as_str(), &said.text, MAX_PASSAGES).await?),
            None => Ok(Vec::new()),
        }
    }

    /// Returns the definitions of the tools and skills in the catalogue.
    async fn parts(&self, catalogue: &Catalogue) -> Result<BTreeMap<String, Value>, WorkshopError> {
        if !catalogue.items.iter().any(|item| matches!(item.kind.as_str(), "tool" | "skill")) {
            return Ok(BTreeMap::new());
        }
        let agents = stored::agents(self.bench.store.as_ref()).await?;
        Ok(prompt::parts(catalogue, agents.good.iter().map(AsRef::as_ref)))
    }

    /// Returns the source of the dialogue. Fails if the document to edit or copy does not exist.
    async fn source(&self, stored: &StoredState) -> Result<Option<Value>, WorkshopError> {
        let source = artifact::source(self.bench.store.as_ref(), stored).await?;
        let context = &stored.state.workflow_context;
        if source.is_none() && context.origin != Origin::Create && stored.published.is_none() {
            let problem = format!("there is no {} `{}`", stored.artifact.as_str(), context.source_workflow_id);
            return Err(WorkshopError::Fault(ErrorCode::UnknownWorkflow, problem));
        }
        Ok(source.map(|source| source.document))
    }
}

#[async_trait]
impl Workshop for Installed<'_> {
    async fn catalogue(&self, stored: &StoredState) -> Result<Catalogue, WorkshopError> {
        let info = stored.state.clarification_context.collected_info.values().map(String::as_str);
        let words: Vec<&str> = [stored.state.intent_summary.as_str()].into_iter().chain(info).collect();
        let mut catalogue = Catalogue::gather(self.bench, &words.join("\n")).await?;
        // The agent `authoring` writes documents, and cannot be used in one.
        catalogue.items.retain(|item| item.id.strip_prefix("agent.") != Some(AGENT_ID));
        Ok(catalogue)
    }

    async fn request(
        &self,
        question: Question,
        stored: &StoredState,
        catalogue: &Catalogue,
    ) -> Result<Prepared, WorkshopError> {
        let draft = match &stored.draft {
            Some(draft) => self.document(stored, &draft.hash).await?,
            None => None,
        };
        let facts = Facts {
            manner: self.agent.system_prompt.clone().unwrap_or_default(),
            catalogue: catalogue.clone(),
            parts: self.parts(catalogue).await?,
            source: self.source(stored).await?,
            draft,
            passages: self.passages(question, stored).await?,
        };
        let sources: BTreeSet<&str> = facts.passages.iter().map(|hit| hit.source.as_str()).collect();
        let sources = sources.into_iter().collect::<Vec<_>>().join(", ");
        let noted = Some(("sources".to_owned(), sources)).filter(|(_, sources)| !sources.is_empty());
        let request = prompt::request(self.prompts, question, stored, &facts).map_err(|error| broken(&error))?;
        Ok(Prepared { request, notes: BTreeMap::from_iter(noted) })
    }

    fn correction(&self, answer: String, problem: &str) -> Result<[PromptMessage; 2], WorkshopError> {
        prompt::correction(self.prompts, answer, problem).map_err(|error| broken(&error))
    }

    async fn keep_draft(&self, stored: &StoredState, answer: &Generation) -> Result<NewDraft, WorkshopError> {
        let (store, base) = (self.bench.store.as_ref(), artifact::source(self.bench.store.as_ref(), stored).await?);
        let made = artifact::make(stored, answer, base.as_ref().map(|source| source.hash.as_str()))?;
        match &self.unsaved {
            Some(unsaved) => {
                unsaved.put(made.version);
                Ok(made.draft)
            }
            None => Ok(artifact::put_draft(store, stored, &made).await?),
        }
    }

    async fn document(&self, stored: &StoredState, hash: &str) -> Result<Option<Value>, WorkshopError> {
        if let Some(document) = self.unsaved.as_ref().and_then(|unsaved| unsaved.document(hash)) {
            return Ok(Some(document));
        }
        let draft = artifact::draft(self.bench.store.as_ref(), stored, Some(hash)).await?;
        Ok(draft.map(|draft| draft.document))
    }

    async fn check(&self, stored: &StoredState, limit: Duration) -> Result<Checked, WorkshopError> {
        if let Some(version) = self.unsaved_draft(stored) {
            let base = artifact::source(self.bench.store.as_ref(), stored).await?.map(|source| source.document);
            // A caller names its user and its artefact itself, which proves nothing: no draft answers from stored
            // texts.
            let knowledge = DraftKnowledge::default();
            let cases = checks::cases(stored);
            let subject = Subject { version: &version, cases: &cases, base: base.as_ref(), knowledge };
            return Ok(checks::examine(self.bench, subject, limit).await?.checked);
        }
        checks::check(self.bench, stored, limit).await.map_err(|error| match error {
            CheckError::Store(error) => error.into(),
            lost @ CheckError::Lost(_) => WorkshopError::Fault(ErrorCode::Internal, lost.to_string()),
        })
    }

    async fn publish(&self, stored: &StoredState) -> Result<Publication, WorkshopError> {
        if self.unsaved.is_some() {
            return Ok(Publication::Refused("this server publishes nothing; store the document yourself".to_owned()));
        }
        let hash = stored.draft.as_ref().map(|draft| draft.hash.as_str()).unwrap_or_default();
        let user = stored.state.user_id.as_str();
        // A user who changes an existing artefact does not become its owner.
        let owner = Some(user).filter(|user| !user.is_empty() && artifact::is_new(stored));
        let order = Order { hash, by: user, owner, force: false };
        Ok(publication::told(publication::publish(self.bench, stored, order).await?))
    }
}

/// Returns the models for a dialogue without a lane, limited by the budgets of its agent.
pub fn limited_models(services: &Services, journal: &Journal, agent: &AgentConfig) -> Models {
    services.models.limited_by(TokenMeter::for_turn(&services.budgets, journal.clone(), agent, 0))
}

/// The budget of the authoring agent's day, in which the model calls of its drafts count; `None` if it has no limit.
pub async fn day_meter(
    store: &Arc<dyn Store>,
    defaults: &Budget,
    clock: Clock,
) -> Result<Option<Arc<DayMeter>>, StoreError> {
    let agent = stored::agent(store.as_ref(), AGENT_ID).await?;
    Ok(agent.and_then(|agent| DayMeter::of(store, defaults, &agent.config, clock)))
}

fn broken(error: &PromptError) -> WorkshopError {
    WorkshopError::Fault(ErrorCode::Internal, error.to_string())
}
