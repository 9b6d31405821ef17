//! JSON Schema of the agent file, generated from the types that read it. This file adds the parts that the types do not
//! express: the form of texts such as durations, and the rules, which only the offline model parses.

use super::AgentConfig;
use crate::action::{Action, SYSTEM_OPERATIONS};
use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// The JSON Schema, as `turnwheel agents schema` prints it.
pub fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().with_transform(Tidy);
    let mut schema = settings.into_generator().into_root_schema_for::<AgentConfig>();
    schema.insert("title".into(), json!("Turnwheel agent file"));
    let description = "An agent for Turnwheel. docs/agents.md explains each field; `turnwheel agents validate` checks \
                       more than a schema can.";
    schema.insert("description".into(), json!(description));
    // A file needs one of the two fields. `updated_at` is a field for the author's own bookkeeping.
    let kinds = json!([
        { "title": "Chat agent", "required": ["sop"], "properties": { "sop": { "type": "string", "pattern": "\\S" } } },
        { "title": "Task agent", "required": ["system_prompt"], "properties": { "system_prompt": { "type": "string" } } },
    ]);
    schema.insert("anyOf".into(), kinds);
    for (keyword, below) in [
        ("if", json!({ "required": ["system_prompt"], "properties": { "system_prompt": { "type": "string" } } })),
        ("then", rules_decide(&json!({ "anyOf": [says(), structured(), calls()] }))),
        (
            "else",
            // The `output` of a coordinator is its whole answer, and so are its `decisions`.
            rules_decide(&json!({ "anyOf": [structured(), decides(), {
                "required": ["next_status"], "properties": { "next_status": { "type": "string" } },
                "if": { "properties": { "next_status": { "enum": ["typing", "transferred"] } } }, "then": says() }] })),
        ),
    ] {
        schema.insert(keyword.into(), below);
    }
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties
            .insert("updated_at".into(), json!({ "description": "For your own bookkeeping; not part of the hash." }));
    }
    let mut schema = schema.to_value();
    // Absent conditions have no value, so a default would be wrong.
    for condition in schema["$defs"]["When"]["properties"].as_object_mut().into_iter().flatten() {
        condition.1.as_object_mut().map(|condition| condition.remove("default"));
    }
    // In a file, an action has no other fields and only known operations.
    if let Some(action) = schema["$defs"]["Action"].as_object_mut() {
        action.insert("additionalProperties".into(), json!(false));
        action.insert("if".into(), json!({ "properties": { "type": { "const": "SYSTEM" } } }));
        action.insert("then".into(), json!({ "properties": { "target": { "enum": SYSTEM_OPERATIONS } } }));
    }
    schema
}

/// Applies a schema to the `decide` of every rule.
fn rules_decide(decide: &Value) -> Value {
    json!({ "properties": { "rules": { "items": { "properties": { "decide": decide } } } } })
}

fn says() -> Value {
    json!({ "required": ["response"], "properties": { "response": { "type": "string" } } })
}

fn structured() -> Value {
    json!({ "required": ["output"], "properties": { "output": { "type": "object" } } })
}

fn decides() -> Value {
    json!({ "required": ["decisions"], "properties": { "decisions": { "type": "array" } } })
}

fn calls() -> Value {
    let tool = json!({ "type": "object", "properties": { "type": { "const": "TOOL" } } });
    json!({ "required": ["action"], "properties": { "action": tool } })
}

/// Removes the widths of Rust's integers, which editors do not know, and the line breaks of doc comments.
#[derive(Clone, Debug)]
struct Tidy;

impl Transform for Tidy {
    fn transform(&mut self, schema: &mut Schema) {
        if schema.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
            schema.remove("format");
        }
        if let Some(Value::String(description)) = schema.get_mut("description") {
            *description = description.split_whitespace().collect::<Vec<_>>().join(" ");
        }
        transform_subschemas(self, schema);
    }
}

