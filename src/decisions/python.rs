//! The scripts of a payload, and a look at them for names that no script may use. It gives a model an early and readable
//! error. The sandbox isolates scripts, not this look: names that are built at run time pass it.

use crate::limits::MAX_CODE_BYTES;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The scripts in a payload, so that a compiler can judge them before the validator does. Scripts that are too large are
/// omitted.
pub fn scripts(payload: &Map<String, Value>) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    collect(payload, &mut found);
    found.retain(|code| code.len() <= MAX_CODE_BYTES);
    found
}

fn collect<'v>(fields: &'v Map<String, Value>, found: &mut BTreeSet<&'v str>) {
    for (name, field) in fields {
        match field {
            // A change of a node names the field by its path.
            Value::String(code) if name == "code" || name.ends_with(".code") => drop(found.insert(code)),
            Value::Object(fields) => collect(fields, found),
            Value::Array(items) => items.iter().filter_map(Value::as_object).for_each(|item| collect(item, found)),
            _ => {}
        }
    }
}

/// Names outside of texts and comments, each with the remedy.
const NAMES: &[(&str, &str)] = &[
    ("os.environ", "pass the value by `input_mapping`"),
    ("os.getenv", "pass the value by `input_mapping`"),
    ("os.system", "scripts start no processes"),
    ("os.popen", "scripts start no processes"),
    ("subprocess", "scripts start no processes"),
    ("socket", "call an API with an HTTP node"),
    ("ctypes", "use plain Python"),
    ("importlib", "import modules by their names"),
    ("__import__", "import modules by their names"),
];

/// Paths in texts.
const PATHS: &[&str] = &["/etc/", "/proc/", "/sys/", "~/.ssh"];

/// A name or path that no script may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forbidden {
    /// The line, from 1.
    pub(crate) line: usize,
    /// The name or path.
    pub(crate) name: &'static str,
    /// How to do without it.
    pub(crate) remedy: &'static str,
}

/// The forbidden names and paths in a script, each once, in the order of the lines.
pub(crate) fn forbidden(code: &str) -> Vec<Forbidden> {
    let mut found: Vec<Forbidden> = Vec::new();
    let mut add = |line, name, remedy| {
        if found.iter().all(|known| known.name != name) {
            found.push(Forbidden { line, name, remedy });
        }
    };
    let mut scanner = Scanner { code, at: 0, line: 1 };
    // The last two words, so that `os.environ` and `from os import environ` are found.
    let (mut module, mut before) = ("", "");
    while let Some(token) = scanner.next() {
        let line = scanner.line;
        match token {
            Token::Text(text) => {
                let begin = line - text.matches('\n').count();
                for path in PATHS {
                    if let Some(at) = text.find(path) {
                        add(begin + text[..at].matches('\n').count(), path, "scripts read and write no files");
                    }
                }
                (module, before) = ("", "");
            }
            Token::Word(word) => {
                for (name, remedy) in NAMES {
                    let is_found = match name.split_once('.') {
                        Some((owner, name)) => name == word && (before == owner || module == owner),
                        None => *name == word,
                    };
                    if is_found {
                        add(line, name, remedy);
                    }
                }
                if before == "from" {
                    module = word;
                }
                before = word;
            }
            Token::Line => (module, before) = ("", ""),
            Token::Sign(sign) => {
                if sign != '.' {
                    before = "";
                }
            }
        }
    }
    found
}

enum Token<'a> {
    Word(&'a str),
    /// The inside of a text, which may have several lines.
    Text(&'a str),
    Line,
    Sign(char),
}

struct Scanner<'a> {
    code: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Scanner<'a> {
    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            let rest = &self.code[self.at..];
            let first = rest.chars().next()?;
            match first {
                '\n' => {
                    self.at += 1;
                    self.line += 1;
                    return Some(Token::Line);
                }
                '#' => self.at += rest.find('\n').unwrap_or(rest.len()),
                '"' | '\'' => return Some(Token::Text(self.text(rest, first))),
                _ if first.is_whitespace() => self.at += first.len_utf8(),
                _ if first.is_alphanumeric() || first == '_' => {
                    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
                    self.at += end;
                    return Some(Token::Word(&rest[..end]));
                }
                _ => {
                    self.at += first.len_utf8();
                    return Some(Token::Sign(first));
                }
            }
        }
    }

    /// The inside of the text that begins with `quote`. A text that is not closed ends with its line, or with the code.
    fn text(&mut self, rest: &'a str, quote: char) -> &'a str {
        let triple = [quote; 3].iter().collect::<String>();
        let is_triple = rest.starts_with(&triple);
        let begin = if is_triple { 3 } else { 1 };
        let mut escaped = false;
        for (at, c) in rest[begin..].char_indices() {
            let place = begin + at;
            let closes = match is_triple {
                true => rest[place..].starts_with(&triple),
                false => c == quote || c == '\n',
            };
            if escaped {
                escaped = false;
            } else if c == '\\' {
                escaped = true;
            } else if closes {
                let inside = &rest[begin..place];
                self.at += place + if is_triple { 3 } else { usize::from(c == quote) };
                self.line += inside.matches('\n').count();
                return inside;
            }
        }
        self.at = self.code.len();
        self.line += rest.matches('\n').count();
        &rest[begin.min(rest.len())..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &str) -> Vec<(usize, &'static str)> {
        forbidden(code).into_iter().map(|found| (found.line, found.name)).collect()
    }

    #[test]
    fn scripts_are_found_at_every_level() {
        let payload = serde_json::json!({"nodes": [{"config": {"code": "a"}},
            {"config": {"body": {"nodes": [{"config": {"code": "b"}}]}}}, {"config": {"code": "x".repeat(70_000)}}],
            "modifications": {"config.code": "c"}, "code": 1});
        assert_eq!(scripts(payload.as_object().unwrap()), ["a", "b", "c"].into());
    }

    #[test]
    fn names_and_paths_are_found_with_their_line() {
        assert_eq!(found("import os\nreturn os.environ"), [(2, "os.environ")]);
        assert_eq!(found("from os import path, getenv"), [(1, "os.getenv")]);
        assert_eq!(found("\n\nsubprocess.run(['ls'])"), [(3, "subprocess")]);
        assert_eq!(found("x = '''a\n/etc/passwd'''\n__import__('x')"), [(2, "/etc/"), (3, "__import__")]);
        assert_eq!(found("open(f\"/proc/{x}\")"), [(1, "/proc/")]);
        assert_eq!(found("a = 'x\nimport socket"), [(2, "socket")]);
    }

    #[test]
    fn comments_texts_and_longer_words_are_harmless() {
        for code in [
            "# subprocess\nreturn 1",
            "return 'subprocess'",
            "my_socket = 1",
            "x.environ = 1",
            "environ = os",
            "s = \"it's \\\" # socket\"",
            "",
            "'''",
            "'",
        ] {
            assert_eq!(found(code), [], "{code}");
        }
    }
}
