//! JSON Schemas for the model and for programs, made from the tables.

use crate::kind::{DecisionType, Intent};
use crate::limits::{MAX_DECISIONS, MAX_ID_CHARS};
use crate::node_type::NodeType;
use crate::table::configs::config;
use crate::table::payloads::{ACTION_TYPE, payload};
use crate::table::{Kind, Shape};
use serde_json::{Map, Value, json};

/// Name of the schema of an answer.
pub const CONVERSATION: &str = "conversation_decision";

/// Name of the schema of the first answer of a session, with its plan.
pub const PLAN_AND_CONVERSATION: &str = "plan_and_conversation_decision";

/// The names of all schemas: those of the answers, then those of the types by priority.
pub fn names() -> Vec<&'static str> {
    [CONVERSATION, PLAN_AND_CONVERSATION].into_iter().chain(DecisionType::ALL.map(DecisionType::as_str)).collect()
}

/// The schema with this name.
pub fn named(name: &str) -> Option<Value> {
    let mut schema = match name {
        CONVERSATION => conversation(),
        PLAN_AND_CONVERSATION => plan_and_conversation(),
        _ => of_type(DecisionType::parse(name)?),
    };
    let definitions = definitions(&schema);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!(name);
    if !definitions.is_empty() {
        schema["$defs"] = definitions.into();
    }
    Some(schema)
}

/// The schemas of the payloads of these types, by type, for a prompt. They share their `$defs`: most of the text is the
/// nodes, which several types have.
pub fn of_payloads(kinds: impl IntoIterator<Item = DecisionType>) -> Value {
    let mut schemas: Value = kinds.into_iter().map(|kind| (kind.as_str().to_owned(), of_type(kind))).collect();
    let definitions = definitions(&schemas);
    if !definitions.is_empty() {
        schemas["$defs"] = definitions.into();
    }
    schemas
}

/// The schema of a workflow file of the type `graph`, with the `config` of each type of node.
pub fn graph() -> Value {
    let mut definitions: Map<String, Value> = all_definitions().into_iter().collect();
    definitions.extend(NodeType::ALL.iter().map(|kind| (config_name(*kind), object(config(*kind), None))));
    if let Some(node) = definitions.get_mut("node") {
        node["properties"]["type"]["enum"] = NodeType::ALL.iter().map(|kind| json!(kind.as_str())).collect();
        node["allOf"] = by_type("type", &NodeType::ALL);
    }
    let (node, edge) = (json!({"$ref": "#/$defs/node"}), json!({"$ref": "#/$defs/edge"}));
    without_unused(json!({
        "type": "object",
        "properties": {
            "type": {"const": "graph"},
            "id": {"type": "string"},
            "name": {"type": "string", "description": "the name for people"},
            "description": {"type": ["string", "null"], "description": "what it is for, shown in listings"},
            "nodes": {"type": "array", "minItems": 1, "items": node},
            "edges": {"type": ["array", "null"], "items": edge},
            "global_config": {"$ref": "#/$defs/global_config"},
            "coordinator": {"type": ["string", "null"], "description": "the agent that is asked when a node fails"},
            "recovery": {"anyOf": [{"$ref": "#/$defs/recovery_plan"}, {"type": "null"}]},
            "max_concurrency": {"type": ["integer", "null"], "minimum": 1},
            "limits": {"type": ["object", "null"]},
        },
        "required": ["type", "id", "nodes"],
        "$defs": definitions,
    }))
}

/// The schema without the definitions that nothing refers to.
pub fn without_unused(mut schema: Value) -> Value {
    loop {
        let Some(Value::Object(definitions)) = schema.get("$defs") else { return schema };
        let text = schema.to_string();
        let is_used = |name: &String| text.contains(&format!("\"#/$defs/{name}\""));
        let unused: Vec<_> = definitions.keys().filter(|name| !is_used(name)).cloned().collect();
        if unused.is_empty() {
            return schema;
        }
        if let Some(definitions) = schema["$defs"].as_object_mut() {
            unused.iter().for_each(|name| drop(definitions.remove(name)));
        }
    }
}

