//! Writes a document as YAML, as a person would: in blocks, with texts of several lines as such.

use serde_json::{Map, Value};

/// The fields that come first in a table, in this order. The others follow by name.
const FIRST: [&str; 5] = ["id", "type", "name", "description", "model"];
/// Words that YAML reads as another value than a text. Programs differ in some of them.
const WORDS: [&str; 11] = ["true", "false", "yes", "no", "on", "off", "y", "n", "null", "~", ""];

/// Returns the document as YAML. Reading it results in the same document.
pub fn to_yaml(document: &Value) -> String {
    let mut text = String::new();
    match document {
        Value::Object(fields) if !fields.is_empty() => table(&mut text, fields, 0),
        Value::Array(items) if !items.is_empty() => list(&mut text, items, 0),
        other => {
            text.push_str(&scalar(other));
            text.push('\n');
        }
    }
    text
}

fn table(text: &mut String, fields: &Map<String, Value>, indent: usize) {
    for (at, (key, value)) in ordered(fields).into_iter().enumerate() {
        if at > 0 {
            spaces(text, indent);
        }
        text.push_str(&plain_or_quoted(key));
        text.push(':');
        below(text, value, indent);
    }
}

fn ordered(fields: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let place = |key: &str| FIRST.iter().position(|first| *first == key).unwrap_or(FIRST.len());
    let mut ordered: Vec<_> = fields.iter().collect();
    ordered.sort_by_key(|(key, _)| (place(key), key.as_str()));
    ordered
}

fn list(text: &mut String, items: &[Value], indent: usize) {
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            spaces(text, indent);
        }
        text.push('-');
        match item {
            Value::Object(fields) if !fields.is_empty() => {
                text.push(' ');
                table(text, fields, indent + 2);
            }
            Value::Array(items) if !items.is_empty() => {
                text.push(' ');
                list(text, items, indent + 2);
            }
            other => below(text, other, indent),
        }
    }
}

/// Writes the value of a key, or a scalar item, and the end of its line.
fn below(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            text.push('\n');
            spaces(text, indent + 2);
            table(text, fields, indent + 2);
        }
        Value::Array(items) if !items.is_empty() => {
            text.push('\n');
            spaces(text, indent + 2);
            list(text, items, indent + 2);
        }
        Value::String(value) if is_block(value) => block(text, value, indent + 2),
        other => {
            text.push(' ');
            text.push_str(&scalar(other));
            text.push('\n');
        }
    }
}

/// Writes a text of several lines.
fn block(text: &mut String, value: &str, indent: usize) {
    text.push_str(if value.ends_with('\n') { " |\n" } else { " |-\n" });
    for line in value.lines() {
        if !line.is_empty() {
            spaces(text, indent);
            text.push_str(line);
        }
        text.push('\n');
    }
}

/// True for a text of several lines that a block holds without a change.
fn is_block(value: &str) -> bool {
    let is_plain = |c: char| c == '\n' || !(c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}'));
    let ends = value.ends_with("\n\n") || value.trim_end_matches('\n').ends_with([' ', '\t']);
    value.trim_end_matches('\n').contains('\n')
        && value.chars().all(is_plain)
        && !value.starts_with(['\n', ' '])
        && !ends
        && value.lines().all(|line| line.is_empty() || !line.trim().is_empty())
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => plain_or_quoted(text),
        Value::Object(_) => "{}".to_owned(),
        Value::Array(_) => "[]".to_owned(),
        other => other.to_string(),
    }
}

/// The text without quotes if YAML reads it so as the same text, else as in JSON.
fn plain_or_quoted(text: &str) -> String {
    let begins = text.chars().next().is_some_and(|c| c.is_alphabetic() || matches!(c, '_' | '/' | '$'));
    let is_plain = |c: char| {
        c.is_alphanumeric()
            || matches!(c, ' ' | '_' | '-' | '.' | '/' | '$' | '(' | ')' | '+' | ';' | '！' | '，' | '。' | '？' | '、')
    };
    let is_word = WORDS.contains(&text.to_lowercase().as_str());
    if begins && !is_word && !text.ends_with(' ') && text.chars().all(is_plain) {
        return text.to_owned();
    }
    Value::from(text).to_string()
}

fn spaces(text: &mut String, count: usize) {
    text.extend(std::iter::repeat_n(' ', count));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::file::parse;
    use serde_json::json;
    use std::path::Path;

    #[test]
    fn a_document_is_the_same_after_it_is_written_and_read() {
        for document in [
            json!({"id": "sales", "name": "小智", "sop": "先问好。\n\n再查订单：A1001\n", "model": ["a", "b"]}),
            json!({"skills": [{"id": "a", "http": {"url": "https://x/{id}?q=1", "headers": {}}}, {"id": "b", "on": []}],
                "at": "@x", "pct": "%", "bang": "!x"}),
            json!({"matrix": [[1, 2], [], [[true, null]], "x"], "yes": "no", "null": "~", "1": "1e3", "": " "}),
            json!({"texts": ["a: b", "- x", "#c", "tab\tin\nit", "  ahead\nx", "end \nx", "x\n\n\n", "\"q\"", "*a"]}),
            json!(["x\r\ny", "x\n y\n", "\u{feff}a\nb", "\u{85}\nb", "a\n\tb", "|", "a |", "café", "-", "---", "? a"]),
            json!({"numbers": [0, -1, 1.5, 1e300, 18_446_744_073_709_551_615_u64], "t": "2026-01-02", "v": ".5"}),
            json!({"long": format!("{}\n{}", "第一行".repeat(80), "|x: y #z")}),
            json!({}),
        ] {
            let text = to_yaml(&document);
            assert_eq!(parse(Path::new("a.yaml"), &text).unwrap(), document, "{text}");
        }
    }

    #[test]
    fn it_reads_like_a_file_that_a_person_wrote() {
        let document = json!({
            "sop": "先问好。\n再查订单。\n", "id": "sales", "name": "小智",
            "skills": [{"params": {"type": "object"}, "id": "query_order"}], "greeting": "您好！",
        });
        let text = "id: sales\nname: 小智\ngreeting: 您好！\nskills:\n  - id: query_order\n    params:\n      type: object\n\
                    sop: |\n  先问好。\n  再查订单。\n";
        assert_eq!(to_yaml(&document), text);
    }
}
