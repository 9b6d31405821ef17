//! Checks references: that they can be read, that their nodes exist and run before, and that secrets stay with their hosts.

use super::check::Check;
use crate::limits::MAX_CONDITION_BYTES;
use crate::path::{Path, shown};
use crate::reference::{IDEMPOTENCY_KEY, Piece, Reference, Target, as_condition, only, pieces};
use crate::report::Group;
use crate::table::References;
use serde_json::{Map, Value};

/// The values to which a node may refer.
pub(super) trait Visible {
    /// Whether the node with this id runs before. `None` if it does not exist.
    fn runs_before(&self, id: &str) -> Option<bool>;
    /// Whether a bare name has a value: an input or a variable of `env`.
    fn has_name(&self, name: &str) -> bool;
    /// True within the body of a LOOP.
    fn is_in_loop(&self) -> bool;
}

/// The place of references: the visible nodes and names, and the host for secrets.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) visible: &'a dyn Visible,
    /// The node's `input_mapping`, whose names come first.
    pub(super) mapping: Option<&'a Map<String, Value>>,
    /// The host that receives secrets: that of an HTTP node, within `params`, `headers` and `body`.
    pub(super) secret_host: Option<&'a str>,
    /// True in the statement and the `params` of a DATABASE node, which may name its idempotency key.
    pub(super) has_key: bool,
}

/// Checks all texts in a value.
pub(super) fn value(check: &mut Check<'_>, path: &Path<'_>, role: References, found: &Value, place: Place<'_>) {
    match found {
        Value::String(text) if text.contains('$') || role == References::Condition => {
            self::text(check, path, role, text, place);
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                value(check, &path.item(at), role, item, place);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                value(check, &path.field(name), role, field, place);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn text(check: &mut Check<'_>, path: &Path<'_>, role: References, text: &str, place: Place<'_>) {
    for piece in pieces(text) {
        match piece {
            Piece::Reference(reference) => self::reference(check, path, reference, place),
            Piece::Unreadable(written) => check.rule(path, || {
                let written = shown(written, 60);
                format!("has `{written}`, which is no reference; write `${{node.output.name}}`, or `${written}` for the text")
            }),
            Piece::Text(_) => {}
        }
    }
    if role == References::Condition {
        condition(check, path, text);
    }
}

/// Checks a condition with references as operands.
fn condition(check: &mut Check<'_>, path: &Path<'_>, text: &str) {
    if text.len() > MAX_CONDITION_BYTES {
        check.rule(path, || {
            format!("has {} bytes, and at most {MAX_CONDITION_BYTES} are allowed; let a node decide", text.len())
        });
        return;
    }
    if pieces(text).any(|piece| matches!(piece, Piece::Text(text) if text.contains(['{', '}']))) {
        check.rule(path, || "has a brace outside of a reference; write an operand as `${node.output.name}`".to_owned());
        return;
    }
    let (written, references) = as_condition(text);
    if let Err(problem) = check.world.check_condition(&written) {
        check.rule(path, || {
            let shown = references.iter().enumerate().fold(problem, |problem, (at, reference)| {
                problem.replace(&format!("{{r{at}}}"), &reference.to_string())
            });
            format!("cannot be read: {shown}")
        });
    }
}

fn reference(check: &mut Check<'_>, path: &Path<'_>, reference: Reference<'_>, place: Place<'_>) {
    match reference.target() {
        Target::Query | Target::Input(_) => {}
        Target::Loop(_) if place.visible.is_in_loop() => {}
        Target::Loop(_) => {
            check.rule(path, || format!("names `{reference}` outside of a LOOP; name a node or an input"));
        }
        Target::Output(_) => check.rule(path, || {
            format!("names `{reference}`, which only `output_mapping` knows; write `${{node.output.name}}`")
        }),
        Target::Node { id, .. } => node(check, path, reference, id, place),
        Target::Name { name, .. } => self::name(check, path, reference, name, place),
    }
}

fn node(check: &mut Check<'_>, path: &Path<'_>, reference: Reference<'_>, id: &str, place: Place<'_>) {
    match place.visible.runs_before(id) {
        Some(true) => {}
        Some(false) => check.rule(path, || {
            format!("names `{reference}`, but `{id}` does not run before this node; add edges from it to this node")
        }),
        None => check.rule(path, || {
            format!("names `{reference}`, but there is no node `{id}`; name a node that runs before this one")
        }),
    }
}

fn name(check: &mut Check<'_>, path: &Path<'_>, reference: Reference<'_>, name: &str, place: Place<'_>) {
    if place.mapping.is_some_and(|mapping| mapping.contains_key(name))
        || place.visible.has_name(name)
        || place.has_key && name == IDEMPOTENCY_KEY && reference.path == name
    {
        return;
    }
    if let Some(scope) = check.world.policy().secrets.get(name) {
        match place.secret_host.map(|host| (host, scope.refusal(host))) {
            Some((_, None)) => {}
            Some((host, Some(refusal))) => check.report.error(Group::Safety, path, || {
                format!("sends the secret `{name}` to `{host}`, but {refusal}; call that host, or remove it")
            }),
            None => check.report.error(Group::Safety, path, || {
                format!("names the secret `{name}`; use it only in `params`, `headers` or `body` of an HTTP node")
            }),
        }
        return;
    }
    match place.visible.runs_before(name) {
        Some(_) => check.rule(path, || {
            let below = reference.path.split_once('.').map_or(String::new(), |(_, below)| format!(".{below}"));
            format!(
                "names `{reference}`, which leads nowhere; write `${{{name}.output{below}}}` for the output of the node"
            )
        }),
        None => check.report.warn(path, || {
            format!("names `{reference}`, which nothing here gives; add it to `input_mapping`, `env` or `inputs`")
        }),
    }
}

/// Checks an `output_mapping`: each value is a reference into the raw output.
pub(super) fn output_mapping(check: &mut Check<'_>, path: &Path<'_>, mapping: &Map<String, Value>) {
    for (name, found) in mapping {
        let reference = found.as_str().and_then(only).map(Reference::target);
        if !matches!(reference, Some(Target::Output(_))) {
            check.rule(&path.field(name), || {
                "is no reference to the node's own output; write one such as `${output.data}`".to_owned()
            });
        }
    }
}
