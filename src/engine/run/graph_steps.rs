//! The recoveries and replans among the recorded steps of a graph, for resumed and restarted runs.
//!
//! A recovery of a node has keys such as `node/recover[1]` and `node/recover[1]/judge`. The step `replan[1]` of a graph
//! holds the revised graph, and nodes that run after it have keys such as `node@1/run`.

use super::start_record::BEGIN_KEY;
use super::step_reuse::segments;
use definitions::workflow::graph::GraphDefinition;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use types::step::StepRecord;

/// Kind of the steps that hold verdicts.
const DECISION: &str = "decision";

/// The recoveries and replans of the graphs of a run.
pub(super) struct Revisions {
    /// The last replan that was carried out, by the key of its graph.
    last: BTreeMap<String, u32>,
    /// All replans by the keys of their graphs, also the invalid ones.
    replans: BTreeSet<(String, u32)>,
    /// The keys of the nodes that have had recoveries.
    recovered: BTreeSet<String>,
}

impl Revisions {
    /// Finds the recoveries and replans among the steps of a run.
    pub(super) fn of(steps: &[StepRecord]) -> Self {
        let mut found = Self { last: BTreeMap::new(), replans: BTreeSet::new(), recovered: BTreeSet::new() };
        for step in steps.iter().filter(|step| [DECISION, "model"].contains(&step.kind.as_str())) {
            if let Some((graph, number)) = replan(&step.key) {
                if step.kind == DECISION && step.ok {
                    let last = found.last.entry(graph.to_owned()).or_default();
                    *last = number.max(*last);
                }
                found.replans.insert((graph.to_owned(), number));
            }
            found.recovered.extend(recovered(&step.key).map(str::to_owned));
        }
        found
    }

    /// True if each node in the key runs in the last revision of its graph.
    pub(super) fn is_last(&self, key: &str) -> bool {
        let (mut graph, mut end) = (String::new(), 0);
        segments(key).iter().zip(key.split('/')).all(|(segment, text)| {
            let is_last = self.last.get(&graph).is_none_or(|last| *last == segment.revision);
            end += text.len();
            graph = key[..end].to_owned();
            end += 1;
            is_last
        })
    }

    /// The steps without the recoveries of the nodes that `is_around` selects by their keys, without the attempts after
    /// a recovery, and without the replans that were not carried out. So these nodes have all their recoveries again.
    pub(super) fn without_recoveries(
        &self,
        steps: Vec<StepRecord>,
        is_around: &dyn Fn(&str) -> bool,
    ) -> Vec<StepRecord> {
        let nodes = self.recovered.iter().filter(|node| is_around(node));
        let nodes: Vec<[String; 2]> = nodes.map(|node| [format!("{node}/recover["), format!("{node}~")]).collect();
        let is_dropped = |key: &str| {
            nodes.iter().flatten().any(|prefix| key.starts_with(prefix.as_str()))
                || replan(key).is_some_and(|(graph, number)| {
                    let key = (graph.to_owned(), number);
                    (graph.is_empty() || is_around(graph))
                        && self.replans.contains(&key)
                        && self.last.get(graph).is_none_or(|last| number > *last)
                })
        };
        steps.into_iter().filter(|step| !is_dropped(&step.key)).collect()
    }
}

/// The graph and the number of a replan, for the keys `replan[1]` and `replan[1]/decide`, and its corrections.
fn replan(key: &str) -> Option<(&str, u32)> {
    let key = without_correction(key);
    let key = key.strip_suffix("/decide").unwrap_or(key);
    let (graph, last) = key.rsplit_once('/').unwrap_or(("", key));
    Some((graph, number(last, "replan[")?))
}

/// The key of the node, for the key of a step of its recovery.
fn recovered(key: &str) -> Option<&str> {
    let key = without_correction(key);
    let ends = ["/judge", "/refused", "/alternative"];
    let key = ends.iter().find_map(|end| key.strip_suffix(end)).unwrap_or(key);
    let (node, last) = key.rsplit_once('/')?;
    number(last, "recover[").map(|_| node)
}

fn without_correction(key: &str) -> &str {
    match key.rsplit_once('/') {
        Some((asked, last)) if number(last, "correct[").is_some() => asked,
        _ => key,
    }
}

fn number(segment: &str, prefix: &str) -> Option<u32> {
    segment.strip_prefix(prefix)?.strip_suffix(']')?.parse().ok()
}

/// The revisions of the graph of a run, by the numbers of their replans.
pub(super) fn revised(graph: &GraphDefinition, steps: &[StepRecord]) -> Vec<(u32, GraphDefinition)> {
    let valid = steps.iter().filter(|step| step.kind == DECISION && step.ok);
    let mut revised: Vec<_> = valid
        .filter_map(|step| {
            let ("", number) = replan(&step.key)? else { return None };
            let plan = step.output.get("plan").and_then(Value::as_object)?.clone();
            Some((number, graph.revised(plan).ok()?))
        })
        .collect();
    revised.sort_by_key(|(number, _)| *number);
    revised
}

