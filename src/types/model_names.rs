//! The models of an agent, in the order of preference.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// One or more model names in the order of preference. If a model fails, the next one is called. A file has either one
/// name or a list of names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelNames {
    first: String,
    others: Vec<String>,
}

impl ModelNames {
    /// Collects the names of a list. Returns `None` if the list is empty.
    pub fn from_names(names: impl IntoIterator<Item = impl Into<String>>) -> Option<Self> {
        let mut names = names.into_iter().map(Into::into);
        Some(Self { first: names.next()?, others: names.collect() })
    }

    /// The preferred model.
    pub fn first(&self) -> &str {
        &self.first
    }

    /// True if there is a fallback model.
    pub fn is_chain(&self) -> bool {
        !self.others.is_empty()
    }

    /// All names, the preferred one first.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.first.as_str()).chain(self.others.iter().map(String::as_str))
    }

    /// The path of the name at index `at` in its file, for error messages; `path` is the path of the whole field.
    pub fn place(&self, path: &str, at: usize) -> String {
        if self.is_chain() { format!("{path}[{at}]") } else { path.to_owned() }
    }
}

impl Default for ModelNames {
    fn default() -> Self {
        "default".into()
    }
}

impl From<&str> for ModelNames {
    fn from(name: &str) -> Self {
        Self { first: name.to_owned(), others: Vec::new() }
    }
}

impl From<String> for ModelNames {
    fn from(name: String) -> Self {
        Self { first: name, others: Vec::new() }
    }
}

/// Writes the names with commas between them.
impl fmt::Display for ModelNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.first)?;
        self.others.iter().try_for_each(|name| write!(f, ", {name}"))
    }
}

impl Serialize for ModelNames {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.is_chain() { serializer.collect_seq(self.iter()) } else { serializer.serialize_str(&self.first) }
    }
}

impl<'de> Deserialize<'de> for ModelNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;

        impl<'de> Visitor<'de> for Names {
            type Value = ModelNames;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a model's name, or a list of names such as [fast, default]")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<ModelNames, E> {
                Ok(name.into())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ModelNames, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = list.next_element::<String>()? {
                    names.push(name);
                }
                let empty = || Error::custom("the list is empty; name a model, or remove the field to use `default`");
                ModelNames::from_names(names).ok_or_else(empty)
            }
        }

        deserializer.deserialize_any(Names)
    }
}

impl JsonSchema for ModelNames {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ModelNames".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "string" },
                { "type": "array", "minItems": 1, "items": { "type": "string" } }
            ],
            "examples": ["fast", ["fast", "default"]]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn one_name_is_written_as_it_was_and_several_are_a_list() {
        for (written, names) in [(json!("fast"), vec!["fast"]), (json!(["fast", "default"]), vec!["fast", "default"])] {
            let read: ModelNames = serde_json::from_value(written.clone()).unwrap();
            assert_eq!((read.iter().collect::<Vec<_>>(), json!(read)), (names, written));
        }
        let alone: ModelNames = serde_json::from_value(json!(["fast"])).unwrap();
        assert_eq!((json!(alone), alone.place("model", 0)), (json!("fast"), "model".to_owned()));
        let two = ModelNames::from_names(["a", "b"]).unwrap();
        assert_eq!((two.to_string(), two.place("model", 1)), ("a, b".to_owned(), "model[1]".to_owned()));
    }

    #[test]
    fn what_names_no_model_says_what_would() {
        let error = |value: Value| serde_json::from_value::<ModelNames>(value).unwrap_err().to_string();
        assert!(error(json!([])).contains("name a model"));
        assert!(error(json!(7)).contains("[fast, default]"));
        assert!(error(json!([7])).contains("a string"));
    }
}
