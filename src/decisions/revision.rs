//! Revisions of plans: applies the changes of a replan, and finds nodes. Works on raw plans, valid or not.

use crate::reference::renamed;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};

/// A changed plan. It is not validated.
#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    /// The plan.
    pub plan: Map<String, Value>,
    /// Ids that were chosen and references that were renamed, in words.
    pub warnings: Vec<String>,
    /// The entries of `remove_edges` without such an edge: their places and their ends.
    pub unknown_edges: Vec<(usize, String)>,
}

/// Applies `suggested_changes` to a plan.
///
/// The edges of removed nodes go. An added node without id takes one that `update_edges` names and no node has, else the
/// lowest free `node_<n>`. Where an added node leads to a node to which a removed one led, references to the removed node
/// in that node name the added one.
pub fn apply(plan: &Map<String, Value>, changes: &Map<String, Value>) -> Revision {
    let removed: HashSet<&str> = list(changes, "remove_nodes").iter().filter_map(Value::as_str).collect();
    let mut revision = Revision { plan: plan.clone(), warnings: Vec::new(), unknown_edges: Vec::new() };
    let kept = list(plan, "nodes").iter().filter(|node| !removed.contains(text(node, "node_id")));
    let mut nodes: Vec<Value> = kept.cloned().collect();
    let added = added(&nodes, changes, &mut revision.warnings);
    let ids: HashSet<String> = added.iter().map(|node| text(node, "node_id").to_owned()).collect();
    nodes.extend(added);
    let touches = |edge: &&Value| [text(edge, "source"), text(edge, "target")].iter().any(|end| removed.contains(end));
    let old = list(plan, "edges");
    let mut edges: Vec<Value> = old.iter().filter(|edge| !touches(edge)).cloned().collect();
    for (at, edge) in list(changes, "remove_edges").iter().enumerate() {
        if !old.iter().any(|known| ends(known) == ends(edge)) {
            let (source, target) = ends(edge);
            revision.unknown_edges.push((at, format!("from `{source}` to `{target}`")));
        }
        edges.retain(|known| ends(known) != ends(edge));
    }
    for edge in list(changes, "update_edges") {
        match edges.iter_mut().find(|known| ends(known) == ends(edge)) {
            Some(known) => *known = edge.clone(),
            None => edges.push(edge.clone()),
        }
    }
    let replaced = replaced(old, &edges, &removed, &ids);
    rename(&mut nodes, &replaced, &mut revision.warnings);
    revision.plan.insert("nodes".into(), nodes.into());
    revision.plan.insert("edges".into(), edges.into());
    revision
}

/// The added nodes with their ids.
fn added(kept: &[Value], changes: &Map<String, Value>, warnings: &mut Vec<String>) -> Vec<Value> {
    let given = list(changes, "add_nodes");
    let mut taken: HashSet<String> =
        kept.iter().chain(given).map(|node| text(node, "node_id").to_owned()).filter(|id| !id.is_empty()).collect();
    let named = list(changes, "update_edges").iter().flat_map(|edge| [text(edge, "source"), text(edge, "target")]);
    let mut named: Vec<&str> = named.filter(|id| !id.is_empty()).collect();
    let mut added = Vec::with_capacity(given.len());
    let mut lowest = 1;
    for node in given {
        let mut node = node.clone();
        if let Some(fields) = node.as_object_mut().filter(|fields| fields.get("node_id").is_none_or(Value::is_null)) {
            named.retain(|id| !taken.contains(*id));
            let id = match named.first() {
                Some(id) => (*id).to_owned(),
                None => loop {
                    let id = format!("node_{lowest}");
                    if !taken.contains(&id) {
                        break id;
                    }
                    lowest += 1;
                },
            };
            warnings.push(format!("adds a node without `node_id`, which becomes `{id}`; give one to choose it"));
            fields.insert("node_id".into(), json!(id));
            taken.insert(id);
        }
        added.push(node);
    }
    added
}

/// For each target of an added node, the removed nodes that led to it before, with the added one.
type Replaced<'p> = HashMap<String, HashMap<&'p str, String>>;

