//! The fields of the payloads of the ten types.

use super::graph::{CHANGES, EDGE, GLOBAL_CONFIG, NODE, RECOVERY_PLAN, RETRY_CONFIG};
use super::{Field, Kind, Shape};
use crate::kind::DecisionType;

/// The types of nodes that `create_node` may create.
pub const SINGLE_TYPES: &[&str] = &["LLM", "HTTP", "PYTHON", "DATABASE", "CONDITION", "LOOP"];

/// The intents of `respond`.
pub const REPLY_INTENTS: &[&str] = &["greeting", "simple_query"];

/// The modes of `execute_workflow`.
pub const MODES: &[&str] = &["sync", "async"];

/// The name of the field that every payload has.
pub const ACTION_TYPE: &str = "action_type";

static ERROR_RECOVERY: Shape = Shape {
    name: "error_recovery",
    fields: &[
        Field::required("workflow_id", Kind::Filled, "the workflow whose run failed"),
        Field::required("failed_node_id", Kind::Filled, "the node that failed"),
        Field::required("failure_reason", Kind::Filled, "why it failed"),
        Field::optional("error_code", Kind::Text, "the error code, such as `TIMEOUT`"),
        Field::required("recovery_plan", Kind::Shape(&RECOVERY_PLAN), "how to recover"),
        Field::required("execution_context", Kind::Object, "the progress of the run, such as `{\"retry_count\": 1}`"),
    ],
    rules: &["The workflow and the node exist.", "The changed node is valid."],
};

static REQUEST_CLARIFICATION: Shape = Shape {
    name: "request_clarification",
    fields: &[
        Field::required("question", Kind::Filled, "the question for the user"),
        Field::optional("options", Kind::FilledList(&Kind::Filled), "the answers to choose from"),
        Field::optional("required_fields", Kind::List(&Kind::Identifier), "names of the missing facts").or("[]"),
        Field::optional("context", Kind::Object, "the known facts"),
    ],
    rules: &[],
};

static REPLAN_WORKFLOW: Shape = Shape {
    name: "replan_workflow",
    fields: &[
        Field::required("workflow_id", Kind::Filled, "the workflow to change"),
        Field::required("reason", Kind::Filled, "why it cannot succeed"),
        Field::required("execution_context", Kind::Object, "the progress and the failures of the run"),
        Field::optional("suggested_changes", Kind::Shape(&CHANGES), "the changes"),
        Field::optional("preserve_nodes", Kind::List(&Kind::Id), "ids of nodes to keep"),
    ],
    rules: &[
        "The workflow exists and belongs to the session.",
        "`execution_context` tells of a failure: a node in `node_outputs` with the status `failed` or `error`, \
         `failed_attempts` of at least 1, or a text in `error` or `failure_reason`.",
        "The nodes in `preserve_nodes` and `remove_nodes` exist, and none is in both.",
    ],
};

static SPAWN_SUBAGENT: Shape = Shape {
    name: "spawn_subagent",
    fields: &[
        Field::required("subagent_type", Kind::Filled, "a type that the agent file registers"),
        Field::required("task_payload", Kind::Object, "the task, as the type's `input` describes it"),
        Field::optional("priority", Kind::Whole(0, 10), "10 comes first"),
        Field::optional("timeout", Kind::Seconds(f64::INFINITY), "seconds to wait for the result"),
        Field::optional("context_snapshot", Kind::Object, "facts for the sub-agent"),
    ],
    rules: &["The type is registered, `task_payload` fits its `input`, and `timeout` is not above the type's."],
};

static EXECUTE_WORKFLOW: Shape = Shape {
    name: "execute_workflow",
    fields: &[
        Field::required("workflow_id", Kind::Filled, "the workflow to run"),
        Field::optional("input_params", Kind::Object, "the inputs of the run"),
        Field::optional("execution_mode", Kind::Choice(MODES), "`sync` or `async`; `sync` unless given"),
        Field::optional("notify_on_completion", Kind::Truth, "whether the user gets a message at the end"),
    ],
    rules: &[
        "The workflow exists, and its status is READY or COMPLETED.",
        "`input_params` fit the declared inputs of the workflow.",
    ],
};

