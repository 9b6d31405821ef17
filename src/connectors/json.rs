//! JSON of the values of databases.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Number, Value};
use types::depth;

/// The most significant digits of a decimal that becomes a number. Each such decimal is the shortest text of its number.
const EXACT_DIGITS: usize = 15;

/// Bytes as base64.
pub(crate) fn bytes(bytes: &[u8]) -> Value {
    Value::String(STANDARD.encode(bytes))
}

/// A number; a text for infinities and NaN, which JSON does not have.
pub(crate) fn float(number: f64) -> Value {
    Number::from_f64(number).map_or_else(|| Value::String(number.to_string()), Value::Number)
}

/// A number of single precision, with its own shortest digits.
#[cfg_attr(not(any(feature = "postgres", feature = "mysql")), allow(dead_code, reason = "SQLite has no such numbers"))]
pub(crate) fn single(number: f32) -> Value {
    float(number.to_string().parse().unwrap_or(f64::from(number)))
}

/// A decimal: a number if a JSON number has its value exactly, else its text.
#[cfg_attr(not(any(feature = "postgres", feature = "mysql")), allow(dead_code, reason = "SQLite has no such numbers"))]
pub(crate) fn decimal(text: &str) -> Value {
    let digits = text.trim_start_matches(['-', '0', '.']).bytes().filter(u8::is_ascii_digit).count();
    let number = if !text.contains('.')
        && let Ok(whole) = text.parse::<i64>()
    {
        Some(Number::from(whole))
    } else if digits <= EXACT_DIGITS && text.len() <= 3 * EXACT_DIGITS {
        text.parse().ok().and_then(Number::from_f64)
    } else {
        None
    };
    number.map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

/// A JSON column. JSON that no store accepts stays text.
pub(crate) fn json(text: &str) -> Value {
    match serde_json::from_str::<Value>(text) {
        Ok(value) if depth::is_legal(&Value::Array(vec![Value::Array(vec![value.clone()])])) => value,
        _ => Value::String(text.to_owned()),
    }
}

/// Text. Bytes that are no UTF-8 become U+FFFD.
pub(crate) fn text(bytes: &[u8]) -> Value {
    Value::String(String::from_utf8_lossy(bytes).into_owned())
}

/// A value as a text parameter: lists and objects as JSON.
pub(crate) fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json as value;

    #[test]
    fn decimals_keep_their_value() {
        for (text, expected) in [
            ("0", value!(0)),
            ("-12", value!(-12)),
            ("1.50", value!(1.5)),
            ("0.00000000001", value!(1e-11)),
            ("9223372036854775807", value!(9_223_372_036_854_775_807_i64)),
            ("9223372036854775808", value!("9223372036854775808")),
            ("0.1234567890123456", value!("0.1234567890123456")),
            ("NaN", value!("NaN")),
        ] {
            assert_eq!(decimal(text), expected, "{text}");
        }
        assert_eq!(single(0.1), value!(0.1));
        assert_eq!(float(f64::INFINITY), value!("inf"));
    }

    #[test]
    fn deep_json_stays_text() {
        let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        assert!(json(&deep(60)).is_array());
        assert!(json(&deep(64)).is_string());
        assert_eq!(json("nothing"), value!("nothing"));
    }
}
