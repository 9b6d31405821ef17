//! The JSON Schemas of the model's answers.

use super::answer::Question;
use serde_json::{Map, Value, json};
use types::authoring::{Artifact, Category, Complexity};

/// Returns true if the provider can enforce the schema. A document has fields that a strict schema cannot list.
pub const fn is_strict(question: Question) -> bool {
    !matches!(question, Question::WorkflowGeneration)
}

/// Returns the schema of the answer to a question.
pub fn schema(question: Question, artifact: Artifact) -> Value {
    match question {
        Question::Clarification => object(&[
            ("reply", text()),
            ("intent_summary", text()),
            ("collected_info", facts()),
            ("questions", questions()),
            ("ready", flag()),
        ]),
        Question::Negotiation => object(&[
            ("reply", text()),
            ("collected_info", facts()),
            ("requirements", list(text())),
            ("questions", questions()),
            ("agreed", flag()),
            ("reopen", flag()),
        ]),
        Question::GapAnalysis => {
            let capability =
                object(&[("need", text()), ("required", flag()), ("provided_by", json!({"type": ["string", "null"]}))]);
            object(&[("capabilities", list(capability)), ("reopen", flag())])
        }
        Question::AlternativeGeneration => {
            let names: Vec<_> = Complexity::ALL.iter().map(|value| value.as_str()).collect();
            let alternative = object(&[
                ("id", text()),
                ("title", text()),
                ("description", text()),
                ("approach", text()),
                ("trade_offs", list(text())),
                ("complexity", json!({"type": "string", "enum": names})),
                ("resolves", text()),
            ]);
            object(&[("reply", text()), ("alternatives", list(alternative))])
        }
        Question::WorkflowGeneration => generation(artifact),
        Question::Debug => {
            object(&[("diagnosis", text()), ("changes", list(text())), ("give_up", flag()), ("reopen", flag())])
        }
    }
}

fn generation(artifact: Artifact) -> Value {
    let document = |made: Artifact| {
        if made == artifact { json!({"type": "object"}) } else { json!({"type": ["object", "null"]}) }
    };
    json!({
        "type": "object",
        "properties": {
            "reply": text(),
            "workflow": document(Artifact::Workflow),
            "agent": document(Artifact::Agent),
            "tests": {"type": "array", "items": {"type": "object"}},
            "reopen": flag(),
        },
        "required": ["reply"],
    })
}

/// An object with exactly these fields.
fn object(fields: &[(&str, Value)]) -> Value {
    let names: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
    let properties: Map<_, _> = fields.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({"type": "object", "properties": properties, "required": names, "additionalProperties": false})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn flag() -> Value {
    json!({"type": "boolean"})
}

fn list(items: impl Into<Value>) -> Value {
    let items: Value = items.into();
    json!({"type": "array", "items": items})
}

fn facts() -> Value {
    list(object(&[("key", text()), ("value", text())]))
}

fn questions() -> Value {
    let names: Vec<_> = Category::ALL.iter().map(|value| value.as_str()).collect();
    list(object(&[
        ("id", text()),
        ("question", text()),
        ("category", json!({"type": "string", "enum": names})),
        ("is_required", flag()),
        ("options", list(text())),
    ]))
}
