//! The copy of the description from which the console's types are made.

use super::Described;
use crate::gateway::Gateway;
use crate::support::backend::embedded;
use base::config::Environment;
use serde::Serialize;
use serde_json::ser::PrettyFormatter;
use serde_json::{Map, Serializer, Value};
use std::fs;
use std::path::Path;

/// Drops the parts on which no type depends: examples and error responses. The keys of `named` are names of the API,
/// such as properties, and no words of OpenAPI.
fn reduced(value: Value, named: bool) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(|item| reduced(item, false)).collect(),
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(key, _)| named || !matches!(key.as_str(), "example" | "examples"));
            let part = |(key, value): (String, Value)| {
                let value = match (named, key.as_str(), value) {
                    (false, "responses", Value::Object(responses)) => {
                        let good = responses.into_iter().filter(|(status, _)| status.starts_with('2'));
                        reduced(Value::Object(good.collect()), true)
                    }
                    (false, "properties" | "schemas" | "paths", value) => reduced(value, true),
                    (_, _, value) => reduced(value, false),
                };
                (key, value)
            };
            Value::Object(kept.map(part).collect())
        }
        other => other,
    }
}

/// The description of the program, reduced. Without second addresses of an operation.
async fn description() -> String {
    let Described(mut document) = Described::by(&Gateway::idle(&embedded().await).await).await;
    let paths: Map<String, Value> = document["paths"].as_object().unwrap().clone();
    let alias = |path: &str| path.starts_with("/workflows/") || path.starts_with("/api/workflows/");
    document["paths"] = Value::Object(paths.into_iter().filter(|(path, _)| !alias(path)).collect());
    let mut text = Vec::new();
    let formatter = PrettyFormatter::with_indent(b" ");
    reduced(document, false).serialize(&mut Serializer::with_formatter(&mut text, formatter)).unwrap();
    String::from_utf8(text).unwrap() + "\n"
}

#[tokio::test]
async fn the_console_has_the_current_description() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("console/src/api/openapi.json");
    let current = description().await;
    if Environment::from_process().get("TURNWHEEL_TEST_REGENERATE").is_some() {
        fs::write(&file, &current).unwrap();
    }
    assert!(
        fs::read_to_string(&file).unwrap() == current,
        "console/src/api/openapi.json is not the description of the program; run this test with \
         TURNWHEEL_TEST_REGENERATE=1, then `npm run build` in the folder console"
    );
}
