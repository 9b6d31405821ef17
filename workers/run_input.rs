//! The inputs of a graph on the command line: JSON, the name of a file, or standard input.

use crate::failure::Failure;
use anyhow::Context;
use serde_json::{Map, Value};
use std::io::Read;

/// Reads a JSON object from `given`: the text itself, the file named after `@`, or standard input for `-`.
pub fn read(given: &str) -> anyhow::Result<Map<String, Value>> {
    let (text, place) = match (given, given.strip_prefix('@')) {
        ("-", _) => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            (text, "standard input".to_owned())
        }
        (_, Some(file)) => (
            std::fs::read_to_string(file).with_context(|| format!("cannot read the inputs in {file}"))?,
            file.to_owned(),
        ),
        (text, None) => (text.to_owned(), "--input".to_owned()),
    };
    let hint = "give a JSON object such as '{\"since\": \"2026-01\"}', `@FILE`, or `-` for standard input";
    match serde_json::from_str(&text) {
        Ok(Value::Object(input)) => Ok(input),
        Ok(other) => {
            let kind = types::json_kind::json_kind(&other);
            Err(Failure::new(format!("{place} has {kind}, not a JSON object"), hint).into())
        }
        Err(error) => Err(Failure::new(format!("{place} is no JSON: {error}"), hint).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn inputs_are_a_json_object_in_the_argument_or_in_a_file() {
        assert_eq!(Value::Object(read("{\"a\": [1]}").unwrap()), json!({"a": [1]}));
        let file = std::env::temp_dir().join(format!("turnwheel-inputs-{}.json", std::process::id()));
        std::fs::write(&file, "{\"b\": null}").unwrap();
        assert_eq!(Value::Object(read(&format!("@{}", file.display())).unwrap()), json!({"b": null}));
        std::fs::remove_file(&file).unwrap();
        assert!(read("[1]").unwrap_err().to_string().contains("--input has a list"));
        assert!(read("{").unwrap_err().to_string().contains("--input is no JSON"));
        assert!(read("@/nothing/here.json").unwrap_err().to_string().contains("/nothing/here.json"));
    }
}
