//! Graphs with a fan-out, a recovery and a replan.

use super::Scenario;
use super::coordinators::replies;
use crate::support::script::{Answer, Asked};
use serde_json::{Value, json};
use types::session::Session;

/// a; then b and c; d after both. b is busy until its address is changed, and c, which is gone, is replaced by e.
fn graph() -> Value {
    let node = |id: &str, path: &str| json!({"node_id": id, "type": "HTTP", "name": id, "config": {"url": format!("{{api}}/{path}"), "method": "POST"}});
    let edge = |source: &str, target: &str| json!({"source": source, "target": target});
    json!({"type": "graph", "id": "g", "name": "图", "coordinator": "sales",
        "nodes": [node("a", "a"), node("b", "busy"), node("c", "gone"), node("d", "d")],
        "edges": [edge("a", "b"), edge("a", "c"), edge("b", "d"), edge("c", "d")]})
}

/// Recovers b and replaces c. Replies to the user.
fn mends(asked: &Asked) -> Answer {
    if !asked.system.contains("<failures>") {
        return replies(asked, "好的", "simple_query");
    }
    let url = asked.system.split("\"url\": \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
    let url = url.replace("<\\/", "</");
    let url = url.rsplit_once('/').map_or("", |(server, _)| server);
    let failure = json!({"failure_reason": "scripted"});
    let (kind, mut payload) = if asked.user.contains("HTTP_404") {
        let spare = json!({"node_id": "e", "type": "HTTP", "name": "e", "config": {"url": format!("{url}/e"), "method": "POST"}});
        let edges = json!([{"source": "a", "target": "e"}, {"source": "e", "target": "d"}]);
        let changes = json!({"remove_nodes": ["c"], "add_nodes": [spare], "update_edges": edges});
        ("replan_workflow", json!({"reason": "scripted", "suggested_changes": changes}))
    } else {
        let changes = json!({"config.url": format!("{url}/ready")});
        let plan = json!({"action": "RETRY", "max_attempts": 2, "delay": 1, "modifications": changes});
        ("error_recovery", json!({"failed_node_id": "b", "failure_reason": "scripted", "recovery_plan": plan}))
    };
    payload["action_type"] = json!(kind);
    payload["workflow_id"] = json!("g");
    payload["execution_context"] = failure;
    Answer::json(&json!({"reasoning": "因为", "decisions": [{"decision_type": kind, "payload": payload}]}))
}

/// A graph in a lane of its own, for a session. Its coordinator recovers one node and replaces another.
pub fn recovering_graph() -> Scenario {
    let run = json!({"type": "run", "session_id": "r1", "job_id": "r1", "workflow_id": "g", "query": "开始",
                     "origin_session": "s1", "channel": "web"});
    let mended = |session: &Session| {
        let output = session.history.iter().rfind(|entry| entry.turn_id == "resume-r1");
        output.is_some_and(|entry| entry.text.contains("{\"done\":true}"))
    };
    let scenario = Scenario::new("recovering graph", mends).with(json!({"mode": "coordinator"})).after_greeting();
    Scenario { workflows: vec![graph()], ..scenario }.wave(vec![("r1", run)]).ending(mended)
}