/// The schema of the payload of one type, without definitions.
fn of_type(kind: DecisionType) -> Value {
    let mut schema = object(payload(kind), Some(kind));
    if kind == DecisionType::CreateNode {
        schema["allOf"] = by_type("node_type", &NodeType::SINGLE);
    }
    schema
}

/// The schema of an action, or null.
pub fn action() -> Value {
    json!({"anyOf": [{"type": "null"}, {
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": ["SKILL", "TOOL", "FLOW", "SYSTEM"]},
            "target": {"type": "string"},
            "params": {"type": "object"},
        },
        "required": ["type", "target", "params"],
    }]})
}

fn conversation() -> Value {
    let decision = |kind: DecisionType| {
        json!({
            "type": "object",
            "properties": {
                "decision_type": {"const": kind.as_str()},
                "confidence": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
                "payload": of_type(kind),
            },
            "required": ["decision_type", "payload"],
        })
    };
    let mut action = action();
    action["description"] = "Only without decisions: an action of the agent, such as a handoff.".into();
    let intents: Vec<Value> = Intent::ALL.iter().map(|intent| json!(intent.as_str())).chain([Value::Null]).collect();
    json!({
        "type": "object",
        "properties": {
            "reasoning": {"type": ["string", "null"]},
            "intent": {"enum": intents},
            "decisions": {
                "type": "array",
                "maxItems": MAX_DECISIONS,
                "items": {"anyOf": DecisionType::ALL.map(decision)},
            },
            "action": action,
        },
        "required": ["decisions"],
    })
}

fn plan_and_conversation() -> Value {
    let plan = plan(&json!({"type": ["object", "null"]}));
    json!({"type": "object", "properties": {"plan": plan, "answer": conversation()}, "required": ["plan", "answer"]})
}

/// The schema of a session's plan. `action` is that of a timer's action.
pub fn plan(action: &Value) -> Value {
    let text = json!({"type": ["string", "null"]});
    let timer = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "delay": {"type": ["string", "integer"], "description": "such as 30s, 15m, 2h or 1d; a number means seconds"},
            "message": text,
            "action": action,
        },
        "required": ["delay"],
    });
    json!({
        "type": "object",
        "properties": {
            "name": text, "tone": text, "greeting": text, "sop": text, "constraints": text,
            "timers": {"type": ["array", "null"], "items": timer},
        },
        "required": ["name", "tone", "greeting", "sop", "timers", "constraints"],
    })
}

/// The schema of an object with the fields of a table.
fn object(shape: &Shape, kind: Option<DecisionType>) -> Value {
    let mut properties = Map::new();
    let mut required: Vec<&str> = Vec::new();
    if let Some(kind) = kind {
        properties.insert(ACTION_TYPE.into(), json!({"const": kind.as_str()}));
        required.push(ACTION_TYPE);
    }
    for field in shape.fields {
        let mut schema = value(field.kind);
        if !field.required {
            schema = with_null(schema);
        } else if !(matches!(field.kind, Kind::Config) && kind.is_none()) {
            required.push(field.name);
        }
        schema["description"] = json!(field.text);
        properties.insert(field.name.into(), schema);
    }
    let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    if !shape.rules.is_empty() {
        schema["description"] = json!(shape.rules.join(" "));
    }
    schema
}

/// The schema also accepts null.
fn with_null(mut schema: Value) -> Value {
    if let Some(kind) = schema.get("type").filter(|kind| kind.is_string()).cloned() {
        schema["type"] = json!([kind, "null"]);
        if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
            words.push(Value::Null);
        }
        return schema;
    }
    if schema.get("$ref").is_some() { json!({"anyOf": [schema, {"type": "null"}]}) } else { schema }
}

