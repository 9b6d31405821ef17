//! References: `${node.output.path}`, `${input.name}`, `${query}`, `${loop.item}`, and a bare `${name}`.
//!
//! This file finds them in texts; [`resolve`] replaces them by values. `$${x}` is the text `${x}`. A `${…}` that is no
//! reference is an error of the validator and stays text at run time.

pub mod resolve;

/// The name that stands for the idempotency key of a DATABASE node, in its statement and its `params`.
pub const IDEMPOTENCY_KEY: &str = "idempotency_key";

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Text as it is.
    Text(&'a str),
    /// A reference.
    Reference(Reference<'a>),
    /// `${…}` that is no reference, as written.
    Unreadable(&'a str),
}

/// A reference: names with dots between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference<'a> {
    /// The text between the braces.
    pub path: &'a str,
}

/// The value that a reference names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// The text with which the run started.
    Query,
    /// A declared input of the run, and the path below it.
    Input(&'a str),
    /// `item`, `iteration` or `last.<node>` of the enclosing LOOP.
    Loop(&'a str),
    /// The output of a node, and the path below it; the path may be empty.
    Node {
        /// Id of the node.
        id: &'a str,
        /// Path below its output.
        path: &'a str,
    },
    /// The raw output of the node itself, in an `output_mapping`.
    Output(&'a str),
    /// A name of `input_mapping`, `input_params`, `env` or the secrets, in this order.
    Name {
        /// The name.
        name: &'a str,
        /// The path below its value.
        path: &'a str,
    },
}

impl<'a> Reference<'a> {
    /// The value that the reference names.
    pub fn target(self) -> Target<'a> {
        let (first, rest) = self.path.split_once('.').unwrap_or((self.path, ""));
        match first {
            "query" if rest.is_empty() => Target::Query,
            "input" if !rest.is_empty() => Target::Input(rest),
            "loop" if !rest.is_empty() => Target::Loop(rest),
            "output" => Target::Output(rest),
            _ => match rest.strip_prefix("output").filter(|path| path.is_empty() || path.starts_with('.')) {
                Some(path) => Target::Node { id: first, path: path.trim_start_matches('.') },
                None => Target::Name { name: first, path: rest },
            },
        }
    }
}

impl std::fmt::Display for Reference<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "${{{}}}", self.path)
    }
}

/// The parts of a text, in order.
pub fn pieces(text: &str) -> Pieces<'_> {
    Pieces { rest: text }
}

/// The references in a text, in order.
pub fn references(text: &str) -> impl Iterator<Item = Reference<'_>> {
    pieces(text).filter_map(|piece| match piece {
        Piece::Reference(reference) => Some(reference),
        Piece::Text(_) | Piece::Unreadable(_) => None,
    })
}

/// The reference, if the text consists of nothing else.
pub fn only(text: &str) -> Option<Reference<'_>> {
    let path = text.strip_prefix("${")?.strip_suffix('}')?;
    is_path(path).then_some(Reference { path })
}

/// Iterator over the parts of a text.
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        if self.rest.starts_with("$${") {
            return Some(Piece::Text(&self.take(3)[1..]));
        }
        if let Some(end) = end_of_reference(self.rest) {
            let whole = self.take(end);
            let path = &whole[2..whole.len() - 1];
            return Some(if is_path(path) { Piece::Reference(Reference { path }) } else { Piece::Unreadable(whole) });
        }
        // Text up to the next sign that may begin an escape or a reference.
        let skip = self.rest.chars().next().map_or(0, char::len_utf8);
        let end = self.rest[skip..].find('$').map_or(self.rest.len(), |at| skip + at);
        Some(Piece::Text(self.take(end)))
    }
}

impl<'a> Pieces<'a> {
    fn take(&mut self, end: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }
}

/// The length of the `${…}` at the beginning of a text.
fn end_of_reference(text: &str) -> Option<usize> {
    let inner = text.strip_prefix("${")?;
    // Braces and line breaks end the search, so that a text with many `${` is read in linear time.
    let end = inner.find(['}', '{', '\n'])?;
    inner[end..].starts_with('}').then_some(end + 3)
}

