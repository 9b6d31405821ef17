//! Drives a dialogue through its stages until it waits for the user.

use super::limit::Visit;
use super::ports::{Interrupted, Outlet, Workshop, WorkshopError};
use super::relay::Exchange;
use super::speech::Speech;
use crate::execution::TurnError;
use crate::journal::{Done, Durability, Journal, JournalError, Label, StepError};
use crate::model::Models;
use decisions::authoring::{self, Checked, Input, Next, Publication};
use grpc::Author;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::future::Future;
use tracing::{debug, warn};
use types::authoring::{Body, ErrorCode, Event, StoredState};
use types::model_names::ModelNames;

/// The largest definition in an event, in bytes. For a larger one the event has a URL.
const MAX_DEFINITION: usize = 256 * 1024;

/// Drives one turn of a dialogue.
pub struct Driver<'a> {
    /// Prompts, catalogue and documents for the stages.
    pub workshop: &'a dyn Workshop,
    /// The models, limited by the budget of the turn.
    pub models: &'a Models,
    /// The models of the agent `authoring`.
    pub model: &'a ModelNames,
    /// The journal of the turn.
    pub journal: &'a Journal,
    /// The authoring agent on another server. If there is one, it leads the dialogue instead of the models.
    pub remote: Option<&'a dyn Author>,
    /// The part of the text that the user has already seen in this turn.
    pub speech: Speech,
}

/// Why a step of the machine has no result.
pub(super) enum Stopped {
    Interrupted(Interrupted),
    Fault(ErrorCode, String),
}

impl<E: Into<Interrupted>> From<E> for Stopped {
    fn from(error: E) -> Self {
        Self::Interrupted(error.into())
    }
}

impl From<JournalError> for Interrupted {
    fn from(error: JournalError) -> Self {
        Self::Turn(error.into())
    }
}

impl From<WorkshopError> for Stopped {
    fn from(error: WorkshopError) -> Self {
        match error {
            WorkshopError::Turn(error) => Self::Interrupted(error.into()),
            WorkshopError::Unusable(unusable) => Self::Fault(ErrorCode::InvalidAnswer, unusable.to_string()),
            WorkshopError::Fault(code, details) => Self::Fault(code, details),
        }
    }
}

/// The recorded result of a step of a stage.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Recorded<T> {
    Done(T),
    Failed(ErrorCode, String),
}

