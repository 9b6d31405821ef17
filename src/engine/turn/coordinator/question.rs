//! The questions to a coordinator's model: phase 1 returns the plan with the first answer, phase 2 an answer.

use super::Round;
use crate::execution::TurnError;
use crate::execution::prompt_view::pretty_json;
use crate::model::answer::object;
use crate::model::{ActionAnswer, Facts, ResponseSchema};
use crate::prompt::EscapedText;
use crate::turn::decide::{DecisionRequest, FIRST_DECISION_KEY};
use crate::turn::decision::{Decision as ActionDecision, NextStatus, PlanDraft, draft, read_action};
use crate::turn::interruption::Interruption;
use crate::turn::iterate::LoopState;
use crate::turn::prompt::{self, Phase1};
use crate::turn::state::Turn;
use decisions::answer::Answer;
use decisions::kind::{Decision, DecisionType};
use decisions::schema;
use decisions::world::Snapshot;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};
use types::action::ActionKind;

/// Word of the reason for which a turn is cancelled after invalid answers.
const INVALID: &str = "invalid_decision";

/// An answer of a coordinator's model, read and not validated.
pub(in crate::turn) struct CoordinatorAnswer {
    /// The decisions, in the order of the answer.
    pub(super) decisions: Vec<Decision>,
    /// Warnings about them.
    pub(super) warnings: Vec<String>,
    /// An action of an ordinary agent. It counts if there are no decisions.
    pub(super) action: Option<ActionDecision>,
}

/// Step input of an answer in phase 2.
#[derive(Serialize)]
struct AnswerInput<'a> {
    hash: &'a str,
    message: &'a str,
    results: &'a [Arc<ActionAnswer>],
    note: Option<&'a str>,
    errors: &'a [String],
    thoughts: &'a [String],
}

impl Turn<'_> {
    /// Phase 2: asks the model for its next decisions. The inner error is the problem of answers that cannot be read.
    pub(super) async fn ask_coordinator(
        &mut self,
        iteration: u32,
        state: &LoopState,
        round: &Round,
    ) -> Result<Result<CoordinatorAnswer, String>, Interruption> {
        let message = self.message_text();
        let mut variables = self.phase2_variables(state, &message)?;
        variables.add("errors", round.errors.join("\n"));
        variables.add("thoughts", round.thoughts.join("\n"));
        variables.add("decisions_json", escaped_decision_schemas());
        for (name, text) in self.coordinator_texts(&round.world).await? {
            variables.add(name, text);
        }
        let system = self.services.prompts.fill("coordinator", variables).map_err(prompt::failed)?;
        let hash = self.agent.hash.clone();
        let (results, errors, thoughts) = (&state.results, &round.errors, &round.thoughts);
        let question = DecisionRequest {
            key: &format!("{iteration}/decide"),
            messages: prompt::messages(system, &message, self.images()),
            schema: conversation_schema(),
            input: AnswerInput { hash: &hash, message: &message, results, note: state.note, errors, thoughts },
            facts: self.coordinator_facts(false, state.results.last().cloned()),
        };
        // An answer that only replies has no visible effect before the commit, so the commit writes its step.
        let ends = |answer: &CoordinatorAnswer| {
            let [decision] = &answer.decisions[..] else { return false };
            decision.decision_type == DecisionType::Respond
        };
        match self.ask(question, read, ends).await {
            Ok(answer) => Ok(Ok(answer)),
            Err(Interruption::Cancel(reason)) if reason.word == INVALID => Ok(Err(reason.to_string())),
            Err(interruption) => Err(interruption),
        }
    }

    /// Phase 1: asks the model for a plan of the agent's configuration together with the first answer.
    pub(in crate::turn) async fn coordinator_phase_one(
        &mut self,
    ) -> Result<(PlanDraft, CoordinatorAnswer), Interruption> {
        let message = self.message_text();
        let conversation = prompt::conversation(&self.session);
        let mut context = json!(Phase1::new(&self.agent, self.services, &message, conversation));
        let texts = self.coordinator_texts(&self.services.decisions.world(Some(&self.agent.config))).await?;
        if let Some(fields) = context.as_object_mut() {
            fields.insert("decisions_json".to_owned(), decision_schemas().into());
            fields.extend(texts.into_iter().map(|(name, text)| (name.to_owned(), text.into())));
        }
        let system = self.services.prompts.render("coordinator_phase1", &context).map_err(prompt::failed)?;
        let question = DecisionRequest {
            key: FIRST_DECISION_KEY,
            messages: prompt::messages(system, &message, self.images()),
            schema: plan_and_conversation_schema(),
            input: self.plan_input(),
            facts: self.coordinator_facts(true, None),
        };
        self.ask(question, read_with_plan, |_| false).await
    }

    fn coordinator_facts(&self, plan: bool, last_action: Option<Arc<ActionAnswer>>) -> Facts {
        let (agent, message) = (Some(Arc::clone(&self.agent.config)), self.message_text());
        Facts { agent, message, last_action, plan, grounds: None, authoring: None }
    }

    /// The variables that only the prompts of coordinators have.
    async fn coordinator_texts(&self, world: &Snapshot) -> Result<Vec<(&'static str, String)>, TurnError> {
        let subagents = self.agent.config.subagents.iter();
        let subagents: Value = subagents
            .map(|one| json!({"type": one.kind, "description": one.description, "task_payload": one.input}))
            .collect();
        let task = self.task.as_ref().map(|task| pretty_json(&json!(task))).unwrap_or_default();
        let mut texts = vec![
            ("subagents_json", pretty_json(&subagents)),
            ("task", task),
            ("workflows", self.workflows_text().await?),
        ];
        texts.extend(self.node_texts(world).await);
        Ok(texts)
    }
}

