//! What the prompts are filled with.

use super::{Services, TurnError};
use crate::action::tool::{Tools, described};
use crate::agent::{AgentConfig, AgentRecord, Skill, Tool};
use crate::knowledge::Hit;
use crate::model::{Grounds, PromptMessage, PromptRole};
use crate::plan::Plan;
use crate::prompt::{PromptError, SharedText, transcript};
use crate::session::{Entry, Role};
use crate::workflow::Flows;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// The most bytes of one action's result that a prompt takes.
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
            // Shown in their own sections, or of no use to the parser.
            for field in ["tools", "skills", "flows", "rules", "handoff", "knowledge"] {
                fields.remove(field);
            }
        }
        let AgentConfig { tools, skills, flows, .. } = agent.config.as_ref();
        Self {
            config_json: pretty(&config),
            tools_json: pretty(&tools_seen(tools, &services.tools)),
            skills_json: pretty(&skills_seen(skills, &services.tools)),
            flows_json: pretty(&flows_seen(flows, &services.flows)),
            history,
            message,
        }
    }
}

/// What a turn may use, as all its prompts show it.
#[derive(Serialize)]
pub(super) struct Shown {
    tools_json: String,
    skills_json: String,
    flows_json: String,
}

impl Shown {
    pub(super) fn new(plan: &Plan, agent: &AgentConfig, services: &Services) -> Self {
        Self {
            tools_json: pretty(&tools_seen(&plan.tools, &services.tools)),
            skills_json: pretty(&skills_seen(&plan.skills, &services.tools)),
            flows_json: pretty(&flows_seen(&agent.flows, &services.flows)),
        }
    }
}

/// The variables of `prompts/phase2.md`.
#[derive(Serialize)]
pub(super) struct Phase2<'a> {
    name: &'a str,
    tone: &'a str,
    sop: &'a str,
    #[serde(flatten)]
    shown: &'a Shown,
    constraints: &'a str,
    history: SharedText,
    results: &'a str,
    message: &'a str,
    note: &'a str,
    greeting_just_sent: bool,
    is_timer: bool,
}

impl<'a> Phase2<'a> {
    pub(super) fn new(plan: &'a Plan, shown: &'a Shown, history: SharedText, message: &'a str) -> Self {
        Self {
            name: &plan.name,
            tone: &plan.tone,
            sop: &plan.sop,
            shown,
            constraints: &plan.constraints,
            history,
            results: "",
            message,
            note: "",
            greeting_just_sent: false,
            is_timer: false,
        }
    }

    pub(super) fn situation(
        mut self,
        (results, note): (&'a str, &'a str),
        greeting_just_sent: bool,
        is_timer: bool,
    ) -> Self {
        self.results = results;
        self.note = note;
        self.greeting_just_sent = greeting_just_sent;
        self.is_timer = is_timer;
        self
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
        (history, results, message): (SharedText, &'a str, &'a str),
    ) -> Self {
        let (name, tone, constraints) = (plan.name.as_str(), plan.tone.as_str(), plan.constraints.as_str());
        let Grounds { decided, hits } = grounds;
        Self { name, tone, constraints, history, results, message, decided, hits }
    }
}

/// The conversation as lines: what was said before this turn.
pub(super) fn conversation(history: &[Entry]) -> SharedText {
    transcript(history).into()
}

/// The conversation with what the agent has said in this turn. The user's own words of it have a section of their own.
pub(super) fn continued(conversation: &SharedText, added: &[Entry]) -> SharedText {
    let spoken = transcript(added.iter().filter(|entry| entry.role != Role::User));
    if spoken.is_empty() {
        return conversation.clone();
    }
    let before = conversation.as_str();
    let between = if before.is_empty() { "" } else { "\n" };
    [before, between, &spoken].concat().into()
}

/// The results of this turn's actions as lines, long ones cut with a note.
pub(super) fn results(results: &[(String, Value)]) -> String {
    let lines = results.iter().map(|(target, result)| {
        let mut text = result.to_string();
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

/// The prompt as system message, the user's words as the user's.
pub(super) fn messages(mut system: String, message: &str) -> Arc<Vec<PromptMessage>> {
    // Rendering leaves half of it free, and thousands of turns may wait with theirs.
    system.shrink_to_fit();
    let words = if message.is_empty() { "(no new message)" } else { message };
    Arc::new(vec![PromptMessage::new(PromptRole::System, system), PromptMessage::new(PromptRole::User, words)])
}

/// A prompt that cannot be rendered is repaired by its operator, and the turn repeated then.
#[allow(clippy::needless_pass_by_value)] // The shape that `map_err` wants.
pub(super) fn failed(error: PromptError) -> TurnError {
    TurnError::Failed(error.to_string())
}

/// Skills without their calls: the model has no use for addresses and headers.
fn skills_seen(skills: &[Skill], functions: &Tools) -> Value {
    let seen = skills.iter().map(|skill| {
        let function = functions.params(&skill.id).filter(|_| skill.http.is_none());
        let (description, params) = described(&skill.description, &skill.params, function);
        json!({ "id": skill.id, "description": description, "condition": skill.condition, "params": params })
    });
    seen.collect()
}

fn tools_seen(tools: &[Tool], functions: &Tools) -> Value {
    let seen = tools.iter().map(|tool| {
        let function = functions.params(&tool.id).filter(|_| tool.http.is_none() && tool.builtin.is_none());
        let (description, params) = described(&tool.description, &tool.params, function);
        json!({ "id": tool.id, "description": description, "params": params })
    });
    seen.collect()
}

/// A flow with typed params is shown with them, any other by its id alone.
fn flows_seen(ids: &[String], flows: &Flows) -> Value {
    let seen = ids.iter().map(|id| match flows.params(id) {
        Some(schema) => {
            let (description, params) = described("", &Value::Null, Some(schema));
            json!({ "id": id, "description": description, "params": params })
        }
        None => json!(id),
    });
    seen.collect()
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
