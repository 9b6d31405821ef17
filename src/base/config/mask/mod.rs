//! Finds and masks secrets in texts, in every spelling: plain, percent-encoded, escaped as in JSON, as HTML entities,
//! in base64 or hexadecimal ([`forms`]), and one encoding within another.
//!
//! The text is decoded step by step, and searched after each step. A secret may itself contain something that looks
//! like an escape, so it is decoded in the same way. [`pieces`] masks a text that arrives in pieces.

mod forms;
pub mod pieces;

/// The replacement for a secret.
pub const MASK: &str = "***";

/// Values with fewer bytes are not masked: they are unlikely to be secrets, and masking each `1` would garble every
/// text.
pub const MIN_SECRET_BYTES: usize = 4;

/// How many times a text is decoded. APIs rarely nest more than JSON in a form in JSON.
const MAX_DECODING_STEPS: usize = 5;

/// A decoded escape as UTF-8: its bytes and their number. An escape stands for at most one character.
type Decoded = ([u8; 4], usize);

/// Replaces known values in texts.
#[derive(Clone)]
pub struct Masker {
    /// The secrets in all their forms, sorted.
    secrets: Vec<Vec<u8>>,
    /// For each first byte, where its secrets begin and end in the list.
    begins: Vec<(usize, usize)>,
}

impl Default for Masker {
    fn default() -> Self {
        Self::new([])
    }
}

impl Masker {
    /// Creates a masker for these values. White space around a value is ignored.
    pub fn new(values: impl IntoIterator<Item = String>) -> Self {
        let mut secrets = Vec::new();
        for value in values.into_iter().filter(|value| value.trim().len() >= MIN_SECRET_BYTES) {
            let value = value.trim().to_owned();
            for form in forms::forms(&value).into_iter().chain([value]) {
                secrets.extend(views(&form).map(|view| view.bytes).filter(|bytes| bytes.len() >= MIN_SECRET_BYTES));
            }
        }
        secrets.sort();
        secrets.dedup();
        let before = |byte: u16| secrets.partition_point(|secret: &Vec<u8>| u16::from(secret[0]) < byte);
        let begins = (0..256).map(|byte| (before(byte), before(byte + 1))).collect();
        Self { secrets, begins }
    }

    /// The secrets that begin with this byte.
    fn beginning_with(&self, byte: u8) -> &[Vec<u8>] {
        let (begin, end) = self.begins[usize::from(byte)];
        &self.secrets[begin..end]
    }

    /// Replaces every known value in `text` with [`MASK`].
    pub fn mask(&self, text: &str) -> String {
        let found = self.found(text);
        let (mut masked, mut at) = (String::with_capacity(text.len()), 0);
        let mut found = found.into_iter().peekable();
        while let Some((begin, mut end)) = found.next() {
            while let Some((_, other)) = found.next_if(|(other, _)| *other < end) {
                end = end.max(other);
            }
            masked.push_str(text.get(at..begin).unwrap_or_default());
            masked.push_str(MASK);
            at = end;
        }
        masked.push_str(text.get(at..).unwrap_or_default());
        masked
    }

    /// Start and end of each secret in the text, sorted. Ranges may overlap.
    fn found(&self, text: &str) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        if !self.secrets.is_empty() {
            views(text).for_each(|view| self.find(&view, &mut found));
        }
        found.sort_unstable();
        found
    }

    /// Adds the ranges of secrets in this view, as positions in the original text.
    fn find(&self, view: &View, found: &mut Vec<(usize, usize)>) {
        let mut at = 0;
        while let Some(byte) = view.bytes.get(at) {
            let here = |secret: &&Vec<u8>| view.bytes[at..].starts_with(secret);
            match self.beginning_with(*byte).iter().filter(here).map(Vec::len).max() {
                Some(length) => {
                    found.push((view.origins[at], view.origins[at + length]));
                    at += length;
                }
                None => at += 1,
            }
        }
    }
}

/// The text, followed by its form after each step of decoding.
fn views(text: &str) -> impl Iterator<Item = View> {
    std::iter::successors(Some(View::from_text(text)), View::decoded).take(MAX_DECODING_STEPS + 1)
}

/// A text after some steps of decoding.
struct View {
    bytes: Vec<u8>,
    /// For each byte its position in the original text, and at last the end of that text.
    origins: Vec<usize>,
}

impl View {
    fn from_text(text: &str) -> Self {
        Self { bytes: text.bytes().map(blank).collect(), origins: (0..=text.len()).collect() }
    }

    /// The view after the next step; `None` if there is nothing to decode.
    fn decoded(&self) -> Option<Self> {
        let mut next =
            Self { bytes: Vec::with_capacity(self.bytes.len()), origins: Vec::with_capacity(self.origins.len()) };
        let (mut at, mut changed) = (0, false);
        while at < self.bytes.len() {
            let ((bytes, count), length) = escape(&self.bytes[at..]).unwrap_or((([self.bytes[at], 0, 0, 0], 1), 1));
            changed |= length > 1;
            next.bytes.extend(bytes[..count].iter().copied().map(blank));
            next.origins.extend(std::iter::repeat_n(self.origins[at], count));
            at += length;
        }
        next.origins.extend(self.origins.last());
        changed.then_some(next)
    }
}