impl Driver<'_> {
    /// Begins a turn with a message of the user.
    pub async fn begin(
        &mut self,
        stored: &mut StoredState,
        turn_id: &str,
        message: &str,
        outlet: &mut dyn Outlet,
    ) -> Result<(), Interrupted> {
        authoring::begin(stored, turn_id, message, self.journal.clock().now());
        self.speech.skip_shown(stored);
        self.keep(stored, outlet).await
    }

    /// Begins a turn without a message, from the state of an interrupted turn. Returns false if the dialogue waits for
    /// the user.
    pub async fn go_on(
        &mut self,
        stored: &mut StoredState,
        turn_id: &str,
        outlet: &mut dyn Outlet,
    ) -> Result<bool, Interrupted> {
        if !authoring::go_on(stored, turn_id, self.journal.clock().now()) {
            return Ok(false);
        }
        self.keep(stored, outlet).await.map(|()| true)
    }

    /// Resumes a turn that another attempt has begun. That attempt may not have published the events of its last save.
    pub async fn resume(&mut self, stored: &mut StoredState, outlet: &mut dyn Outlet) -> Result<(), Interrupted> {
        let events = stored.turn.as_ref().map(|turn| turn.events.clone()).unwrap_or_default();
        self.show(stored, events, outlet).await?;
        self.speech.skip_shown(stored);
        Ok(())
    }

    /// Performs the steps of the dialogue until it waits for the user.
    pub async fn drive(&mut self, stored: &mut StoredState, outlet: &mut dyn Outlet) -> Result<(), Interrupted> {
        let mut visit = Visit::new(stored, self.journal.clock());
        let mut exchange = Exchange::default();
        loop {
            let next = authoring::next(stored);
            if next == Next::Wait {
                return Ok(());
            }
            visit.enter(stored);
            match self.step(next, stored, &visit, &mut exchange, outlet).await {
                Ok(()) => {}
                Err(Stopped::Interrupted(interrupted)) => return Err(interrupted),
                Err(Stopped::Fault(code, details)) => {
                    let (session_id, stage) = (&stored.state.session_id, stored.state.stage.as_str());
                    warn!(session_id, stage, error_code = code.as_str(), "an authoring turn failed: {details}");
                    authoring::fault(stored, code, &details, self.journal.clock().now());
                }
            }
            debug!(session_id = stored.state.session_id, stage = stored.state.stage.as_str(), "authoring");
            self.keep(stored, outlet).await?;
        }
    }

    async fn step(
        &mut self,
        next: Next,
        stored: &mut StoredState,
        visit: &Visit,
        exchange: &mut Exchange,
        outlet: &mut dyn Outlet,
    ) -> Result<(), Stopped> {
        let input = match next {
            Next::Wait => return Ok(()),
            Next::Ask(question) => {
                return match self.remote {
                    Some(author) => self.relay(author, stored, visit, exchange, outlet).await,
                    None => self.ask(question, stored, visit, outlet).await,
                };
            }
            Next::Check if self.has_lost_draft(stored).await? => {
                // The machine then asks the model to write the document again.
                stored.draft = None;
                stored.turn.get_or_insert_default().events.clear();
                return Ok(());
            }
            Next::Check => Input::Checked(self.check(stored, visit).await?),
            Next::Publish => Input::Published(self.publish(stored).await?),
        };
        let advanced = authoring::advance(stored, input, BTreeMap::new(), self.journal.clock().now());
        advanced.map_err(|unusable| Stopped::Fault(ErrorCode::Internal, unusable.to_string()))
    }

    /// Returns true if the document of the current draft no longer exists.
    async fn has_lost_draft(&self, stored: &StoredState) -> Result<bool, WorkshopError> {
        let Some(draft) = &stored.draft else { return Ok(false) };
        Ok(self.workshop.document(stored, &draft.hash).await?.is_none())
    }

    async fn check(&self, stored: &StoredState, visit: &Visit) -> Result<Checked, Stopped> {
        let late =
            || WorkshopError::Fault(ErrorCode::Timeout, format!("the checks took longer than {} s", visit.seconds()));
        let checking =
            async { visit.limit(self.workshop.check(stored, visit.left())).await.unwrap_or_else(|| Err(late())) };
        self.record("rehearse", "rehearsal", stored, Durability::OnReturn, checking).await
    }

    async fn publish(&self, stored: &StoredState) -> Result<Publication, Stopped> {
        self.record("publish", "publish", stored, Durability::OnReturn, self.workshop.publish(stored)).await
    }

    /// Runs a step of the current stage, unless its result is recorded.
    pub(super) async fn record<T: Serialize + DeserializeOwned>(
        &self,
        key: &str,
        kind: &str,
        stored: &StoredState,
        durability: Durability,
        part: impl Future<Output = Result<T, WorkshopError>>,
    ) -> Result<T, Stopped> {
        let scope = self.scope(stored);
        let target = stored.draft.as_ref().map(|draft| draft.hash.as_str()).unwrap_or_default();
        let input = (stored.version, key);
        let step = scope.step(key, Label { kind, target }, durability, &input, |_| async {
            match part.await {
                Ok(done) => Ok(Done::ok(Recorded::Done(done))),
                Err(WorkshopError::Turn(error)) => Err(error),
                Err(WorkshopError::Fault(code, details)) => {
                    Ok(Done { ok: false, ..Done::ok(Recorded::Failed(code, details)) })
                }
                Err(WorkshopError::Unusable(problem)) => {
                    let failed = Recorded::Failed(ErrorCode::InvalidAnswer, problem.to_string());
                    Ok(Done { ok: false, ..Done::ok(failed) })
                }
            }
        });
        match step.await {
            Ok(stepped) => match stepped.output {
                Recorded::Done(done) => Ok(done),
                Recorded::Failed(code, details) => Err(Stopped::Fault(code, details)),
            },
            Err(StepError::Journal(error)) => Err(Interrupted::from(error).into()),
            Err(StepError::Operation(error)) => Err(Interrupted::from(error).into()),
        }
    }

    /// Returns the part of the journal for the current state. A state that another program has changed has another
    /// version, and so other keys.
    pub(super) fn scope(&self, stored: &StoredState) -> Journal {
        self.journal.scope(&format!("author@{}/{}", stored.version, stored.state.stage.as_str()))
    }

    /// Saves the state, then publishes the events of the last step.
    async fn keep(&mut self, stored: &mut StoredState, outlet: &mut dyn Outlet) -> Result<(), Interrupted> {
        // The save must not make a state durable before the record of the step from which it follows.
        self.journal.settle().await?;
        outlet.save(stored).await?;
        let events = stored.turn.as_ref().map(|turn| turn.events.clone()).unwrap_or_default();
        self.show(stored, events, outlet).await
    }

    async fn show(
        &mut self,
        stored: &StoredState,
        mut events: Vec<Event>,
        outlet: &mut dyn Outlet,
    ) -> Result<(), Interrupted> {
        for event in &mut events {
            self.add_definition(stored, event).await?;
            self.speech.note(event);
        }
        outlet.show(stored, events).await
    }

    /// Adds the document to an event about it. The stored event does not contain it.
    async fn add_definition(&self, stored: &StoredState, event: &mut Event) -> Result<(), TurnError> {
        let (hash, definition, url) = match &mut event.body {
            Body::WorkflowDraft { data, .. } => (&data.hash, &mut data.definition, &mut data.definition_url),
            Body::WorkflowComplete { data, .. } => (&data.hash, &mut data.definition, &mut data.definition_url),
            _ => return Ok(()),
        };
        let document = match self.workshop.document(stored, hash).await {
            Ok(document) => document,
            Err(WorkshopError::Turn(error)) => return Err(error),
            Err(error) => {
                warn!(session_id = stored.state.session_id, hash, "the document of an event cannot be read: {error}");
                None
            }
        };
        *definition = document.filter(|document| document.to_string().len() <= MAX_DEFINITION);
        if definition.is_none() {
            *url = Some(format!("/api/v1/workflow/{}/draft?hash={hash}", stored.state.session_id));
        }
        Ok(())
    }
}
