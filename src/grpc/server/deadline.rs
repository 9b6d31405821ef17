//! The time limit of a call. The transport applies it only until the response's headers, which are sent immediately.

use http::HeaderMap;
use std::time::Duration;
use tonic::Status;

const HEADER: &str = "grpc-timeout";
/// The most digits of a time limit.
const MAX_DIGITS: usize = 8;

/// The time limit that the caller sends; `None` if it sends none.
pub(super) fn of(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let Some(value) = headers.get(HEADER) else { return Ok(None) };
    let invalid = || Status::invalid_argument("`grpc-timeout` has 1 to 8 digits and a unit: H, M, S, m, u or n");
    value.to_str().ok().and_then(parse).map(Some).ok_or_else(invalid)
}

fn parse(text: &str) -> Option<Duration> {
    let (at, unit) = text.char_indices().next_back()?;
    let digits = &text[..at];
    if digits.len() > MAX_DIGITS || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        'H' => Duration::from_secs(number * 3_600),
        'M' => Duration::from_secs(number * 60),
        'S' => Duration::from_secs(number),
        'm' => Duration::from_millis(number),
        'u' => Duration::from_micros(number),
        'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_limit_has_a_number_and_a_unit() {
        for (text, millis) in [("2H", 7_200_000), ("3M", 180_000), ("5S", 5_000), ("100m", 100), ("7000u", 7)] {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "S", "5", "123456789S", "-1S", "+1S", "1.5S", "5秒"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
