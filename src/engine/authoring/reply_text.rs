//! Parses the words for the user from an answer that the model is still writing: the JSON text `{"reply": "…", …}`.

/// The longest prefix of an answer, in bytes, in which `reply` must begin. Without this limit, white space could be
/// endless.
const MAX_START: usize = 1024;

/// The first characters of an answer, apart from white space.
const START: [&str; 4] = ["{", "\"reply\"", ":", "\""];

/// Parses the `reply` of one answer. If it is not the answer's first field, there are no words to show.
#[derive(Debug, Default)]
pub(super) struct ReplyText {
    place: Place,
    /// The part of the answer that is not parsed yet.
    unread: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Before,
    Within,
    After,
}

/// Where the words begin.
enum Start {
    At(usize),
    Unknown,
    Nowhere,
}

impl ReplyText {
    /// Parses the next piece of the answer. Returns the words in it.
    pub(super) fn push(&mut self, piece: &str) -> String {
        if self.place == Place::After {
            return String::new();
        }
        self.unread.push_str(piece);
        if self.place == Place::Before {
            match start(&self.unread) {
                Start::At(at) => {
                    self.unread.drain(..at);
                    self.place = Place::Within;
                }
                Start::Unknown if self.unread.len() <= MAX_START => return String::new(),
                Start::Unknown | Start::Nowhere => {
                    self.end();
                    return String::new();
                }
            }
        }
        self.words()
    }

    fn end(&mut self) {
        self.place = Place::After;
        self.unread = String::new();
    }

    /// Returns the words in the unparsed part, up to an incomplete escape.
    fn words(&mut self) -> String {
        let (mut words, mut at) = (String::new(), 0);
        loop {
            let rest = &self.unread[at..];
            let plain = rest.find(['"', '\\']).unwrap_or(rest.len());
            words.push_str(&rest[..plain]);
            at += plain;
            let rest = &rest[plain..];
            if rest.is_empty() {
                break;
            }
            match rest.strip_prefix('\\').map(escape) {
                Some(Escape::Char(char, bytes)) => {
                    words.push(char);
                    at += 1 + bytes;
                }
                Some(Escape::Incomplete) => break,
                // The closing quote, or a character that no JSON text contains.
                Some(Escape::Invalid) | None => {
                    self.end();
                    return words;
                }
            }
        }
        self.unread.drain(..at);
        words
    }
}

/// Finds the first character of the words. Skips a byte order mark and the beginning of a code fence.
fn start(text: &str) -> Start {
    let mut rest = text.trim_start_matches('\u{feff}').trim_start();
    if "```".starts_with(rest) {
        return Start::Unknown;
    }
    if let Some(fenced) = rest.strip_prefix("```") {
        rest = fenced.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
    }
    for token in START {
        rest = rest.trim_start();
        match rest.strip_prefix(token) {
            Some(after) => rest = after,
            None if token.starts_with(rest) => return Start::Unknown,
            None => return Start::Nowhere,
        }
    }
    Start::At(text.len() - rest.len())
}

/// A character after a backslash.
enum Escape {
    /// The character, and the bytes of its escape without the backslash.
    Char(char, usize),
    Incomplete,
    Invalid,
}

fn escape(text: &str) -> Escape {
    let Some(&first) = text.as_bytes().first() else { return Escape::Incomplete };
    let char = match first {
        b'"' => '"',
        b'\\' => '\\',
        b'/' => '/',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unicode(&text[1..]),
        _ => return Escape::Invalid,
    };
    Escape::Char(char, 1)
}

