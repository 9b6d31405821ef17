//! Variables of the prompts, and the texts made for them.

use crate::execution::prompt_view::{PlanTexts, flows_for_prompt, pretty_json, skills_for_prompt, tools_for_prompt};
use crate::execution::{Services, TurnError};
use crate::knowledge::Hit;
use crate::model::{ActionAnswer, Grounds, PromptMessage, PromptRole};
use crate::prompt::{PromptError, SharedText, Variables};
use definitions::agent::AgentRecord;
use serde::Serialize;
use std::sync::Arc;
use types::agent::AgentConfig;
use types::plan::Plan;
use types::session::{Entry, Role, Session, transcript};

/// Limit in bytes on the result of one action in a prompt.
const MAX_RESULT_BYTES: usize = 16 * 1024;

/// The variables of `prompts/phase1.md`.
#[derive(Serialize)]
pub(super) struct Phase1<'a> {
    config_json: String,
    tools_json: String,
    skills_json: String,
    flows_json: String,
    history: SharedText,
    message: &'a str,
}

impl<'a> Phase1<'a> {
    pub(super) fn new(agent: &AgentRecord, services: &Services, message: &'a str, history: SharedText) -> Self {
        let mut config = agent.document.clone();
        if let Some(fields) = config.as_object_mut() {
            // These fields have sections of their own in the prompt, or do not matter for the plan.
            for field in ["tools", "skills", "flows", "rules", "handoff", "knowledge"] {
                fields.remove(field);
            }
        }
        let AgentConfig { tools, skills, flows, .. } = agent.config.as_ref();
        Self {
            config_json: pretty_json(&config),
            tools_json: pretty_json(&tools_for_prompt(tools, &services.tools)),
            skills_json: pretty_json(&skills_for_prompt(skills, &services.tools)),
            flows_json: pretty_json(&flows_for_prompt(flows, &services.flows)),
            history,
            message,
        }
    }
}

/// The variables of `prompts/phase2.md` that do not come from the plan.
pub(super) struct Phase2<'a> {
    pub(super) history: SharedText,
    pub(super) results: &'a str,
    pub(super) message: &'a str,
    pub(super) note: &'a str,
    pub(super) greeting_just_sent: bool,
    pub(super) is_timer: bool,
}

impl Phase2<'_> {
    /// Returns the variables, including those of the plan.
    pub(super) fn variables(self, plan_texts: &PlanTexts) -> Variables {
        let mut variables = Variables::from_iter(plan_texts.texts());
        variables.add("history", self.history);
        variables.add("results", self.results);
        variables.add("message", self.message);
        variables.add("note", self.note);
        variables.add("greeting_just_sent", self.greeting_just_sent);
        variables.add("is_timer", self.is_timer);
        variables
    }
}

/// The variables of `prompts/knowledge_reply.md`.
#[derive(Serialize)]
pub(super) struct KnowledgeReply<'a> {
    name: &'a str,
    tone: &'a str,
    constraints: &'a str,
    history: SharedText,
    results: &'a str,
    message: &'a str,
    decided: &'a str,
    hits: &'a [Hit],
}

impl<'a> KnowledgeReply<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        grounds: &'a Grounds,
        history: SharedText,
        results: &'a str,
        message: &'a str,
    ) -> Self {
        let (name, tone, constraints) = (plan.name.as_str(), plan.tone.as_str(), plan.constraints.as_str());
        let Grounds { decided, hits } = grounds;
        Self { name, tone, constraints, history, results, message, decided, hits }
    }
}

/// Returns the conversation before this turn, one line for each entry.
pub(super) fn conversation(session: &Session) -> SharedText {
    session.transcript.text(&session.history).into()
}

/// Returns the conversation with the agent's replies of this turn. The user's messages of this turn have their own
/// section in the prompt.
pub(super) fn continued(conversation: &SharedText, added: &[Entry]) -> SharedText {
    let spoken = transcript::lines(added.iter().filter(|entry| entry.role != Role::User));
    if spoken.is_empty() {
        return conversation.clone();
    }
    let before = conversation.as_str();
    let between = if before.is_empty() { "" } else { "\n" };
    [before, between, &spoken].concat().into()
}

/// Returns the results of this turn's actions, one line each. A long result is cut, with a note about its size.
pub(super) fn results(results: &[Arc<ActionAnswer>]) -> String {
    let lines = results.iter().map(|answer| {
        let (target, result) = answer.as_ref();
        // A value always serialises.
        let mut text = serde_json::to_string(result).unwrap_or_default();
        if text.len() > MAX_RESULT_BYTES {
            let total = text.len();
            let end = (0..=MAX_RESULT_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            text.truncate(end);
            text.push_str(&format!("… (cut: {end} of {total} bytes)"));
        }
        format!("{target}: {text}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Builds the messages of a model request: the prompt as system message, the user's text and pictures as user
/// message.
pub(super) fn messages(mut system: String, message: &str, images: Vec<String>) -> Arc<Vec<PromptMessage>> {
    // Rendering may leave half of the buffer unused, and thousands of turns may hold their prompts at the same time.
    system.shrink_to_fit();
    let words = if message.is_empty() { "(no new message)" } else { message };
    let user = PromptMessage { images, ..PromptMessage::new(PromptRole::User, words) };
    Arc::new(vec![PromptMessage::new(PromptRole::System, system), user])
}

/// Converts the error of a prompt that cannot be rendered. The turn is repeated, since an operator can repair the
/// prompt.
pub(super) fn failed(error: PromptError) -> TurnError {
    TurnError::Failed(error.into())
}
