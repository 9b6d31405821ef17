//! The interfaces that the driver of a dialogue uses. On a lane, the turn implements [`Outlet`]; over gRPC, the call
//! does.

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

/// The destination of the states and the events of a dialogue.
#[async_trait]
pub trait Outlet: Send {
    /// Saves a state if the stored one still has the version that was read, and raises its version. Durable on return.
    async fn save(&mut self, stored: &mut StoredState) -> Result<(), Interrupted>;

    /// Publishes the events of a saved state. An event may be published again, with the same `seq`.
    async fn show(&mut self, stored: &StoredState, events: Vec<Event>) -> Result<(), Interrupted>;

    /// Publishes a piece of a text that the model is writing, before the state is saved. If a piece cannot be
    /// published, it is dropped: the whole text follows.
    async fn show_piece(&mut self, piece: Event);
}

/// A request to the model.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The request.
    pub request: ModelRequest,
    /// Metadata for the messages that follow from the answer, such as the sources of passages.
    pub notes: BTreeMap<String, String>,
}

/// The prompts, the catalogue and the documents for the stages.
#[async_trait]
pub trait Workshop: Send + Sync {
    /// Returns the installed items for the requirements of this dialogue.
    async fn catalogue(&self, stored: &StoredState) -> Result<Catalogue, WorkshopError>;

    /// Returns the request for the answer to a question. The caller adds the idempotency key.
    async fn request(
        &self,
        question: Question,
        stored: &StoredState,
        catalogue: &Catalogue,
    ) -> Result<Prepared, WorkshopError>;

    /// Returns the messages to append if an answer cannot be used: the answer, and its problems.
    fn correction(&self, answer: String, problem: &str) -> Result<[PromptMessage; 2], WorkshopError>;

    /// Stores the document of an answer as a draft. Repeating it stores it once. Fails with [`WorkshopError::Unusable`]
    /// if the answer has no document that can be stored.
    async fn keep_draft(&self, stored: &StoredState, answer: &Generation) -> Result<NewDraft, WorkshopError>;

    /// Returns the stored document with this hash.
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

/// Why a step of a stage has no result.
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
