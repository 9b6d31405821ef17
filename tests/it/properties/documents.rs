//! Properties of the hash of a configuration.

use super::value;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use types::canonical;

/// Another notation of `value`: other key order, white space, escapes, numbers with an exponent.
fn rewritten(value: &Value, seed: u64) -> String {
    let gap = ["", " ", "\n\t", "  "][(seed % 4) as usize];
    let next = seed.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    match value {
        Value::Object(fields) => {
            let mut all: Vec<String> = fields
                .iter()
                .map(|(key, field)| format!("{gap}{}{gap}:{}", quoted(key, seed), rewritten(field, next)))
                .collect();
            if seed.is_multiple_of(3) {
                all.reverse();
            } else if !all.is_empty() {
                let middle = seed as usize % all.len();
                all.rotate_left(middle);
            }
            format!("{{{}{gap}}}", all.join(","))
        }
        Value::Array(items) => {
            let all: Vec<String> = items.iter().map(|item| rewritten(item, next)).collect();
            format!("[{gap}{}]", all.join(&format!("{gap},")))
        }
        Value::String(text) => quoted(text, seed),
        Value::Number(number) => match number.as_i64() {
            Some(whole) if whole.unsigned_abs() < 1 << 50 && seed.is_multiple_of(2) => format!("{gap}{whole}.0"),
            Some(whole) if whole.unsigned_abs() < 1 << 50 && seed.is_multiple_of(5) => format!("{gap}{whole}e0"),
            _ => format!("{number}{gap}"),
        },
        Value::Null | Value::Bool(_) => format!("{gap}{value}"),
    }
}

fn quoted(text: &str, seed: u64) -> String {
    if seed.is_multiple_of(2) {
        return Value::from(text).to_string();
    }
    let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    format!("\"{units}\"")
}

/// Paths of all values within `value`.
fn places(value: &Value, path: &str, found: &mut Vec<String>) {
    found.push(path.to_owned());
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| places(item, &format!("{path}/{at}"), found));
        }
        Value::Object(fields) => fields.iter().for_each(|(key, field)| {
            places(field, &format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")), found);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether two configurations are equal: `1` and `1.0` are the same number.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(a), Value::Number(b)) => {
            a == b
                || (a.is_f64() || b.is_f64()) && a.as_f64() == b.as_f64() && a.as_f64().is_some_and(|a| a.abs() <= 9e15)
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (one, other) => one == other,
    }
}

proptest! {
    #[test]
    fn the_hash_does_not_see_order_and_formatting(document in value(), seed: u64) {
        let other: Value = serde_json::from_str(&rewritten(&document, seed)).unwrap();
        prop_assert_eq!(canonical::to_string(&other), canonical::to_string(&document));
        prop_assert_eq!(canonical::hash(&other), canonical::hash(&document));
        prop_assert!(!canonical::to_string(&json!([document])).contains('\n'));
    }

    #[test]
    fn the_hash_sees_every_change_of_content(document in value(), at: Index, new in value()) {
        let mut found = Vec::new();
        places(&document, "", &mut found);
        let mut changed = document.clone();
        *changed.pointer_mut(&found[at.index(found.len())]).unwrap() = new;
        // The top-level field `updated_at` is not content.
        let bookkeeping = |value: &Value| value.get("updated_at").is_some();
        prop_assume!(!bookkeeping(&document) && !bookkeeping(&changed));
        prop_assert_eq!(canonical::hash(&changed) == canonical::hash(&document), same(&changed, &document));
    }
}
