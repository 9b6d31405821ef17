//! Reads columns in the binary format of PostgreSQL.

use super::decimal;
use crate::json;
use chrono::{DateTime, Days, NaiveDate, NaiveDateTime, NaiveTime, SecondsFormat, TimeDelta};
use serde_json::Value;
use sqlx::TypeInfo;
use sqlx::postgres::{PgTypeInfo, PgTypeKind};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The deepest nesting of lists that is read.
const MAX_DIMENSIONS: usize = 6;

/// The JSON of a value that is not NULL. `None` for types that cannot be read.
pub(super) fn value(bytes: &[u8], of: &PgTypeInfo) -> Option<Value> {
    match of.kind() {
        PgTypeKind::Array(element) => return list(bytes, element),
        PgTypeKind::Domain(base) => return value(bytes, base),
        PgTypeKind::Enum(_) => return Some(json::text(bytes)),
        _ => {}
    }
    Some(match of.name() {
        "BOOL" => Value::Bool(*bytes.first()? != 0),
        "INT2" => i16::from_be_bytes(bytes.try_into().ok()?).into(),
        "INT4" => i32::from_be_bytes(bytes.try_into().ok()?).into(),
        "INT8" => i64::from_be_bytes(bytes.try_into().ok()?).into(),
        "OID" => u32::from_be_bytes(bytes.try_into().ok()?).into(),
        "FLOAT4" => json::single(f32::from_be_bytes(bytes.try_into().ok()?)),
        "FLOAT8" => json::float(f64::from_be_bytes(bytes.try_into().ok()?)),
        "NUMERIC" => json::decimal(&decimal::read(bytes)?),
        "JSON" => json::json(std::str::from_utf8(bytes).ok()?),
        // The first byte is the version of the format.
        "JSONB" => json::json(std::str::from_utf8(bytes.get(1..)?).ok()?),
        "BYTEA" => json::bytes(bytes),
        "TEXT" | "VARCHAR" | "CHAR" | "NAME" | "\"CHAR\"" | "UNKNOWN" | "XML" | "CITEXT" | "citext" => {
            json::text(bytes)
        }
        "VOID" => Value::Null,
        other => Value::String(formatted(other, bytes)?),
    })
}

/// The text of a type that has its own format.
fn formatted(of: &str, bytes: &[u8]) -> Option<String> {
    match of {
        "UUID" => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let parts = [hex.get(..8)?, hex.get(8..12)?, hex.get(12..16)?, hex.get(16..20)?, hex.get(20..)?];
            Some(parts.join("-"))
        }
        "DATE" => date(i32::from_be_bytes(bytes.try_into().ok()?)),
        "TIME" => time(i64::from_be_bytes(bytes.try_into().ok()?)),
        "TIMETZ" => {
            let west = i32::from_be_bytes(bytes.get(8..12)?.try_into().ok()?);
            let (sign, minutes) = (if west > 0 { '-' } else { '+' }, west.abs() / 60);
            let time = time(i64::from_be_bytes(bytes.get(..8)?.try_into().ok()?))?;
            Some(format!("{time}{sign}{:02}:{:02}", minutes / 60, minutes % 60))
        }
        "TIMESTAMP" => moment(bytes, |moment| moment.format("%Y-%m-%dT%H:%M:%S%.f").to_string()),
        "TIMESTAMPTZ" => moment(bytes, |moment| moment.and_utc().to_rfc3339_opts(SecondsFormat::AutoSi, true)),
        "INTERVAL" => interval(bytes),
        "INET" | "CIDR" => address(bytes),
        _ => None,
    }
}

/// The first day of the format.
pub(super) const fn epoch() -> Option<NaiveDate> {
    NaiveDate::from_ymd_opt(2000, 1, 1)
}

fn date(days: i32) -> Option<String> {
    let epoch = epoch()?;
    let date = match days {
        i32::MAX => return Some("infinity".into()),
        i32::MIN => return Some("-infinity".into()),
        0.. => epoch.checked_add_days(Days::new(days.unsigned_abs().into())),
        _ => epoch.checked_sub_days(Days::new(days.unsigned_abs().into())),
    };
    Some(date?.to_string())
}

fn time(micros: i64) -> Option<String> {
    let seconds = u32::try_from(micros / 1_000_000).ok()?;
    let nanos = u32::try_from(micros % 1_000_000).ok()? * 1_000;
    // The server also has the time 24:00:00.
    let Some(time) = NaiveTime::from_num_seconds_from_midnight_opt(seconds, nanos) else {
        return Some("24:00:00".into());
    };
    Some(time.format("%H:%M:%S%.f").to_string())
}

fn moment(bytes: &[u8], format: impl Fn(NaiveDateTime) -> String) -> Option<String> {
    match i64::from_be_bytes(bytes.try_into().ok()?) {
        i64::MAX => Some("infinity".into()),
        i64::MIN => Some("-infinity".into()),
        micros => {
            let epoch = epoch()?.and_time(NaiveTime::MIN);
            epoch.checked_add_signed(TimeDelta::microseconds(micros)).map(format)
        }
    }
}

