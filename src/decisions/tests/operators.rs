//! Decisions about a workflow that an operator wrote.

use super::*;

/// The nodes of an operator's graph may have types that the agent may not use.
#[test]
fn a_change_is_not_refused_for_what_the_plan_had_before() {
    let node = |id: &str, kind: &str, config: Value| json!({"node_id": id, "type": kind, "name": id, "config": config});
    let definition = map(json!({
        "nodes": [node("a", "LLM", json!({"prompt": "x"})), node("b", "CONDITION", json!({"expression": "true"})),
            node("c", "RUNNABLE", json!({"runnable": "r"}))],
        "edges": [{"source": "a", "target": "b"}, {"source": "b", "target": "c"}],
    }));
    let mut world = world();
    world.policy = Policy::default().restricted();
    let workflow_id = "operators".to_owned();
    world.add(WorkflowFacts { workflow_id, is_owned: true, definition, ..WorkflowFacts::default() });
    let errors = |mut payload: Value| {
        payload["workflow_id"] = json!("operators");
        payload["execution_context"] = json!({"error": "x"});
        let kind = DecisionType::parse(payload["action_type"].as_str().unwrap()).unwrap();
        Coordinator::new(&world).validate_decision(&Decision::new(kind, map(payload))).errors
    };
    let recovers = |changes: Value| {
        errors(json!({"action_type": "error_recovery", "failed_node_id": "a", "failure_reason": "x",
            "recovery_plan": {"action": "MODIFY", "modifications": changes}}))
    };
    assert_eq!(recovers(json!({"config.temperature": 0.5})), [""; 0]);
    assert!(recovers(json!({"config.temperature": 5}))[0].contains("temperature"));
    let replans = |added: Value| {
        let changes =
            json!({"remove_nodes": ["a"], "add_nodes": [added], "update_edges": [{"source": "n", "target": "b"}]});
        errors(json!({"action_type": "replan_workflow", "reason": "x", "suggested_changes": changes}))
    };
    assert_eq!(replans(node("n", "LLM", json!({"prompt": "x"}))), [""; 0]);
    let refused = replans(node("n", "CONDITION", json!({"expression": "true"})));
    assert!(refused.len() == 1 && refused[0].contains("`CONDITION`, which is not allowed here"), "{refused:?}");
}
