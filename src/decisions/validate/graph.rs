//! Checks plans: the number of nodes and edges, ids, edges, cycles, isolated nodes, and every node.

use super::check::{Check, list, object, text};
use super::level::{Level, RESERVED, Sight};
use super::references::{self, Place};
use super::{node, shape};
use crate::kind::DecisionType;
use crate::limits::{MAX_EDGES, MAX_NODES};
use crate::node_type::NodeType;
use crate::path::{Path, shown};
use crate::table::payloads::payload;
use crate::table::{Kind, References};
use serde_json::{Map, Value};
use std::collections::HashSet;
use types::json_kind::json_kind;

/// Checks the fields and the rules of a plan.
pub(super) fn whole(check: &mut Check<'_>, path: &Path<'_>, plan: &Map<String, Value>) {
    let table = payload(DecisionType::CreateWorkflowPlan);
    for field in table.fields.iter().filter(|field| ["nodes", "edges", "global_config"].contains(&field.name)) {
        match plan.get(field.name) {
            None | Some(Value::Null) if field.name == "nodes" => {
                check.rule(&path.field(field.name), || "is missing; give the nodes".to_owned());
            }
            None | Some(Value::Null) => {}
            Some(found) => shape::value(check, &path.field(field.name), field.kind, found),
        }
    }
    rules(check, path, plan);
}

/// Checks the rules of a plan. `shape` has checked the kinds of its fields.
pub(super) fn rules(check: &mut Check<'_>, path: &Path<'_>, plan: &Map<String, Value>) {
    let (nodes, edges) = (list(plan, "nodes"), list(plan, "edges"));
    let total = count(nodes, edges);
    if total.nodes > MAX_NODES {
        check.rule(&path.field("nodes"), || {
            format!("has {} nodes with those in loops, and at most {MAX_NODES} are allowed; use fewer", total.nodes)
        });
    }
    if total.edges > MAX_EDGES {
        check.rule(&path.field("edges"), || {
            format!("has {} edges with those in loops, and at most {MAX_EDGES} are allowed; use fewer", total.edges)
        });
    }
    if let Some(most) = check.world.policy().max_http_calls.filter(|most| total.http as u64 > *most) {
        check.rule(&path.field("nodes"), || {
            format!("has {} HTTP nodes, and at most {most} calls are allowed; use fewer", total.http)
        });
    }
    let global = object(plan, "global_config");
    let names = global.map(names).unwrap_or_default();
    let mut all = HashSet::new();
    ids(check, path, nodes, &mut all);
    let level = Level::new(nodes, edges);
    let seen = Sight { level: &level, node: None, with_itself: false, outer: None, names: &names, all: &all };
    self::level(check, path, edges, &seen);
    if let Some(global) = global {
        global_config(check, &path.field("global_config"), global, &seen);
    }
}

/// Checks a single node, which has no others around it.
pub(super) fn single(check: &mut Check<'_>, path: &Path<'_>, kind: NodeType, node: &Map<String, Value>) {
    let (level, names, mut all) = (Level::new(&[], &[]), HashSet::new(), HashSet::new());
    if kind == NodeType::Loop
        && let Some(body) = object(node, "config").and_then(|config| object(config, "body"))
    {
        ids(check, &path.field("config").field("body"), list(body, "nodes"), &mut all);
        let total = 1 + count(list(body, "nodes"), list(body, "edges")).nodes;
        if total > MAX_NODES {
            check.rule(&path.field("config").field("body"), || {
                format!("makes {total} nodes, and at most {MAX_NODES} are allowed; use fewer")
            });
        }
    }
    let seen = Sight { level: &level, node: None, with_itself: false, outer: None, names: &names, all: &all };
    node_and_body(check, path, kind, node, &seen);
}

/// The numbers of nodes and edges, with those in loops.
#[derive(Default)]
struct Total {
    nodes: usize,
    edges: usize,
    http: usize,
}

fn count(nodes: &[Value], edges: &[Value]) -> Total {
    let mut total = Total { nodes: nodes.len(), edges: edges.len(), http: 0 };
    for node in nodes.iter().filter_map(Value::as_object) {
        total.http += usize::from(text(node, "type") == Some(NodeType::Http.as_str()));
        if let Some(body) = body(node) {
            let inner = count(list(body, "nodes"), list(body, "edges"));
            total.nodes += inner.nodes;
            total.edges += inner.edges;
            total.http += inner.http;
        }
    }
    total
}

/// The body of a LOOP.
fn body(node: &Map<String, Value>) -> Option<&Map<String, Value>> {
    let is_loop = text(node, "type") == Some(NodeType::Loop.as_str());
    object(node, "config").filter(|_| is_loop).and_then(|config| object(config, "body"))
}

/// The names that every node may use: declared inputs and variables of `env`.
fn names(global: &Map<String, Value>) -> HashSet<&str> {
    let inputs = list(global, "inputs").iter().filter_map(|input| input.get("name")?.as_str());
    let env = object(global, "env").into_iter().flat_map(|env| env.keys().map(String::as_str));
    inputs.chain(env).collect()
}

/// Checks that ids are unique in the whole plan, and collects them.
fn ids<'p>(check: &mut Check<'_>, path: &Path<'_>, nodes: &'p [Value], all: &mut HashSet<&'p str>) {
    let path = path.field("nodes");
    for (at, node) in nodes.iter().enumerate() {
        let (item, Some(node)) = (path.item(at), node.as_object()) else { continue };
        if let Some(id) = text(node, "node_id") {
            let path = item.field("node_id");
            if RESERVED.contains(&id) {
                check.rule(&path, || format!("is `{id}`, which references use; choose another"));
            }
            if !all.insert(id) {
                check.rule(&path, || format!("is `{}`, the id of another node; choose another", shown(id, 40)));
            }
        }
        if let Some(body) = body(node) {
            ids(check, &item.field("config").field("body"), list(body, "nodes"), all);
        }
    }
}

