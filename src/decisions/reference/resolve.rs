//! Replaces references by values. Secrets stay markers until the request is sent, so that a record never has their
//! values, and a value that looks like a reference stays data.

use super::{Piece, Pieces, Reference, only, pieces};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};
use std::borrow::Cow;
use thiserror::Error;

/// A reference that leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` leads nowhere; name an output that exists, or an input of the run")]
pub struct Unresolved(pub String);

/// The value of a reference.
#[derive(Clone, Debug, PartialEq)]
pub enum Found<'a> {
    /// A value. A skipped node has null for every path.
    Value(Cow<'a, Value>),
    /// A secret with this name.
    Secret(&'a str),
    /// Nothing.
    Missing,
}

/// The values that references name.
pub trait Values {
    /// Looks up a reference.
    fn find<'a>(&'a self, reference: Reference<'a>) -> Found<'a>;
}

/// A value in which secrets are markers.
#[derive(Clone, Debug, PartialEq)]
pub enum Resolved {
    /// A value without secrets.
    Plain(Value),
    /// A text with secrets.
    Text(Vec<Part>),
    /// A list with secrets in it.
    List(Vec<Resolved>),
    /// An object with secrets in it.
    Object(Vec<(String, Resolved)>),
}

/// A part of a text with secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Text.
    Text(String),
    /// The name of a secret.
    Secret(String),
}

impl Resolved {
    /// The value as it is recorded: `${NAME}` stands for a secret, and `$${` for the text `${`.
    pub fn recorded(&self) -> Value {
        match self {
            Self::Plain(value) => escaped(value),
            Self::Text(parts) => Value::String(parts.iter().map(Part::recorded).collect()),
            Self::List(items) => items.iter().map(Self::recorded).collect(),
            Self::Object(fields) => fields.iter().map(|(name, field)| (name.clone(), field.recorded())).collect(),
        }
    }

    /// The names of the secrets in the value.
    pub fn secrets(&self) -> Vec<&str> {
        match self {
            Self::Plain(_) => Vec::new(),
            Self::Text(parts) => parts.iter().filter_map(Part::secret).collect(),
            Self::List(items) => items.iter().flat_map(Self::secrets).collect(),
            Self::Object(fields) => fields.iter().flat_map(|(_, field)| field.secrets()).collect(),
        }
    }

    /// The value to send. `secret` returns the value of a secret; `None` fails with its name.
    pub fn filled(&self, secret: &dyn Fn(&str) -> Option<String>) -> Result<Value, Unresolved> {
        match self {
            Self::Plain(value) => Ok(value.clone()),
            Self::Text(parts) => {
                let fill = |part: &Part| match part {
                    Part::Text(text) => Ok(text.clone()),
                    Part::Secret(name) => secret(name).ok_or_else(|| Unresolved(format!("${{{name}}}"))),
                };
                parts.iter().map(fill).collect::<Result<String, _>>().map(Value::String)
            }
            Self::List(items) => items.iter().map(|item| item.filled(secret)).collect(),
            Self::Object(fields) => {
                let filled = fields.iter().map(|(name, field)| Ok((name.clone(), field.filled(secret)?)));
                filled.collect::<Result<Map<_, _>, _>>().map(Value::Object)
            }
        }
    }
}

impl Part {
    fn secret(&self) -> Option<&str> {
        match self {
            Self::Text(_) => None,
            Self::Secret(name) => Some(name),
        }
    }

    fn recorded(&self) -> String {
        match self {
            Self::Text(text) => text.replace("${", "$${"),
            Self::Secret(name) => format!("${{{name}}}"),
        }
    }
}

fn escaped(value: &Value) -> Value {
    match value {
        Value::String(text) if text.contains("${") => Value::String(text.replace("${", "$${")),
        Value::Array(items) => items.iter().map(escaped).collect(),
        Value::Object(fields) => fields.iter().map(|(name, field)| (name.clone(), escaped(field))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Replaces the references in all texts of a value. A text that is one reference becomes the value and keeps its kind.
/// Inserted values are not searched for references.
pub fn value(written: &Value, values: &dyn Values) -> Result<Resolved, Unresolved> {
    match written {
        Value::String(text) => match only(text) {
            Some(reference) => match values.find(reference) {
                Found::Value(value) => Ok(Resolved::Plain(value.into_owned())),
                Found::Secret(name) => Ok(Resolved::Text(vec![Part::Secret(name.to_owned())])),
                Found::Missing => Err(Unresolved(reference.to_string())),
            },
            None => text_parts(text, values),
        },
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| value(item, values)).collect::<Result<_, _>>()?;
            Ok(match plain(items.iter()) {
                Some(items) => Resolved::Plain(Value::Array(items)),
                None => Resolved::List(items),
            })
        }
        Value::Object(fields) => {
            let resolved = fields.iter().map(|(name, field)| Ok((name.clone(), value(field, values)?)));
            let fields: Vec<(String, Resolved)> = resolved.collect::<Result<_, Unresolved>>()?;
            Ok(match plain(fields.iter().map(|(_, field)| field)) {
                Some(values) => Resolved::Plain(fields.into_iter().map(|(name, _)| name).zip(values).collect()),
                None => Resolved::Object(fields),
            })
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(Resolved::Plain(written.clone())),
    }
}

fn plain<'a>(mut all: impl Iterator<Item = &'a Resolved>) -> Option<Vec<Value>> {
    all.try_fold(Vec::new(), |mut values, resolved| {
        let Resolved::Plain(value) = resolved else { return None };
        values.push(value.clone());
        Some(values)
    })
}

/// Replaces the references in a text by texts: an object or list becomes JSON, null becomes empty.
pub fn text(written: &str, values: &dyn Values) -> Result<String, Unresolved> {
    joined(pieces(written), values, |text| text)
}

/// Replaces the references in a URL by percent-encoded texts.
pub fn url(written: &str, values: &dyn Values) -> Result<String, Unresolved> {
    const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    joined(pieces(written), values, |text| utf8_percent_encode(&text, UNRESERVED).to_string())
}

fn joined(pieces: Pieces<'_>, values: &dyn Values, encode: impl Fn(String) -> String) -> Result<String, Unresolved> {
    let mut out = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) | Piece::Unreadable(text) => out.push_str(text),
            Piece::Reference(reference) => match values.find(reference) {
                Found::Value(value) => out.push_str(&encode(as_text(&value))),
                Found::Secret(_) | Found::Missing => return Err(Unresolved(reference.to_string())),
            },
        }
    }
    Ok(out)
}

