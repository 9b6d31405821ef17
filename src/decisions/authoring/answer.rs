//! The model's answers in each stage, and the problems of an answer that cannot be used.

use super::MAX_QUESTIONS;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashSet;
use thiserror::Error;
use types::authoring::state::{MAX_GAPS, MAX_INFO_VALUE};
use types::authoring::{AlternativeOption, Artifact, ClarificationQuestion};
use types::excerpt::cut;

/// A question to the model. The answer to each question has its own schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Question {
    /// The user's wish, and the open questions.
    Clarification,
    /// Whether the user agrees with the requirements.
    Negotiation,
    /// The required capabilities, and the catalogue items that provide them.
    GapAnalysis,
    /// Alternatives for the gaps.
    AlternativeGeneration,
    /// The document.
    WorkflowGeneration,
    /// Why the document failed, and how to change it.
    Debug,
}

impl Question {
    /// All questions, in the order of the stages.
    pub const ALL: [Self; 6] = [
        Self::Clarification,
        Self::Negotiation,
        Self::GapAnalysis,
        Self::AlternativeGeneration,
        Self::WorkflowGeneration,
        Self::Debug,
    ];

    /// The name of the schema of the answer.
    pub const fn schema_name(self) -> &'static str {
        match self {
            Self::Clarification => "authoring_clarification",
            Self::Negotiation => "authoring_negotiation",
            Self::GapAnalysis => "authoring_gap_analysis",
            Self::AlternativeGeneration => "authoring_alternative_generation",
            Self::WorkflowGeneration => "authoring_workflow_generation",
            Self::Debug => "authoring_debug",
        }
    }

    /// The question whose answer has a schema of this name.
    pub fn of_schema(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|question| question.schema_name() == name)
    }
}

/// An answer that cannot be used. The model gets the problems and is asked again.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the answer cannot be used: {}", .0.join("; "))]
pub struct Unusable(pub Vec<String>);

/// The largest number of problems that are reported for one answer.
const MAX_PROBLEMS: usize = 10;

impl Unusable {
    pub(super) fn because(problem: impl Into<String>) -> Self {
        Self(vec![problem.into()])
    }

    fn unless_none(mut problems: Vec<String>) -> Result<(), Self> {
        problems.truncate(MAX_PROBLEMS);
        if problems.is_empty() { Ok(()) } else { Err(Self(problems)) }
    }
}

/// Parses an answer. Unknown fields are ignored. Only the fields that the stage needs are required.
pub fn read<T: DeserializeOwned>(answer: Value) -> Result<T, Unusable> {
    serde_json::from_value(answer).map_err(|error| Unusable::because(error.to_string()))
}

/// A fact about the user's wishes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Its name.
    pub key: String,
    /// Its value; empty to forget the fact.
    pub value: String,
}

/// The answer to [`Question::Clarification`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clarification {
    /// The words for the user.
    pub reply: String,
    /// The user's wish, in one sentence.
    #[serde(default)]
    pub intent_summary: String,
    /// New facts.
    #[serde(default)]
    pub collected_info: Vec<Fact>,
    /// The questions that are open now.
    #[serde(default)]
    pub questions: Vec<ClarificationQuestion>,
    /// True if the model has no further question.
    #[serde(default)]
    pub ready: bool,
}

impl Clarification {
    pub(super) fn check(&self) -> Result<(), Unusable> {
        let mut problems = questions(&self.questions);
        if self.reply.trim().is_empty() && self.questions.is_empty() {
            problems.push("`reply` is empty, and there is no question".to_owned());
        }
        Unusable::unless_none(problems)
    }
}

/// The answer to [`Question::Negotiation`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Negotiation {
    /// The words for the user.
    pub reply: String,
    /// New facts.
    #[serde(default)]
    pub collected_info: Vec<Fact>,
    /// The requirements as they are now, one sentence each.
    #[serde(default)]
    pub requirements: Vec<String>,
    /// New questions.
    #[serde(default)]
    pub questions: Vec<ClarificationQuestion>,
    /// True if the user has agreed.
    #[serde(default)]
    pub agreed: bool,
    /// True if the user wants something other than the listed requirements.
    #[serde(default)]
    pub reopen: bool,
}

impl Negotiation {
    pub(super) fn check(&self) -> Result<(), Unusable> {
        let mut problems = questions(&self.questions);
        if self.reply.trim().is_empty() && self.requirements.is_empty() && self.questions.is_empty() && !self.agreed {
            problems.push("`reply` is empty, and so are `requirements` and `questions`".to_owned());
        }
        Unusable::unless_none(problems)
    }
}

/// A capability that the artefact needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// The need, in a few words.
    pub need: String,
    /// True if the artefact is useless without it.
    #[serde(default)]
    pub required: bool,
    /// The id of the catalogue item that provides it.
    #[serde(default)]
    pub provided_by: Option<String>,
}

