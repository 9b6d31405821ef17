//! The limit on the nesting of JSON from outside.
//!
//! Stored JSON is some levels deeper in its document, and both the stores and the JSON reader limit the depth of a
//! document. The limit is checked on input, so that a turn never holds a value that the store would refuse.

use serde_json::Value;

/// The largest accepted number of nested levels.
pub const MAX_DEPTH: usize = 64;

/// True when `value` has at most [`MAX_DEPTH`] levels.
pub fn is_legal(value: &Value) -> bool {
    fits(value, MAX_DEPTH)
}

fn fits(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| fits(item, levels - 1)),
        Value::Object(fields) => levels > 0 && fields.values().all(|field| fits(field, levels - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_and_tables_count() {
        let nested = |levels: usize| {
            (0..levels)
                .fold(json!(1), |inner, level| if level % 2 == 0 { json!([inner]) } else { json!({ "a": inner }) })
        };
        assert!(is_legal(&nested(MAX_DEPTH)));
        assert!(!is_legal(&nested(MAX_DEPTH + 1)));
    }
}
