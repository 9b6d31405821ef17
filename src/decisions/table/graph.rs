//! The fields of plans: nodes, edges, inputs, settings of a whole plan, recovery and changes.

use super::{Field, Kind, References, Shape};
use crate::limits::MAX_SECONDS;

/// The types of inputs.
pub const INPUT_TYPES: &[&str] = &["string", "number", "boolean", "object", "array"];

/// The types of nodes that a plan may have.
pub const NODE_TYPES: &[&str] = &["LLM", "HTTP", "PYTHON", "DATABASE", "CONDITION", "LOOP", "START", "END"];

/// The actions of a recovery plan.
pub const RECOVERY_ACTIONS: &[&str] = &["RETRY", "SKIP", "ABORT", "MODIFY"];

/// Repeated attempts of a node.
pub static RETRY_CONFIG: Shape = Shape {
    name: "retry_config",
    fields: &[
        Field::optional("max_retries", Kind::Whole(0, 10), "attempts after the first one"),
        Field::optional("retry_delay", Kind::Number(0.0, MAX_SECONDS), "seconds between two attempts"),
    ],
    rules: &[],
};

/// The plan for a node that failed for good.
pub static RECOVERY_PLAN: Shape = Shape {
    name: "recovery_plan",
    fields: &[
        Field::required("action", Kind::Choice(RECOVERY_ACTIONS), "`RETRY`, `SKIP`, `ABORT` or `MODIFY`"),
        Field::optional("delay", Kind::Number(0.0, MAX_SECONDS), "seconds before the node runs again"),
        Field::optional("max_attempts", Kind::Whole(1, 10), "further attempts"),
        Field::optional("modifications", Kind::Changes, "changes of the node, with keys such as `config.timeout`"),
        Field::optional("alternative_node", Kind::Id, "the node whose output replaces that of the skipped one"),
    ],
    rules: &[
        "`RETRY` needs `max_attempts`, and `MODIFY` needs `modifications`.",
        "`alternative_node` is for `SKIP`. It exists, is not the failed node, and does not depend on it.",
    ],
};

/// A node of a plan.
pub static NODE: Shape = Shape {
    name: "node",
    fields: &[
        Field::required("node_id", Kind::Id, "the id that edges and references name"),
        Field::required("type", Kind::Choice(NODE_TYPES), "the type of the node, such as `HTTP`"),
        Field::required("name", Kind::Filled, "the purpose of the node, for people"),
        Field::required("config", Kind::Config, "the settings of its type"),
        Field::optional("input_mapping", Kind::Object, "names for the node, each with a value or a reference")
            .with(References::Value),
        Field::optional(
            "output_mapping",
            Kind::Object,
            "names of its output, each with a reference such as `${output.data}`",
        )
        .with(References::Value),
        Field::optional("retry_config", Kind::Shape(&RETRY_CONFIG), "repeated attempts"),
        Field::optional("recovery", Kind::Shape(&RECOVERY_PLAN), "the plan for a node that failed for good"),
    ],
    rules: &[
        "`node_id` is unique in the whole plan, has at most 64 characters, and is not `input`, `env`, `query`, `loop` or `output`.",
        "START and END need no `config`.",
        "References name only nodes on the way to this node.",
    ],
};

/// An edge of a plan.
pub static EDGE: Shape = Shape {
    name: "edge",
    fields: &[
        Field::required("source", Kind::Id, "the node that runs first"),
        Field::required("target", Kind::Id, "the node that runs afterwards"),
        Field::optional("condition", Kind::Text, "the condition of the edge, such as `${node_1.output.n} > 5`")
            .with(References::Condition),
    ],
    rules: &["On an edge from a CONDITION node, `true` and `false` name its branch."],
};

/// A declared input of a plan.
pub static INPUT: Shape = Shape {
    name: "input",
    fields: &[
        Field::required("name", Kind::Id, "the name in `input_params`"),
        Field::required("type", Kind::Choice(INPUT_TYPES), "`string`, `number`, `boolean`, `object` or `array`"),
        Field::optional("required", Kind::Truth, "whether a run needs it"),
        Field::optional("default", Kind::Any, "its value if a run has none"),
    ],
    rules: &["`name` is unique. `default` is of the declared type."],
};

/// Settings of a whole plan.
pub static GLOBAL_CONFIG: Shape = Shape {
    name: "global_config",
    fields: &[
        Field::optional(
            "timeout",
            Kind::Seconds(f64::INFINITY),
            "the time for the whole run; at most 300 s count for a sync run",
        ),
        Field::optional("env", Kind::Texts, "names and texts for references; masked wherever they are shown"),
        Field::optional("inputs", Kind::List(&Kind::Shape(&INPUT)), "the declared inputs"),
        Field::optional("output", Kind::Any, "the output of the run").with(References::Value),
    ],
    rules: &["Without `inputs` a run accepts any `input_params`."],
};

/// The nodes and edges in a LOOP.
pub static BODY: Shape = Shape {
    name: "body",
    fields: &[
        Field::required("nodes", Kind::FilledList(&Kind::Shape(&NODE)), "the repeated nodes"),
        Field::optional("edges", Kind::List(&Kind::Shape(&EDGE)), "their order"),
    ],
    rules: &[],
};

/// A node that a replan adds.
pub static ADDED_NODE: Shape = Shape {
    name: "added node",
    fields: &[
        Field::optional("node_id", Kind::Id, "its id; chosen if absent"),
        NODE.fields[1],
        NODE.fields[2],
        NODE.fields[3],
        NODE.fields[4],
        NODE.fields[5],
        NODE.fields[6],
        NODE.fields[7],
    ],
    rules: &[
        "A node without `node_id` takes an id that `update_edges` names and no node has, else the lowest free `node_<n>`.",
    ],
};

/// The changes of a replan.
pub static CHANGES: Shape = Shape {
    name: "suggested_changes",
    fields: &[
        Field::optional("remove_nodes", Kind::List(&Kind::Id), "ids of nodes to remove, with their edges"),
        Field::optional("add_nodes", Kind::List(&Kind::Shape(&ADDED_NODE)), "nodes to add"),
        Field::optional("update_edges", Kind::List(&Kind::Shape(&EDGE)), "edges to add, or whose condition to replace"),
        Field::optional("remove_edges", Kind::List(&Kind::Shape(&EDGE)), "edges to remove"),
    ],
    rules: &["The changed plan is valid."],
};
