//! Decimals in the binary format of PostgreSQL: groups of four decimal digits.

const POSITIVE: u16 = 0x0000;
const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xC000;
const INFINITE: u16 = 0xD000;
const MINUS_INFINITE: u16 = 0xF000;
/// The most digits that are sent before the point; the server accepts 131,072.
const MAX_DIGITS: i64 = 100_000;

/// The text of a decimal with its own number of places.
pub(super) fn read(bytes: &[u8]) -> Option<String> {
    let word = |at: usize| Some(u16::from_be_bytes([*bytes.get(2 * at)?, *bytes.get(2 * at + 1)?]));
    let (count, weight, sign, places) = (word(0)?, word(1)?.cast_signed(), word(2)?, usize::from(word(3)?));
    match sign {
        NAN => return Some("NaN".into()),
        INFINITE => return Some("Infinity".into()),
        MINUS_INFINITE => return Some("-Infinity".into()),
        _ => {}
    }
    let group = |at: i32| -> Option<u16> {
        match usize::try_from(at) {
            Ok(at) if at < usize::from(count) => word(4 + at),
            _ => Some(0),
        }
    };
    let weight = i32::from(weight);
    let mut whole = String::new();
    for at in 0..=weight {
        whole.push_str(&format!("{:04}", group(at)?));
    }
    let whole = whole.trim_start_matches('0');
    let mut fraction = String::new();
    let mut at = weight + 1;
    while fraction.len() < places {
        fraction.push_str(&format!("{:04}", group(at)?));
        at += 1;
    }
    let minus = if sign == NEGATIVE { "-" } else { "" };
    let whole = if whole.is_empty() { "0" } else { whole };
    let fraction = fraction.get(..places)?;
    Some(if fraction.is_empty() { format!("{minus}{whole}") } else { format!("{minus}{whole}.{fraction}") })
}

/// The bytes of a decimal such as `-12.50` or `1e-7`. `None` if it is none.
pub(super) fn write(text: &str) -> Option<Vec<u8>> {
    let text = text.trim();
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (NEGATIVE, rest),
        None => (POSITIVE, text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // The digits before the point. Negative if zeros follow the point first.
    let mut before = i64::try_from(whole.len()).ok()?.checked_add(exponent)?;
    if !(-16_000..=MAX_DIGITS).contains(&before) {
        return None;
    }
    let places = (i64::try_from(digits.len()).ok()? - before).clamp(0, 16_383);
    // Groups begin at multiples of four digits from the point.
    let pad = usize::try_from((4 - before.rem_euclid(4)) % 4).ok()?;
    digits.splice(0..0, std::iter::repeat_n(b'0', pad));
    before += i64::try_from(pad).ok()?;
    while !digits.len().is_multiple_of(4) {
        digits.push(b'0');
    }
    let groups = digits.chunks(4).map(|group| group.iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0')));
    let groups: Vec<u16> = groups.collect();
    let weight = i16::try_from(before / 4 - 1).ok()?;
    let mut bytes = Vec::with_capacity(8 + 2 * groups.len());
    for word in [u16::try_from(groups.len()).ok()?, weight.cast_unsigned(), sign, u16::try_from(places).ok()?] {
        bytes.extend(word.to_be_bytes());
    }
    bytes.extend(groups.iter().flat_map(|group| group.to_be_bytes()));
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_written_and_read() {
        for (text, expected) in [
            ("0", "0"),
            ("12", "12"),
            ("-12.50", "-12.50"),
            ("10000", "10000"),
            ("123456789.000100", "123456789.000100"),
            ("0.00001", "0.00001"),
            (".5", "0.5"),
            ("1e3", "1000"),
            ("1.5e-7", "0.00000015"),
            ("1e-9", "0.000000001"),
            ("+7", "7"),
        ] {
            assert_eq!(read(&write(text).unwrap()).unwrap(), expected, "{text}");
        }
        for none in ["", "x", "1.2.3", "-", "1e", "1e999999999999999999", "0x10", "１"] {
            assert_eq!(write(none), None, "{none}");
        }
        assert_eq!(read(&[0, 0, 0, 0, 0xC0, 0, 0, 0]).unwrap(), "NaN");
        assert_eq!(read(&[0, 1]), None);
    }
}