/// The answer to [`Question::GapAnalysis`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapAnalysis {
    /// The needs.
    pub capabilities: Vec<Capability>,
    /// True if the user's last message changes the requirements.
    #[serde(default)]
    pub reopen: bool,
}

impl GapAnalysis {
    pub(super) fn check(&self) -> Result<(), Unusable> {
        let nameless = self.capabilities.iter().any(|capability| capability.need.trim().is_empty());
        if nameless { Err(Unusable::because("a capability has an empty `need`")) } else { Ok(()) }
    }

    /// Returns the gaps: first the required ones, then the others. A gap is a capability without a provider in the
    /// catalogue, or with an unknown one.
    pub(super) fn gaps(&self, catalogue: &HashSet<String>) -> (Vec<String>, Vec<String>) {
        let known = |capability: &&Capability| {
            !capability.provided_by.as_ref().is_some_and(|provider| catalogue.contains(provider))
        };
        let mut seen = HashSet::new();
        let mut missing: Vec<_> = self.capabilities.iter().filter(known).collect();
        // Required gaps come first, because duplicates and gaps beyond the limit are dropped from the end.
        missing.sort_by_key(|capability| !capability.required);
        let missing: Vec<_> =
            missing.into_iter().filter(|capability| seen.insert(capability.need.as_str())).take(MAX_GAPS).collect();
        let of = |required: bool| {
            let gaps = missing.iter().filter(move |capability| capability.required == required);
            gaps.map(|capability| cut(&capability.need, MAX_INFO_VALUE).into_owned()).collect::<Vec<_>>()
        };
        (of(true), of(false))
    }
}

/// The answer to [`Question::AlternativeGeneration`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alternatives {
    /// The words for the user.
    pub reply: String,
    /// The alternatives to offer now. If empty, the offered ones stay.
    #[serde(default)]
    pub alternatives: Vec<AlternativeOption>,
}

impl Alternatives {
    pub(super) fn check(&self, gaps: &[String], offered: bool) -> Result<(), Unusable> {
        let (mut problems, mut ids) = (Vec::new(), HashSet::new());
        if self.alternatives.is_empty() && !offered {
            problems.push("`alternatives` is empty".to_owned());
        }
        if self.alternatives.len() > MAX_GAPS {
            problems.push(format!("there are {} alternatives; offer at most {MAX_GAPS}", self.alternatives.len()));
        }
        for (place, one) in self.alternatives.iter().enumerate().take(MAX_GAPS) {
            if one.id.trim().is_empty() || one.title.trim().is_empty() {
                problems.push(format!("alternatives[{place}] needs an `id` and a `title`"));
            } else if !ids.insert(one.id.trim()) {
                problems.push(format!("alternatives[{place}].id `{}` is not unique", one.id));
            }
            let named = gaps.contains(&one.resolves) || (one.resolves.is_empty() && gaps.len() < 2);
            if !named {
                let gaps = gaps.join("`, `");
                let gaps = cut(&gaps, 1_024);
                problems.push(format!("alternatives[{place}].resolves must be one of `{gaps}`, word for word"));
            }
        }
        Unusable::unless_none(problems)
    }
}

/// The answer to [`Question::WorkflowGeneration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Generation {
    /// The words for the user.
    #[serde(default)]
    pub reply: String,
    /// The workflow, if one is made.
    #[serde(default)]
    pub workflow: Option<Value>,
    /// The agent, if one is made.
    #[serde(default)]
    pub agent: Option<Value>,
    /// Tests of the document.
    #[serde(default)]
    pub tests: Vec<Value>,
    /// True if the user's last message changes the requirements.
    #[serde(default)]
    pub reopen: bool,
}

impl Generation {
    /// Returns the document of this kind.
    pub fn document(&self, artifact: Artifact) -> Option<&Value> {
        match artifact {
            Artifact::Workflow => self.workflow.as_ref(),
            Artifact::Agent => self.agent.as_ref(),
        }
        .filter(|document| document.is_object())
    }
}

/// The answer to [`Question::Debug`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// Why the document failed.
    #[serde(default)]
    pub diagnosis: String,
    /// The changes that the model will make.
    #[serde(default)]
    pub changes: Vec<String>,
    /// True if no change would help.
    #[serde(default)]
    pub give_up: bool,
    /// True if the user's last message changes the requirements.
    #[serde(default)]
    pub reopen: bool,
}

fn questions(questions: &[ClarificationQuestion]) -> Vec<String> {
    let (mut problems, mut ids) = (Vec::new(), HashSet::new());
    if questions.len() > MAX_QUESTIONS {
        problems.push(format!("there are {} questions; ask at most {MAX_QUESTIONS} at a time", questions.len()));
    }
    for (place, question) in questions.iter().enumerate().take(MAX_QUESTIONS) {
        if question.id.trim().is_empty() || question.question.trim().is_empty() {
            problems.push(format!("questions[{place}] needs an `id` and a `question`"));
        } else if !ids.insert(question.id.as_str()) {
            problems.push(format!("questions[{place}].id `{}` is not unique", question.id));
        }
    }
    problems
}
