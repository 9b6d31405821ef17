//! Model calls of the decision loop: phase 1 returns the plan with the first decision, phase 2 one decision. An
//! invalid answer goes back to the model for correction.

use super::decision::{self, Decision, NextStatus, PlanDraft};
use super::interruption::Interruption;
use super::iterate::LoopState;
use super::prompt::{self, Phase1, Phase2};
use super::state::{StepName, Turn};
use crate::execution::CancelReason;
use crate::journal::StepError;
use crate::model::{ActionAnswer, Facts, ModelRequest, PromptMessage, PromptRole, ResponseSchema, recorded};
use crate::prompt::Variables;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tracing::{debug, warn};

/// Number of corrections that the model may make before the turn is cancelled.
const MAX_CORRECTIONS: u32 = 2;

/// Key of a turn's first decision, in phase 1 and in phase 2. With one key, two workers that both believe that they
/// hold the lease cannot take different paths: the first record decides.
pub(super) const FIRST_DECISION_KEY: &str = "0/decide";

/// One model call of the decision loop, for any type of answer.
pub(super) struct DecisionRequest<'k, I> {
    pub(super) key: &'k str,
    pub(super) messages: Arc<Vec<PromptMessage>>,
    pub(super) schema: ResponseSchema,
    /// Input of the step: a replay fails if its hash differs from the recorded one.
    pub(super) input: I,
    pub(super) facts: Facts,
}

/// Step input of a decision in phase 2.
#[derive(Serialize)]
struct DecisionInput<'d> {
    hash: &'d str,
    message: &'d str,
    results: &'d [Arc<ActionAnswer>],
    note: Option<&'d str>,
}