/// Reads the digits after `\u`, and those of a second half.
fn unicode(text: &str) -> Escape {
    let high = match unit(text) {
        Ok(unit) => unit,
        Err(other) => return other,
    };
    if let Some(char) = char::from_u32(high) {
        return Escape::Char(char, 5);
    }
    let low = match text[4..].strip_prefix("\\u") {
        Some(second) => unit(second),
        None if "\\u".starts_with(&text[4..]) => Err(Escape::Incomplete),
        None => Err(Escape::Invalid),
    };
    match low {
        Ok(low) if (0xd800..0xdc00).contains(&high) && (0xdc00..0xe000).contains(&low) => {
            let code = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
            char::from_u32(code).map_or(Escape::Invalid, |char| Escape::Char(char, 11))
        }
        Ok(_) => Escape::Invalid,
        Err(other) => other,
    }
}

/// Reads four hexadecimal digits.
fn unit(text: &str) -> Result<u32, Escape> {
    let digits = text.as_bytes().iter().take(4).take_while(|byte| byte.is_ascii_hexdigit()).count();
    match digits {
        4 => u32::from_str_radix(&text[..4], 16).map_err(|_| Escape::Invalid),
        _ if digits == text.len() => Err(Escape::Incomplete),
        _ => Err(Escape::Invalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(pieces: &[&str]) -> String {
        let mut text = ReplyText::default();
        pieces.iter().map(|piece| text.push(piece)).collect()
    }

    /// Pseudo-random numbers, the same in every run.
    fn numbers() -> impl FnMut(usize) -> usize {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        move |below| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % 0xffff).unwrap() % below
        }
    }

    #[test]
    fn every_prefix_of_an_answer_gives_a_prefix_of_its_words() {
        let parts =
            ["你好", "\"", "\\", "\n", "😀", "é", "/", "\u{1}", "u00e4", "{\"reply\":", " ", "\t", "```", "</a>"];
        let mut below = numbers();
        for _ in 0..1_000 {
            let words: String = (0..below(12)).map(|_| parts[below(parts.len())]).collect();
            let mut answer = format!("{{\"reply\":{},\"questions\":[\"x\"]}}", json!(words));
            if below(2) == 0 {
                // Escapes as other writers of JSON make them.
                answer = answer.replace('😀', "\\ud83d\\ude00").replace('é', "\\u00E9").replace('/', "\\/");
            }
            let answer = ["", " \n", "\u{feff}", "```json\n"][below(4)].to_owned() + &answer;
            assert_eq!(read(&[&answer]), words, "{answer}");
            for (at, _) in answer.char_indices() {
                let (before, after) = answer.split_at(at);
                assert!(words.starts_with(&read(&[before])), "{before}");
                assert_eq!(read(&[before, after]), words, "{before}|{after}");
            }
            let chars: Vec<String> = answer.chars().map(String::from).collect();
            assert_eq!(read(&chars.iter().map(String::as_str).collect::<Vec<_>>()), words, "{answer}");
        }
    }

    #[test]
    fn an_answer_that_begins_otherwise_has_no_words() {
        for answer in
            ["", "Sure! {\"reply\":\"a\"}", "{\"ready\":true,\"reply\":\"a\"}", "[\"reply\"]", "{\"replying\":\"a\"}"]
        {
            assert_eq!(read(&[answer]), "", "{answer}");
        }
        assert_eq!(read(&["{\"reply\":null}"]), "");
        assert_eq!(read(&["{", &" ".repeat(5_000), "\"reply\":\"a\"}"]), "", "white space without an end is not kept");
    }

    #[test]
    fn words_end_at_what_is_no_json() {
        assert_eq!(read(&[r#"{"reply":"a\q b"}"#]), "a");
        assert_eq!(read(&[r#"{"reply":"a\ud83d b"}"#]), "a", "half a character");
        assert_eq!(read(&[r#"{"reply":"a\ud83d\u0041"}"#]), "a");
        assert_eq!(read(&[r#"{"reply":"a\u00zz"}"#]), "a");
        let whole: Value = serde_json::from_str(r#"{"reply":"a\ud83d\ude00"}"#).unwrap();
        assert_eq!(read(&[r#"{"reply":"a\ud83d\ude00"}"#]), whole["reply"]);
    }
}
