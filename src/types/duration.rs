//! Durations as texts with a unit (`500ms`, `10s`, `30m`, `2h`, `1d`).

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::time::Duration;

/// Parses `500ms`, `10s`, `30m`, `2h` or `1d`. Fails for any other form, and beyond 100 years.
pub fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let wrong = || {
        format!(
            "`{text}` is not a duration; write a whole number and a unit, such as `500ms`, `10s`, `30m`, `2h` or `1d`"
        )
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let millis = match unit.trim() {
        "ms" => Some(number),
        "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        "d" => number.checked_mul(86_400_000),
        _ => return Err(wrong()),
    };
    // The limit of 100 years keeps every later sum in range.
    millis
        .filter(|millis| *millis <= 36_525 * 86_400_000)
        .map(Duration::from_millis)
        .ok_or_else(|| format!("`{text}` is longer than 100 years"))
}

/// Formats a duration in the largest unit that expresses it exactly.
pub fn format(duration: Duration) -> String {
    let millis = duration.as_millis();
    for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)] {
        if millis >= size && millis.is_multiple_of(size) {
            return format!("{}{unit}", millis / size);
        }
    }
    format!("{millis}ms")
}

/// A duration in the settings: a text with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text(pub Duration);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text).map(Self).map_err(de::Error::custom)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format(self.0))
    }
}

/// A duration in an agent file: a text with a unit, or whole seconds as an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lenient(pub Duration);

impl<'de> Deserialize<'de> for Lenient {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        lenient::deserialize(deserializer).map(Self)
    }
}

impl Serialize for Lenient {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        lenient::serialize(&self.0, serializer)
    }
}

/// Functions for `#[serde(with = …)]` on a [`Duration`]: a text with a unit, or whole seconds as an integer.
pub(crate) mod lenient {
    use super::*;

    struct Visitor;

    impl de::Visitor<'_> for Visitor {
        type Value = Duration;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a duration such as `30s`, `15m`, `2h` or `1d`, or a whole number of seconds")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
            if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
                return parse(&format!("{text}s")).map_err(E::custom);
            }
            parse(text).map_err(E::custom)
        }

        fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Duration, E> {
            parse(&format!("{seconds}s")).map_err(E::custom)
        }

        fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Duration, E> {
            u64::try_from(seconds)
                .map_err(|_| E::custom("a duration cannot be negative"))
                .and_then(|seconds| self.visit_u64(seconds))
        }
    }

    /// Reads a text with a unit, or whole seconds.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        deserializer.deserialize_any(Visitor)
    }

    /// Writes a text with a unit.
    pub(crate) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format(*duration))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_every_unit() {
        for (text, millis) in
            [("500ms", 500), ("10s", 10_000), ("30m", 1_800_000), ("2h", 7_200_000), ("1d", 86_400_000)]
        {
            assert_eq!(parse(text).unwrap(), Duration::from_millis(millis));
            assert_eq!(format(Duration::from_millis(millis)), text);
        }
        for bad in ["", "10", "s", "1.5s", "-1s", "10 years", "99999999999999999999s", "36526d"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn agent_files_may_write_seconds_as_integers() {
        let read = |json: &str| serde_json::from_str::<Lenient>(json).map(|d| d.0);
        assert_eq!(read("90").unwrap(), Duration::from_secs(90));
        assert_eq!(read("\"90\"").unwrap(), Duration::from_secs(90));
        assert_eq!(read("\"15m\"").unwrap(), Duration::from_secs(900));
        assert!(read("-1").unwrap_err().to_string().contains("negative"));
        assert!(read("\"soon\"").unwrap_err().to_string().contains("`soon`"));
    }
}
