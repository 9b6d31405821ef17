//! The authoring agent in this process, as gRPC serves it: the driver of dialogues over a journal in memory. It stores
//! nothing: the caller keeps the state, and the responses contain the document.

use async_trait::async_trait;
use engine::authoring::carried::{carried, restored};
use engine::authoring::{AGENT_ID, Driver, Installed, Interrupted, Outlet, Speech, Unsaved, artifact, limited_models};
use engine::execution::{Services, TurnError, stored as definitions};
use engine::journal::Journal;
use futures::channel::mpsc;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, SinkExt, StreamExt};
use grpc::{Author, AuthorError, AuthorRequest, AuthorResponse};
use std::sync::Arc;
use storage::store::StoreError;
use tracing::error;
use types::authoring::{AgentState, Artifact, Body, Event, Origin, Publish, StoredState};
use types::timestamp::Timestamp;

/// The authoring agent of this process. Cheap to clone.
#[derive(Clone)]
pub(super) struct OwnAuthor(Arc<Services>);

type Sent = Result<AuthorResponse, AuthorError>;

impl OwnAuthor {
    pub(super) fn new(services: Services) -> Self {
        Self(Arc::new(services))
    }

    async fn author(self, request: AuthorRequest, mut responses: mpsc::Sender<Sent>) {
        let drafts = Unsaved::default();
        let outlet = Call { responses: responses.clone(), drafts: drafts.clone() };
        if let Err(problem) = Box::pin(self.turn(request, drafts, outlet)).await {
            // A receiver that is gone has dropped this work, too.
            let _ = responses.send(Err(problem)).await;
        }
    }

    async fn turn(&self, request: AuthorRequest, drafts: Unsaved, mut outlet: Call) -> Result<(), AuthorError> {
        let services = self.0.as_ref();
        let store = services.store.as_ref();
        let agent = definitions::agent(store, AGENT_ID).await.map_err(|error| unavailable(&error))?;
        let agent = agent.ok_or_else(|| AuthorError::Internal(format!("there is no agent `{AGENT_ID}`")))?;
        let message = request.user_message.clone();
        let mut stored = self.begun(request).await.map_err(|error| unavailable(&error))?;
        let turn_id = uuid::Uuid::new_v4().to_string();
        let journal = Journal::unrecorded(services.clock.clone(), &stored.state.session_id, &turn_id);
        let models = limited_models(services, &journal, &agent.config);
        let workshop = Installed::of(services, &agent.config).unsaved(drafts);
        let mut driver = Driver {
            workshop: &workshop,
            models: &models,
            model: &agent.config.model,
            journal: &journal,
            remote: None,
            speech: Speech::default(),
        };
        let goes_on = message.is_empty() && driver.go_on(&mut stored, &turn_id, &mut outlet).await.map_err(failed)?;
        if !goes_on {
            driver.begin(&mut stored, &turn_id, &message, &mut outlet).await.map_err(failed)?;
        }
        Box::pin(driver.drive(&mut stored, &mut outlet)).await.map_err(failed)
    }

    /// The state that the turn begins with.
    async fn begun(&self, request: AuthorRequest) -> Result<StoredState, StoreError> {
        let (store, now) = (self.0.store.as_ref(), self.0.clock.now());
        let id = uuid::Uuid::new_v4().to_string();
        let AuthorRequest { session_id, user_id, current_state, workflow_context, config, .. } = request;
        let mut stored = match current_state {
            Some(state) => restored(state, id),
            None => StoredState::new(id, &session_id, &user_id, workflow_context.unwrap_or_default(), now),
        };
        let context = stored.state.workflow_context.clone();
        let wanted = match (config.artifact(), context.origin) {
            (None, Origin::Edit | Origin::Copy) => kind_of(self.0.as_ref(), &context.source_workflow_id).await?,
            (wanted, _) => wanted,
        };
        stored = stored.configured(config, wanted);
        // Publishing is for those who can do it exactly once.
        stored.publish = Publish::Manual;
        if let Some(id) = stored.state.workflow_id.as_deref().filter(|_| context.origin != Origin::Edit) {
            // The caller may have stored the result of an earlier turn. The next draft begins with it.
            let own = artifact::current(store, stored.artifact, id).await?;
            stored.published = own.map(|own| types::authoring::Published { hash: own.hash, ..Default::default() });
        }
        Ok(stored)
    }
}

/// The kind of the agent or workflow with this id.
async fn kind_of(services: &Services, id: &str) -> Result<Option<Artifact>, StoreError> {
    let store = services.store.as_ref();
    for kind in [Artifact::Workflow, Artifact::Agent] {
        if artifact::current(store, kind, id).await?.is_some() {
            return Ok(Some(kind));
        }
    }
    Ok(None)
}

impl Author for OwnAuthor {
    fn converse(&self, request: AuthorRequest) -> BoxStream<'static, Sent> {
        let (sender, responses) = mpsc::channel(0);
        // Both are polled together, so dropping the stream drops the work.
        let work = self.clone().author(request, sender).boxed();
        stream::select(responses, stream::once(work).filter_map(async |()| None)).boxed()
    }
}

fn unavailable(error: &StoreError) -> AuthorError {
    AuthorError::Unavailable(error.to_string())
}

fn failed(interrupted: Interrupted) -> AuthorError {
    match interrupted {
        Interrupted::Turn(TurnError::Infrastructure(problem)) => AuthorError::Unavailable(problem.to_string()),
        other => {
            error!("an authoring call failed: {other}");
            AuthorError::Internal(other.to_string())
        }
    }
}

/// The responses of one call.
struct Call {
    responses: mpsc::Sender<Sent>,
    drafts: Unsaved,
}

impl Call {
    async fn send(&mut self, event: Event, updated_state: Option<AgentState>) {
        let Event { body, seq, timestamp, is_final, .. } = event;
        let timestamp = Timestamp::from_millis(timestamp);
        let response = AuthorResponse { body, seq, updated_state, timestamp, is_final };
        // A receiver that is gone has dropped this work, too.
        let _ = self.responses.send(Ok(response)).await;
    }

    /// Puts the whole document into an event: there is no URL to fetch it from.
    fn complete(&self, body: &mut Body) {
        let (hash, definition, url) = match body {
            Body::WorkflowDraft { data, .. } => (&data.hash, &mut data.definition, &mut data.definition_url),
            Body::WorkflowComplete { data, .. } => {
                data.url.clear();
                (&data.hash, &mut data.definition, &mut data.definition_url)
            }
            _ => return,
        };
        *definition = definition.take().or_else(|| self.drafts.document(hash));
        *url = None;
    }
}

#[async_trait]
impl Outlet for Call {
    async fn save(&mut self, stored: &mut StoredState) -> Result<(), Interrupted> {
        stored.version += 1;
        Ok(())
    }

    async fn show(&mut self, stored: &StoredState, events: Vec<Event>) -> Result<(), Interrupted> {
        let count = events.len();
        for (index, mut event) in events.into_iter().enumerate() {
            self.complete(&mut event.body);
            // The state belongs to the whole step: with an earlier event, a caller that continues from it would miss
            // the rest.
            let has_state = index + 1 == count;
            self.send(event, has_state.then(|| carried(stored))).await;
        }
        Ok(())
    }

    async fn show_piece(&mut self, piece: Event) {
        self.send(piece, None).await;
    }
}
