//! The forms in which an API may repeat a secret: as it is, in base64 or hexadecimal, alone or within a longer text, and the
//! login that a secret for HTTP Basic encodes.

use super::MIN_SECRET_BYTES;
use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Secrets below this size have too few characters in base64 that do not depend on the text around them.
const MIN_ENCODED_WITHIN: usize = 6;

const UNPADDED: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_encode_padding(false).with_decode_padding_mode(DecodePaddingMode::Indifferent);
const ENGINES: [GeneralPurpose; 2] =
    [GeneralPurpose::new(&STANDARD, UNPADDED), GeneralPurpose::new(&URL_SAFE, UNPADDED)];

/// All forms of a secret, without the secret itself.
pub(super) fn forms(secret: &str) -> Vec<String> {
    let mut found: Vec<String> = login(secret).into_iter().flatten().collect();
    let plain: Vec<String> = std::iter::once(secret.to_owned()).chain(found.iter().cloned()).collect();
    for text in plain {
        let bytes = text.as_bytes();
        for engine in &ENGINES {
            let whole = engine.encode(bytes);
            // With its padding, so that none of it stays behind the mask.
            found.push(format!("{whole}{}", &"=="[..(4 - whole.len() % 4) % 4 % 3]));
            found.push(whole);
            if bytes.len() >= MIN_ENCODED_WITHIN {
                found.extend((0..3).map(|offset| within(engine, bytes, offset)));
            }
        }
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        found.extend([hex.to_uppercase(), hex]);
    }
    found
}

/// The characters that the secret alone determines, in the base64 of a longer text. The secret begins `offset` bytes after a
/// group of three.
fn within(engine: &GeneralPurpose, secret: &[u8], offset: usize) -> String {
    let text = engine.encode([&vec![0; offset], secret].concat());
    let (begin, end) = ((offset * 8).div_ceil(6), (offset + secret.len()) * 8 / 6);
    text[begin..end].to_owned()
}

/// The login and its password, if the secret is the base64 of `user:password`, with or without `Basic` before it.
fn login(secret: &str) -> Option<[String; 2]> {
    let encoded = match secret.split_once(' ') {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("basic") => rest.trim(),
        _ => secret,
    };
    let decoded = ENGINES.iter().find_map(|engine| engine.decode(encoded).ok())?;
    let login = String::from_utf8(decoded).ok().filter(|login| !login.contains(char::is_control))?;
    let password = login.split_once(':')?.1.to_owned();
    // A short password is masked within its login only.
    let password = if password.len() < MIN_SECRET_BYTES { login.clone() } else { password };
    Some([login, password])
}

#[cfg(test)]
mod tests {
    use super::super::Masker;
    use super::*;

    const SECRET: &str = "s3cret/+token?>~";

    fn engine() -> GeneralPurpose {
        ENGINES[0].clone()
    }

    #[test]
    fn encoded_secrets_are_masked_alone_and_within_texts() {
        let masker = Masker::new([SECRET.to_owned()]);
        for engine in &ENGINES {
            assert_eq!(masker.mask(&format!("a {} b", engine.encode(SECRET))), "a *** b");
            for before in ["", "x", "xy", "user:", "订"] {
                for after in ["", "z", "zz", "\n{}"] {
                    let encoded = engine.encode(format!("{before}{SECRET}{after}"));
                    let masked = masker.mask(&encoded);
                    assert!(masked.contains("***") && masked.len() <= encoded.len() - 17, "{before} {after}: {masked}");
                }
            }
        }
        let padded = base64::engine::general_purpose::STANDARD.encode(SECRET);
        assert_eq!(
            masker.mask(&format!("{{\"k\":\"{padded}\"}} {}", padded.replace('+', "%2B"))),
            "{\"k\":\"***\"} ***"
        );
        let hex: String = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(masker.mask(&format!("{hex} 00{}00", hex.to_uppercase())), "*** 00***00");
        let plain = "c2VjcmV0 73656372 SGVsbG8= hello";
        assert_eq!(masker.mask(plain), plain, "other texts stay");
    }

    #[test]
    fn the_login_of_basic_is_masked_decoded() {
        let encoded = engine().encode("shop:pa55-w0rd");
        for secret in [encoded.clone(), format!("Basic {encoded}"), format!("basic {encoded}=")] {
            let masker = Masker::new([secret]);
            assert_eq!(masker.mask("login shop:pa55-w0rd, pa55-w0rd of shop"), "login ***, *** of shop");
        }
        let no_login = Masker::new([engine().encode("no login at all")]);
        assert_eq!(no_login.mask("no login at all"), "no login at all");
        let short = Masker::new([engine().encode("shop:abc")]);
        assert_eq!(short.mask("shop:abc abc"), "*** abc");
    }
}