impl Turn<'_> {
    /// Phase 2: asks the model for the next decision.
    pub(super) async fn decide(&mut self, iteration: u32, state: &LoopState) -> Result<Decision, Interruption> {
        let message = self.message_text();
        let variables = self.phase2_variables(state, &message)?;
        let system = self.services.prompts.fill("phase2", variables).map_err(prompt::failed)?;
        let facts = Facts {
            agent: Some(Arc::clone(&self.agent.config)),
            message: message.clone(),
            last_action: state.results.last().cloned(),
            plan: false,
            grounds: None,
            authoring: None,
        };
        let hash = self.agent.hash.clone();
        let question = DecisionRequest {
            key: &format!("{iteration}/decide"),
            messages: prompt::messages(system, &message, self.images()),
            schema: decision::decision_schema(),
            input: DecisionInput { hash: &hash, message: &message, results: &state.results, note: state.note },
            facts,
        };
        // A decision that ends the turn has no visible effect before the commit, so the commit writes its step.
        let ends = |decision: &Decision| {
            decision.action.is_none() && matches!(decision.next_status, NextStatus::Typing | NextStatus::Ready)
        };
        let answer = self.ask(question, decision::parse_decision, ends).await?;
        if let Some(reasoning) = &answer.reasoning {
            debug!(session_id = %self.session.session_id, turn_id = self.turn_id(), iteration, reasoning, "decided");
        }
        Ok(answer)
    }

    /// The variables of a prompt of phase 2.
    pub(super) fn phase2_variables(&self, state: &LoopState, message: &str) -> Result<Variables, Interruption> {
        let note = match state.note {
            Some(name) => self.services.prompts.render(name, &json!({})).map_err(prompt::failed)?,
            None => String::new(),
        };
        let phase2 = Phase2 {
            history: prompt::continued(&state.history, &self.entries),
            results: &prompt::results(&state.results),
            message,
            note: &note,
            greeting_just_sent: state.greeted,
            is_timer: self.fired_timer().is_some(),
        };
        Ok(phase2.variables(&state.plan_texts))
    }

    /// Phase 1: asks the model for a plan of the agent's configuration together with the turn's first decision.
    pub(super) async fn phase_one(&mut self) -> Result<(PlanDraft, Decision), Interruption> {
        let message = self.message_text();
        let conversation = prompt::conversation(&self.session);
        let context = Phase1::new(&self.agent, self.services, &message, conversation);
        let system = self.services.prompts.render("phase1", &context).map_err(prompt::failed)?;
        let facts = Facts {
            agent: Some(Arc::clone(&self.agent.config)),
            message: message.clone(),
            last_action: None,
            plan: true,
            grounds: None,
            authoring: None,
        };
        let question = DecisionRequest {
            key: FIRST_DECISION_KEY,
            messages: prompt::messages(system, &message, self.images()),
            schema: decision::plan_and_decision_schema(),
            input: self.plan_input(),
            facts,
        };
        self.ask(question, decision::parse_plan_and_decision, |_| false).await
    }

    /// True if phase 1 is recorded for this turn.
    pub(super) fn has_planned(&self) -> bool {
        self.journal.is_recorded(FIRST_DECISION_KEY) && self.journal.has(FIRST_DECISION_KEY, &(self.plan_input(), ""))
    }

    pub(super) fn plan_input(&self) -> Value {
        json!({ "hash": self.agent.hash, "message": self.message_text() })
    }

    /// Asks the model and parses its answer, with corrections. On return the step is durable, except for an answer
    /// that `ends` the turn and needed no correction: the commit writes that step.
    pub(super) async fn ask<T: Send, I: Serialize>(
        &mut self,
        question: DecisionRequest<'_, I>,
        parse: fn(&str) -> Result<T, String>,
        ends: fn(&T) -> bool,
    ) -> Result<T, Interruption> {
        let (names, journal) = (self.agent.config.model.to_string(), self.journal.clone());
        let model = match self.models.chain(&self.agent.config.model) {
            Ok(model) => model,
            Err(error) => return Err(CancelReason::from_model_error(&error).into()),
        };
        let DecisionRequest { key, mut messages, schema, input, facts } = question;
        let mut problem = String::new();
        for correction in 0..=MAX_CORRECTIONS {
            let key = if correction == 0 { key.to_owned() } else { format!("{key}/correct[{correction}]") };
            let request =
                ModelRequest::new(Arc::clone(&messages)).with_schema(schema.clone()).with_facts(facts.clone());
            // Step input: the question's own input, and the error in the previous answer.
            let asked = (&input, problem.as_str());
            let mut own = None;
            let is_last = |content: &str| {
                let (_, answer) = own.insert((content.to_owned(), parse(content)));
                correction == 0 && answer.as_ref().is_ok_and(ends)
            };
            let named = recorded::NamedModel { names: &names, model: model.as_ref() };
            let asking = recorded::ask_last(&journal, &key, named, &asked, request, is_last);
            let name = StepName { kind: "model", target: &names, key: &key };
            let content = match self.run_while_publishing(name, Box::pin(asking)).await? {
                Ok(stepped) => {
                    self.step_finished("model", &stepped.target, &stepped);
                    stepped.output
                }
                Err(StepError::Journal(error)) => return Err(error.into()),
                Err(StepError::Operation(error)) => return Err(CancelReason::from_model_error(&error).into()),
            };
            // Another worker's answer may have been recorded first. The turn follows the record.
            let decided = match own {
                Some((told, answer)) if told == content => answer,
                _ => parse(&content),
            };
            match decided {
                Ok(answer) => return Ok(answer),
                Err(found) => problem = found,
            }
            warn!(session_id = %self.session.session_id, turn_id = self.turn_id(), key, problem, "invalid decision");
            let hint =
                self.services.prompts.render("correction", &json!({ "error": problem })).map_err(prompt::failed)?;
            let conversation = Arc::make_mut(&mut messages);
            conversation.push(PromptMessage::new(PromptRole::Assistant, content));
            conversation.push(PromptMessage::new(PromptRole::User, hint));
        }
        Err(CancelReason::new("invalid_decision", problem).into())
    }
}