/// Checks the nodes and edges of one level. `seen` sees all of its nodes.
fn level(check: &mut Check<'_>, path: &Path<'_>, edges: &[Value], seen: &Sight<'_>) {
    let level = seen.level;
    self::edges(check, &path.field("edges"), edges, seen);
    if let Some(way) = level.cycle() {
        check.rule(&path.field("edges"), || {
            let shown = if way.len() > 20 { [&way[..19], &["…"], &way[way.len() - 1..]].concat() } else { way };
            format!("form the cycle {}; remove one of its edges", shown.join(" → "))
        });
    }
    for (at, node) in level.nodes.iter().enumerate() {
        let Some(node) = node else { continue };
        let (nodes, kind) = (path.field("nodes"), text(node, "type").and_then(NodeType::parse));
        let path = nodes.item(at);
        if level.nodes.len() > 1 && !level.has_edge(at) && !kind.is_some_and(NodeType::is_structural) {
            check.rule(&path, || {
                format!("(`{}`) has no edge; connect it with another node, or remove it", shown(level.id(at), 40))
            });
        }
        let Some(kind) = kind.filter(|kind| check.is_file || !kind.is_of_files()) else { continue };
        node::kind(check, &path.field("type"), kind);
        node_and_body(check, &path, kind, node, &Sight { node: Some(at), ..*seen });
    }
}

/// Checks a node, and the body of a LOOP.
fn node_and_body(check: &mut Check<'_>, path: &Path<'_>, kind: NodeType, node: &Map<String, Value>, sight: &Sight<'_>) {
    let Some(body) =
        object(node, "config").filter(|_| kind == NodeType::Loop).and_then(|config| object(config, "body"))
    else {
        node::fields(check, path, kind, node, sight);
        return;
    };
    let inner = Level::new(list(body, "nodes"), list(body, "edges"));
    let seen = Sight { level: &inner, node: None, with_itself: false, outer: Some(sight), ..*sight };
    // The condition of a LOOP is checked after an iteration, so it sees the nodes of the body.
    node::fields(check, path, kind, node, &seen);
    level(check, &path.field("config").field("body"), list(body, "edges"), &seen);
}

fn edges(check: &mut Check<'_>, path: &Path<'_>, edges: &[Value], seen: &Sight<'_>) {
    let mut known = HashSet::new();
    for (at, edge) in edges.iter().enumerate() {
        let Some(edge) = edge.as_object() else { continue };
        let path = path.item(at);
        let (source, target) = (text(edge, "source"), text(edge, "target"));
        for (name, end) in [("source", source), ("target", target)] {
            if let Some(end) = end.filter(|end| seen.level.place(end).is_none()) {
                check.rule(&path.field(name), || {
                    format!("is `{}`, which is no node here; name an existing node", shown(end, 40))
                });
            }
        }
        if let (Some(source), Some(target)) = (source, target) {
            if source == target {
                check.rule(&path, || format!("leads from `{}` to itself; remove it", shown(source, 40)));
            } else if !known.insert((source, target)) {
                check.rule(&path, || {
                    format!("repeats the edge from `{}` to `{}`; remove it", shown(source, 40), shown(target, 40))
                });
            }
        }
        condition(check, &path.field("condition"), edge, source, seen);
    }
}

/// Checks the condition of an edge. On an edge that leaves a CONDITION node, `true` and `false` name its branch.
fn condition(
    check: &mut Check<'_>,
    path: &Path<'_>,
    edge: &Map<String, Value>,
    source: Option<&str>,
    seen: &Sight<'_>,
) {
    let Some(found) = edge.get("condition").filter(|found| found.is_string()) else { return };
    let place = source.and_then(|id| seen.level.place(id));
    let sight = Sight { node: place, with_itself: true, ..*seen };
    let place = Place { visible: &sight, mapping: None, secret_host: None, has_key: false };
    references::value(check, path, References::Condition, found, place);
}

fn global_config(check: &mut Check<'_>, path: &Path<'_>, global: &Map<String, Value>, seen: &Sight<'_>) {
    let mut known = HashSet::new();
    for (at, input) in list(global, "inputs").iter().enumerate() {
        let (inputs, Some(input)) = (path.field("inputs"), input.as_object()) else { continue };
        let path = inputs.item(at);
        let name = text(input, "name").unwrap_or_default();
        if !known.insert(name) {
            check.rule(&path.field("name"), || {
                format!("is `{}` as that of another input; choose another", shown(name, 40))
            });
        }
        if let (Some(kind), Some(default)) =
            (text(input, "type"), input.get("default").filter(|value| !value.is_null()))
            && !fits(kind, default)
        {
            check.report.error(crate::report::Group::Kind, &path.field("default"), || {
                format!("is {}; give {}", json_kind(default), of_type(kind))
            });
        }
    }
    if let Some(output) = global.get("output") {
        let place = Place { visible: seen, mapping: None, secret_host: None, has_key: false };
        references::value(check, &path.field("output"), References::Value, output, place);
    }
}

/// True if a value is of a declared type.
pub(super) fn fits(kind: &str, value: &Value) -> bool {
    match kind {
        "string" => value.is_string(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        // `shape` reports an unknown type.
        _ => true,
    }
}

/// A declared type in words.
pub(super) fn of_type(kind: &str) -> String {
    match kind {
        "string" => Kind::Text.expected(),
        "number" => "a number".into(),
        "boolean" => Kind::Truth.expected(),
        "object" => Kind::Object.expected(),
        _ => "a list".into(),
    }
}
