//! Checks one node: its type, its `config` and its references.

use super::check::{Check, object, text};
use super::references::{self, Place, Visible};
use super::{recovery, shape};
use crate::hosts::{self, UrlProblem};
use crate::limits::MAX_CODE_BYTES;
use crate::node_type::NodeType;
use crate::path::{Path, shown};
use crate::python::forbidden;
use crate::reference::{only, references as in_text};
use crate::report::Group;
use crate::table::References;
use crate::table::configs::config;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Checks that nodes may have this type.
pub(super) fn kind(check: &mut Check<'_>, path: &Path<'_>, kind: NodeType) {
    if !check.world.policy().allows_type(kind) {
        let allowed = check.world.policy().node_types.iter().filter(|kind| check.is_file || !kind.is_of_files());
        let allowed: Vec<_> = allowed.map(|kind| format!("`{kind}`")).collect();
        check.rule(path, || format!("is `{kind}`, which is not allowed here; use {}", allowed.join(", ")));
    }
}

/// Checks the fields of a node besides its id and type. `shape` has checked their kinds.
pub(super) fn fields(
    check: &mut Check<'_>,
    path: &Path<'_>,
    kind: NodeType,
    node: &Map<String, Value>,
    visible: &dyn Visible,
) {
    let mapping = object(node, "input_mapping");
    let place = Place { visible, mapping: None, secret_host: None, has_key: false };
    if let Some(mapping) = mapping {
        let path = path.field("input_mapping");
        for (name, found) in mapping {
            if kind == NodeType::Python && !shape::is_identifier(name) {
                check.rule(&path.field(name), || {
                    "is the name of a variable; use ASCII letters, digits and `_`, and no digit first".to_owned()
                });
            }
            references::value(check, &path.field(name), References::Value, found, place);
        }
    }
    if let Some(mapping) = object(node, "output_mapping") {
        references::output_mapping(check, &path.field("output_mapping"), mapping);
    }
    if let Some(config) = object(node, "config") {
        settings(check, &path.field("config"), kind, config, Place { mapping, ..place });
    }
    if let Some(plan) = object(node, "recovery") {
        recovery::plan(check, &path.field("recovery"), plan);
        recovery::fixed(check, &path.field("recovery"), plan, (kind, node), visible);
    }
}

/// Checks a `config` by the table and the rules of its type. The body of a LOOP is checked by `level`.
fn settings(check: &mut Check<'_>, path: &Path<'_>, kind: NodeType, found: &Map<String, Value>, place: Place<'_>) {
    let table = config(kind);
    shape::object(check, path, table, found, &[]);
    let host = if kind == NodeType::Http { http(check, path, found) } else { None };
    match kind {
        NodeType::Llm => llm(check, path, found),
        NodeType::Python => python(check, path, found),
        NodeType::Database => database(check, path, found),
        NodeType::Loop => repeats(check, path, found),
        NodeType::Wait if found.contains_key("seconds") == found.contains_key("until") => {
            check.rule(path, || "has not exactly one of `seconds` and `until`; give one".to_owned());
        }
        _ => {}
    }
    let has_key = kind == NodeType::Database;
    for field in table.fields.iter().filter(|field| field.references != References::None) {
        let Some(found) = found.get(field.name) else { continue };
        // A secret may be sent, but not be a part of the address.
        let secret_host = host.as_deref().filter(|_| field.references != References::Url);
        references::value(
            check,
            &path.field(field.name),
            field.references,
            found,
            Place { secret_host, has_key, ..place },
        );
    }
}

fn llm(check: &mut Check<'_>, path: &Path<'_>, config: &Map<String, Value>) {
    if ["prompt", "messages"].iter().all(|name| config.get(*name).is_none_or(Value::is_null)) {
        check.report.error(Group::Missing, &path.field("prompt"), || {
            "is missing; give the text for the model as `prompt`, or `messages`".to_owned()
        });
    }
    let policy = check.world.policy();
    if let (Some(model), Some(known)) = (text(config, "model"), &policy.models)
        && !known.contains(model)
    {
        check.report.warn(&path.field("model"), || {
            format!("names the unknown model `{}`, so the agent's own model is used; remove it", shown(model, 40))
        });
    }
    if let (Some(tokens), Some(most)) = (config.get("max_tokens").and_then(Value::as_f64), policy.max_llm_tokens) {
        #[allow(clippy::cast_precision_loss, reason = "a limit on tokens is far below 2^52")]
        if tokens > most as f64 {
            check.rule(&path.field("max_tokens"), || format!("is above the limit of {most} tokens; lower it"));
        }
    }
}

