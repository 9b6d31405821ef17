//! Sends values as the types that a statement needs. The server has told the type of each placeholder; a value that does
//! not fit is an error with its remedy.

use super::decimal;
use super::decode::{epoch, parse_moment};
use crate::json::as_text;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{NaiveDate, NaiveTime, Timelike};
use serde_json::Value;
use sqlx::encode::{Encode, IsNull};
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgTypeInfo, PgTypeKind};
use sqlx::{Postgres, Type, TypeInfo};

/// A value in the binary format; `None` for NULL.
pub(super) struct Encoded {
    bytes: Option<Vec<u8>>,
    of: PgTypeInfo,
}

impl Type<Postgres> for Encoded {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("text")
    }
}

impl Encode<'_, Postgres> for Encoded {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        Ok(match &self.bytes {
            None => IsNull::Yes,
            Some(bytes) => {
                buffer.extend_from_slice(bytes);
                IsNull::No
            }
        })
    }

    fn produces(&self) -> Option<PgTypeInfo> {
        Some(self.of.clone())
    }
}

/// The value for a placeholder of this type. The error ends a sentence that begins with the value.
pub(super) fn value(value: &Value, of: &PgTypeInfo) -> Result<Encoded, String> {
    let bytes = if value.is_null() { None } else { Some(bytes(value, of)?) };
    Ok(Encoded { bytes, of: of.clone() })
}

fn bytes(value: &Value, of: &PgTypeInfo) -> Result<Vec<u8>, String> {
    match of.kind() {
        PgTypeKind::Domain(base) => return bytes(value, base),
        PgTypeKind::Enum(_) => return Ok(as_text(value).into_bytes()),
        PgTypeKind::Array(element) => return list(value, element),
        _ => {}
    }
    let text = as_text(value);
    let found = match of.name() {
        "TEXT" | "VARCHAR" | "CHAR" | "NAME" | "\"CHAR\"" | "UNKNOWN" | "XML" | "CITEXT" | "citext" => {
            if text.contains('\0') {
                return Err("has a NUL character, which PostgreSQL does not store; remove it".to_owned());
            }
            Some(text.clone().into_bytes())
        }
        "JSON" => Some(json(value).into_bytes()),
        "JSONB" => Some([b"\x01", json(value).as_bytes()].concat()),
        "BYTEA" => binary(&text),
        "UUID" => hex(&text.replace('-', "")).filter(|bytes| bytes.len() == 16),
        "BOOL" => truth(value).map(|truth| vec![u8::from(truth)]),
        "DATE" | "TIME" | "TIMESTAMP" | "TIMESTAMPTZ" => moment(of.name(), &text),
        _ => number(value, &text, of.name()),
    };
    found.ok_or_else(|| {
        let shown: String = text.chars().take(40).collect();
        format!(
            "is `{shown}`, and the statement needs the type `{of}` there; give a value of that type, or cast the reference: \
             `CAST(${{x}} AS text)`"
        )
    })
}

fn number(value: &Value, text: &str, of: &str) -> Option<Vec<u8>> {
    let text = text.trim();
    let whole = || -> Option<i64> {
        #[allow(clippy::cast_possible_truncation, reason = "checked by the comparison")]
        let of_float = |float: f64| (float.fract() == 0.0 && float.abs() < 9e15).then_some(float as i64);
        text.parse().ok().or_else(|| of_float(value.as_f64()?))
    };
    match of {
        "INT2" => Some(i16::try_from(whole()?).ok()?.to_be_bytes().into()),
        "INT4" => Some(i32::try_from(whole()?).ok()?.to_be_bytes().into()),
        "INT8" => Some(whole()?.to_be_bytes().into()),
        "OID" => Some(u32::try_from(whole()?).ok()?.to_be_bytes().into()),
        "FLOAT4" => Some(text.parse::<f32>().ok()?.to_be_bytes().into()),
        "FLOAT8" => Some(text.parse::<f64>().ok()?.to_be_bytes().into()),
        "NUMERIC" => decimal::write(text),
        _ => None,
    }
}

fn truth(value: &Value) -> Option<bool> {
    match as_text(value).trim().to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "on" | "1" => Some(true),
        "false" | "f" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// JSON: a text that is JSON as it is, any other text as a JSON text.
fn json(value: &Value) -> String {
    match value {
        Value::String(text) if serde_json::from_str::<Value>(text).is_ok() => text.clone(),
        other => other.to_string(),
    }
}

/// Bytes: base64, as a result has them, or `\x` and hex digits.
fn binary(text: &str) -> Option<Vec<u8>> {
    match text.strip_prefix("\\x") {
        Some(digits) => hex(digits),
        None => STANDARD.decode(text).ok(),
    }
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = digits.chars().map(|digit| u8::try_from(digit.to_digit(16)?).ok()).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

fn moment(of: &str, text: &str) -> Option<Vec<u8>> {
    let epoch = epoch()?;
    match of {
        "DATE" => {
            let date = text.trim().parse::<NaiveDate>().ok().or_else(|| Some(parse_moment(text)?.date()))?;
            Some(i32::try_from((date - epoch).num_days()).ok()?.to_be_bytes().into())
        }
        "TIME" => {
            let time: NaiveTime = text.trim().parse().ok()?;
            let micros = i64::from(time.num_seconds_from_midnight()) * 1_000_000 + i64::from(time.nanosecond() / 1_000);
            Some(micros.to_be_bytes().into())
        }
        _ => {
            let since = parse_moment(text)? - epoch.and_time(NaiveTime::MIN);
            Some(since.num_microseconds()?.to_be_bytes().into())
        }
    }
}

/// An array of one dimension.
fn list(value: &Value, element: &PgTypeInfo) -> Result<Vec<u8>, String> {
    let Value::Array(items) = value else {
        return Err(format!("is no list, and the statement needs a list of `{element}` there; give a list"));
    };
    let oid = element.oid().ok_or_else(|| format!("is a list of the unknown type `{element}`; cast the reference"))?;
    let length = i32::try_from(items.len()).map_err(|_| "is a list with too many items; shorten it".to_owned())?;
    let has_null = i32::from(items.iter().any(Value::is_null));
    let mut found: Vec<u8> = Vec::new();
    let dimensions = i32::from(!items.is_empty());
    found.extend([dimensions, has_null].iter().flat_map(|word| word.to_be_bytes()));
    found.extend(oid.0.to_be_bytes());
    if !items.is_empty() {
        found.extend([length, 1].iter().flat_map(|word| word.to_be_bytes()));
    }
    for item in items {
        if item.is_null() {
            found.extend((-1_i32).to_be_bytes());
            continue;
        }
        let bytes = bytes(item, element)?;
        let length = i32::try_from(bytes.len()).map_err(|_| "has an item that is too long".to_owned())?;
        found.extend(length.to_be_bytes());
        found.extend(bytes);
    }
    Ok(found)
}
