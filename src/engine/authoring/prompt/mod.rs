//! The request to the model for each of the six answers of a dialogue: the prompt `prompts/authoring_<stage>.md`, the
//! schema of the answer, and the facts for the offline model. `sections` writes the texts within the tags.

mod sections;
#[cfg(test)]
mod tests;

use super::catalogue::Catalogue;
pub use crate::model::dialogue::{Dialogue, Facts};
use crate::model::{Facts as ModelFacts, ModelRequest, PromptMessage, PromptRole, ResponseSchema};
use crate::prompt::{PromptError, Prompts};
use decisions::authoring::schema::{is_strict, schema};
use decisions::authoring::{MAX_QUESTIONS, Question};
use definitions::agent::AgentRecord;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::authoring::{Artifact, Language, StoredState};

/// Returns the definitions of those tools and skills of these agents that are in the catalogue.
pub fn parts<'a>(catalogue: &Catalogue, agents: impl IntoIterator<Item = &'a AgentRecord>) -> BTreeMap<String, Value> {
    let ids = catalogue.ids();
    let mut parts = BTreeMap::new();
    for agent in agents {
        for (list, kind) in [("tools", "tool"), ("skills", "skill")] {
            let found = agent.document.get(list).and_then(Value::as_array).into_iter().flatten();
            for part in found {
                let id = format!("{kind}.{}.{}", agent.id(), part["id"].as_str().unwrap_or_default());
                if ids.contains(&id) {
                    parts.insert(id, part.clone());
                }
            }
        }
    }
    parts
}

/// Returns the request for the answer to `question`. The caller adds the idempotency key.
pub fn request(
    prompts: &Prompts,
    question: Question,
    stored: &StoredState,
    facts: &Facts,
) -> Result<ModelRequest, PromptError> {
    let schema = ResponseSchema {
        name: question.schema_name().into(),
        strict: is_strict(question),
        schema: Arc::new(schema(question, stored.artifact)),
    };
    let dialogue = Dialogue { stored: stored.clone(), facts: facts.clone() };
    let (_, message) = sections::conversation(&stored.state.conversations);
    let message = message.to_owned();
    let known = ModelFacts { message, authoring: Some(Arc::new(dialogue)), ..ModelFacts::default() };
    Ok(ModelRequest::new(messages(prompts, question, stored, facts)?).with_schema(schema).with_facts(known))
}

/// Returns the messages for the answer to `question`: the prompt, then the user's last message.
pub fn messages(
    prompts: &Prompts,
    question: Question,
    stored: &StoredState,
    facts: &Facts,
) -> Result<Arc<Vec<PromptMessage>>, PromptError> {
    let (conversation, message) = sections::conversation(&stored.state.conversations);
    let context = json!({
        "manner": facts.manner,
        "language": if stored.config.language == Language::Zh { "Chinese" } else { "English" },
        "artifact": stored.artifact.as_str(),
        "is_agent": stored.artifact == Artifact::Agent,
        "max_questions": MAX_QUESTIONS,
        "requirements": sections::requirements(stored),
        "open_questions": sections::questions(&stored.questions),
        "gaps": stored.state.gaps.join("\n"),
        "alternatives": sections::alternatives(stored),
        "findings": sections::findings(stored),
        "catalogue": sections::catalogue(&facts.catalogue),
        "parts": if question == Question::WorkflowGeneration { sections::parts(&facts.parts) } else { String::new() },
        "passages": sections::passages(&facts.passages),
        "source": sections::document(facts.source.as_ref()),
        "draft": sections::document(facts.draft.as_ref()),
        "schema": if question == Question::WorkflowGeneration { sections::schema(stored.artifact, facts) } else { String::new() },
        "conversation": conversation,
        "message": message,
    });
    let mut system = prompts.render(question.schema_name(), &context)?;
    system.shrink_to_fit();
    let message = if message.is_empty() { "(no new message)" } else { message };
    Ok(Arc::new(vec![PromptMessage::new(PromptRole::System, system), PromptMessage::new(PromptRole::User, message)]))
}

/// Returns the messages to append if an answer cannot be used: the answer, and its problems.
pub fn correction(prompts: &Prompts, answer: String, problem: &str) -> Result<[PromptMessage; 2], PromptError> {
    let hint = prompts.render("authoring_correction", &json!({ "error": problem }))?;
    Ok([PromptMessage::new(PromptRole::Assistant, answer), PromptMessage::new(PromptRole::User, hint)])
}
