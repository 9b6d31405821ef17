//! A node's config with its references replaced by values.

use super::failure::NodeFailure;
use super::values::{NodeValues, Sight};
use decisions::hosts::SECRET_FIELDS;
use decisions::node_type::NodeType;
use decisions::payload::Node;
use decisions::reference::resolve::{Found, Resolved, Unresolved, Values, text, url, value};
use decisions::reference::{IDEMPOTENCY_KEY, Piece, Target, pieces, references};
use decisions::table::{References, configs};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The code of a reference that leads nowhere.
const UNRESOLVED: &str = "UNRESOLVED_REFERENCE";

/// A resolved node.
#[derive(Debug)]
pub(super) struct ResolvedNode {
    kind: NodeType,
    /// The names of `input_mapping` with their values.
    pub(super) mapping: Map<String, Value>,
    config: Vec<(&'static str, Resolved)>,
    /// The parts of a `query`, whose references become bound parameters.
    pub(super) query: Vec<QueryPart>,
    /// The values outside of the body of a LOOP to which it refers.
    seen: Map<String, Value>,
}

/// A part of a query.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum QueryPart {
    /// Text of the statement.
    Text(String),
    /// A bound parameter.
    Value(Value),
    /// The bound parameter is the node's idempotency key.
    Key,
}

impl From<Unresolved> for NodeFailure {
    fn from(unresolved: Unresolved) -> Self {
        Self::permanent(UNRESOLVED, unresolved.to_string())
    }
}

impl ResolvedNode {
    /// Replaces the references of a node. `is_secret` is true for the names of secrets that the node may send.
    pub(super) fn new(
        node: &Node,
        sight: &Sight,
        is_secret: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<Self, NodeFailure> {
        let around = NodeValues::of(sight);
        let mut mapping = Map::new();
        for (name, written) in node.input_mapping.iter().flatten() {
            mapping.insert(name.clone(), plain(value(written, &around)?));
        }
        let kind = node.node_type;
        let mut resolved = Self { kind, mapping: Map::new(), config: Vec::new(), query: Vec::new(), seen: Map::new() };
        let values = NodeValues { mapping: &mapping, ..NodeValues::of(sight) };
        let with_secrets = NodeValues { is_secret, ..NodeValues { mapping: &mapping, ..NodeValues::of(sight) } };
        // The idempotency key is a marker, as secrets are: it is another in each run, and the record is to be the same.
        let is_key = |name: &str| name == IDEMPOTENCY_KEY;
        let with_key = NodeValues { is_secret: &is_key, ..NodeValues { mapping: &mapping, ..NodeValues::of(sight) } };
        for field in configs::config(kind).fields {
            let Some(written) = node.config.get(field.name).filter(|written| !written.is_null()) else { continue };
            let found = match field.references {
                References::None | References::Condition => Resolved::Plain(written.clone()),
                _ if kind == NodeType::Http && SECRET_FIELDS.contains(&field.name) => value(written, &with_secrets)?,
                References::Value if kind == NodeType::Database => value(written, &with_key)?,
                References::Value => value(written, &values)?,
                References::Text => Resolved::Plain(texts(written, &values)?),
                References::Url => Resolved::Plain(url(written.as_str().unwrap_or_default(), &values)?.into()),
                References::Sql => {
                    resolved.query = query(written.as_str().unwrap_or_default(), &with_key)?;
                    Resolved::Plain(written.clone())
                }
            };
            resolved.config.push((field.name, found));
        }
        if kind == NodeType::Loop {
            resolved.seen = seen(node.config.get("body").unwrap_or(&Value::Null), sight);
        }
        resolved.mapping = mapping;
        Ok(resolved)
    }

    /// The resolved config as it is recorded. Two nodes of the same type with the same one have the same result.
    pub(super) fn recorded(&self) -> Value {
        let mut fields: Map<String, Value> =
            self.config.iter().map(|(name, field)| ((*name).to_owned(), field.recorded())).collect();
        if self.kind == NodeType::Python {
            fields.insert("inputs".into(), json!(self.mapping));
        }
        if !self.query.is_empty() {
            let bound = self.query.iter().filter_map(|part| match part {
                QueryPart::Value(value) => Some(value.clone()),
                QueryPart::Key => Some(json!({"reference": IDEMPOTENCY_KEY})),
                QueryPart::Text(_) => None,
            });
            fields.insert("bound".into(), bound.collect());
        }
        if !self.seen.is_empty() {
            fields.insert("seen".into(), json!(self.seen));
        }
        Value::Object(fields)
    }

    /// A field, in which secrets are markers.
    pub(super) fn field(&self, name: &str) -> Option<&Resolved> {
        self.config.iter().find(|(field, _)| *field == name).map(|(_, value)| value)
    }

    /// A field without secrets.
    pub(super) fn plain(&self, name: &str) -> Option<&Value> {
        match self.field(name)? {
            Resolved::Plain(value) => Some(value),
            Resolved::Text(_) | Resolved::List(_) | Resolved::Object(_) => None,
        }
    }

    /// A text field.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.plain(name)?.as_str()
    }

    /// A field with a whole number.
    pub(super) fn whole(&self, name: &str) -> Option<u64> {
        let number = self.plain(name)?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        number.as_u64().or_else(|| number.as_f64().map(|number| number as u64))
    }

    /// A field with a number of seconds.
    pub(super) fn seconds(&self, name: &str) -> Option<Duration> {
        self.plain(name)?.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }
}

/// The value of a place without secrets.
pub(super) fn plain(resolved: Resolved) -> Value {
    match resolved {
        Resolved::Plain(value) => value,
        other => other.recorded(),
    }
}

/// Replaces the references in all texts of a value by texts.
fn texts(written: &Value, values: &dyn Values) -> Result<Value, Unresolved> {
    Ok(match written {
        Value::String(written) => Value::String(text(written, values)?),
        Value::Array(items) => items.iter().map(|item| texts(item, values)).collect::<Result<_, _>>()?,
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, field)| Ok((name.clone(), texts(field, values)?)));
            Value::Object(fields.collect::<Result<_, Unresolved>>()?)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => written.clone(),
    })
}

/// Splits a query at its references.
fn query(written: &str, values: &dyn Values) -> Result<Vec<QueryPart>, Unresolved> {
    let part = |piece: Piece<'_>| match piece {
        Piece::Text(text) | Piece::Unreadable(text) => Ok(QueryPart::Text(text.to_owned())),
        Piece::Reference(reference) => match values.find(reference) {
            Found::Value(value) => Ok(QueryPart::Value(value.into_owned())),
            // The only marker in a statement.
            Found::Secret(_) => Ok(QueryPart::Key),
            Found::Missing => Err(Unresolved(reference.to_string())),
        },
    };
    pieces(written).map(part).collect()
}

/// The values outside of a LOOP's body to which its texts refer.
fn seen(body: &Value, sight: &Sight) -> Map<String, Value> {
    let mut found = Map::new();
    collect(body, &NodeValues::of(sight), &mut found);
    found
}

fn collect(value: &Value, values: &NodeValues<'_>, found: &mut Map<String, Value>) {
    match value {
        Value::String(text) => {
            for reference in references(text).filter(|reference| matches!(reference.target(), Target::Node { .. })) {
                if let Found::Value(value) = values.find(reference) {
                    found.insert(reference.path.to_owned(), value.into_owned());
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, values, found)),
        Value::Object(fields) => fields.values().for_each(|field| collect(field, values, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