fn replaced<'p>(old: &'p [Value], new: &[Value], removed: &HashSet<&str>, added: &HashSet<String>) -> Replaced<'p> {
    let mut replaced: Replaced<'p> = HashMap::new();
    for edge in new.iter().filter(|edge| added.contains(text(edge, "source"))) {
        let (source, target) = ends(edge);
        for before in old.iter().filter(|edge| text(edge, "target") == target) {
            let gone = text(before, "source");
            if removed.contains(gone) && gone != source {
                replaced.entry(target.to_owned()).or_default().entry(gone).or_insert_with(|| source.to_owned());
            }
        }
    }
    replaced
}

fn rename(nodes: &mut [Value], replaced: &Replaced<'_>, warnings: &mut Vec<String>) {
    for node in nodes {
        let id = text(node, "node_id").to_owned();
        let Some(names) = replaced.get(&id) else { continue };
        let mut used = HashSet::new();
        for name in ["input_mapping", "config"] {
            if let Some(field) = node.get_mut(name) {
                rename_in(field, names, &mut used);
            }
        }
        let mut used: Vec<_> = used.into_iter().collect();
        used.sort();
        for (from, to) in used {
            warnings.push(format!(
                "renames references to `{from}` in `{id}` to `{to}`; write them so to avoid this warning"
            ));
        }
    }
}

fn rename_in(value: &mut Value, names: &HashMap<&str, String>, used: &mut HashSet<(String, String)>) {
    match value {
        Value::String(text) => {
            let changed = renamed(text, |id| names.get(id).cloned());
            if let Some(changed) = changed {
                let named = names.iter().filter(|(from, _)| text.contains(&format!("${{{from}.output")));
                used.extend(named.map(|(from, to)| ((*from).to_owned(), to.clone())));
                *text = changed;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename_in(item, names, used)),
        Value::Object(fields) => fields.values_mut().for_each(|field| rename_in(field, names, used)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The node with this id, also in the body of a LOOP.
pub fn node<'p>(plan: &'p Map<String, Value>, id: &str) -> Option<&'p Map<String, Value>> {
    list(plan, "nodes").iter().filter_map(Value::as_object).find_map(|node| {
        let is_it = node.get("node_id").and_then(Value::as_str) == Some(id);
        if is_it { Some(node) } else { self::node(body(node)?, id) }
    })
}

/// The ids of all nodes, also of those in loops.
pub fn ids(plan: &Map<String, Value>) -> Vec<&str> {
    let nodes = list(plan, "nodes").iter().filter_map(Value::as_object);
    let all = nodes.flat_map(|node| {
        let own = node.get("node_id").and_then(Value::as_str);
        own.into_iter().chain(body(node).map(ids).unwrap_or_default())
    });
    all.collect()
}

/// The plan with another node in place of the one with this id.
pub fn with_node(plan: &Map<String, Value>, id: &str, node: Map<String, Value>) -> Option<Map<String, Value>> {
    let mut plan = plan.clone();
    *node_mut(&mut plan, id)? = node;
    Some(plan)
}

fn node_mut<'p>(plan: &'p mut Map<String, Value>, id: &str) -> Option<&'p mut Map<String, Value>> {
    let nodes = plan.get_mut("nodes")?.as_array_mut()?;
    nodes.iter_mut().filter_map(Value::as_object_mut).find_map(|node| {
        if node.get("node_id").and_then(Value::as_str) == Some(id) {
            return Some(node);
        }
        let body = node.get_mut("config")?.get_mut("body")?.as_object_mut()?;
        node_mut(body, id)
    })
}

/// True if edges lead from `earlier` to `later`.
pub fn depends(plan: &Map<String, Value>, later: &str, earlier: &str) -> bool {
    let mut next: HashMap<&str, Vec<&str>> = HashMap::new();
    for (source, target) in list(plan, "edges").iter().map(ends) {
        next.entry(source).or_default().push(target);
    }
    let (mut reached, mut open) = (HashSet::from([earlier]), vec![earlier]);
    while let Some(at) = open.pop() {
        let targets = next.remove(at).unwrap_or_default();
        open.extend(targets.into_iter().filter(|target| reached.insert(target)));
    }
    later != earlier && reached.contains(later)
}

fn body(node: &Map<String, Value>) -> Option<&Map<String, Value>> {
    node.get("config")?.get("body")?.as_object()
}

fn list<'v>(fields: &'v Map<String, Value>, name: &str) -> &'v [Value] {
    fields.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn ends(edge: &Value) -> (&str, &str) {
    (text(edge, "source"), text(edge, "target"))
}
