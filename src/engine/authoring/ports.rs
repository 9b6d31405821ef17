//! What the driver of a dialogue needs of its surroundings. On a lane, [`Outlet`] is the turn, over gRPC the call.

use super::catalogue::Catalogue;
use crate::execution::TurnError;
use crate::model::{ModelRequest, PromptMessage};
use async_trait::async_trait;
use decisions::authoring::answer::Generation;
use decisions::authoring::{Checked, NewDraft, Publication, Question, Unusable};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use storage::store::StoreError;
use thiserror::Error;
use types::authoring::{ErrorCode, Event, StoredState};

/// Where the states and the events of a dialogue go.
#[async_trait]
pub trait Outlet: Send {
    /// Saves a state over the version that it was made from, and raises its version. Durable on return.
    async fn save(&mut self, stored: &mut StoredState) -> Result<(), Interrupted>;

    /// Shows the events of a state that is saved. The same events may be shown again: their `seq` says so.
    async fn show(&mut self, stored: &StoredState, events: Vec<Event>) -> Result<(), Interrupted>;

    /// Shows a piece of a text that the model is writing, before the state is saved. Pieces that cannot be shown are lost:
    /// the whole text follows them.
    async fn show_piece(&mut self, piece: Event);
}

/// A request to the model.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The request.
    pub request: ModelRequest,
    /// Added to the metadata of the messages that follow from the answer, such as the sources of passages.
    pub notes: BTreeMap<String, String>,
}

/// What the stages work with: prompts, catalogue, documents.
#[async_trait]
pub trait Workshop: Send + Sync {
    /// What is installed, for the requirements of this dialogue.
    async fn catalogue(&self, stored: &StoredState) -> Result<Catalogue, WorkshopError>;

    /// The request for the answer to a question. The caller adds the idempotency key.
    async fn request(
        &self,
        question: Question,
        stored: &StoredState,
        catalogue: &Catalogue,
    ) -> Result<Prepared, WorkshopError>;

    /// The messages to append if an answer cannot be used: the answer, and why.
    fn correction(&self, answer: String, problem: &str) -> Result<[PromptMessage; 2], WorkshopError>;

    /// Keeps the document of an answer as a draft. Repeating it keeps it once. [`WorkshopError::Unusable`] if there is no
    /// document that can be kept.
    async fn keep_draft(&self, stored: &StoredState, answer: &Generation) -> Result<NewDraft, WorkshopError>;

    /// The kept document with this hash.
    async fn document(&self, stored: &StoredState, hash: &str) -> Result<Option<Value>, WorkshopError>;

    /// Validates the current draft and rehearses its tests, within `limit`.
    async fn check(&self, stored: &StoredState, limit: Duration) -> Result<Checked, WorkshopError>;

    /// Publishes the current draft. Repeating it publishes it once.
    async fn publish(&self, stored: &StoredState) -> Result<Publication, WorkshopError>;
}

/// Why a turn of a dialogue stops before it waits for the user.
#[derive(Debug, Error)]
pub enum Interrupted {
    /// The turn is repeated, or ends, like every turn with this error.
    #[error(transparent)]
    Turn(#[from] TurnError),
    /// Another program has saved another state.
    #[error("another program has changed the state of the dialogue")]
    Conflict,
}

/// Why a part of a stage has no result.
#[derive(Debug, Error)]
pub enum WorkshopError {
    /// The turn is repeated, or ends, like every turn with this error.
    #[error(transparent)]
    Turn(#[from] TurnError),
    /// The model's answer cannot be used. The model is asked again.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// The turn ends with this code and these details.
    #[error("{0}: {1}")]
    Fault(ErrorCode, String),
}

impl From<StoreError> for WorkshopError {
    fn from(error: StoreError) -> Self {
        Self::Turn(error.into())
    }
}
