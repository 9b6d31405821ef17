//! Templates of inputs: text with variables such as `{query}`, `{stage}`, `{loop.iteration}` and `{loop.last.stage}`.
//!
//! A variable is `{identifier(.identifier)*}`; an identifier has letters of any script, digits, `_` and `-`. `{{name}}`
//! stands for the text `{name}`. All other braces are text, so JSON needs no escapes. Inserted values are not parsed
//! again.

use super::scope::{Found, Scope};
use std::sync::Arc;

/// A template that makes a stage's input from the visible outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputMapping {
    template: Arc<str>,
    pieces: Vec<Piece>,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// Literal text.
    Text(Box<str>),
    /// The path within `{…}`.
    Variable(Box<str>),
}

impl InputMapping {
    /// Parses a template. Every text is a valid template.
    pub fn parse(template: &str) -> Self {
        Self { template: template.into(), pieces: pieces(template) }
    }

    /// The same as [`InputMapping::parse`].
    pub fn from_string(template: impl AsRef<str>) -> Self {
        Self::parse(template.as_ref())
    }

    /// A template that passes on the output of a stage unchanged.
    pub fn passthrough(stage_id: &str) -> Self {
        Self::parse(&format!("{{{stage_id}}}"))
    }

    /// The template as written.
    pub fn template(&self) -> &str {
        &self.template
    }

    /// Fills the template. An unknown name becomes `[未找到: NAME]`, and a path below a text becomes `[无法解析: PATH]`.
    pub fn build(&self, scope: &Scope) -> String {
        self.fill(|path, filled| match scope.find(path) {
            Found::Text(text) => filled.push_str(&text),
            Found::Empty => {}
            Found::Unknown => filled.extend(["[未找到: ", path, "]"]),
            Found::Through => filled.extend(["[无法解析: ", path, "]"]),
        })
    }

    /// Fills the template. `variable` appends the value of each variable to the text.
    pub(super) fn fill(&self, mut variable: impl FnMut(&str, &mut String)) -> String {
        let mut filled = String::with_capacity(self.template.len());
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Variable(path) => variable(path, &mut filled),
            }
        }
        filled
    }

    /// The variables of the template, each once, in the order of the text.
    pub fn get_dependencies(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for path in self.variables() {
            if names.iter().all(|name| name != path) {
                names.push(path.to_owned());
            }
        }
        names
    }

    /// The variables of the template in order, with repetitions.
    pub(super) fn variables(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Variable(path) => Some(path.as_ref()),
            Piece::Text(_) => None,
        })
    }
}

impl InputMapping {
    /// Texts that resemble variables but are none, such as `{ plan }` and `｛plan｝`, each with the probable name.
    pub(super) fn nearly(&self) -> Vec<(&str, &str)> {
        let mut found = Vec::new();
        for (open, brace) in self.template.match_indices(['{', '｛']) {
            let inner = &self.template[open + brace.len()..];
            let Some(close) =
                inner.find(['}', '｝', '{', '｛']).filter(|close| !inner[*close..].starts_with(['{', '｛']))
            else {
                continue;
            };
            let name = inner[..close].trim();
            let end = open + brace.len() + close + inner[close..].chars().next().map_or(0, char::len_utf8);
            let whole = &self.template[open..end];
            if variable(whole).is_none() && name.split('.').all(is_name) {
                found.push((whole, name));
            }
        }
        found
    }
}

impl From<&str> for InputMapping {
    fn from(template: &str) -> Self {
        Self::parse(template)
    }
}

impl From<String> for InputMapping {
    fn from(template: String) -> Self {
        Self::parse(&template)
    }
}

impl Default for InputMapping {
    /// `{query}`: a stage without a template gets the workflow's input.
    fn default() -> Self {
        Self::passthrough("query")
    }
}

fn pieces(template: &str) -> Vec<Piece> {
    let mut found = Vec::new();
    let mut text = String::new();
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        text.push_str(&rest[..open]);
        rest = &rest[open..];
        if let Some(path) = escaped(rest) {
            text.extend(["{", path, "}"]);
            rest = &rest[path.len() + 4..];
        } else if let Some(path) = variable(rest) {
            if !text.is_empty() {
                found.push(Piece::Text(std::mem::take(&mut text).into()));
            }
            found.push(Piece::Variable(path.into()));
            rest = &rest[path.len() + 2..];
        } else {
            text.push('{');
            rest = &rest[1..];
        }
    }
    text.push_str(rest);
    if !text.is_empty() {
        found.push(Piece::Text(text.into()));
    }
    found
}

/// The path of the variable at the beginning of `text`.
pub(super) fn variable(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('{')?;
    let end = inner.find(|c: char| !(is_part(c) || c == '.'))?;
    let path = &inner[..end];
    (inner[end..].starts_with('}') && path.split('.').all(|name| !name.is_empty())).then_some(path)
}

/// The path within `{{…}}` at the beginning of `text`.
pub(super) fn escaped(text: &str) -> Option<&str> {
    let path = variable(text.strip_prefix('{')?)?;
    text[path.len() + 3..].starts_with('}').then_some(path)
}

/// True for a character of an identifier.
fn is_part(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-')
}

/// True if a template can name this id.
pub fn is_name(id: &str) -> bool {
    !id.is_empty() && id.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflow::outputs::OutputStore;

    fn built(template: &str) -> String {
        let mut store = OutputStore::new("问题");
        store.set("plan", "{query} first");
        store.set("步骤-1", "一");
        store.set("3", "three");
        InputMapping::parse(template).build(store.scope())
    }

    #[test]
    fn only_identifiers_in_braces_are_variables() {
        for (template, text) in [
            ("{query}", "问题"),
            ("<{plan}>{步骤-1}", "<{query} first>一"),
            ("\n  {query}\n\n", "\n  问题\n\n"),
            (r#"{"a": {plan}, "b": {"c": "{query}"}}"#, r#"{"a": {query} first, "b": {"c": "问题"}}"#),
            ("{{query}} {{loop.last.x}}", "{query} {loop.last.x}"),
            ("{{{query}}}", "{{query}}"),
            ("{{query} {query}}", "{问题 问题}"),
            (
                "{{ query }} { query } {} {{}} {a b} {a..b} {.a} {a.} {",
                "{{ query }} { query } {} {{}} {a b} {a..b} {.a} {a.} {",
            ),
            ("{3}", "three"),
            ("{never}", "[未找到: never]"),
            ("{never.x}", "[未找到: never.x]"),
            ("{query.x}", "[无法解析: query.x]"),
            ("{loop}", "[未找到: loop]"),
            ("{loop.x}", "[未找到: loop.x]"),
            ("{loop.iteration}", "0"),
            ("{loop.iteration.x}", "[无法解析: loop.iteration.x]"),
            ("{loop.last.x}", "[未找到: loop.last.x]"),
            ("", ""),
        ] {
            assert_eq!(built(template), text, "{template}");
        }
    }

    #[test]
    fn the_variables_are_listed_once_in_the_order_of_the_text() {
        let mapping = InputMapping::from_string("{b} {a} {{c}} {loop.last.研究} {b}");
        assert_eq!(mapping.get_dependencies(), ["b", "a", "loop.last.研究"]);
        assert_eq!(mapping.template(), "{b} {a} {{c}} {loop.last.研究} {b}");
        assert_eq!(InputMapping::passthrough("plan"), InputMapping::from("{plan}"));
        assert_eq!(InputMapping::default(), "{query}".into());
        assert!(is_name("步骤-1") && !is_name("a:b") && !is_name(""));
    }
}
