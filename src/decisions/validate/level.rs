//! The nodes and edges of one level of a plan: the plan itself, or the body of a LOOP.

use super::check::text;
use super::references::Visible;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// The most nodes for which it is known which run before which. A plan with more is invalid anyway.
const MAX_ORDERED: usize = 64;

/// Names that no node can have, because references use them.
pub(super) const RESERVED: [&str; 5] = ["input", "env", "query", "loop", "output"];

/// The nodes of a level, and the edges between them.
pub(super) struct Level<'p> {
    pub(super) nodes: Vec<Option<&'p Map<String, Value>>>,
    places: HashMap<&'p str, usize>,
    next: Vec<Vec<usize>>,
    touched: Vec<bool>,
    /// For each node a bit for each node that runs before it; empty for a level with a cycle or too many nodes.
    before: Vec<u64>,
}

impl<'p> Level<'p> {
    pub(super) fn new(nodes: &'p [Value], edges: &'p [Value]) -> Self {
        let nodes: Vec<_> = nodes.iter().map(Value::as_object).collect();
        let mut places = HashMap::with_capacity(nodes.len());
        for (at, node) in nodes.iter().enumerate() {
            if let Some(id) = node.and_then(|node| text(node, "node_id")) {
                places.entry(id).or_insert(at);
            }
        }
        let (next, touched) = (vec![Vec::new(); nodes.len()], vec![false; nodes.len()]);
        let mut level = Self { nodes, places, next, touched, before: Vec::new() };
        for edge in edges.iter().filter_map(Value::as_object) {
            let end = |name| text(edge, name).and_then(|id| level.places.get(id).copied());
            let (source, target) = (end("source"), end("target"));
            for end in [source, target].into_iter().flatten() {
                level.touched[end] = true;
            }
            if let (Some(source), Some(target)) = (source, target)
                && source != target
            {
                level.next[source].push(target);
            }
        }
        level.before = level.ancestors();
        level
    }

    pub(super) fn id(&self, at: usize) -> &'p str {
        self.nodes[at].and_then(|node| text(node, "node_id")).unwrap_or_default()
    }

    pub(super) fn place(&self, id: &str) -> Option<usize> {
        self.places.get(id).copied()
    }

    /// True if an edge begins or ends at the node.
    pub(super) fn has_edge(&self, at: usize) -> bool {
        self.touched[at]
    }

    /// For each node the nodes that run before it, in the order of the edges.
    fn ancestors(&self) -> Vec<u64> {
        let count = self.nodes.len();
        if count > MAX_ORDERED {
            return Vec::new();
        }
        let mut incoming = vec![0_usize; count];
        self.next.iter().flatten().for_each(|target| incoming[*target] += 1);
        let mut ready: Vec<usize> = (0..count).filter(|at| incoming[*at] == 0).collect();
        let (mut before, mut done) = (vec![0_u64; count], 0);
        while let Some(at) = ready.pop() {
            done += 1;
            for target in &self.next[at] {
                before[*target] |= before[at] | (1 << at);
                incoming[*target] -= 1;
                if incoming[*target] == 0 {
                    ready.push(*target);
                }
            }
        }
        if done == count { before } else { Vec::new() }
    }

    /// The ids of a cycle, in the order of the edges, ending with the first one.
    pub(super) fn cycle(&self) -> Option<Vec<&'p str>> {
        let mut done = vec![false; self.nodes.len()];
        for start in 0..self.nodes.len() {
            // The way to the current node, each with the number of edges already followed.
            let mut way: Vec<(usize, usize)> = vec![(start, 0)];
            let mut on_way = HashSet::from([start]);
            while let Some((at, followed)) = way.last_mut() {
                let Some(target) = self.next[*at].get(*followed).copied().filter(|_| !done[*at]) else {
                    done[*at] = true;
                    on_way.remove(at);
                    way.pop();
                    continue;
                };
                *followed += 1;
                if on_way.contains(&target) {
                    let begin = way.iter().position(|(at, _)| *at == target).unwrap_or(0);
                    return Some(way[begin..].iter().map(|(at, _)| self.id(*at)).chain([self.id(target)]).collect());
                }
                if !done[target] {
                    way.push((target, 0));
                    on_way.insert(target);
                }
            }
        }
        None
    }
}

/// What one node of a level sees.
pub(super) struct Sight<'a> {
    pub(super) level: &'a Level<'a>,
    /// The node. With `None` all nodes are seen, as for the output of the run.
    pub(super) node: Option<usize>,
    /// True if the node itself is seen, as for the condition of an edge that leaves it.
    pub(super) with_itself: bool,
    /// The sight of the LOOP around the level.
    pub(super) outer: Option<&'a Sight<'a>>,
    /// Bare names with a value.
    pub(super) names: &'a HashSet<&'a str>,
    /// All ids of the plan.
    pub(super) all: &'a HashSet<&'a str>,
}

impl Visible for Sight<'_> {
    fn runs_before(&self, id: &str) -> Option<bool> {
        let Some(place) = self.level.place(id) else {
            return match self.outer {
                Some(outer) => outer.runs_before(id),
                None => self.all.contains(id).then_some(false),
            };
        };
        let Some(node) = self.node else { return Some(true) };
        // Without a known order every node may run before.
        let before = self.level.before.get(node).is_none_or(|before| before & (1 << place) != 0);
        Some(if place == node { self.with_itself } else { before })
    }

    fn has_name(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    fn is_in_loop(&self) -> bool {
        self.outer.is_some()
    }
}
