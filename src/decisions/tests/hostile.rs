//! Payloads that make the validator slow.

use super::rules::node;
use super::*;

/// Payloads near the limit that make comparisons of all entries with all others expensive.
#[test]
fn hostile_payloads_of_a_mebibyte_are_judged_in_linear_time() {
    let many = |count: usize, item: &dyn Fn(usize) -> Value| (0..count).map(item).collect::<Vec<_>>();
    let edges = many(30_000, &|at| json!({"source": format!("{at}"), "target": format!("{}", at + 1)}));
    let nodes = many(12_000, &|at| json!({"node_id": format!("{at}"), "type": "START", "name": "n", "config": {}}));
    let plan = |nodes: &[Value], edges: &[Value]| json!({"action_type": "create_workflow_plan", "name": "n", "description": "", "nodes": nodes, "edges": edges});
    let replan = |name: &str, list: Value| {
        let changes = json!({name: list, "add_nodes": []});
        json!({"action_type": "replan_workflow", "workflow_id": "workflow_123", "reason": "x", "execution_context": {"error": "x"}, "suggested_changes": changes})
    };
    let ids = many(100_000, &|at| json!(format!("{at}")));
    let condition = "${a.output} ".repeat(80_000);
    for payload in [
        plan(&nodes, &[]),
        plan(&nodes[..2], &edges),
        plan(&nodes[..9_000], &edges[..8_999]),
        replan("update_edges", edges.clone().into()),
        replan("remove_edges", edges.clone().into()),
        replan("remove_nodes", ids.into()),
        replan("add_nodes", vec![json!({}); 200_000].into()),
        node("CONDITION", json!({"expression": condition})),
        node("LLM", json!({"prompt": "${".repeat(400_000)})),
        node("LLM", json!({"prompt": "$".repeat(900_000)})),
        node("PYTHON", json!({"code": "'\n".repeat(300_000)})),
    ] {
        let verdict = verdicts(payload).given;
        assert!(verdict.errors.iter().all(|error| error.len() < 4_000));
    }
}
