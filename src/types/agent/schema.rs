//! The agent file as a JSON Schema, made from the types that read it. What a type cannot say stands here: the shape of
//! texts such as ids and durations, and the rules, which are read by the offline model alone.

use super::AgentConfig;
use crate::action::Action;
use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// The schema, as `turnwheel agents schema` prints it.
pub fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().with_transform(Tidy);
    let mut schema = settings.into_generator().into_root_schema_for::<AgentConfig>();
    schema.insert("title".into(), json!("Turnwheel agent file"));
    let description = "An agent for Turnwheel. docs/agents.md explains each field; `turnwheel agents validate` checks \
                       more than a schema can.";
    schema.insert("description".into(), json!(description));
    // One of the two is needed; and bookkeeping of one's own is no unknown field.
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
            rules_decide(&json!({ "required": ["next_status"], "properties": { "next_status": { "type": "string" } },
            "if": { "properties": { "next_status": { "enum": ["typing", "transferred"] } } }, "then": says() })),
        ),
    ] {
        schema.insert(keyword.into(), below);
    }
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert("updated_at".into(), json!({ "description": "Yours to use; it is left out of the hash." }));
    }
    let mut schema = schema.to_value();
    // A condition that is not there has no value.
    for condition in schema["$defs"]["When"]["properties"].as_object_mut().into_iter().flatten() {
        condition.1.as_object_mut().map(|condition| condition.remove("default"));
    }
    schema
}

/// What holds for the decision of every rule.
fn rules_decide(decide: &Value) -> Value {
    json!({ "properties": { "rules": { "items": { "properties": { "decide": decide } } } } })
}

fn says() -> Value {
    json!({ "required": ["response"], "properties": { "response": { "type": "string" } } })
}

fn structured() -> Value {
    json!({ "required": ["output"], "properties": { "output": { "type": "object" } } })
}

fn calls() -> Value {
    let tool = json!({ "type": "object", "properties": { "type": { "const": "TOOL" } } });
    json!({ "required": ["action"], "properties": { "action": tool } })
}

/// Takes out the widths of Rust's integers, which editors do not know, and the line breaks of doc comments.
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

/// A type that is only a schema.
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
    /// An identifier.
    Id = {
        "type": "string", "minLength": 1, "maxLength": 128, "pattern": "^(?!\\$)[^\\s*>/.\\u0000-\\u001f\\u007f-\\u009f]+$"
    };
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
    /// A method, in any case.
    Method = {
        "anyOf": [
            { "enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] },
            {
                "type": "string",
                "pattern": "^([Gg][Ee][Tt]|[Hh][Ee][Aa][Dd]|[Pp][Oo][Ss][Tt]|[Pp][Uu][Tt]|[Pp][Aa][Tt][Cc][Hh]|[Dd][Ee][Ll][Ee][Tt][Ee])$"
            }
        ]
    };
    /// One word or several.
    Words = {
        "description": "The message contains one of these, in any case.",
        "anyOf": [
            { "type": "string", "minLength": 1 },
            { "type": "array", "minItems": 1, "items": { "type": "string", "minLength": 1 } }
        ]
    };
    /// Text with something in it.
    Text = { "type": "string", "pattern": "\\S" };
    /// Text with a letter or digit in it.
    Word = { "type": "string", "pattern": "[\\p{L}\\p{N}]" };
    /// The one value that `always` has.
    Always = { "const": true };
}

/// A function of the engine.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[allow(dead_code, reason = "only a schema")]
pub(super) enum Builtin {
    /// Answers the time.
    Now,
}

/// What the offline model goes by: the first rule whose conditions all hold.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[allow(dead_code, reason = "only a schema")]
pub(super) struct Rule {
    /// All of these conditions hold.
    when: When,
    /// Then this is decided.
    decide: Decide,
}

/// Conditions of a rule.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("minProperties" = 1))]
#[allow(dead_code, reason = "only a schema")]
struct When {
    #[schemars(default, with = "Words")]
    contains: Value,
    /// A regular expression of Rust's `regex`; its named groups fill `{…}` in `decide`.
    #[schemars(default, with = "String")]
    matches: String,
    /// That skill or tool was the turn's last action.
    #[schemars(default, with = "String")]
    result_of: String,
    /// Whether the turn's last action was a success: holds after one only.
    #[schemars(default, with = "bool")]
    ok: bool,
    /// Whether the turn's last action failed: holds after one only.
    #[schemars(default, with = "bool")]
    failed: bool,
    /// Holds always.
    #[schemars(default, with = "Always")]
    always: bool,
}

/// What a rule decides.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[allow(dead_code, reason = "only a schema")]
struct Decide {
    /// Where it takes the turn; needed in a chat agent, and without a meaning in a task agent.
    #[schemars(default)]
    next_status: Option<NextStatus>,
    /// Executed; in a task agent a TOOL.
    #[schemars(default)]
    action: Option<Action>,
    /// Said to the user; in a task agent its answer.
    #[schemars(default)]
    response: Option<String>,
    /// A task agent's answer where a structure is wanted, such as a plan: its JSON.
    #[schemars(default)]
    output: Option<Map<String, Value>>,
    /// Not used.
    #[schemars(default)]
    reasoning: Value,
}

/// What a rule may lead to.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[allow(dead_code, reason = "only a schema")]
enum NextStatus {
    /// Do `action`, then decide again.
    Processing,
    /// Send `response`.
    Typing,
    /// End in silence.
    Ready,
    /// Send `response`, then hand off.
    Transferred,
}
