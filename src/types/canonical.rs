//! Canonical JSON, and the hash of a configuration.
//!
//! Canonical JSON has object keys in the order of their code points, no insignificant whitespace, and as few escapes in
//! strings as JSON allows. A number without a fraction is written as an integer, because `1`, `1.0` and `1e0` are the
//! same number.

use serde_json::{Number, Value};
use std::fmt::Write as _;

/// Top-level keys that are bookkeeping and not part of the configuration.
const BOOKKEEPING: &[&str] = &["updated_at"];

/// The largest power of two up to which a double represents every integer exactly.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

/// Formats `value` as canonical JSON.
pub fn to_string(value: &Value) -> String {
    let mut text = String::new();
    write(value, &[], &mut text);
    text
}

/// Lower-case hex md5 of the canonical JSON of a document, without its bookkeeping fields.
pub fn hash(document: &Value) -> String {
    let mut text = String::with_capacity(256);
    write(document, BOOKKEEPING, &mut text);
    // Formatting one number is faster than formatting 16 bytes: byte by byte takes as long as the digest itself.
    format!("{:032x}", u128::from_be_bytes(md5::compute(text).0))
}

fn write(value: &Value, without: &[&str], text: &mut String) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(true) => text.push_str("true"),
        Value::Bool(false) => text.push_str("false"),
        Value::Number(number) => write_number(number, text),
        Value::String(string) => write_string(string, text),
        Value::Array(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                text.push_str(if at == 0 { "" } else { "," });
                write(item, &[], text);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            // The order of UTF-8 bytes is the order of code points. The map itself may keep insertion order, if any
            // crate enables that feature of serde_json.
            let mut fields: Vec<_> = fields.iter().filter(|(key, _)| !without.contains(&key.as_str())).collect();
            fields.sort_by_key(|(key, _)| key.as_str());
            text.push('{');
            for (at, (key, field)) in fields.into_iter().enumerate() {
                text.push_str(if at == 0 { "" } else { "," });
                write_string(key, text);
                text.push(':');
                write(field, &[], text);
            }
            text.push('}');
        }
    }
}

fn write_number(number: &Number, text: &mut String) {
    let _ = match number.as_f64().filter(|_| number.is_f64()) {
        Some(float) if float.fract() == 0.0 && float.abs() <= MAX_EXACT_INTEGER => write!(text, "{}", float as i64),
        _ => write!(text, "{number}"),
    };
}

fn write_string(string: &str, text: &mut String) {
    text.push('"');
    let mut plain = string;
    while let Some(at) = plain.bytes().position(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
        text.push_str(&plain[..at]);
        let _ = match plain.as_bytes()[at] {
            b'"' => text.write_str("\\\""),
            b'\\' => text.write_str("\\\\"),
            0x08 => text.write_str("\\b"),
            b'\t' => text.write_str("\\t"),
            b'\n' => text.write_str("\\n"),
            0x0c => text.write_str("\\f"),
            b'\r' => text.write_str("\\r"),
            control => write!(text, "\\u{control:04x}"),
        };
        plain = &plain[at + 1..];
    }
    text.push_str(plain);
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn the_canonical_form_is_sorted_and_has_no_whitespace() {
        let value = read(
            "{ \"b\" : [1.0, 1e2, -0.0, 1.5, 18446744073709551615, true, null],\n \"a\":{\"名\":\"小智\\u0001\\n\\\"/\",\"\":{}},\"é\":1,\"Z\":2}",
        );
        assert_eq!(
            to_string(&value),
            r#"{"Z":2,"a":{"":{},"名":"小智\u0001\n\"/"},"b":[1,100,0,1.5,18446744073709551615,true,null],"é":1}"#
        );
    }

    #[test]
    fn key_order_and_formatting_do_not_change_the_hash() {
        let one = read(r#"{"id":"sales","skills":[{"id":"a","params":{"x":1,"y":2}}],"max_iterations":10}"#);
        let other = read(
            "{\"max_iterations\": 10.0,\n\t\"skills\": [ {\"params\":{\"y\":2,\"x\":1},\"id\":\"\\u0061\"} ], \"id\":\"sales\", \"updated_at\": 5}",
        );
        assert_eq!(hash(&one), hash(&other));
        assert_eq!(hash(&json!({})), "99914b932bd37a50b983c5e7c90ae93b");
    }

    #[test]
    fn any_change_of_content_changes_the_hash() {
        let base = json!({"id": "s", "sop": "x", "tools": [{"id": "a"}, {"id": "b"}], "timers": [], "meta": {"updated_at": 1}});
        let changes: [fn(&mut Value); 8] = [
            |v| v["sop"] = "x ".into(),
            |v| v["sop"] = Value::Null,
            |v| v["tools"] = json!([{"id": "b"}, {"id": "a"}]),
            |v| v["tools"][0]["params"] = json!({}),
            |v| v["timers"] = json!([{"delay": 5}]),
            |v| v["timers"] = json!({}),
            |v| v["meta"]["updated_at"] = 2.into(),
            |v| v["unknown"] = false.into(),
        ];
        let mut hashes = vec![hash(&base)];
        for change in changes {
            let mut changed = base.clone();
            change(&mut changed);
            hashes.push(hash(&changed));
        }
        let count = hashes.len();
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), count);
    }
}
