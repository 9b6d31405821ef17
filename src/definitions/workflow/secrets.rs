//! Checks that the HTTP nodes of a graph send secrets only to the hosts that the setting `secrets.allow` binds them to.

use super::definition::{Shape, Workflow};
use super::graph::{GraphDefinition, GraphNode};
use crate::document::Report;
use decisions::hosts::{self, SECRET_FIELDS};
use decisions::node_type::NodeType;
use decisions::reference::{Target, references};
use serde_json::Value;
use types::allowed_secrets::AllowedSecrets;

/// Reports every secret that a node of a graph sends to a host for which it is not. Names that the settings do not list are
/// no secrets.
pub(super) fn check(workflow: &Workflow, allowed: &AllowedSecrets, report: &mut Report) {
    let Shape::Graph(graph) = &workflow.shape else { return };
    graph.level.walk("", &mut |path, node| {
        if node.kind() == NodeType::Http {
            check_node(graph, node, &path, allowed, report);
        }
    });
}

fn check_node(graph: &GraphDefinition, node: &GraphNode, path: &str, allowed: &AllowedSecrets, report: &mut Report) {
    let config = &node.spec.config;
    // The validator has checked the address, and no reference can be in its host.
    let Ok(host) = hosts::host(config.get("url").and_then(Value::as_str).unwrap_or_default()) else { return };
    for field in SECRET_FIELDS {
        let Some(value) = config.get(field) else { continue };
        each_text(&format!("{path}.config.{field}"), value, &mut |path, text| {
            for name in references(text).filter_map(|reference| match reference.target() {
                Target::Name { name, path: "" } if !is_given(graph, node, name) => Some(name),
                _ => None,
            }) {
                if let Some(refusal) = allowed.hosts(name).and_then(|_| allowed.check(name, Some(&host)).err()) {
                    report.error(path, refusal.problem(), refusal.remedy());
                }
            }
        });
    }
}

/// True for a name that stands for another value than a secret.
fn is_given(graph: &GraphDefinition, node: &GraphNode, name: &str) -> bool {
    let is_input = graph.global.inputs.iter().flatten().any(|input| input.name == name);
    let is_variable = graph.global.env.as_ref().is_some_and(|env| env.contains_key(name));
    let is_mapped = node.spec.input_mapping.as_ref().is_some_and(|mapping| mapping.contains_key(name));
    is_input || is_variable || is_mapped
}

fn each_text(path: &str, value: &Value, visit: &mut impl FnMut(&str, &str)) {
    match value {
        Value::String(text) => visit(path, text),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| each_text(&format!("{path}[{at}]"), item, visit));
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(name, field)| each_text(&format!("{path}.{name}"), field, visit));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
