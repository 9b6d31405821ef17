//! The question to the coordinator of a graph: how to recover from the failure of a node, or how to change the graph.

use super::failure::{NodeError, NodeFailure};
use super::scope::GraphRun;
use super::trouble::Trouble;
use super::values::Sight;
use crate::journal::StepError;
use crate::model::answer::object;
use crate::model::{Facts, ModelRequest, PromptMessage, PromptRole, ResponseSchema, recorded};
use crate::prompt::{PromptError, Prompts, Variables};
use crate::workflow::orchestration::stage_context::StageContext;
use base::http_client::bounded;
use decisions::answer::Answer;
use decisions::event::{env_values, masked, value_masked, without_env};
use decisions::kind::{Decision, DecisionType};
use decisions::schema;
use definitions::agent::AgentRecord;
use serde_json::{Map, Value, json};
use std::sync::{Arc, LazyLock};

/// Number of corrections that the model may make.
const MAX_CORRECTIONS: u32 = 2;
/// Limit in bytes on one output in the prompt.
const MAX_OUTPUT_BYTES: usize = 4 * 1024;
/// Limit in bytes on all outputs in the prompt and in an event.
const MAX_CONTEXT_BYTES: usize = 48 * 1024;

/// A question to the coordinator.
pub(super) struct Question<'q> {
    /// The place of the failed node, or of the graph.
    pub(super) here: &'q StageContext,
    pub(super) scope: &'q GraphRun<'q>,
    pub(super) agent: &'q AgentRecord,
    /// Key of the answer's step.
    pub(super) key: String,
    /// Input of the step. It does not change when the run is repeated, as the prompt may.
    pub(super) input: Value,
    /// The types of decisions that the model may choose from.
    pub(super) kinds: &'static [DecisionType],
    /// The graph as it is now.
    pub(super) plan: &'q Map<String, Value>,
    pub(super) troubles: &'q [Trouble],
    pub(super) sight: &'q Sight,
    /// The errors of the last decision.
    pub(super) errors: &'q [String],
    /// The number of recoveries or replans that may still be made, this one included.
    pub(super) left: u32,
}

impl Question<'_> {
    /// Asks the model, and corrects answers that cannot be read. The inner error has the problems of the last
    /// answer.
    pub(super) async fn ask(&self) -> Result<Result<Decision, Vec<String>>, NodeError> {
        let (services, journal) = (self.here.services(), self.here.journal());
        let names = self.agent.config.model.to_string();
        let model = services.models.chain(&self.agent.config.model).map_err(NodeFailure::from)?;
        let mut earlier: Vec<(String, Vec<String>)> = Vec::new();
        for correction in 0..=MAX_CORRECTIONS {
            let key = if correction == 0 { self.key.clone() } else { format!("{}/correct[{correction}]", self.key) };
            // A recorded answer needs no prompt.
            let is_recorded = journal.is_recorded(&key);
            let messages = if is_recorded { Vec::new() } else { self.messages(&services.prompts, &earlier)? };
            self.here.count_model_call().map_err(|failure| NodeError::of_part("LIMIT", failure))?;
            let request = ModelRequest::new(messages).with_schema(conversation_schema()).with_facts(self.facts());
            let named = recorded::NamedModel { names: &names, model: model.as_ref() };
            let input = (&self.input, earlier.last().map(|(_, problems)| problems));
            let content = match Box::pin(recorded::ask(&journal, &key, named, &input, request)).await {
                Ok(stepped) => stepped.output,
                Err(StepError::Journal(error)) => return Err(error.into()),
                Err(StepError::Operation(error)) => return Err(NodeFailure::from(error).into()),
            };
            let tokens = journal.record_of(&key).and_then(|step| step.tokens).unwrap_or_default();
            self.here.count_tokens(tokens).map_err(|failure| NodeError::of_part("LIMIT", failure))?;
            match read(&content, self.kinds) {
                Ok(decision) => return Ok(Ok(decision)),
                Err(problems) => earlier.push((content, problems)),
            }
        }
        Ok(Err(earlier.pop().map(|(_, problems)| problems).unwrap_or_default()))
    }

    fn facts(&self) -> Facts {
        let failed =
            self.troubles.iter().map(|trouble| format!("{}: {}", trouble.failure.code, trouble.failure.message));
        let message = failed.collect::<Vec<_>>().join("\n");
        Facts { agent: Some(Arc::clone(&self.agent.config)), message, ..Facts::default() }
    }

    /// The prompt, followed by each of the `earlier` answers and its problem.
    fn messages(
        &self,
        prompts: &Prompts,
        earlier: &[(String, Vec<String>)],
    ) -> Result<Vec<PromptMessage>, NodeFailure> {
        let user = self.facts().message;
        let (system, user) = (self.prompt(prompts).map_err(|error| unprompted(&error))?, self.masked(&user));
        let mut messages =
            vec![PromptMessage::new(PromptRole::System, system), PromptMessage::new(PromptRole::User, user)];
        for (content, problems) in earlier {
            let error = json!({"error": problems.join("; ")});
            let hint = prompts.render("correction", &error).map_err(|error| unprompted(&error))?;
            messages.push(PromptMessage::new(PromptRole::Assistant, content.as_str()));
            messages.push(PromptMessage::new(PromptRole::User, hint));
        }
        Ok(messages)
    }

    /// A text without secrets and values of `env`.
    fn masked(&self, text: &str) -> String {
        self.here.services().http.mask(&without_env(&env_values(self.plan), text))
    }

    fn prompt(&self, prompts: &Prompts) -> Result<String, PromptError> {
        let shown = |value: Value| pretty(&value_masked(&value, &|text| self.masked(text)));
        let mut plan = masked(self.plan, &|text| self.here.services().http.mask(text));
        plan.insert("workflow_id".into(), self.scope.workflow_id.into());
        plan.insert("name".into(), self.scope.graph.name.as_str().into());
        let failures = self.troubles.iter().map(Trouble::told).collect();
        let mut variables = Variables::default();
        variables.add("name", self.agent.config.name.as_str());
        variables.add("sop", self.agent.config.sop.as_str());
        variables.add("workflow_json", pretty(&plan.into()));
        variables.add("failures_json", shown(failures));
        variables.add("results_json", shown(outputs(self.sight).into()));
        variables.add("decisions_json", schema::of_payloads(self.kinds.iter().copied()).to_string());
        variables.add("errors", self.errors.join("\n"));
        variables.add("left", self.left);
        variables.add("is_replan", !self.kinds.contains(&DecisionType::ErrorRecovery));
        prompts.fill("recovery", variables)
    }
}