/// Treats `+` as a space, because forms encode a space as `+`.
fn blank(byte: u8) -> u8 {
    if byte == b'+' { b' ' } else { byte }
}

/// Decodes the escape at the beginning of `text`. Returns the character and the length of the escape.
fn escape(text: &[u8]) -> Option<(Decoded, usize)> {
    let byte = |byte: u8, length: usize| Some((([byte, 0, 0, 0], 1), length));
    match text {
        [b'%', high, low, ..] => byte(u8::try_from(hex(&[*high, *low])?).ok()?, 3),
        [b'\\', b'u', ..] => unicode(text),
        [b'\\', letter, ..] => {
            let plain = match letter {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'b' => 8,
                b'f' => 12,
                b'"' | b'\\' | b'/' | b'\'' => *letter,
                _ => return None,
            };
            byte(plain, 2)
        }
        [b'&', ..] => entity(text),
        _ => None,
    }
}

/// Decodes `\u` with four hex digits, or a surrogate pair of them.
fn unicode(text: &[u8]) -> Option<(Decoded, usize)> {
    let unit = |at: usize| match text.get(at..at + 6)? {
        [b'\\', b'u', digits @ ..] => hex(digits),
        _ => None,
    };
    let first = unit(0)?;
    match char::from_u32(first) {
        Some(char) => Some((encoded(char), 6)),
        None => {
            let second = unit(6).filter(|second| (0xdc00..0xe000).contains(second))?;
            let code = 0x10000 + ((first.checked_sub(0xd800)?) << 10) + (second - 0xdc00);
            Some((encoded(char::from_u32(code)?), 12))
        }
    }
}

/// Decodes an entity of HTML or XML, such as `&amp;`, `&#38;` or `&#x26;`.
fn entity(text: &[u8]) -> Option<(Decoded, usize)> {
    let end = text.iter().take(10).position(|byte| *byte == b';')?;
    let char = match &text[1..end] {
        b"amp" => '&',
        b"lt" => '<',
        b"gt" => '>',
        b"quot" => '"',
        b"apos" => '\'',
        [b'#', b'x' | b'X', digits @ ..] => char::from_u32(hex(digits)?)?,
        [b'#', digits @ ..] => char::from_u32(std::str::from_utf8(digits).ok()?.parse().ok()?)?,
        _ => return None,
    };
    Some((encoded(char), end + 1))
}

fn hex(digits: &[u8]) -> Option<u32> {
    let legal = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
    legal.then(|| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()).flatten()
}

fn encoded(char: char) -> Decoded {
    let mut bytes = [0; 4];
    let count = char.encode_utf8(&mut bytes).len();
    (bytes, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "s e/c\"r&t<%25>中😀";

    fn masker() -> Masker {
        Masker::new([SECRET.to_owned(), "s3cret-token".into(), "s3cret".into(), "abc".into(), String::new()])
    }

    #[test]
    fn every_spelling_of_a_secret_is_hidden() {
        let form_encoded = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let form = form_encoded(SECRET);
        let json = serde_json::to_string(SECRET).unwrap();
        for spelled in [
            SECRET.to_owned(),
            form.clone(),
            form.to_lowercase(),
            form.replace('+', "%20"),
            json.trim_matches('"').to_owned(),
            json.trim_matches('"').replace('/', "\\/").replace('中', "\\u4e2d").replace('😀', "\\ud83d\\uDE00"),
            // In a URL some characters are encoded and others are not.
            url::Url::parse(&format!("http://h/{SECRET}")).unwrap().path()[1..].to_owned(),
            SECRET.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&#34;").replace('>', "&#x3E;"),
            // One encoding within another.
            form_encoded(&form),
            form_encoded(json.trim_matches('"')),
            serde_json::to_string(json.trim_matches('"')).unwrap().trim_matches('"').to_owned(),
        ] {
            assert_eq!(masker().mask(&format!("a {spelled}{spelled} b")), "a ****** b", "{spelled}");
        }
    }

    #[test]
    fn the_longest_is_hidden_as_a_whole_and_all_else_stays() {
        let text = "s3cret-token s3cret s3cre 你好 %41 \\u12 &amp; abc +%";
        assert_eq!(masker().mask(text), "*** *** s3cre 你好 %41 \\u12 &amp; abc +%");
        assert_eq!(Masker::default().mask(text), text);
    }

    #[test]
    fn a_broken_escape_is_text() {
        for text in ["%", "%4", "%zz", "\\", "\\u", "\\ud83d", "\\ud83d\\u0041", "\\udc00", "&#x110000;", "&;", "&#;"] {
            assert_eq!(masker().mask(text), text);
        }
    }
}