static CREATE_WORKFLOW_PLAN: Shape = Shape {
    name: "create_workflow_plan",
    fields: &[
        Field::required("name", Kind::Filled, "the name of the plan"),
        Field::required("description", Kind::Text, "the purpose of the plan").or("\"\""),
        Field::required("nodes", Kind::FilledList(&Kind::Shape(&NODE)), "the nodes"),
        Field::required("edges", Kind::List(&Kind::Shape(&EDGE)), "the order of the nodes").or("[]"),
        Field::optional("global_config", Kind::Shape(&GLOBAL_CONFIG), "settings of the whole plan"),
    ],
    rules: &[
        "The plan has 1 to 50 nodes and at most 200 edges. Nodes and edges in loops count.",
        "The ends of an edge exist and differ, and no two edges have the same ends.",
        "The edges form no cycle.",
        "Each node has an edge, unless it is START or END, or the only node.",
    ],
};

static MODIFY_NODE: Shape = Shape {
    name: "modify_node",
    fields: &[
        Field::required("node_id", Kind::Filled, "the node to change"),
        Field::required("updates", Kind::Changes, "the changes, with keys such as `config.temperature`"),
        Field::optional("reason", Kind::Text, "why"),
        Field::optional("workflow_id", Kind::Filled, "its workflow; the session's current one unless given"),
    ],
    rules: &[
        "The workflow belongs to the session, and the node exists.",
        "Keys are `name`, `recovery`, `config.<field>`, `input_mapping.<name>`, `output_mapping.<name>` and \
         `retry_config.<field>`. `node_id` and `type` never change.",
        "`updates` is not empty, and the changed plan is valid. Null removes a field.",
    ],
};

static CREATE_NODE: Shape = Shape {
    name: "create_node",
    fields: &[
        Field::required("node_type", Kind::Choice(SINGLE_TYPES), "the type of the node, such as `HTTP`"),
        Field::required("node_name", Kind::Filled, "the purpose of the node, for people"),
        Field::required("config", Kind::Config, "the settings of its type"),
        Field::optional("description", Kind::Text, "a description").or("\"\""),
        Field::optional("retry_config", Kind::Shape(&RETRY_CONFIG), "repeated attempts"),
    ],
    rules: &[],
};

static RESPOND: Shape = Shape {
    name: "respond",
    fields: &[
        Field::required("response", Kind::Filled, "the reply to the user"),
        Field::required("intent", Kind::Choice(REPLY_INTENTS), "`greeting` or `simple_query`"),
        Field::required("confidence", Kind::Number(0.0, 1.0), "how sure you are, from 0 to 1"),
        Field::optional("requires_followup", Kind::Truth, "whether the conversation should continue"),
    ],
    rules: &[],
};

static CONTINUE: Shape = Shape {
    name: "continue",
    fields: &[
        Field::required("thought", Kind::Filled, "the current thought"),
        Field::optional("next_step", Kind::Text, "the next step"),
        Field::optional("progress", Kind::Number(0.0, 1.0), "the progress, from 0 to 1"),
    ],
    rules: &[],
};

/// The fields of the payload of this type, besides [`ACTION_TYPE`].
pub const fn payload(kind: DecisionType) -> &'static Shape {
    match kind {
        DecisionType::ErrorRecovery => &ERROR_RECOVERY,
        DecisionType::RequestClarification => &REQUEST_CLARIFICATION,
        DecisionType::ReplanWorkflow => &REPLAN_WORKFLOW,
        DecisionType::SpawnSubagent => &SPAWN_SUBAGENT,
        DecisionType::ExecuteWorkflow => &EXECUTE_WORKFLOW,
        DecisionType::CreateWorkflowPlan => &CREATE_WORKFLOW_PLAN,
        DecisionType::ModifyNode => &MODIFY_NODE,
        DecisionType::CreateNode => &CREATE_NODE,
        DecisionType::Respond => &RESPOND,
        DecisionType::Continue => &CONTINUE,
    }
}