/// The outputs of the nodes that have ended, by node, cut to the limits of a prompt.
pub(super) fn outputs(sight: &Sight) -> Map<String, Value> {
    let mut room = MAX_CONTEXT_BYTES;
    let mut ids: Vec<&String> = sight.outputs.keys().collect();
    ids.sort();
    let mut found = Map::new();
    for id in ids {
        let output = &sight.outputs[id];
        let text = output.to_string();
        let shown = if text.len() > MAX_OUTPUT_BYTES.min(room) {
            Value::String(bounded(&text, MAX_OUTPUT_BYTES.min(room)))
        } else {
            output.as_ref().clone()
        };
        room = room.saturating_sub(text.len().min(MAX_OUTPUT_BYTES));
        found.insert(id.clone(), shown);
    }
    found
}

/// Reads the one decision of an answer, which has one of these types. The errors are texts for the model.
fn read(content: &str, kinds: &[DecisionType]) -> Result<Decision, Vec<String>> {
    let mut answer = Answer::read(&object(content).map_err(|error| vec![error])?)?;
    let known = || kinds.iter().map(|kind| format!("`{kind}`")).collect::<Vec<_>>().join(" or ");
    match (answer.decisions.pop(), answer.decisions.len()) {
        (Some(decision), 0) if kinds.contains(&decision.decision_type) => Ok(decision),
        (Some(decision), 0) => {
            let kind = decision.decision_type;
            Err(vec![format!("`decision_type` is `{kind}`, which does not mend a run; give {}", known())])
        }
        (Some(_), more) => Err(vec![format!("`decisions` has {} entries; give one: {}", more + 1, known())]),
        (None, _) => Err(vec![format!("`decisions` is empty; give one: {}", known())]),
    }
}

fn unprompted(error: &PromptError) -> NodeFailure {
    NodeFailure::permanent("INVALID", format!("the question to the coordinator cannot be written: {error}"))
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn conversation_schema() -> ResponseSchema {
    static SCHEMA: LazyLock<Arc<Value>> =
        LazyLock::new(|| Arc::new(schema::named(schema::CONVERSATION).unwrap_or_default()));
    ResponseSchema { name: schema::CONVERSATION.into(), strict: false, schema: Arc::clone(&SCHEMA) }
}