fn is_path(path: &str) -> bool {
    path.split('.').all(is_name)
}

/// True for a name that references may have: letters, digits, `_` and `-`.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
}

/// The text with each reference of a node replaced by what `rename` returns; `None` keeps the id.
pub fn renamed(text: &str, rename: impl Fn(&str) -> Option<String>) -> Option<String> {
    let is_renamed = |reference: Reference<'_>| match reference.target() {
        Target::Node { id, .. } => rename(id),
        _ => None,
    };
    references(text).any(|reference| is_renamed(reference).is_some()).then(|| {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        let mut pieces = pieces(text);
        while let Some(piece) = pieces.next() {
            let (written, after) = rest.split_at(rest.len() - pieces.rest.len());
            rest = after;
            match piece {
                Piece::Reference(reference) if let Some(id) = is_renamed(reference) => {
                    let below = reference.path.split_once('.').map_or("", |(_, below)| below);
                    out.extend(["${", &id, ".", below, "}"]);
                }
                Piece::Reference(_) | Piece::Text(_) | Piece::Unreadable(_) => out.push_str(written),
            }
        }
        out
    })
}

/// A condition in the grammar of workflow files: the references become the variables `{r0}`, `{r1}` and so on, in the
/// order of the text. The validator accepts no other braces in a condition.
pub fn as_condition(text: &str) -> (String, Vec<Reference<'_>>) {
    let (mut written, mut found) = (String::with_capacity(text.len()), Vec::new());
    for piece in pieces(text) {
        match piece {
            Piece::Reference(reference) => {
                written.push_str(&format!("{{r{}}}", found.len()));
                found.push(reference);
            }
            Piece::Text(text) | Piece::Unreadable(text) => written.push_str(text),
        }
    }
    (written, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let shown = pieces(text).map(|piece| match piece {
            Piece::Text(text) => format!("t:{text}"),
            Piece::Reference(reference) => format!("r:{}", reference.path),
            Piece::Unreadable(text) => format!("?:{text}"),
        });
        shown.collect()
    }

    #[test]
    fn references_escapes_and_texts_are_told_apart() {
        assert_eq!(shown("a ${b.output.0} $5 中${中-1}"), ["t:a ", "r:b.output.0", "t: ", "t:$5 中", "r:中-1"]);
        assert_eq!(shown("$${x} $$$ ${}"), ["t:${", "t:x} ", "t:$", "t:$", "t:$ ", "?:${}"]);
        assert_eq!(shown("${a b}${a..b}${c"), ["?:${a b}", "?:${a..b}", "t:${c"]);
        assert_eq!(shown("${a${b}"), ["t:${a", "r:b"]);
        assert_eq!(shown(""), Vec::<String>::new());
    }

    #[test]
    fn targets_follow_the_first_names() {
        let target = |path| Reference { path }.target();
        assert_eq!(target("query"), Target::Query);
        assert_eq!(target("input.a.b"), Target::Input("a.b"));
        assert_eq!(target("loop.last.x"), Target::Loop("last.x"));
        assert_eq!(target("n.output"), Target::Node { id: "n", path: "" });
        assert_eq!(target("n.output.data.0"), Target::Node { id: "n", path: "data.0" });
        assert_eq!(target("output.data"), Target::Output("data"));
        assert_eq!(target("n.outputs"), Target::Name { name: "n", path: "outputs" });
        assert_eq!(target("KEY"), Target::Name { name: "KEY", path: "" });
        assert_eq!(only("${a.output}"), Some(Reference { path: "a.output" }));
        assert_eq!(only("${a} "), None);
    }

    #[test]
    fn nodes_are_renamed_in_references_only() {
        let rename = |id: &str| (id == "a").then(|| "b".to_owned());
        assert_eq!(
            renamed("a ${a.output.x} $${a.output} ${c.output}", rename).unwrap(),
            "a ${b.output.x} $${a.output} ${c.output}"
        );
        assert_eq!(renamed("a ${c.output}", rename), None);
        assert_eq!(as_condition("${a.output.n} > 5").0, "{r0} > 5");
    }
}
