//! Points in time as they are stored and sent.

use chrono::{DateTime, SecondsFormat, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::Duration;

/// A point in time with millisecond precision, UTC.
///
/// JSON has an RFC 3339 text with milliseconds, BSON a date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(
    with = "String",
    description = "RFC 3339 text. Responses have UTC with milliseconds; requests may have any offset",
    extend("format" = "date-time")
)]
pub struct Timestamp(i64);

impl Timestamp {
    /// A timestamp from milliseconds since the Unix epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// This time plus `duration`, saturating.
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// This time minus `duration`, saturating.
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The calendar day (UTC), such as `2026-01-02`.
    pub fn day(self) -> String {
        let mut text = self.to_string();
        text.truncate(text.find('T').unwrap_or(text.len()));
        text
    }

    /// The duration from `self` to `later`; zero if `later` is earlier than `self`.
    pub fn until(self, later: Self) -> Duration {
        Duration::from_millis(u64::try_from(later.0.saturating_sub(self.0)).unwrap_or(0))
    }
}

impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match DateTime::<Utc>::from_timestamp_millis(self.0) {
            Some(time) => f.write_str(&time.to_rfc3339_opts(SecondsFormat::Millis, true)),
            None => write!(f, "{}ms", self.0),
        }
    }
}

impl std::str::FromStr for Timestamp {
    type Err = chrono::ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        DateTime::parse_from_rfc3339(text).map(|time| Self(time.timestamp_millis()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            bson::DateTime::from_millis(self.0).serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let text = String::deserialize(deserializer)?;
            text.parse().map_err(|_| {
                serde::de::Error::custom(format!("`{text}` is not an RFC 3339 time such as `2026-01-02T03:04:05.000Z`"))
            })
        } else {
            bson::DateTime::deserialize(deserializer).map(|date| Self(date.timestamp_millis()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_milliseconds_and_bson_a_date() {
        let time: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        assert_eq!(serde_json::to_string(&time).unwrap(), r#""2026-01-02T03:04:05.000Z""#);
        assert_eq!(time.day(), "2026-01-02");
        #[derive(Serialize, Deserialize)]
        struct Holder {
            at: Timestamp,
        }
        let bytes = bson::serialize_to_vec(&Holder { at: time }).unwrap();
        let document: bson::Document = bson::deserialize_from_slice(&bytes).unwrap();
        assert_eq!(document.get_datetime("at").unwrap().timestamp_millis(), time.as_millis());
        let back: Holder = bson::deserialize_from_slice(&bytes).unwrap();
        assert_eq!(back.at, time);
    }
}
