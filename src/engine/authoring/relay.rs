//! A dialogue that an authoring agent on another server leads (`authoring.endpoint`). It talks with the user and writes
//! the document. This installation keeps the document as a draft, checks and rehearses it, and publishes it, as if a
//! model here had written it.

use super::carried::{carried, restored};
use super::drive::{Driver, Stopped};
use super::limit::Visit;
use super::ports::Outlet;
use decisions::authoring::answer::Generation;
use decisions::authoring::{self, Relayed, words};
use futures::StreamExt;
use futures::stream::BoxStream;
use grpc::{Author, AuthorError, AuthorRequest, AuthorResponse};
use serde_json::Value;
use std::collections::BTreeMap;
use std::mem::take;
use tracing::warn;
use types::authoring::{AgentState, Artifact, Body, ErrorCode, Speaker, Stage, StoredState};
use types::timestamp::Timestamp;

/// The largest state that an author may send, in bytes of JSON. The limits of its parts allow less.
const MAX_STATE: usize = 4 * 1024 * 1024;

type Responses = BoxStream<'static, Result<AuthorResponse, AuthorError>>;

/// The open call of a turn, if there is one. A call goes through several states; each is saved before the next is read.
#[derive(Default)]
pub(super) struct Exchange(Option<Responses>);

impl Driver<'_> {
    /// Relays what the author shows up to its next state. A document ends the call: its checks are made here.
    pub(super) async fn relay(
        &mut self,
        author: &dyn Author,
        stored: &mut StoredState,
        visit: &Visit,
        exchange: &mut Exchange,
        outlet: &mut dyn Outlet,
    ) -> Result<(), Stopped> {
        let mut responses = match exchange.0.take() {
            Some(responses) => responses,
            None => author.converse(request(stored, self.journal.clock().now())?),
        };
        let (mut relayed, mut document) = (Relayed::default(), None);
        loop {
            let response = next(&mut responses, visit, &stored.state.session_id).await?;
            let AuthorResponse { body, updated_state, is_final, .. } = response;
            match body {
                Body::Message { delta: Some(piece), stream_id: Some(stream_id), content: None, .. } => {
                    let event = self.speech.piece(stored, piece, stream_id, self.journal.clock().now());
                    outlet.show_piece(event).await;
                    continue;
                }
                Body::WorkflowDraft { data, .. } => document = data.definition,
                Body::WorkflowComplete { data, .. } => document = document.or(data.definition),
                other => relayed.events.push(other),
            }
            relayed.is_final = is_final;
            if let Some(state) = updated_state {
                relayed.state = Some(received(state, stored)?);
                break;
            }
            if is_final {
                break;
            }
        }
        match document {
            Some(document) => relayed.draft = Some(self.kept(document, &relayed, stored).await?),
            None => exchange.0 = Some(responses),
        }
        authoring::relay(stored, relayed, self.journal.clock().now());
        Ok(())
    }

    /// Keeps the author's document as a draft. Its id is that of the author's state.
    async fn kept(
        &self,
        document: Value,
        relayed: &Relayed,
        stored: &StoredState,
    ) -> Result<authoring::NewDraft, Stopped> {
        let mut own = stored.clone();
        let named = relayed.state.as_ref().and_then(|state| state.state.workflow_id.clone());
        own.state.workflow_id = own.state.workflow_id.or(named);
        let mut generation = Generation::default();
        match stored.artifact {
            Artifact::Workflow => generation.workflow = Some(document),
            Artifact::Agent => generation.agent = Some(document),
        }
        Ok(self.workshop.keep_draft(&own, &generation).await?)
    }
}

/// The call for a turn that has begun: its state has the user's message. After a failed check the last entry has the
/// reasons, which the author cannot know otherwise.
fn request(stored: &StoredState, now: Timestamp) -> Result<AuthorRequest, Stopped> {
    if !stored.state.goes_on() {
        let details = "the exchange with it was interrupted; the next message continues the dialogue";
        return Err(Stopped::Fault(ErrorCode::AgentUnavailable, details.to_owned()));
    }
    let mut sent = stored.clone();
    let problems = sent.draft.as_mut().map(|draft| take(&mut draft.problems)).unwrap_or_default();
    if stored.state.stage == Stage::Debug && !problems.is_empty() {
        let text = words::refused_document(&problems, stored.config.language);
        sent.state.say(Speaker::Assistant, &text, BTreeMap::new(), now);
    }
    Ok(AuthorRequest {
        session_id: stored.state.session_id.clone(),
        user_id: stored.state.user_id.clone(),
        user_message: String::new(),
        current_state: Some(carried(&sent)),
        workflow_context: None,
        config: stored.config.clone(),
    })
}

async fn next(responses: &mut Responses, visit: &Visit, session_id: &str) -> Result<AuthorResponse, Stopped> {
    let fault = |code, details: String| Stopped::Fault(code, details);
    match visit.limit(responses.next()).await {
        Some(Some(Ok(response))) => Ok(response),
        // The address of the server and its messages are for the operator.
        Some(Some(Err(error))) => {
            warn!(session_id, "an exchange with the authoring agent failed: {error}");
            Err(fault(error.code(), "the authoring agent of this installation cannot be reached or failed".to_owned()))
        }
        Some(None) => {
            Err(fault(ErrorCode::AgentUnavailable, "the exchange ended before the turn was complete".to_owned()))
        }
        None => Err(fault(ErrorCode::Timeout, format!("the authoring agent took longer than {} s", visit.seconds()))),
    }
}

/// The author's state with the fields that travel in its metadata.
fn received(state: AgentState, stored: &StoredState) -> Result<StoredState, Stopped> {
    // Plain data with text keys always serialises.
    let bytes = serde_json::to_vec(&state).map_or(0, |json| json.len());
    if bytes > MAX_STATE {
        let details = format!("the authoring agent sent a state of {bytes} bytes; it may have {MAX_STATE}");
        return Err(Stopped::Fault(ErrorCode::InvalidAnswer, details));
    }
    Ok(restored(state, stored.id.clone()))
}
