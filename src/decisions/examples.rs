//! An example of each type. `docs/decisions.md` shows them, and tests judge them with the fixtures that [`Example::needs`]
//! names.

use crate::kind::DecisionType;

/// An example payload.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// The type.
    pub decision_type: DecisionType,
    /// The task in a few words.
    pub title: &'static str,
    /// The payload as JSON.
    pub text: &'static str,
    /// The condition under which the payload is valid; empty if it always is.
    pub needs: &'static str,
}

/// Lists examples: type, file, title and needs.
macro_rules! examples {
    ($($kind:ident $file:literal $title:literal $needs:literal;)+) => {
        /// All examples, by priority of the type.
        pub const ALL: &[Example] = &[$(Example {
            decision_type: DecisionType::$kind,
            title: $title,
            text: include_str!(concat!("examples/", $file, ".json")),
            needs: $needs,
        }),+];
    };
}

examples! {
    ErrorRecovery "error_recovery" "Try a node again with more time"
        "The plan of the example of `create_workflow_plan` is stored as `workflow_123`.";
    RequestClarification "request_clarification" "Ask which data to use" "";
    ReplanWorkflow "replan_workflow" "Replace a data source that does not respond"
        "The plan of the example of `create_workflow_plan` is stored as `workflow_123` and belongs to the session. The added node becomes `node_0`, \
         because `update_edges` names this id, and `node_2` then reads `${node_0.output.data}`.";
    SpawnSubagent "spawn_subagent" "Let a researcher look for papers" "The agent file registers the sub-agent `researcher`.";
    ExecuteWorkflow "execute_workflow" "Run a stored plan, and notify the user at the end"
        "The plan of the example of `create_workflow_plan` is stored as `workflow_123` with the status READY.";
    CreateWorkflowPlan "create_workflow_plan" "Query, compute, draw and send" "";
    ModifyNode "modify_node" "Raise the temperature of an LLM node" "The session's current plan has an LLM node `node_2`.";
    CreateNode "create_node_http" "Call a weather API" "";
    CreateNode "create_node_llm" "Ask a model about data" "";
    Respond "respond" "Greet the user" "";
    Continue "continue" "Think about the next step" "";
}