/// A duration as in ISO 8601.
fn interval(bytes: &[u8]) -> Option<String> {
    let micros = i64::from_be_bytes(bytes.get(..8)?.try_into().ok()?);
    let days = i32::from_be_bytes(bytes.get(8..12)?.try_into().ok()?);
    let months = i32::from_be_bytes(bytes.get(12..16)?.try_into().ok()?);
    let mut text = "P".to_owned();
    if months != 0 {
        text.push_str(&format!("{months}M"));
    }
    if days != 0 {
        text.push_str(&format!("{days}D"));
    }
    if micros != 0 || text.len() == 1 {
        let (sign, micros) = (if micros < 0 { "-" } else { "" }, micros.unsigned_abs());
        let fraction = format!(".{:06}", micros % 1_000_000);
        text.push_str(&format!("T{sign}{}{}S", micros / 1_000_000, fraction.trim_end_matches(['0', '.'])));
    }
    Some(text)
}

fn address(bytes: &[u8]) -> Option<String> {
    let [family, bits, _, _, rest @ ..] = bytes else { return None };
    let (address, all) = match (family, rest.len()) {
        (2, 4) => (Ipv4Addr::from(<[u8; 4]>::try_from(rest).ok()?).to_string(), 32),
        (3, 16) => (Ipv6Addr::from(<[u8; 16]>::try_from(rest).ok()?).to_string(), 128),
        _ => return None,
    };
    Some(if *bits == all { address } else { format!("{address}/{bits}") })
}

/// An array: the number of dimensions, flags, the type; for each dimension its length and first index; the elements.
fn list(bytes: &[u8], element: &PgTypeInfo) -> Option<Value> {
    let word = |at: usize| Some(i32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let dimensions = usize::try_from(word(0)?).ok().filter(|count| *count <= MAX_DIMENSIONS)?;
    let lengths: Option<Vec<usize>> = (0..dimensions).map(|at| usize::try_from(word(12 + 8 * at)?).ok()).collect();
    let mut rest = bytes.get(12 + 8 * dimensions..)?;
    if dimensions == 0 {
        return Some(Value::Array(Vec::new()));
    }
    nested(&mut rest, &lengths?, element)
}

fn nested(rest: &mut &[u8], lengths: &[usize], element: &PgTypeInfo) -> Option<Value> {
    let Some((length, inner)) = lengths.split_first() else { return self::element(rest, element) };
    let items: Option<Vec<Value>> = (0..*length).map(|_| nested(rest, inner, element)).collect();
    items.map(Value::Array)
}

fn element(rest: &mut &[u8], element: &PgTypeInfo) -> Option<Value> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
        *rest = after;
        return Some(Value::Null);
    };
    let (bytes, after) = after.split_at_checked(length)?;
    *rest = after;
    value(bytes, element)
}

/// Reads a moment with or without a zone, for parameters.
pub(super) fn parse_moment(text: &str) -> Option<NaiveDateTime> {
    let text = text.trim();
    let with_zone = || {
        let formats = ["%Y-%m-%dT%H:%M:%S%.f%#z", "%Y-%m-%d %H:%M:%S%.f%#z"];
        formats.iter().find_map(|format| DateTime::parse_from_str(text, format).ok()).map(|moment| moment.naive_utc())
    };
    let without = || {
        let formats = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"];
        formats.iter().find_map(|format| NaiveDateTime::parse_from_str(text, format).ok())
    };
    let rfc3339 = || DateTime::parse_from_rfc3339(text).ok().map(|moment| moment.naive_utc());
    let date = || text.parse::<NaiveDate>().ok().map(|date| date.and_time(NaiveTime::MIN));
    rfc3339().or_else(with_zone).or_else(without).or_else(date)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_with_a_format_of_their_own_are_read() {
        assert_eq!(formatted("DATE", &9_617_i32.to_be_bytes()).unwrap(), "2026-05-01");
        assert_eq!(formatted("DATE", &(-1_i32).to_be_bytes()).unwrap(), "1999-12-31");
        assert_eq!(formatted("TIME", &3_661_500_000_i64.to_be_bytes()).unwrap(), "01:01:01.500");
        assert_eq!(formatted("TIMESTAMPTZ", &0_i64.to_be_bytes()).unwrap(), "2000-01-01T00:00:00Z");
        assert_eq!(formatted("TIMESTAMP", &1_i64.to_be_bytes()).unwrap(), "2000-01-01T00:00:00.000001");
        assert_eq!(formatted("INET", &[2, 24, 0, 4, 10, 0, 0, 1]).unwrap(), "10.0.0.1/24");
        let interval = [&1_500_000_i64.to_be_bytes()[..], &2_i32.to_be_bytes(), &14_i32.to_be_bytes()].concat();
        assert_eq!(formatted("INTERVAL", &interval).unwrap(), "P14M2DT1.5S");
        assert_eq!(formatted("POINT", &[0; 16]), None);
        assert_eq!(parse_moment("2026-05-01T09:00:00+08:00").unwrap().to_string(), "2026-05-01 01:00:00");
        assert!(parse_moment("2026-05-01 09:00").is_some() && parse_moment("tomorrow").is_none());
    }
}
