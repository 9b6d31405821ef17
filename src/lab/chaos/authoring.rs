//! The model's answers in the authoring dialogues of a run. Each call gets a different answer, as everywhere in a run.

use super::conversations::{ScriptMessage, Verb, worded};
use serde_json::{Value, json};

/// Prefix of the names of the schemas.
pub(super) const PREFIX: &str = "authoring_";

/// Every such call writes a document that fails its checks.
const INVALID_EVERY: u64 = 5;

/// Returns the answer to a question after this message of the user.
pub(super) fn answer(schema: &str, message: &str, call: u64) -> Value {
    let tag = ScriptMessage::parse(message).map(|line| line.tag).unwrap_or_default();
    let reply = worded(&format!("#{tag}: {}", schema.trim_start_matches(PREFIX)), call);
    match schema.trim_start_matches(PREFIX) {
        "clarification" => {
            let is_open = ScriptMessage::parse(message).is_some_and(|line| line.verb == Verb::Wish);
            let question = json!({"id": "what", "question": format!("What else? ~{call}"), "category": "output",
                                  "is_required": true, "options": []});
            let questions = if is_open { vec![question] } else { Vec::new() };
            json!({"reply": reply, "intent_summary": "A workflow", "collected_info": [{"key": "tag", "value": tag}],
                   "questions": questions, "ready": !is_open})
        }
        "negotiation" => {
            json!({"reply": reply, "collected_info": [], "requirements": [format!("It does {tag}")], "questions": [],
                   "agreed": true, "reopen": false})
        }
        "gap_analysis" => {
            json!({"capabilities": [{"need": "words", "required": true, "provided_by": "node.LLM"}], "reopen": false})
        }
        "debug" => json!({"diagnosis": reply, "changes": ["the type of the node"], "give_up": false, "reopen": false}),
        _ => {
            let kind = if call.is_multiple_of(INVALID_EVERY) { "NONE" } else { "LLM" };
            let node =
                json!({"node_id": "word", "type": kind, "name": "word", "config": {"prompt": format!("say #{tag}")}});
            let workflow =
                json!({"type": "graph", "id": "new", "name": format!("Draft {call}"), "nodes": [node], "edges": []});
            json!({"reply": reply, "workflow": workflow, "agent": null, "tests": [], "reopen": false})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use definitions::workflow::definition::WorkflowRecord;
    use types::timestamp::Timestamp;

    #[test]
    fn a_wish_leads_to_a_question_and_a_detail_to_none() {
        let questions =
            |message| answer("authoring_clarification", message, 1)["questions"].as_array().map_or(0, Vec::len);
        assert_eq!((questions("wish #c1-0"), questions("detail #c1-1")), (1, 0));
    }

    #[test]
    fn its_documents_are_valid_but_for_each_fifth() {
        let is_valid = |call| {
            let written = answer("authoring_workflow_generation", "detail #c1-1", call);
            WorkflowRecord::from_document(written["workflow"].clone(), Timestamp::from_millis(0)).is_ok()
        };
        assert_eq!([1, 2, 3, 4, 5].map(is_valid), [true, true, true, true, false]);
    }
}