/// The same, escaped for prompts: they are by far the longest text in one.
fn escaped_decision_schemas() -> minijinja::Value {
    static ESCAPED: LazyLock<minijinja::Value> = LazyLock::new(|| EscapedText::value(decision_schemas()));
    ESCAPED.clone()
}

/// The schemas of all payloads as JSON text.
fn decision_schemas() -> &'static str {
    static SCHEMAS: LazyLock<String> = LazyLock::new(|| schema::of_payloads(DecisionType::ALL).to_string());
    &SCHEMAS
}

fn conversation_schema() -> ResponseSchema {
    static SCHEMA: LazyLock<Arc<Value>> = LazyLock::new(|| named(schema::CONVERSATION));
    ResponseSchema { name: schema::CONVERSATION.into(), strict: false, schema: Arc::clone(&SCHEMA) }
}

fn plan_and_conversation_schema() -> ResponseSchema {
    static SCHEMA: LazyLock<Arc<Value>> = LazyLock::new(|| named(schema::PLAN_AND_CONVERSATION));
    ResponseSchema { name: schema::PLAN_AND_CONVERSATION.into(), strict: false, schema: Arc::clone(&SCHEMA) }
}

fn named(name: &str) -> Arc<Value> {
    Arc::new(schema::named(name).unwrap_or_default())
}

/// Reads an answer of phase 2. The error is a text for the model.
fn read(content: &str) -> Result<CoordinatorAnswer, String> {
    answer(Answer::read(&object(content)?))
}

/// Reads an answer of phase 1. The error is a text for the model.
fn read_with_plan(content: &str) -> Result<(PlanDraft, CoordinatorAnswer), String> {
    let (plan, first) = Answer::read_with_plan(&object(content)?).map_err(|errors| errors.join("; "))?;
    Ok((draft(&plan)?, answer(Ok(first))?))
}

fn answer(read: Result<Answer, Vec<String>>) -> Result<CoordinatorAnswer, String> {
    let read = read.map_err(|errors| errors.join("; "))?;
    let warnings = read.unusual();
    let action = match read.action {
        Some(action) if read.decisions.is_empty() => read_action(Some(&Value::Object(action)))?,
        _ => None,
    };
    let action = action.map(|action| {
        let hands_off = action.kind == ActionKind::System && action.target == crate::turn::decision::HANDOFF;
        let next_status = if hands_off { NextStatus::Transferred } else { NextStatus::Processing };
        ActionDecision { next_status, action: Some(action), response: None, reasoning: None }
    });
    Ok(CoordinatorAnswer { decisions: read.decisions, warnings, action })
}
