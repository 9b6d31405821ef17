//! The `config` of each type of node.

use super::graph::BODY;
use super::{Field, Kind, References, Shape};
use crate::limits::MAX_SECONDS;
use crate::node_type::NodeType;

/// The HTTP methods of nodes.
pub const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

const TIMEOUT: Field =
    Field::optional("timeout", Kind::Seconds(MAX_SECONDS), "seconds for one attempt; 300 unless given");

static LLM: Shape = Shape {
    name: "LLM",
    fields: &[
        Field::optional("prompt", Kind::Filled, "the text for the model").with(References::Text),
        Field::optional("messages", Kind::FilledList(&Kind::Object), "the messages for the model")
            .with(References::Text),
        Field::optional("model", Kind::Filled, "a model of the settings; the agent's unless given"),
        Field::optional("system", Kind::Text, "the system prompt").with(References::Text),
        Field::optional("temperature", Kind::Number(0.0, 2.0), "the sampling temperature"),
        Field::optional("max_tokens", Kind::Whole(1, i64::MAX), "the most tokens of the answer"),
        TIMEOUT,
        Field::optional("schema", Kind::Object, "a JSON Schema of the answer"),
    ],
    rules: &["`prompt` or `messages` is required."],
};

static HTTP: Shape = Shape {
    name: "HTTP",
    fields: &[
        Field::required("url", Kind::Filled, "the address to call").with(References::Url),
        Field::required("method", Kind::Choice(METHODS), "the HTTP method, such as `GET`"),
        Field::optional("params", Kind::Object, "query parameters").with(References::Text),
        Field::optional("headers", Kind::Object, "headers").with(References::Text),
        Field::optional("body", Kind::Any, "the JSON body").with(References::Value),
        TIMEOUT,
    ],
    rules: &[
        "`url` is a complete http or https address. References may stand in its path and query, not before them.",
        "A secret is only for `params`, `headers` and `body`, and only for the hosts to which it is bound.",
    ],
};

static PYTHON: Shape = Shape {
    name: "PYTHON",
    fields: &[
        Field::required("code", Kind::Filled, "the script"),
        TIMEOUT,
        Field::optional("memory_mb", Kind::Whole(1, 4096), "the most memory in MiB"),
    ],
    rules: &[
        "`code` has at most 64 KiB and no references: `input_mapping` gives it variables, which are identifiers.",
        "`code` names no environment variables, processes, sockets or system folders.",
    ],
};

static DATABASE: Shape = Shape {
    name: "DATABASE",
    fields: &[
        Field::required("query", Kind::Filled, "one SQL statement").with(References::Sql),
        Field::optional("connection", Kind::Filled, "the connector; unless given the only one, else `default`"),
        Field::optional("params", Kind::Any, "the values of the placeholders in the query, if it has no references")
            .with(References::Value),
        TIMEOUT,
        Field::optional("max_rows", Kind::Whole(1, i64::MAX), "the most rows of the result"),
    ],
    rules: &[
        "`connection` is a connector that the agent may use.",
        "Each reference in `query` is one bound parameter, so it stands without quotes: `WHERE month = ${input.month}`.",
        "`${idempotency_key}` is the same in all attempts of the node, for statements that write.",
    ],
};

static CONDITION: Shape = Shape {
    name: "CONDITION",
    fields: &[Field::required("expression", Kind::Filled, "the condition, such as `${node_1.output.n} > 5`")
        .with(References::Condition)],
    rules: &[],
};

static LOOP: Shape = Shape {
    name: "LOOP",
    fields: &[
        Field::required("body", Kind::Shape(&BODY), "the nodes and edges to repeat"),
        Field::optional("condition", Kind::Filled, "repeats while it holds; checked after each iteration")
            .with(References::Condition),
        Field::optional("max_iterations", Kind::Whole(1, 100), "the most iterations"),
        Field::optional("items", Kind::Any, "a list, or a reference to one: one iteration for each item")
            .with(References::Value),
        Field::optional("max_concurrency", Kind::Whole(1, 50), "how many items run concurrently; 1 unless given"),
    ],
    rules: &["`condition`, `max_iterations` or `items` is required. `items` is a list or a reference."],
};

static START: Shape = Shape { name: "START", fields: &[], rules: &[] };

static END: Shape = Shape {
    name: "END",
    fields: &[Field::optional("output", Kind::Any, "the output of the run").with(References::Value)],
    rules: &[],
};

static RUNNABLE: Shape = Shape {
    name: "RUNNABLE",
    fields: &[
        Field::required("runnable", Kind::Filled, "the agent or workflow to run"),
        Field::optional("input", Kind::Text, "its input").with(References::Text),
    ],
    rules: &[],
};

static ASK: Shape = Shape {
    name: "ASK",
    fields: &[
        Field::required("question", Kind::Filled, "the question for the user").with(References::Text),
        Field::optional("choices", Kind::FilledList(&Kind::Filled), "the answers to choose from"),
        Field::optional(
            "timeout",
            Kind::Seconds(f64::INFINITY),
            "how long to wait for the answer; 24 hours by default",
        ),
    ],
    rules: &[],
};

static WAIT: Shape = Shape {
    name: "WAIT",
    fields: &[
        Field::optional("seconds", Kind::Seconds(f64::INFINITY), "how long"),
        Field::optional("until", Kind::Filled, "a time as RFC 3339").with(References::Text),
    ],
    rules: &["Either `seconds` or `until` is required."],
};

/// The fields of the `config` of this type.
pub const fn config(kind: NodeType) -> &'static Shape {
    match kind {
        NodeType::Llm => &LLM,
        NodeType::Http => &HTTP,
        NodeType::Python => &PYTHON,
        NodeType::Database => &DATABASE,
        NodeType::Condition => &CONDITION,
        NodeType::Loop => &LOOP,
        NodeType::Start => &START,
        NodeType::End => &END,
        NodeType::Runnable => &RUNNABLE,
        NodeType::Ask => &ASK,
        NodeType::Wait => &WAIT,
    }
}

/// The output of a node of this type before its `output_mapping`.
pub const fn output(kind: NodeType) -> &'static str {
    match kind {
        NodeType::Llm => "`{text, data}`; `data` is the JSON if `schema` is given, else null",
        NodeType::Http => "`{status, data}`; a status of 300 or more is a failure",
        NodeType::Python => "the object that the script returns; another value is `{result}`",
        NodeType::Database => "`{data, row_count, truncated}`; `data` is a list of rows",
        NodeType::Condition => "`{result}`: true or false",
        NodeType::Loop => "`{iterations, last, outputs}`",
        NodeType::Start => "the inputs of the run",
        NodeType::End => "`output`, else the outputs that reach it",
        NodeType::Runnable => "`{text}`",
        NodeType::Ask => "`{answer}`",
        NodeType::Wait => "nothing",
    }
}
