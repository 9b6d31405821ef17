//! The offline author: gives the six answers of an authoring dialogue by fixed rules. The same dialogue gets the same
//! answers.
//!
//! It extracts parts of the user's words and repeats them. It never paraphrases, and it invents nothing. Each of its
//! texts begins with a mark of the offline rules.
//!
//! - `words`: words and patterns of both languages. `slots`: the facts that must be known, and how the user's words
//!   fill them.
//! - `clarification`, `negotiation`: the two stages that talk to the user. `edits`: changes of an existing document.
//! - `needs`: the needs of the slots, and the catalogue items for them. `alternatives`: the alternatives for a gap.
//! - `workflow` and `agent`: the documents. `http_node`: a tool as a node of a graph.

mod agent;
mod alternatives;
mod clarification;
mod edits;
mod http_node;
mod needs;
mod negotiation;
mod slots;
#[cfg(test)]
mod tests;
mod words;
mod workflow;

use crate::model::dialogue::{Dialogue, Facts};
use decisions::authoring::Question;
use decisions::authoring::answer::{Capability, Diagnosis, GapAnalysis};
use serde_json::{Value, json};
use types::authoring::{Artifact, Language, Origin, Speaker, StoredState};

/// The name of the fact that contains the user's changes of a document, one line each.
const CHANGE: &str = "change";

/// Returns the answer to a question of a dialogue.
pub(super) fn answer(question: Question, dialogue: &Dialogue) -> Value {
    let author = Author { stored: &dialogue.stored, facts: &dialogue.facts };
    match question {
        Question::Clarification => json!(author.clarify()),
        Question::Negotiation => json!(author.negotiate()),
        Question::GapAnalysis => json!(author.analyse()),
        Question::AlternativeGeneration => json!(author.offer()),
        Question::WorkflowGeneration => json!(author.generate()),
        Question::Debug => json!(author.diagnose()),
    }
}

/// The author of one answer.
struct Author<'a> {
    stored: &'a StoredState,
    facts: &'a Facts,
}

impl<'a> Author<'a> {
    /// The text in the language of the dialogue.
    fn text(&self, zh: &str, en: &str) -> String {
        if self.is_chinese() { zh } else { en }.to_owned()
    }

    fn is_chinese(&self) -> bool {
        self.stored.config.language == Language::Zh
    }

    fn is_agent(&self) -> bool {
        self.stored.artifact == Artifact::Agent
    }

    /// A text for the user, with the mark of the offline rules.
    fn said(&self, zh: &str, en: &str) -> String {
        format!("{}{}", self.text("（离线规则）", "(offline rules) "), self.text(zh, en))
    }

    /// A fact of the dialogue; empty if it is not known.
    fn fact(&self, key: &str) -> &'a str {
        self.stored.state.clarification_context.collected_info.get(key).map_or("", String::as_str)
    }

    /// The user's last message.
    fn message(&self) -> &'a str {
        let said = self.stored.state.conversations.iter().rev().find(|entry| entry.role == Speaker::User);
        said.map_or("", |entry| entry.text.trim())
    }

    /// True if the user's last message has no answer yet.
    fn is_unanswered(&self) -> bool {
        self.stored.state.conversations.last().is_some_and(|entry| entry.role == Speaker::User)
    }

    /// True if the dialogue has no message of the offline rules yet.
    fn is_first(&self) -> bool {
        self.stored.state.conversations.iter().all(|entry| entry.role == Speaker::User)
    }

    /// Returns the document to change: that of an edit or a copy. A new artefact is written from its slots each time.
    fn base(&self) -> Option<&'a Value> {
        let is_new = self.stored.state.workflow_context.origin == Origin::Create;
        self.facts.source.as_ref().filter(|_| !is_new)
    }

    fn analyse(&self) -> GapAnalysis {
        let capability = |need: needs::Need| Capability {
            need: need.need,
            required: true,
            provided_by: need.provider.map(|provider| provider.id().to_owned()),
        };
        GapAnalysis { capabilities: self.needs().into_iter().map(capability).collect(), reopen: false }
    }

    /// No rule can find out why a document failed, so the answer is `give_up` with the first finding.
    fn diagnose(&self) -> Diagnosis {
        let finding = self.stored.draft.as_ref().and_then(|draft| draft.problems.first()).map_or("", String::as_str);
        let zh = format!("没有能修复这个问题的规则：{finding}");
        let en = format!("No rule mends this: {finding}");
        Diagnosis { diagnosis: self.said(&zh, &en), give_up: true, ..Diagnosis::default() }
    }
}
