//! Looks for probable mistakes in a script that compiles.

use crate::protocol::Warning;
use ruff_python_ast::visitor::{Visitor, walk_stmt};
use ruff_python_ast::{Stmt, StmtImport, StmtImportFrom};
use ruff_text_size::Ranged;

/// The modules of the built-in Python.
pub(super) const MODULES: &[&str] = &[
    "__future__",
    "asyncio",
    "base64",
    "binascii",
    "collections",
    "dataclasses",
    "datetime",
    "functools",
    "itertools",
    "json",
    "math",
    "os",
    "pathlib",
    "re",
    "sys",
    "typing",
    "unicodedata",
];

/// The remedy for a missing module.
pub(super) const MODULE_REMEDY: &str =
    "do without it, or have an operator set python.runner to `command` with a runner that has it";

/// The warnings about a script, in the order of its lines.
pub(super) fn warnings(code: &str) -> Vec<Warning> {
    let Ok(parsed) = ruff_python_parser::parse_module(code) else { return Vec::new() };
    let mut look = Look { code, found: Vec::new(), returns: false };
    look.visit_body(parsed.suite());
    if !look.returns {
        let message = "it has no `return` outside of functions, so its output is null; return a value".to_owned();
        look.found.push(Warning { line: None, message });
    }
    look.found
}

struct Look<'c> {
    code: &'c str,
    found: Vec<Warning>,
    /// True if the script has a `return` outside of functions.
    returns: bool,
}

impl Look<'_> {
    fn module(&mut self, name: &str, statement: &Stmt) {
        let root = name.split('.').next().unwrap_or(name);
        if !MODULES.contains(&root) {
            let before = &self.code.as_bytes()[..statement.start().to_usize()];
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            let message = format!("imports `{root}`, which the built-in Python does not have; {MODULE_REMEDY}");
            self.found.push(Warning { line: u32::try_from(line).ok(), message });
        }
    }
}

impl<'a> Visitor<'a> for Look<'_> {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        match statement {
            Stmt::Import(StmtImport { names, .. }) => {
                names.iter().for_each(|alias| self.module(alias.name.as_str(), statement));
            }
            Stmt::ImportFrom(StmtImportFrom { module: Some(module), .. }) => self.module(module.as_str(), statement),
            Stmt::Return(_) => self.returns = true,
            Stmt::FunctionDef(_) | Stmt::ClassDef(_) => {
                let returns = self.returns;
                walk_stmt(self, statement);
                self.returns = returns;
            }
            _ => walk_stmt(self, statement),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &str) -> Vec<(Option<u32>, String)> {
        warnings(code).into_iter().map(|warning| (warning.line, warning.message.chars().take(15).collect())).collect()
    }

    #[test]
    fn missing_modules_and_a_missing_return_are_found() {
        assert_eq!(found("import json, re\nfrom datetime import datetime\nreturn 1"), []);
        assert_eq!(
            found("import json\ndef f():\n    import numpy.linalg as la\n    return 1\nfrom pandas import x\n"),
            [
                (Some(3), "imports `numpy`".to_owned()),
                (Some(5), "imports `pandas".to_owned()),
                (None, "it has no `retu".to_owned())
            ]
        );
        assert_eq!(found("if a:\n    return 1"), []);
    }
}