fn text_parts(written: &str, values: &dyn Values) -> Result<Resolved, Unresolved> {
    let parts = pieces(written).map(|piece| match piece {
        Piece::Text(text) | Piece::Unreadable(text) => Ok(Part::Text(text.to_owned())),
        Piece::Reference(reference) => match values.find(reference) {
            Found::Value(value) => Ok(Part::Text(as_text(&value))),
            Found::Secret(name) => Ok(Part::Secret(name.to_owned())),
            Found::Missing => Err(Unresolved(reference.to_string())),
        },
    });
    let parts: Vec<Part> = parts.collect::<Result<_, _>>()?;
    let texts = parts.iter().map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        Part::Secret(_) => None,
    });
    Ok(match texts.collect::<Option<String>>() {
        Some(text) => Resolved::Plain(Value::String(text)),
        None => Resolved::Text(parts),
    })
}

/// A value within a text.
pub fn as_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// The value at a path such as `data.0.name`; `None` if it leads nowhere. An empty path is the value itself.
pub fn descend<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    if path.is_empty() {
        return Some(value);
    }
    path.split('.').try_fold(value, |value, name| match value {
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        Value::Object(fields) => fields.get(name),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::Target;
    use serde_json::json;

    struct Sample(Value);

    impl Values for Sample {
        fn find<'a>(&'a self, reference: Reference<'a>) -> Found<'a> {
            match reference.target() {
                Target::Node { id, path } => {
                    let found = self.0.get(id).and_then(|output| descend(output, path));
                    found.map_or(Found::Missing, |value| Found::Value(Cow::Borrowed(value)))
                }
                Target::Name { name: "KEY", .. } => Found::Secret("KEY"),
                _ => Found::Missing,
            }
        }
    }

    fn sample() -> Sample {
        Sample(json!({"a": {"list": [1, {"x": null}], "text": "a/b?c ${KEY}"}}))
    }

    #[test]
    fn a_reference_alone_keeps_its_kind() {
        let resolved =
            value(&json!({"x": "${a.output.list}", "y": ["n=${a.output.list.0}"], "z": 5}), &sample()).unwrap();
        assert_eq!(resolved, Resolved::Plain(json!({"x": [1, {"x": null}], "y": ["n=1"], "z": 5})));
        assert_eq!(
            value(&json!("${a.output.list.2}"), &sample()).unwrap_err(),
            Unresolved("${a.output.list.2}".into())
        );
        assert_eq!(text("${a.output.list} $${x}", &sample()).unwrap(), "[1,{\"x\":null}] ${x}");
        assert_eq!(url("https://h/${a.output.text}", &sample()).unwrap(), "https://h/a%2Fb%3Fc%20%24%7BKEY%7D");
    }

    #[test]
    fn secrets_stay_markers_and_data_stays_data() {
        let written = json!({"auth": "Bearer ${KEY}", "note": "${a.output.text}", "list": ["${KEY}"]});
        let resolved = value(&written, &sample()).unwrap();
        let recorded = json!({"auth": "Bearer ${KEY}", "note": "a/b?c $${KEY}", "list": ["${KEY}"]});
        assert_eq!(resolved.recorded(), recorded);
        assert_eq!(resolved.secrets(), ["KEY", "KEY"]);
        let filled = resolved.filled(&|name| (name == "KEY").then(|| "s3cret".to_owned())).unwrap();
        assert_eq!(filled, json!({"auth": "Bearer s3cret", "note": "a/b?c ${KEY}", "list": ["s3cret"]}));
        assert!(resolved.filled(&|_| None).is_err());
        assert!(url("https://h/?k=${KEY}", &sample()).is_err());
    }
}
