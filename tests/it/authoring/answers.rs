//! The answers of a model that depend on the request only.

use crate::support::script::{Answer, Asked};
use serde_json::{Value, json};

/// Puts the field `reply` of an answer first, so that it streams.
fn reply_first(reply: &str, rest: &Value) -> Answer {
    Answer::Content(format!("{{\"reply\":{},{}", json!(reply), rest.to_string().trim_start_matches('{')))
}

/// Asks for the time, unless the user has said it.
pub fn clarified(asked: &Asked) -> Answer {
    let is_open = !asked.user.contains('点');
    let question =
        json!({"id": "when", "question": "每天几点？", "category": "trigger", "is_required": true, "options": ["8点"]});
    let questions = if is_open { vec![question] } else { Vec::new() };
    let rest = json!({"intent_summary": "每天汇总", "collected_info": [], "questions": questions, "ready": !is_open});
    reply_first(if is_open { "每天几点汇总？" } else { "明白了。" }, &rest)
}

pub fn agreed(reply: &str) -> Answer {
    let rest =
        json!({"collected_info": [], "requirements": ["每天汇总"], "questions": [], "agreed": true, "reopen": false});
    reply_first(reply, &rest)
}

/// One required capability.
pub fn analysed(provided_by: Option<&str>) -> Answer {
    let capability = json!({"need": "汇总", "required": true, "provided_by": provided_by});
    Answer::json(&json!({"capabilities": [capability], "reopen": false}))
}

pub fn offered() -> Answer {
    let one = |id: &str, title: &str| {
        json!({"id": id, "title": title, "description": "", "approach": "用模型", "trade_offs": [], "complexity": "simple",
            "resolves": "汇总"})
    };
    reply_first("请选一种。", &json!({"alternatives": [one("alt_1", "直接写"), one("alt_2", "省略")]}))
}

/// A workflow of one node of this type.
pub fn written(kind: &str) -> Answer {
    document(kind, "每日汇总")
}

/// A workflow with this name.
pub fn renamed(name: &str) -> Answer {
    document("LLM", name)
}

fn document(kind: &str, name: &str) -> Answer {
    let node = json!({"node_id": "sum", "type": kind, "name": "汇总", "config": {"prompt": "汇总今天的工作"}});
    let workflow = json!({"type": "graph", "id": "x", "name": name, "nodes": [node], "edges": []});
    reply_first("写好了。", &json!({"workflow": workflow, "agent": null, "tests": [], "reopen": false}))
}

pub fn diagnosed() -> Answer {
    Answer::json(&json!({"diagnosis": "节点类型不对", "changes": ["改类型"], "give_up": false, "reopen": false}))
}

/// Leads directly to a document, once the time is known.
pub fn script(asked: &Asked) -> Answer {
    with_document(asked, "LLM")
}

/// Like [`script`], with a document that cannot work.
pub fn invalid(asked: &Asked) -> Answer {
    with_document(asked, "WEATHER")
}

fn with_document(asked: &Asked, kind: &str) -> Answer {
    match asked.schema.as_str() {
        "authoring_clarification" => clarified(asked),
        "authoring_negotiation" => agreed("就这样。"),
        "authoring_gap_analysis" => analysed(Some("node.LLM")),
        "authoring_alternative_generation" => offered(),
        "authoring_workflow_generation" => written(kind),
        "authoring_debug" => diagnosed(),
        other => panic!("an unexpected question: `{other}`"),
    }
}