fn value(kind: Kind) -> Value {
    match kind {
        Kind::Any => json!({}),
        Kind::Text => json!({"type": "string"}),
        Kind::Filled => json!({"type": "string", "pattern": "\\S"}),
        Kind::Id => json!({"type": "string", "pattern": "^[\\p{L}\\p{N}_-]+$", "maxLength": MAX_ID_CHARS}),
        Kind::Identifier => json!({"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}),
        Kind::Choice(words) => json!({"type": "string", "enum": words}),
        Kind::Truth => json!({"type": "boolean"}),
        Kind::Number(low, high) if high.is_infinite() => json!({"type": "number", "minimum": low}),
        Kind::Number(low, high) => json!({"type": "number", "minimum": low, "maximum": high}),
        Kind::Whole(low, i64::MAX) => json!({"type": "integer", "minimum": low}),
        Kind::Whole(low, high) => json!({"type": "integer", "minimum": low, "maximum": high}),
        Kind::Seconds(high) if high.is_infinite() => json!({"type": "number", "exclusiveMinimum": 0}),
        Kind::Seconds(high) => json!({"type": "number", "exclusiveMinimum": 0, "maximum": high}),
        Kind::Object | Kind::Config => json!({"type": "object"}),
        Kind::Changes => json!({"type": "object", "minProperties": 1}),
        Kind::Texts => json!({"type": "object", "additionalProperties": {"type": "string"}}),
        // Nodes contain nodes, so shapes are definitions.
        Kind::Shape(shape) => json!({"$ref": format!("#/$defs/{}", definition_name(shape))}),
        Kind::List(item) => json!({"type": "array", "items": value(*item)}),
        Kind::FilledList(item) => json!({"type": "array", "minItems": 1, "items": value(*item)}),
    }
}

fn definition_name(shape: &Shape) -> String {
    shape.name.replace(' ', "_")
}

/// The rules that choose the schema of `config` by the type of the node.
fn by_type(field: &str, kinds: &[NodeType]) -> Value {
    let rule = |kind: &NodeType| {
        json!({
            "if": {"properties": {field: {"const": kind.as_str()}}, "required": [field]},
            "then": {"properties": {"config": {"$ref": format!("#/$defs/{}", config_name(*kind))}}},
        })
    };
    kinds.iter().map(rule).collect()
}

fn config_name(kind: NodeType) -> String {
    format!("{}_config", kind.as_str().to_lowercase())
}

/// The definitions to which a schema refers, directly or through others.
fn definitions(schema: &Value) -> Map<String, Value> {
    let all = all_definitions();
    let mut found: Map<String, Value> = Map::new();
    let mut open = vec![schema.clone()];
    while let Some(schema) = open.pop() {
        let text = schema.to_string();
        for (name, definition) in &all {
            if !found.contains_key(name) && text.contains(&format!("\"#/$defs/{name}\"")) {
                open.push(definition.clone());
                found.insert(name.clone(), definition.clone());
            }
        }
    }
    found
}

/// Every definition, by name: the shapes, and the configurations of the types of nodes.
fn all_definitions() -> Vec<(String, Value)> {
    use crate::table::graph::{
        ADDED_NODE, BODY, CHANGES, EDGE, GLOBAL_CONFIG, INPUT, NODE, RECOVERY_PLAN, RETRY_CONFIG,
    };
    let kinds: Vec<_> = NodeType::ALL.into_iter().filter(|kind| !kind.is_of_files()).collect();
    let shapes = [&ADDED_NODE, &BODY, &CHANGES, &EDGE, &GLOBAL_CONFIG, &INPUT, &NODE, &RECOVERY_PLAN, &RETRY_CONFIG];
    let shape = |shape: &Shape| {
        let (name, mut schema) = (definition_name(shape), object(shape, None));
        if ["node", "added_node"].contains(&name.as_str()) {
            schema["allOf"] = by_type("type", &kinds);
        }
        (name, schema)
    };
    let configs = kinds.iter().map(|kind| (config_name(*kind), object(config(*kind), None)));
    shapes.into_iter().map(shape).chain(configs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_is_one_and_refers_to_its_own_definitions() {
        for name in names().into_iter().chain(["payloads"]) {
            let schema = named(name).unwrap_or_else(|| of_payloads(DecisionType::ALL));
            jsonschema::meta::validate(&schema).unwrap();
            jsonschema::validator_for(&schema).unwrap();
            let text = schema.to_string();
            for (_, rest) in text
                .match_indices("#/$defs/")
                .map(|(at, _)| text[at + 8..].split_once('"').map(|(name, _)| ((), name)).unwrap())
            {
                assert!(schema["$defs"][rest].is_object(), "{name}: {rest}");
            }
        }
        assert_eq!(named("fly"), None);
    }
}