/// Checks the address of an HTTP node and returns its host.
fn http(check: &mut Check<'_>, path: &Path<'_>, config: &Map<String, Value>) -> Option<String> {
    let path = path.field("url");
    let url = text(config, "url").filter(|url| !url.trim().is_empty())?;
    match hosts::host(url) {
        Err(UrlProblem::Unreadable) => {
            check.rule(&path, || {
                format!("is `{}`, which is no address; write one such as `https://api.example.com/v1`", shown(url, 80))
            });
            None
        }
        Err(UrlProblem::ReferenceInHost) => {
            check.report.error(Group::Safety, &path, || {
                "has a reference before its path; write scheme, host and port as they are".to_owned()
            });
            None
        }
        Ok(host) => {
            if !check.world.policy().allows_host(&host) {
                check.report.error(Group::Safety, &path, || {
                    format!("calls the host `{host}`, which is not allowed; call one that the agent may reach")
                });
            }
            Some(host)
        }
    }
}

fn python(check: &mut Check<'_>, path: &Path<'_>, config: &Map<String, Value>) {
    let path = path.field("code");
    let Some(code) = text(config, "code") else { return };
    if code.len() > MAX_CODE_BYTES {
        check.rule(&path, || format!("has {} bytes, and at most {MAX_CODE_BYTES} are allowed; shorten it", code.len()));
    }
    if let Some(reference) = in_text(code).next() {
        check.rule(&path, || {
            format!("has `{reference}`, but code has no references; add it to `input_mapping` and use the variable")
        });
    }
    if let Some(facts) = check.world.code(code) {
        if let Some(error) = &facts.error {
            check.report.error(Group::Unsupported, &path, || format!("does not compile: {error}"));
        }
        facts.warnings.iter().for_each(|warning| check.report.warn(&path, || warning.clone()));
    }
    for found in forbidden(code) {
        check.report.error(Group::Safety, &path, || {
            format!("uses `{}` in line {}, which scripts may not; {}", found.name, found.line, found.remedy)
        });
    }
}

fn database(check: &mut Check<'_>, path: &Path<'_>, config: &Map<String, Value>) {
    let path = path.field("connection");
    let policy = check.world.policy();
    let Some(name) = text(config, "connection") else {
        if policy.connectors.as_ref().is_some_and(BTreeSet::is_empty) {
            check
                .rule(&path, || "is missing, and this agent may use no connector; use another type of node".to_owned());
        }
        return;
    };
    if let Some(allowed) = policy.connectors.as_ref().filter(|allowed| !allowed.contains(name)) {
        let allowed: Vec<_> = allowed.iter().map(|name| format!("`{name}`")).collect();
        let remedy =
            if allowed.is_empty() { "this agent has none".to_owned() } else { format!("use {}", allowed.join(", ")) };
        check.rule(&path, || format!("is `{}`, which this agent may not use; {remedy}", shown(name, 40)));
    } else if policy.registered_connectors.as_ref().is_some_and(|known| !known.contains(name)) {
        check.report.warn(&path, || {
            format!("names the connector `{}`, which is not registered; add it to the settings", shown(name, 40))
        });
    }
}

fn repeats(check: &mut Check<'_>, path: &Path<'_>, config: &Map<String, Value>) {
    if ["condition", "max_iterations", "items"].iter().all(|name| config.get(*name).is_none_or(Value::is_null)) {
        check.report.error(Group::Missing, &path.field("max_iterations"), || {
            "is missing; give `max_iterations`, `condition` or `items`".to_owned()
        });
    }
    let is_list =
        |items: &Value| items.is_array() || items.is_null() || items.as_str().is_some_and(|text| only(text).is_some());
    if config.get("items").is_some_and(|items| !is_list(items)) {
        check.rule(&path.field("items"), || {
            "is no list; give a list, or a reference to one and nothing else".to_owned()
        });
    }
}
