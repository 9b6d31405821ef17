//! Canonical JSON and the configuration hash (E-06, OP-E3).
//!
//! Canonical: object keys sorted by code point, no insignificant whitespace, numbers as written (`1` and `1.0` differ).

use serde_json::Value;
use std::fmt::Write;

/// Bookkeeping at the top of a document, which is no content.
const BOOKKEEPING: &str = "updated_at";

/// Lower-case hex md5 of the canonical JSON of `document`, without its bookkeeping.
pub fn hash(document: &Value) -> String {
    let mut text = String::new();
    match document {
        Value::Object(fields) => write_object(&mut text, fields.iter().filter(|(key, _)| *key != BOOKKEEPING)),
        other => write_value(&mut text, other),
    }
    format!("{:x}", md5::compute(text))
}

/// The canonical JSON of a value.
pub fn to_string(value: &Value) -> String {
    let mut text = String::new();
    write_value(&mut text, value);
    text
}

fn write_value(text: &mut String, value: &Value) {
    match value {
        Value::Object(fields) => write_object(text, fields.iter()),
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_value(text, item);
            }
            text.push(']');
        }
        // Writing into a String cannot fail.
        scalar => {
            let _ = write!(text, "{scalar}");
        }
    }
}

fn write_object<'v>(text: &mut String, fields: impl Iterator<Item = (&'v String, &'v Value)>) {
    let mut fields: Vec<_> = fields.collect();
    fields.sort_by_key(|(key, _)| *key);
    text.push('{');
    for (index, (key, value)) in fields.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        let _ = write!(text, "{}:", Value::from(key.as_str()));
        write_value(text, value);
    }
    text.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn key_order_and_formatting_do_not_count_and_content_does() {
        let one = parsed(r#"{"id":"a","sop":"问候","skills":[{"x":1,"y":null}]}"#);
        let two = parsed("{ \"skills\": [ {\"y\": null, \"x\": 1} ],\n \"sop\": \"\\u95ee\\u5019\", \"id\": \"a\" }");
        assert_eq!(hash(&one), hash(&two));
        assert_eq!(to_string(&two), r#"{"id":"a","skills":[{"x":1,"y":null}],"sop":"问候"}"#);
        for other in [
            r#"{"id":"a","sop":"问候 ","skills":[{"x":1,"y":null}]}"#,
            r#"{"id":"a","sop":"问候","skills":[{"x":1}]}"#,
            r#"{"id":"a","sop":"问候","skills":[]}"#,
        ] {
            assert_ne!(hash(&one), hash(&parsed(other)), "{other}");
        }
    }

    #[test]
    fn it_is_the_md5_of_the_canonical_text_without_bookkeeping() {
        let document = parsed(r#"{"b":2,"a":[true,"x"],"updated_at":"2026-01-01T00:00:00.000Z"}"#);
        assert_eq!(hash(&document), format!("{:x}", md5::compute(r#"{"a":[true,"x"],"b":2}"#)));
    }
}
