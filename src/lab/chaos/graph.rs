//! The graph of a run: two HTTP nodes run concurrently, then the model numbers the output.

use serde_json::{Value, json};

/// Id of the workflow, which the agents have as a flow.
pub(super) const GRAPH: &str = "errands";

/// Name of the structure that the model of an LLM node returns.
pub(super) const NODE_OUTPUT: &str = "node_output";

/// The workflow. `api` is the base URL of its HTTP nodes. Its query is the tag of a message, and its output has the
/// form of a reply to that message.
pub(super) fn document(api: &str) -> Value {
    let http = |id: &str, config: Value| {
        json!({"node_id": id, "type": "HTTP", "name": id, "config": config,
               "retry_config": {"max_retries": 5, "retry_delay": 0.2}})
    };
    let call = json!({"type": "object", "properties": {"call": {"type": "integer"}}, "required": ["call"]});
    let receipt = |id: &str| format!("${{{id}.output.data.receipt}}");
    json!({
        "type": "graph",
        "id": GRAPH,
        "name": "Errands",
        "global_config": {
            "output": format!("#${{query}}: {} and {} ~${{word.output.data.call}}", receipt("order"), receipt("eta")),
        },
        "nodes": [
            http("order", json!({"method": "POST", "url": format!("{api}/order"), "body": {"tag": "${query}"}})),
            http("eta", json!({"method": "GET", "url": format!("{api}/eta"), "params": {"tag": "${query}"}})),
            {"node_id": "word", "type": "LLM", "name": "word", "config": {"prompt": "Count.", "schema": call},
             "retry_config": {"max_retries": 5, "retry_delay": 0.2}},
        ],
        "edges": [{"source": "order", "target": "word"}, {"source": "eta", "target": "word"}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use definitions::workflow::definition::WorkflowRecord;
    use types::timestamp::Timestamp;

    #[test]
    fn the_graph_can_be_stored() {
        let workflow = WorkflowRecord::from_document(document("http://127.0.0.1:1"), Timestamp::from_millis(0));
        assert!(workflow.is_ok_and(|record| record.workflow.id == GRAPH));
    }
}