/// Defines types that exist only as a schema.
macro_rules! only_a_schema {
    ($($(#[$doc:meta])* $name:ident = $schema:tt;)*) => {
        $(
            $(#[$doc])*
            pub(super) struct $name;

            impl JsonSchema for $name {
                fn schema_name() -> Cow<'static, str> {
                    stringify!($name).into()
                }

                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    json_schema!($schema)
                }
            }
        )*
    };
}

only_a_schema! {
    /// A duration in an agent file.
    Duration = {
        "description": "A number and a unit (`500ms`, `10s`, `30m`, `2h`, `1d`), or whole seconds.",
        "anyOf": [
            { "type": "integer", "minimum": 1, "maximum": 3_155_760_000_u64 },
            { "type": "string", "pattern": "^0*[1-9][0-9]*$|^\\s*0*[1-9][0-9]*\\s*(ms|s|m|h|d)\\s*$" }
        ],
        "examples": ["10s", "30m"]
    };
    /// The params of a skill or tool.
    Params = {
        "type": "object",
        "properties": { "type": { "const": "object" } },
        "description": "JSON Schema of the parameters; they are always an object."
    };
    /// An HTTP method, in any case.
    Method = {
        "anyOf": [
            { "enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] },
            {
                "type": "string",
                "pattern": "^([Gg][Ee][Tt]|[Hh][Ee][Aa][Dd]|[Pp][Oo][Ss][Tt]|[Pp][Uu][Tt]|[Pp][Aa][Tt][Cc][Hh]|[Dd][Ee][Ll][Ee][Tt][Ee])$"
            }
        ]
    };
    /// One or several words.
    Words = {
        "description": "The message contains one of these, in any case.",
        "anyOf": [
            { "type": "string", "minLength": 1 },
            { "type": "array", "minItems": 1, "items": { "type": "string", "minLength": 1 } }
        ]
    };
    /// A text that is not blank.
    Text = { "type": "string", "pattern": "\\S" };
    /// A text with at least one letter or digit.
    Word = { "type": "string", "pattern": "[\\p{L}\\p{N}]" };
    /// The only value of `always`.
    Always = { "const": true };
}

/// A function of the engine.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[allow(dead_code, reason = "only a schema")]
pub(super) enum Builtin {
    /// Returns the current time.
    Now,
}

/// Rules of the offline model. The first rule whose conditions all hold decides.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[allow(dead_code, reason = "only a schema")]
pub(super) struct Rule {
    /// Conditions. All of them must hold.
    when: When,
    /// The decision if they hold.
    decide: Decide,
}

/// Conditions of a rule.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("minProperties" = 1))]
#[allow(dead_code, reason = "only a schema")]
struct When {
    #[schemars(default, with = "Words")]
    contains: Value,
    /// A regular expression in the syntax of Rust's `regex`. Its named groups fill `{…}` in `decide`.
    #[schemars(default, with = "String")]
    matches: String,
    /// Holds if this skill or tool was the turn's last action.
    #[schemars(default, with = "String")]
    result_of: String,
    /// Holds if the turn's last action succeeded (`true`) or failed (`false`). Never holds before the first action.
    #[schemars(default, with = "bool")]
    ok: bool,
    /// Holds if the turn's last action failed (`true`) or succeeded (`false`). Never holds before the first action.
    #[schemars(default, with = "bool")]
    failed: bool,
    /// Holds always.
    #[schemars(default, with = "Always")]
    always: bool,
}

/// The decision of a rule.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[allow(dead_code, reason = "only a schema")]
struct Decide {
    /// The next status of the turn. Required in a chat agent, without effect in a task agent.
    #[schemars(default)]
    next_status: Option<NextStatus>,
    /// The action to execute; in a task agent a TOOL.
    #[schemars(default)]
    action: Option<Action>,
    /// The text for the user; in a task agent its answer.
    #[schemars(default)]
    response: Option<String>,
    /// A task agent's structured answer, for example a plan, as JSON.
    #[schemars(default)]
    output: Option<Map<String, Value>>,
    /// The decisions of a coordinator, each with `decision_type` and `payload`.
    #[schemars(default, length(min = 1))]
    decisions: Option<Vec<Map<String, Value>>>,
    /// A note for the reader; not used.
    #[schemars(default)]
    reasoning: Value,
}

/// The next statuses that a rule may choose.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[allow(dead_code, reason = "only a schema")]
enum NextStatus {
    /// Execute `action`, then decide again.
    Processing,
    /// Send `response`.
    Typing,
    /// End the turn without a reply.
    Ready,
    /// Send `response`, then hand off to a human.
    Transferred,
}
