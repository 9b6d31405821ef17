//! Writes a document as lines of YAML. Each line of a long text becomes one line, so that a line diff of two documents
//! shows the changed sentences.

use serde_json::Value;

/// Returns the document as YAML.
pub fn yaml(document: &Value) -> String {
    let mut text = String::new();
    block(document, 0, &mut text);
    text
}

/// Writes the lines of a table or a list at this depth.
fn block(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::Object(fields) => {
            for (name, child) in fields {
                indent(depth, text);
                text.push_str(&key(name));
                text.push(':');
                behind(child, depth + 1, text);
            }
        }
        Value::Array(list) => {
            for child in list {
                indent(depth, text);
                text.push('-');
                behind(child, depth + 1, text);
            }
        }
        value => {
            indent(depth, text);
            text.push_str(&value.to_string());
            text.push('\n');
        }
    }
}

/// Writes a value behind its key or dash, up to the end of its last line.
fn behind(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            text.push('\n');
            block(value, depth, text);
        }
        Value::Array(list) if !list.is_empty() => {
            text.push('\n');
            block(value, depth, text);
        }
        Value::String(lines) if is_literal(lines) => literal(lines, depth, text),
        value => {
            text.push(' ');
            text.push_str(&value.to_string());
            text.push('\n');
        }
    }
}

/// True for a text of several lines that YAML's literal style keeps as it is.
fn is_literal(text: &str) -> bool {
    let plain = |line: &str| !line.ends_with([' ', '\t']) && !line.chars().any(char::is_control);
    text.trim_end_matches('\n').contains('\n')
        && !text.starts_with([' ', '\t', '\n'])
        && !text.ends_with("\n\n")
        && text.lines().all(plain)
}

fn literal(lines: &str, depth: usize, text: &mut String) {
    text.push_str(if lines.ends_with('\n') { " |\n" } else { " |-\n" });
    for line in lines.lines() {
        if !line.is_empty() {
            indent(depth, text);
            text.push_str(line);
        }
        text.push('\n');
    }
}

fn key(name: &str) -> String {
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && !["null", "true", "false", "yes", "no", "on", "off", "y", "n"].contains(&name.to_ascii_lowercase().as_str());
    if is_plain { name.to_owned() } else { Value::from(name).to_string() }
}

fn indent(depth: usize, text: &mut String) {
    text.extend(std::iter::repeat_n("  ", depth));
}
