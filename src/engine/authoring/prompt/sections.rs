//! The texts within the tags of the prompts. Each has a limit, so that a long dialogue fits into the context of a
//! model.

use super::Facts;
use crate::authoring::catalogue::Catalogue;
use crate::knowledge::Hit;
use decisions::schema::{graph, without_unused};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use types::authoring::{Artifact, ClarificationQuestion, Conversation, Origin, Speaker, StoredState};
use types::excerpt::cut;

/// Limit in bytes on the conversation before the last message of the user.
const MAX_CONVERSATION: usize = 24 * 1024;
/// Limit in bytes on one message of the conversation.
const MAX_ENTRY: usize = 4 * 1024;
/// Limit in bytes on the facts.
const MAX_REQUIREMENTS: usize = 32 * 1024;
/// Limit in bytes on a document.
const MAX_DOCUMENT: usize = 256 * 1024;
/// Limit in bytes on the findings, and on the passages.
const MAX_FINDINGS: usize = 8 * 1024;
/// Limit in bytes on the catalogue.
const MAX_CATALOGUE: usize = 64 * 1024;

/// Fields of an agent that the model does not write. The schema lists them only if the source has them.
const RARE_FIELDS: [&str; 11] = [
    "budget",
    "cancel_words",
    "coordinator",
    "double_text",
    "flow_timeout",
    "max_iterations",
    "mode",
    "regreet_on_change",
    "subagents",
    "system_prompt",
    "updated_at",
];

/// Returns the conversation as lines, without the user's last message, and that message. The oldest messages are
/// dropped first.
pub(super) fn conversation(entries: &[Conversation]) -> (String, &str) {
    let last = entries.iter().rposition(|entry| entry.role == Speaker::User);
    let message = last.map_or("", |at| entries[at].text.as_str());
    let (mut lines, mut bytes) = (Vec::new(), 0);
    for (at, entry) in entries.iter().enumerate().rev().filter(|(at, _)| Some(*at) != last) {
        let line = format!("{}: {}", entry.role, cut(&entry.text, MAX_ENTRY));
        bytes += line.len() + 1;
        if bytes > MAX_CONVERSATION {
            lines.push(format!("({} earlier messages are left out)", at + 1));
            break;
        }
        lines.push(line);
    }
    lines.reverse();
    (lines.join("\n"), message)
}

/// Returns the facts about the user's wishes, one line each.
pub(super) fn requirements(stored: &StoredState) -> String {
    let (state, config) = (&stored.state, &stored.config);
    let mut lines = vec![format!("what is made: {} ({})", stored.artifact, state.workflow_context.origin)];
    let mut add = |name: &str, value: &str| {
        if !value.trim().is_empty() {
            lines.push(format!("{name}: {value}"));
        }
    };
    add("intent", &state.intent_summary);
    if state.workflow_context.origin != Origin::Create {
        add("source", &state.workflow_context.source_workflow_id);
    }
    add("change", &state.workflow_context.modification_intent);
    state.clarification_context.collected_info.iter().for_each(|(key, value)| add(key, value));
    let wishes = config.preferences.iter().filter(|(name, _)| !matches!(name.as_str(), "artifact" | "publish"));
    wishes.for_each(|(name, value)| add(&format!("preference {name}"), value));
    cut(&lines.join("\n"), MAX_REQUIREMENTS).into_owned()
}

/// Returns the questions that wait for an answer.
pub(super) fn questions(questions: &[ClarificationQuestion]) -> String {
    let line = |question: &ClarificationQuestion| {
        let options = match question.options.as_slice() {
            [] => String::new(),
            options => format!(" ({})", options.join(" / ")),
        };
        format!("{}: {}{options}", question.id, question.question)
    };
    questions.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the alternatives that were offered, as JSON; empty without any.
pub(super) fn alternatives(stored: &StoredState) -> String {
    match stored.state.alternatives.as_slice() {
        [] => String::new(),
        offered => json!(offered).to_string(),
    }
}

/// Returns the problems of the last document, and the changes that the model has announced.
pub(super) fn findings(stored: &StoredState) -> String {
    let Some(draft) = stored.draft.as_ref().filter(|draft| draft.ok == Some(false)) else { return String::new() };
    let changes = draft.changes.iter().map(|change| Cow::Owned(format!("change: {change}")));
    let lines: Vec<_> = draft.problems.iter().map(|text| Cow::Borrowed(text.as_str())).chain(changes).collect();
    cut(&lines.join("\n"), MAX_FINDINGS).into_owned()
}

/// Returns the catalogue, one line for each item.
pub(super) fn catalogue(catalogue: &Catalogue) -> String {
    let lines = catalogue.items.iter().map(|item| format!("- {}: {}", item.id, item.line));
    cut(&lines.collect::<Vec<_>>().join("\n"), MAX_CATALOGUE).into_owned()
}

/// Returns the definitions of tools and skills, one line each.
pub(super) fn parts(parts: &BTreeMap<String, Value>) -> String {
    let lines = parts.iter().map(|(id, part)| format!("{id}: {part}"));
    cut(&lines.collect::<Vec<_>>().join("\n"), MAX_CATALOGUE).into_owned()
}

/// Returns the passages, with their sources.
pub(super) fn passages(passages: &[Hit]) -> String {
    let texts = passages.iter().map(|hit| format!("[{}, {}]\n{}", hit.source, hit.heading, hit.text));
    cut(&texts.collect::<Vec<_>>().join("\n\n"), MAX_FINDINGS).into_owned()
}

/// Returns a document as JSON; empty without one.
pub(super) fn document(document: Option<&Value>) -> String {
    document.map(|document| cut(&document.to_string(), MAX_DOCUMENT).into_owned()).unwrap_or_default()
}

/// Returns the schema of the document, as JSON without the fields that a dialogue does not need.
pub(super) fn schema(artifact: Artifact, facts: &Facts) -> String {
    if artifact == Artifact::Workflow {
        return graph().to_string();
    }
    let mut schema = types::agent::schema::schema();
    let known = |field: &str| [&facts.source, &facts.draft].into_iter().flatten().any(|one| one.get(field).is_some());
    for field in RARE_FIELDS.into_iter().filter(|field| !known(field)) {
        if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            properties.remove(field);
        }
    }
    if let Some(schema) = schema.as_object_mut() {
        // These rules separate the two kinds of agents. A dialogue makes only chat agents.
        for name in ["$schema", "title", "description", "if", "then", "else"] {
            schema.remove(name);
        }
    }
    without_unused(schema).to_string()
}
