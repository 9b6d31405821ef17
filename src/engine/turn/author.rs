//! A turn of an authoring dialogue: the driver of the dialogue over the lane's journal and store.

mod left;
mod outlet;

use super::state::Turn;
use crate::authoring::kept::{self, Kept};
use crate::authoring::{Driver, Installed, Interrupted, Speech};
use crate::execution::TurnError;
use base::metrics::metrics;
use decisions::authoring;
use outlet::LaneOutlet;
use std::collections::BTreeMap;
use storage::store::records::{Change, TimerChange};
use tracing::warn;
use types::authoring::{Body, ErrorCode, Event, MessageContent, StoredState};
use types::event::ReplyKind;
use types::outcome::Outcome;
use types::session::{Role, Status};

/// Key of the step event that marks the end of the events to read, for a repeated turn.
const RESUMED_MARK: &str = "resumed";

/// The messages and the failure that all attempts of this turn have published.
#[derive(Default)]
struct Told {
    /// The whole messages, by their numbers.
    messages: BTreeMap<u64, MessageContent>,
    /// The failure that ends the turn.
    error: Option<ErrorCode>,
}

impl Told {
    fn note(&mut self, event: &Event) {
        match &event.body {
            Body::Message { content: Some(content), .. } => {
                self.messages.insert(event.seq, content.clone());
            }
            Body::Error { content } => self.error = Some(content.error_code),
            _ => {}
        }
    }
}

impl Turn<'_> {
    /// Takes the dialogue through its stages until it waits for the user.
    pub(super) async fn author(mut self: Box<Self>) -> Result<Change, TurnError> {
        self.remember_user();
        // A user message reopens a closed conversation.
        self.session.closed_at = None;
        self.session.workflow_state.hash.clone_from(&self.agent.hash);
        self.transition(Status::Processing);
        self.settle().await?;
        let mut stored = self.dialogue().await?;
        let shown = if self.resumed { self.shown(RESUMED_MARK).await? } else { Vec::new() };
        let mut told = Told::default();
        shown.iter().for_each(|event| told.note(event));
        if let Err(interrupted) = self.drive(&mut stored, Speech::of(&shown), &mut told).await {
            match interrupted {
                Interrupted::Turn(error) => return Err(error),
                Interrupted::Conflict => self.conflict(&mut stored, &mut told),
            }
        }
        self.end_dialogue(&told)
    }

    async fn drive(&mut self, stored: &mut StoredState, speech: Speech, told: &mut Told) -> Result<(), Interrupted> {
        let (services, agent, journal) = (self.services, self.agent.clone(), self.journal.clone());
        let (models, message) = (self.models.clone(), self.message_text());
        let turn_id = self.turn_id().to_owned();
        let workshop = Installed::of(services, &agent.config);
        let mut driver = Driver {
            workshop: &workshop,
            models: &models,
            model: &agent.config.model,
            journal: &journal,
            remote: services.workbench.author.as_deref(),
            speech,
        };
        let mut outlet = LaneOutlet { turn: self, told };
        let begun = stored.turn.as_ref().is_some_and(|turn| turn.turn_id == turn_id);
        if begun {
            driver.resume(stored, &mut outlet).await?;
        } else {
            driver.begin(stored, &turn_id, &message, &mut outlet).await?;
        }
        driver.drive(stored, &mut outlet).await
    }

    /// The state of the dialogue. A damaged one is repaired, and a missing one begins again with the session's history.
    async fn dialogue(&self) -> Result<StoredState, TurnError> {
        let (session, now) = (&self.session, self.services.clock.now());
        let Kept { state, problem } = kept::state(self.services.store.as_ref(), session, now).await?;
        if let Some(problem) = problem {
            warn!(session_id = %session.session_id, problem, "a dialogue has lost its state or a part of it; its next save repairs it");
            metrics().authoring_repairs.inc();
        }
        Ok(state)
    }

    /// Ends the turn with `state_conflict`. The state that another program has written stays.
    fn conflict(&mut self, stored: &mut StoredState, told: &mut Told) {
        let details = "send the message again; the dialogue continues from the current state";
        warn!(session_id = %self.session.session_id, turn_id = self.turn_id(), "the state of a dialogue was changed by another program");
        authoring::fault(stored, ErrorCode::StateConflict, details, self.services.clock.now());
        for event in stored.turn.iter().flat_map(|turn| &turn.events) {
            told.note(event);
            self.publish_authoring(event);
        }
    }

    /// Ends the turn. Its last events are in the outbox, so they are published after the commit.
    fn end_dialogue(mut self: Box<Self>, told: &Told) -> Result<Change, TurnError> {
        self.replies = u32::try_from(told.messages.len()).unwrap_or(u32::MAX);
        self.answered = !told.messages.is_empty();
        for content in told.messages.values() {
            self.remember(Role::Assistant, &content.text, Some(ReplyKind::Response), outlet::metadata(content));
        }
        self.reason = told.error.map(|code| code.as_str().to_owned());
        self.transition(Status::Ready);
        let outcome = if self.answered || told.error.is_some() { Outcome::Answered } else { Outcome::Silent };
        self.finish(outcome, TimerChange::Keep)
    }
}
