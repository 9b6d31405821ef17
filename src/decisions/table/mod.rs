//! The tables of all fields. Validation, correction, JSON Schemas and `docs/decisions.md` are made from them.
//!
//! `payloads` has the payloads of the ten types, `graph` the nodes and edges of plans, `configs` the `config` of each type
//! of node. A rule between several fields is code, in `validate`; its text is in [`Shape::rules`].

pub mod configs;
pub mod graph;
pub mod payloads;

use serde_json::Value;

/// The values that a field accepts.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Any value.
    Any,
    /// A text.
    Text,
    /// A text with at least one visible character.
    Filled,
    /// A text with a name of letters, digits, `_` and `-`.
    Id,
    /// An identifier: ASCII letters, digits and `_`, not beginning with a digit.
    Identifier,
    /// One of these texts.
    Choice(&'static [&'static str]),
    /// `true` or `false`.
    Truth,
    /// A number in this range. Correction brings it into the range.
    Number(f64, f64),
    /// A whole number in this range. Correction brings it into the range.
    Whole(i64, i64),
    /// Seconds: greater than 0 and at most this many. Correction lowers a larger number.
    Seconds(f64),
    /// An object with any fields.
    Object,
    /// An object of texts.
    Texts,
    /// An object with these fields.
    Shape(&'static Shape),
    /// A list of values.
    List(&'static Kind),
    /// A list with at least one value.
    FilledList(&'static Kind),
    /// The `config` of a node: its fields depend on the type of the node.
    Config,
    /// Changes of a node: keys such as `config.timeout`.
    Changes,
}

/// The role of `${…}` in a field of a `config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum References {
    /// None: the value is used as written.
    None,
    /// A reference becomes a value and keeps its JSON kind.
    Value,
    /// A reference becomes text.
    Text,
    /// A reference becomes a percent-encoded part of the path or query.
    Url,
    /// A reference becomes a bound parameter.
    Sql,
    /// A reference is an operand.
    Condition,
}

/// One field.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The name.
    pub name: &'static str,
    /// The accepted values.
    pub kind: Kind,
    /// True if the field must be present.
    pub required: bool,
    /// The value that correction gives to a missing field, as JSON.
    pub default: Option<&'static str>,
    /// The role of references, in a `config`.
    pub references: References,
    /// The meaning of the field. It ends the error for a missing field.
    pub text: &'static str,
}

impl Field {
    /// A field that must be present.
    pub const fn required(name: &'static str, kind: Kind, text: &'static str) -> Self {
        Self { name, kind, required: true, default: None, references: References::None, text }
    }

    /// A field that may be absent or null.
    pub const fn optional(name: &'static str, kind: Kind, text: &'static str) -> Self {
        Self { required: false, ..Self::required(name, kind, text) }
    }

    /// The field with a default for correction.
    pub const fn or(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }

    /// The field with references.
    pub const fn with(self, references: References) -> Self {
        Self { references, ..self }
    }

    /// The value that correction gives to the missing field.
    pub fn default_value(&self) -> Option<Value> {
        self.default.and_then(|text| serde_json::from_str(text).ok())
    }
}

/// An object with known fields.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The name in schemas and documents.
    pub name: &'static str,
    /// The fields, in the order of the errors.
    pub fields: &'static [Field],
    /// Rules beyond the kinds of the fields, one sentence each.
    pub rules: &'static [&'static str],
}

impl Shape {
    /// The field with this name.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

impl Kind {
    /// The accepted values in words, for errors and documents.
    pub fn expected(self) -> String {
        match self {
            Self::Any => "any value".into(),
            Self::Text => "a text".into(),
            Self::Filled => "a text that is not blank".into(),
            Self::Id => "a name of letters, digits, `_` and `-`".into(),
            Self::Identifier => "an identifier such as `data_source`".into(),
            Self::Choice(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
            Self::Truth => "`true` or `false`".into(),
            Self::Number(low, high) if high.is_infinite() => format!("a number of at least {low}"),
            Self::Number(low, high) => format!("a number from {low} to {high}"),
            Self::Whole(low, i64::MAX) => format!("a whole number of at least {low}"),
            Self::Whole(low, high) => format!("a whole number from {low} to {high}"),
            Self::Seconds(high) if high.is_infinite() => "a number of seconds above 0".into(),
            Self::Seconds(high) => format!("a number of seconds above 0 and up to {high}"),
            Self::Object | Self::Shape(_) | Self::Config => "an object".into(),
            Self::Changes => "an object with keys such as `config.timeout`".into(),
            Self::Texts => "an object of texts".into(),
            Self::List(Kind::Shape(_)) | Self::FilledList(Kind::Shape(_)) => "a list of objects".into(),
            Self::List(Kind::Text | Kind::Filled | Kind::Id) => "a list of texts".into(),
            Self::List(Kind::Identifier) => "a list of identifiers such as `data_source`".into(),
            Self::List(_) => "a list".into(),
            Self::FilledList(Kind::Filled) => "a list of at least one text".into(),
            Self::FilledList(_) => "a list of at least one value".into(),
        }
    }
}
