//! The place of a value within a payload, such as `nodes[3].config.timeout`.

use std::fmt;

/// The longest name in a path that a message shows, in characters.
const MAX_NAME: usize = 80;

/// A place in a payload. It borrows its parent, so that walking through a payload allocates nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Item(usize),
}

impl<'a> Path<'a> {
    /// The payload itself.
    pub(crate) const ROOT: Self = Path { parent: None, step: Step::Root };

    /// The field `name` of this value.
    pub(crate) fn field(&'a self, name: &'a str) -> Self {
        Path { parent: Some(self), step: Step::Field(name) }
    }

    /// The item `at` of this list.
    pub(crate) fn item(&'a self, at: usize) -> Self {
        Path { parent: Some(self), step: Step::Item(at) }
    }

    fn is_root(&self) -> bool {
        matches!(self.step, Step::Root)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Payloads have at most 64 levels, so the recursion is bounded.
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Item(at) => write!(f, "[{at}]"),
            Step::Field(name) => {
                let dot = if self.parent.is_none_or(Path::is_root) { "" } else { "." };
                write!(f, "{dot}{}", shown(name, MAX_NAME))
            }
        }
    }
}

/// A text of the model for a message: on one line, without backquotes, at most `limit` characters.
pub(crate) fn shown(text: &str, limit: usize) -> String {
    let plain = |c: char| {
        if c.is_control() {
            ' '
        } else if c == '`' {
            '\''
        } else {
            c
        }
    };
    let mut chars = text.chars();
    let mut shown: String = chars.by_ref().take(limit).map(plain).collect();
    if chars.next().is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_dots_and_brackets() {
        let (root, nodes) = (Path::ROOT, Path::ROOT.field("nodes"));
        let node = nodes.item(3);
        let config = node.field("config");
        assert_eq!(config.field("timeout").to_string(), "nodes[3].config.timeout");
        assert_eq!(root.to_string(), "");
        assert_eq!(root.field(&"`\n".repeat(99)).to_string().chars().count(), MAX_NAME + 1);
    }
}
