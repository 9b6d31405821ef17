//! Checks the params of an action against their JSON Schema before the action is executed.

use jsonschema::Validator;
use moka::sync::Cache;
use serde_json::{Map, Value};
use std::sync::{Arc, LazyLock};

/// Maximum number of errors in one text. The model corrects the first ones first.
const MAX_ERRORS: usize = 10;

/// Compiled schemas by their text. Bounded, because each new configuration brings new schemas.
static COMPILED: LazyLock<Cache<String, Result<Arc<Validator>, String>>> = LazyLock::new(|| Cache::new(1_000));

/// Checks the params. The error names every violation with its place, and is a text for the model.
pub fn check(schema: &Value, params: &Map<String, Value>) -> Result<(), String> {
    let compiled = COMPILED.get_with(schema.to_string(), || {
        jsonschema::validator_for(schema)
            .map(Arc::new)
            .map_err(|error| format!("the JSON Schema of the params is invalid: {error}; correct it in the agent file"))
    })?;
    let params = Value::Object(params.clone());
    let mut errors = compiled.iter_errors(&params).map(|error| {
        let place = error.instance_path().to_string();
        format!("{}: {error}", if place.is_empty() { "params" } else { place.trim_start_matches('/') })
    });
    let mut texts: Vec<String> = errors.by_ref().take(MAX_ERRORS).collect();
    if texts.is_empty() {
        return Ok(());
    }
    let more = errors.count();
    if more > 0 {
        texts.push(format!("and {more} more"));
    }
    Err(format!("the params do not fit: {}", texts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn verdict(schema: &Value, params: Value) -> Result<(), String> {
        check(schema, &serde_json::from_value(params).unwrap())
    }

    #[test]
    fn a_schema_that_turns_in_circles_ends() {
        for schema in [
            json!({"$ref": "#"}),
            json!({"allOf": [{"$ref": "#"}]}),
            json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}, {"not": {"$ref": "#"}}]}}, "$ref": "#/$defs/a"}),
        ] {
            let _ = verdict(&schema, json!({"a": [1]}));
        }
    }

    #[test]
    fn every_error_is_named_with_its_place() {
        let schema = json!({"type": "object", "required": ["order_id"], "properties": {
            "order_id": {"type": "string"}, "items": {"type": "array", "items": {"type": "integer"}}}});
        verdict(&schema, json!({"order_id": "A1", "items": [1]})).unwrap();
        verdict(&json!({}), json!({"anything": 1})).unwrap();
        let error = verdict(&schema, json!({"items": [1, "二"]})).unwrap_err();
        assert!(error.contains("\"order_id\" is a required property"), "{error}");
        assert!(error.contains("items/1: \"二\" is not of type \"integer\""), "{error}");
    }

    #[test]
    fn a_wrong_schema_is_an_error_and_no_panic() {
        let error = verdict(&json!({"type": "objekt"}), json!({})).unwrap_err();
        assert!(error.contains("agent file"), "{error}");
    }
}
