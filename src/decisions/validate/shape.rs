//! Checks objects by the tables: missing fields, kinds, ranges and unknown fields.

use super::check::Check;
use crate::limits::MAX_ID_CHARS;
use crate::node_type::NodeType;
use crate::path::{Path, shown};
use crate::reference::is_name;
use crate::report::Group;
use crate::table::{Field, Kind, Shape};
use serde_json::{Map, Number, Value};
use types::json_kind::json_kind;

/// Checks an object. `also` are names that it may have besides those of the table.
pub(super) fn object(
    check: &mut Check<'_>,
    path: &Path<'_>,
    shape: &Shape,
    fields: &Map<String, Value>,
    also: &[&str],
) {
    for field in shape.fields {
        let path = path.field(field.name);
        match fields.get(field.name) {
            None | Some(Value::Null) if field.required && !may_lack(field, fields) => {
                check.report.error(Group::Missing, &path, || format!("is missing; give {}", field.text));
            }
            None | Some(Value::Null) => {}
            Some(found) => value(check, &path, field.kind, found),
        }
    }
    for name in fields.keys() {
        if shape.field(name).is_none() && !also.contains(&name.as_str()) {
            check.report.error(Group::Unsupported, &path.field(name), || {
                let known: Vec<_> = shape.fields.iter().map(|field| format!("`{}`", field.name)).collect();
                let known = if known.is_empty() { "it has no fields".to_owned() } else { known.join(", ") };
                format!("is not a field of {}; remove it, or use {known}", shape.name)
            });
        }
    }
}

/// START and END have no settings.
fn may_lack(field: &Field, fields: &Map<String, Value>) -> bool {
    let kind = fields.get("type").and_then(Value::as_str).and_then(NodeType::parse);
    matches!(field.kind, Kind::Config) && kind.is_some_and(NodeType::is_structural)
}

/// Checks a value that is present.
pub(super) fn value(check: &mut Check<'_>, path: &Path<'_>, kind: Kind, found: &Value) {
    match (kind, found) {
        (Kind::Any, _) | (Kind::Text, Value::String(_)) | (Kind::Truth, Value::Bool(_)) => {}
        (Kind::Object | Kind::Config, Value::Object(_)) => {}
        (Kind::Filled, Value::String(text)) => {
            if text.trim().is_empty() {
                check.rule(path, || "is blank; give a text".to_owned());
            }
        }
        (Kind::Id, Value::String(text)) => id(check, path, text),
        (Kind::Identifier, Value::String(text)) => {
            if !is_identifier(text) {
                check.rule(path, || format!("is `{}`; give {}", shown(text, 40), kind.expected()));
            }
        }
        (Kind::Choice(words), Value::String(text)) => {
            // Files have further types of nodes, and `node` checks them.
            let is_file_type = check.is_file && words.contains(&"END") && NodeType::parse(text).is_some();
            if !words.contains(&text.as_str()) && !is_file_type {
                check.rule(path, || format!("is `{}`; give one of {}", shown(text, 40), kind.expected()));
            }
        }
        (Kind::Number(..) | Kind::Whole(..) | Kind::Seconds(_), Value::Number(number)) => {
            self::number(check, path, kind, number);
        }
        (Kind::Changes, Value::Object(changes)) => {
            if changes.is_empty() {
                check.rule(path, || "is empty; name at least one change, such as `config.timeout`".to_owned());
            }
        }
        (Kind::Texts, Value::Object(fields)) => {
            for (name, text) in fields.iter().filter(|(_, text)| !text.is_string()) {
                wrong_kind(check, &path.field(name), Kind::Text, text);
            }
        }
        (Kind::Shape(shape), Value::Object(fields)) => object(check, path, shape, fields, &[]),
        (Kind::List(item), Value::Array(items)) => list(check, path, *item, items),
        (Kind::FilledList(item), Value::Array(items)) => {
            if items.is_empty() {
                check.rule(path, || format!("is empty; give {}", kind.expected()));
            }
            list(check, path, *item, items);
        }
        _ => wrong_kind(check, path, kind, found),
    }
}

fn list(check: &mut Check<'_>, path: &Path<'_>, kind: Kind, items: &[Value]) {
    for (at, item) in items.iter().enumerate() {
        value(check, &path.item(at), kind, item);
    }
}

fn wrong_kind(check: &mut Check<'_>, path: &Path<'_>, kind: Kind, found: &Value) {
    check.report.error(Group::Kind, path, || format!("is {}; give {}", json_kind(found), kind.expected()));
}

fn id(check: &mut Check<'_>, path: &Path<'_>, text: &str) {
    if !is_name(text) {
        check.rule(path, || format!("is `{}`; give {}", shown(text, 40), Kind::Id.expected()));
    } else if text.len() > MAX_ID_CHARS && text.chars().count() > MAX_ID_CHARS {
        check.rule(path, || format!("has more than {MAX_ID_CHARS} characters; shorten it"));
    }
}

fn number(check: &mut Check<'_>, path: &Path<'_>, kind: Kind, number: &Number) {
    let found = number.as_f64().unwrap_or(f64::NAN);
    let is_legal = match kind {
        Kind::Number(low, high) => (low..=high).contains(&found),
        #[allow(clippy::cast_precision_loss, reason = "the limits are small, or as large as possible")]
        Kind::Whole(low, high) => found.fract() == 0.0 && (low as f64..=high as f64).contains(&found),
        Kind::Seconds(high) => found > 0.0 && found <= high,
        _ => true,
    };
    if !is_legal {
        check.rule(path, || format!("is {}; give {}", shown(&number.to_string(), 40), kind.expected()));
    }
}

/// True for ASCII letters, digits and `_`, not beginning with a digit.
pub(super) fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
