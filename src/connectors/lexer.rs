//! Finds the first word of a statement and the end of its first statement, with the comments and quotes of each kind.

use base::config::ConnectorKind;

/// The first keyword of a statement in upper case, after comments and opening parentheses. Empty for a statement without one.
pub(crate) fn first_word(sql: &str, kind: ConnectorKind) -> String {
    let mut rest = sql;
    loop {
        rest = rest.trim_start_matches(|sign: char| sign.is_whitespace() || sign == '(');
        match comment(rest, kind) {
            Some(length) => rest = &rest[length..],
            None => break,
        }
    }
    let end = rest.find(|sign: char| !sign.is_ascii_alphabetic()).unwrap_or(rest.len());
    rest[..end].to_ascii_uppercase()
}

/// True if something besides comments follows after the first `;` outside of quotes and comments. The rules are those of
/// SQLite, whose driver executes all statements of a text; servers prepare one only.
#[cfg_attr(not(feature = "sqlite"), allow(dead_code, reason = "only SQLite needs it"))]
pub(crate) fn has_second_statement(sql: &str) -> bool {
    let (mut rest, mut ended) = (sql, false);
    while let Some(first) = rest.chars().next() {
        let length = match comment(rest, ConnectorKind::Sqlite) {
            Some(length) => length,
            None if first == ';' => {
                ended = true;
                1
            }
            None if ended && !first.is_whitespace() => return true,
            None => quoted(rest, first).unwrap_or(first.len_utf8()),
        };
        rest = &rest[length..];
    }
    false
}

/// The length of the comment at the beginning of a text.
fn comment(text: &str, kind: ConnectorKind) -> Option<usize> {
    let until = |end: &str, from: usize| text[from..].find(end).map_or(text.len(), |at| from + at + end.len());
    if text.starts_with("--") || kind == ConnectorKind::Mysql && text.starts_with('#') {
        return Some(until("\n", 1));
    }
    // MySQL executes the text of `/*! … */`, so it is no comment.
    if !text.starts_with("/*") || kind == ConnectorKind::Mysql && text.starts_with("/*!") {
        return None;
    }
    Some(if kind == ConnectorKind::Postgres { nested(text) } else { until("*/", 2) })
}

/// The length of a block comment that may contain others.
fn nested(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        match &text.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// The length of the quoted text that begins with `first`. A doubled quotation mark reads as two texts, which end alike.
fn quoted(text: &str, first: char) -> Option<usize> {
    let end = match first {
        '\'' | '"' | '`' => first,
        '[' => ']',
        _ => return None,
    };
    Some(text[1..].find(end).map_or(text.len(), |at| at + 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ConnectorKind::{Mysql, Postgres, Sqlite};

    #[test]
    fn the_first_word_stands_behind_comments_and_parentheses() {
        assert_eq!(first_word(" -- x\n/* y */ ((select 1))", Sqlite), "SELECT");
        assert_eq!(first_word("/* a /* b */ */ With x", Postgres), "WITH");
        assert_eq!(first_word("/* a /* b */ drop */ delete", Sqlite), "DROP");
        assert_eq!(first_word("# c\nSHOW tables", Mysql), "SHOW");
        for nothing in ["", "  ", "-- only", "/* open", "/*!50000 DROP TABLE x */", "'select'"] {
            assert_eq!(first_word(nothing, Mysql), "", "{nothing}");
        }
    }

    #[test]
    fn a_second_statement_is_found_outside_of_quotes_only() {
        for one in [
            "SELECT 1",
            "SELECT 1; ",
            "SELECT ';x' ;-- y",
            "SELECT \"a;b\", [c;d], `e;f`; /* ;z */ ;",
            "SELECT 'it''s; x'",
        ] {
            assert!(!has_second_statement(one), "{one}");
        }
        for two in ["SELECT 1; ATTACH 'x' AS y", "SELECT ''; x", "SELECT '--'; x", "SELECT 1 /* */; x", "; x"] {
            assert!(has_second_statement(two), "{two}");
        }
    }
}