/// Selects the steps of a graph that do not depend on the node `from`. A replan depends on everything that ran before
/// it.
pub(super) fn before_node(steps: Vec<StepRecord>, graph: &GraphDefinition, from: &str) -> Vec<StepRecord> {
    let path = segments(from);
    let Some(from) = path.first().map(|segment| segment.id) else { return steps };
    let mut revisions = vec![(0, graph.clone())];
    revisions.extend(revised(graph, &steps));
    let has_run = |revision: u32| {
        let mut keys = steps.iter().map(|step| segments(&step.key));
        keys.any(|key| key.first().is_some_and(|node| node.id == from && node.revision == revision))
    };
    let first = revisions.iter().find(|(revision, _)| has_run(*revision));
    let first = first.or_else(|| revisions.iter().rev().find(|(_, graph)| graph.level.place(from).is_some()));
    let Some((chosen, graph)) = first else { return steps };
    let is_before = |step: &StepRecord| {
        if step.key == BEGIN_KEY {
            return true;
        }
        let is_node = graph.level.place("replan").is_some();
        if let Some((_, number)) = replan(&step.key).filter(|(of, _)| of.is_empty() && !is_node) {
            return number <= *chosen;
        }
        let key = segments(&step.key);
        let Some(node) = key.first() else { return false };
        let is_independent =
            || graph.level.place(node.id).is_some() && node.id != from && !graph.level.leads(from, node.id);
        node.revision < *chosen || node.revision == *chosen && is_independent()
    };
    steps.iter().filter(|step| is_before(step)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::step_reuse::{check_stage, steps_for_restart, steps_for_resume};
    use base::clock;
    use definitions::workflow::definition::{Workflow, WorkflowRecord};
    use serde_json::json;
    use std::sync::Arc;
    use types::timestamp::Timestamp;

    fn step(key: &str, kind: &str, ok: bool) -> StepRecord {
        let plan = json!({"nodes": [node("a"), node("x"), node("c")],
            "edges": [{"source": "a", "target": "x"}, {"source": "x", "target": "c"}]});
        StepRecord {
            key: key.into(),
            kind: kind.into(),
            target: String::new(),
            input_hash: String::new(),
            output: if key == "replan[2]" { json!({"plan": plan}) } else { Value::Null },
            ok,
            ms: 0,
            model: None,
            tokens: None,
            attempts: None,
            charged: None,
            at: Timestamp::from_millis(0),
            prompt: None,
        }
    }

    fn node(id: &str) -> Value {
        json!({"node_id": id, "type": "LLM", "name": id, "config": {"prompt": "x"}})
    }

    /// a, then b, then c; the second replan replaces b by x.
    fn workflow() -> Arc<Workflow> {
        let document = json!({"type": "graph", "id": "g", "name": "g", "nodes": [node("a"), node("b"), node("c")],
            "edges": [{"source": "a", "target": "b"}, {"source": "b", "target": "c"}]});
        WorkflowRecord::from_document(document, clock::now()).unwrap().workflow
    }

    /// b fails for good in spite of a recovery; the first replan is invalid; x and c run after the second one, and c
    /// fails.
    const STEPS: [(&str, &str, bool); 16] = [
        ("begin", "begin", true),
        ("a/0/model", "model", true),
        ("b/0/model", "model", true),
        ("b/failed", "stage", false),
        ("b/recover[1]", "model", true),
        ("b/recover[1]/judge", "decision", true),
        ("b~2/failed", "stage", false),
        ("replan[1]/decide", "model", true),
        ("replan[1]", "decision", false),
        ("replan[2]/decide", "model", true),
        ("replan[2]", "decision", true),
        ("x@2/0/model", "model", true),
        ("c@2/failed", "stage", false),
        ("c@2/recover[1]/judge", "decision", true),
        ("c@2~2/failed", "stage", false),
        ("replan[3]/decide", "model", true),
    ];

    fn steps() -> Vec<StepRecord> {
        STEPS.map(|(key, kind, ok)| step(key, kind, ok)).into()
    }

    fn dropped(kept: &[StepRecord]) -> Vec<&'static str> {
        STEPS.iter().map(|(key, ..)| *key).filter(|key| kept.iter().all(|step| step.key != *key)).collect()
    }

    #[test]
    fn a_resumed_run_recovers_again_and_keeps_its_revision() {
        let failed_c = ["c@2/failed", "c@2/recover[1]/judge", "c@2~2/failed", "replan[3]/decide"];
        assert_eq!(dropped(&steps_for_resume(steps(), "c")), failed_c);
        // b is no node of the last revision, so its failures belong to the replan.
        assert_eq!(dropped(&steps_for_resume(steps(), "b")), ["replan[3]/decide"]);
        let first: Vec<StepRecord> = steps().into_iter().take(9).collect();
        let kept = steps_for_resume(first, "b");
        assert_eq!(kept.iter().map(|step| step.key.as_str()).collect::<Vec<_>>(), ["begin", "a/0/model", "b/0/model"]);
    }

    #[test]
    fn a_restart_keeps_what_does_not_depend_on_the_node() {
        let restart = |from: &str| steps_for_restart(steps(), &workflow(), &|_| None, from);
        let behind_x = ["x@2/0/model", "c@2/failed", "c@2/recover[1]/judge", "c@2~2/failed", "replan[3]/decide"];
        assert_eq!(dropped(&restart("x")), behind_x);
        assert_eq!(dropped(&restart("c")), behind_x[1..], "c ran only in the revised graph");
        assert_eq!(restart("b").len(), 2, "the replans depend on b");
        let check = |from: &str| check_stage(&workflow(), &|_| None, &steps(), from);
        assert!(check("x").is_ok() && check("b").is_ok());
        assert!(check("y").unwrap_err().contains("has no node `y`"));
    }
}
