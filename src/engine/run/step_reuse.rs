//! Selection of the recorded steps with which a run continues: all except failures if it is resumed, and those before
//! a stage if it is restarted from that stage.

use super::graph_steps::{self, Revisions};
use super::start_record::BEGIN_KEY;
use super::waiting::SUSPENDED;
use crate::workflow::open_question::ASKED_KIND;
use crate::workflow::orchestration::dynamic::order;
use definitions::workflow::definition::{Shape, Target, Workflow};
use definitions::workflow::graph::{GraphDefinition, GraphNode};
use definitions::workflow::node::Node;
use std::sync::Arc;
use types::step::StepRecord;

/// Last segment of the key of a stage's recorded failure.
const FAILED_KEY: &str = "failed";

/// Looks up the workflow that a stage references by id.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<Arc<Workflow>>;

/// Selects the steps of a run from those of its turn, and removes the run's `prefix` from their keys.
pub fn steps_of_run(steps: Vec<StepRecord>, prefix: &str) -> Vec<StepRecord> {
    if prefix.is_empty() {
        return steps;
    }
    let own = |step: StepRecord| {
        let key = step.key.strip_prefix(prefix)?.strip_prefix('/')?.to_owned();
        Some(StepRecord { key, ..step })
    };
    steps.into_iter().filter_map(own).collect()
}

/// Selects the steps with which a resumed run continues: all, except the failures and recoveries of the stage at `path`
/// and of the stages around it, and except failed model calls that have not been retried since.
pub(super) fn steps_for_resume(steps: Vec<StepRecord>, path: &str) -> Vec<StepRecord> {
    let failed: Vec<_> = path.split('/').collect();
    let revisions = Revisions::of(&steps);
    let is_around = |stage: &str| {
        let key = stage.trim_end_matches('/');
        let stage: Vec<_> = key.split('/').map(without_attempt).collect();
        stage.len() <= failed.len()
            && stage.iter().zip(&failed).all(|(a, b)| is_same_stage(a, b))
            && revisions.is_last(key)
    };
    let steps = revisions.without_recoveries(steps, &is_around);
    let is_within = |key: &str| {
        let mut place = key.split('/').map(without_attempt);
        failed.iter().all(|segment| place.next().is_some_and(|found| found == *segment))
    };
    // Key prefixes, with a slash at the end, of the attempts whose failure is kept.
    let failures = steps.iter().filter(|step| step.kind == "stage" && !step.ok);
    let attempts = failures.filter_map(|step| step.key.strip_suffix(FAILED_KEY)).filter(|stage| !is_around(stage));
    let attempts: Vec<String> = attempts.map(str::to_owned).collect();
    let stays = |step: &StepRecord| match step.kind.as_str() {
        _ if is_of_wait(step) => false,
        _ if step.ok => true,
        "stage" => attempts.iter().any(|attempt| step.key.strip_suffix(FAILED_KEY) == Some(attempt.as_str())),
        // A function may have continued without the model's answer, so its failed calls are kept, unless the function
        // failed, too.
        "model" => {
            let asked_by_function = !step.key.ends_with("/model") && !is_within(&step.key);
            asked_by_function || attempts.iter().any(|attempt| step.key.starts_with(attempt.as_str()))
        }
        _ => true,
    };
    steps.into_iter().filter(stays).collect()
}

/// True for a step that a later turn must not find: the state of a run that waited, and a question, whose time for an
/// answer begins again.
fn is_of_wait(step: &StepRecord) -> bool {
    step.key.starts_with(SUSPENDED) || step.kind == ASKED_KIND
}

/// True if both segments name the same stage. `stage` may lack the iteration, since the key of a stage that contains
/// a loop has none.
fn is_same_stage(stage: &str, failed: &str) -> bool {
    stage == failed || failed.strip_prefix(stage).is_some_and(|rest| rest.starts_with('['))
}

/// Selects the steps with which a restart from the stage `from` starts: those that do not depend on that stage.
pub(super) fn steps_for_restart(
    steps: Vec<StepRecord>,
    workflow: &Workflow,
    lookup: Lookup<'_>,
    from: &str,
) -> Vec<StepRecord> {
    if let Shape::Graph(graph) = &workflow.shape {
        return graph_steps::before_node(steps, graph, from);
    }
    let from = segments(from);
    let asked = steps.iter().flat_map(|step| segments(&step.key)).filter(|segment| segment.id == Node::Clarify.id());
    let clarified = asked.map(|segment| segment.iteration.unwrap_or(1)).max().unwrap_or(0);
    let comparison = Comparison { lookup, clarified };
    let before = |step: &StepRecord| {
        step.key == BEGIN_KEY || !is_of_wait(step) && comes_before(workflow, comparison, &segments(&step.key), &from)
    };
    steps.into_iter().filter(before).collect()
}

/// Checks that `from` names a stage of `workflow`. `steps` are those of the run. The error is for people.
pub fn check_stage(workflow: &Workflow, lookup: Lookup<'_>, steps: &[StepRecord], from: &str) -> Result<(), String> {
    let path = segments(from);
    let rest = match path.first() {
        Some(first) if is_root(workflow, first) => &path[1..],
        _ => &path[..],
    };
    if rest.len() < path.len() {
        check_iteration(workflow, &path[0])?;
    }
    let mut here = Some((Arc::new(workflow.clone()), workflow.id.clone()));
    for segment in rest {
        let Some((workflow, name)) = here else {
            return Err(format!("`{from}`: the stage before `{}` has no stages within", segment.id));
        };
        if let Shape::Dynamic(dynamic) = &workflow.shape {
            let deeper = path.last().is_some_and(|last| !std::ptr::eq(last, segment));
            return order::check(dynamic, segment.place(), deeper);
        }
        if let Shape::Graph(graph) = &workflow.shape {
            let is_last = path.last().is_some_and(|last| std::ptr::eq(last, segment));
            return check_node(graph, steps, segment, is_last);
        }
        let stages = workflow.shape.stages();
        let Some(stage) = stages.iter().find(|stage| stage.id == segment.id) else {
            let known: Vec<_> = stages.iter().map(|stage| stage.id.as_str()).collect();
            return Err(format!("`{name}` has no stage `{}`; it has: {}", segment.id, known.join(", ")));
        };
        here = inner(&stage.runnable, lookup).map(|inner| (inner, stage.id.clone()));
        match &here {
            Some((inner, _)) => check_iteration(inner, segment)?,
            None if segment.iteration.is_some() => return Err(format!("stage `{}` is not a loop", segment.id)),
            None => {}
        }
    }
    Ok(())
}

/// Checks that a run of a graph can restart from the node in `segment`.
fn check_node(
    graph: &GraphDefinition,
    steps: &[StepRecord],
    segment: &Segment<'_>,
    is_last: bool,
) -> Result<(), String> {
    let id = segment.id;
    let is_revised = graph_steps::revised(graph, steps).iter().any(|(_, graph)| graph.level.place(id).is_some());
    if graph.level.place(id).is_none() && !is_revised {
        let known: Vec<_> = graph.level.nodes.iter().map(GraphNode::id).collect();
        return Err(format!("the graph has no node `{id}`; it has: {}", known.join(", ")));
    }
    if is_last && segment.iteration.is_none() {
        return Ok(());
    }
    Err(format!("a run cannot restart from within the node `{id}`; name the node alone"))
}

/// Checks the iteration in `segment`, which names a stage that runs `workflow`.
fn check_iteration(workflow: &Workflow, segment: &Segment<'_>) -> Result<(), String> {
    match (&workflow.shape, segment.iteration) {
        (_, None) => Ok(()),
        (Shape::Loop { max_iterations, .. }, Some(iteration)) if (1..=*max_iterations).contains(&iteration) => Ok(()),
        (Shape::Loop { max_iterations, .. }, Some(_)) => {
            Err(format!("the loop in `{}` has the iterations 1 to {max_iterations}", segment.id))
        }
        (_, Some(_)) => Err(format!("stage `{}` is not a loop", segment.id)),
    }
}

/// Segment of a path or key, such as `outer_loop~2[3]`: a stage, its second attempt, and the third iteration of its
/// loop. A node that runs after the first replan of its graph is `node@1`.
pub(super) struct Segment<'k> {
    pub(super) id: &'k str,
    pub(super) revision: u32,
    pub(super) iteration: Option<u32>,
}

impl<'k> Segment<'k> {
    fn place(&self) -> order::Place<'k> {
        (self.id, self.iteration)
    }
}

pub(super) fn segments(path: &str) -> Vec<Segment<'_>> {
    let parse = |segment| {
        let id = str::split(segment, ['~', '[']).next().unwrap_or_default();
        let revised = id.rsplit_once('@').and_then(|(id, revision)| Some((id, revision.parse().ok()?)));
        let (id, revision) = revised.unwrap_or((id, 0));
        let iteration = segment.split_once('[').and_then(|(_, rest)| rest.strip_suffix(']')?.parse().ok());
        Segment { id, revision, iteration }
    };
    path.split('/').map(parse).collect()
}

/// Removes the attempt and the revision from a segment.
fn without_attempt(segment: &str) -> String {
    let end = segment.find(['~', '[']).unwrap_or(segment.len());
    let (name, rest) = segment.split_at(end);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let name = name.rsplit_once('@').filter(|(_, revision)| is_number(revision)).map_or(name, |(id, _)| id);
    let rest = rest.strip_prefix('~').map_or(rest, |rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    format!("{name}{rest}")
}

/// True for the first segment of the keys of a loop that is the outermost workflow.
fn is_root(workflow: &Workflow, segment: &Segment<'_>) -> bool {
    matches!(workflow.shape, Shape::Loop { .. }) && segment.id == workflow.id && segment.iteration.is_some()
}

/// Context for the comparison of keys.
#[derive(Clone, Copy)]
struct Comparison<'a> {
    lookup: Lookup<'a>,
    /// How often a dynamic workflow of the run has asked the user.
    clarified: u32,
}

/// True for the key of a step that does not depend on the stage `from` of `workflow`. The order is that of the stages
/// in a pipeline, of the iterations in a loop, and of the nodes in a dynamic workflow. Branches do not depend on each
/// other. A node of a graph depends on the nodes from which a way leads to it.
fn comes_before(workflow: &Workflow, comparison: Comparison<'_>, key: &[Segment<'_>], from: &[Segment<'_>]) -> bool {
    let (Some(at), Some(wanted)) = (key.first(), from.first()) else { return false };
    if matches!(workflow.shape, Shape::Dynamic(_)) {
        return order::comes_before(at.place(), wanted.place(), comparison.clarified);
    }
    if let Shape::Graph(graph) = &workflow.shape {
        let level = &graph.level;
        // A graph within another workflow is replanned again.
        return at.revision == 0
            && level.place(at.id).is_some()
            && at.id != wanted.id
            && !level.leads(wanted.id, at.id);
    }
    if is_root(workflow, at) {
        let (named, first) = (is_root(workflow, wanted), wanted.iteration);
        let wanted = if named { first.unwrap_or(1) } else { 1 };
        let rest = if named { &from[1..] } else { from };
        let iteration = at.iteration.unwrap_or(1);
        return iteration < wanted || (iteration == wanted && comes_before(workflow, comparison, &key[1..], rest));
    }
    let stages = workflow.shape.stages();
    let place = |id: &str| stages.iter().position(|stage| stage.id == id);
    let (Some(here), Some(there)) = (place(at.id), place(wanted.id)) else { return false };
    if here != there {
        let ordered = matches!(workflow.shape, Shape::Pipeline { .. } | Shape::Loop { .. });
        return !ordered || here < there;
    }
    if let Some(iteration) = at.iteration {
        let wanted = wanted.iteration.unwrap_or(1);
        if iteration != wanted {
            return iteration < wanted;
        }
    }
    let inner = inner(&stages[here].runnable, comparison.lookup);
    inner.is_some_and(|inner| comes_before(&inner, comparison, &key[1..], &from[1..]))
}

fn inner(target: &Target, lookup: Lookup<'_>) -> Option<Arc<Workflow>> {
    match target {
        Target::Inline(workflow) => Some(Arc::new(Workflow::clone(workflow))),
        Target::Reference(id) => lookup(id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::clock;
    use definitions::workflow::definition::WorkflowRecord;
    use serde_json::{Value, json};
    use types::timestamp::Timestamp;

    fn workflow(document: Value) -> Arc<Workflow> {
        WorkflowRecord::from_document(document, clock::now()).unwrap().workflow
    }

    fn stage(id: &str, runnable: &Value) -> Value {
        json!({"id": id, "runnable": runnable, "input": "{query}"})
    }

    /// plan, outer_loop of (parallel_result of (inner_loop of (retrieve, verify), meta)), summary.
    fn research() -> Arc<Workflow> {
        let inner = json!({"type": "loop", "id": "inner", "stages": [stage("retrieve", &json!("a")), stage("verify", &json!("b"))]});
        let parallel = json!({"type": "parallel", "id": "both", "branches": [stage("inner_loop", &inner), stage("meta", &json!("c"))]});
        let outer = json!({"type": "loop", "id": "outer", "stages": [stage("parallel_result", &parallel)]});
        workflow(json!({"id": "research", "stages": [
            stage("plan", &json!("p")), stage("outer_loop", &outer), stage("summary", &json!("s")),
        ]}))
    }

    fn step(key: &str, kind: &str, ok: bool) -> StepRecord {
        StepRecord {
            key: key.into(),
            kind: kind.into(),
            target: String::new(),
            input_hash: String::new(),
            output: Value::Null,
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

    fn keys(steps: &[StepRecord]) -> Vec<&str> {
        steps.iter().map(|step| step.key.as_str()).collect()
    }

    #[test]
    fn a_restart_keeps_what_comes_before_the_stage() {
        let all = [
            "begin",
            "plan/0/model",
            "outer_loop[1]/parallel_result/inner_loop[1]/retrieve/0/model",
            "outer_loop[1]/parallel_result/inner_loop[1]/verify~2/0/model",
            "outer_loop[1]/parallel_result/meta/0/model",
            "outer_loop[2]/parallel_result/inner_loop[1]/retrieve/0/model",
            "outer_loop[2]/parallel_result/meta/0/model",
            "summary/0/model",
        ];
        let kept = |from: &str| {
            let steps = all.iter().map(|key| step(key, "model", true)).collect();
            let kept = steps_for_restart(steps, &research(), &|_| None, from);
            all.iter().map(|key| u8::from(keys(&kept).contains(key))).collect::<Vec<_>>()
        };
        assert_eq!(kept("plan"), [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(kept("outer_loop"), [1, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(kept("outer_loop[2]"), [1, 1, 1, 1, 1, 0, 0, 0]);
        assert_eq!(kept("outer_loop[2]/parallel_result/meta"), [1, 1, 1, 1, 1, 1, 0, 0], "branches are independent");
        assert_eq!(kept("outer_loop[1]/parallel_result/inner_loop[1]/verify"), [1, 1, 1, 0, 1, 0, 0, 0]);
        assert_eq!(kept("summary"), [1, 1, 1, 1, 1, 1, 1, 0]);
    }

    #[test]
    fn the_iterations_of_a_root_loop_are_told_apart() {
        let again = workflow(
            json!({"type": "loop", "id": "again", "stages": [stage("x", &json!("a")), stage("y", &json!("part"))]}),
        );
        let part = workflow(json!({"id": "part", "stages": [stage("z", &json!("b"))]}));
        let lookup = |id: &str| (id == "part").then(|| Arc::clone(&part));
        let all = ["again[1]/x/0/model", "again[1]/y/z/0/model", "again[2]/x/0/model", "again[2]/y/z/0/model"];
        let kept = |from: &str| {
            let steps = all.iter().map(|key| step(key, "model", true)).collect();
            steps_for_restart(steps, &again, &lookup, from).len()
        };
        assert_eq!((kept("again[2]"), kept("again[2]/y"), kept("again[2]/y/z"), kept("y")), (2, 3, 3, 1));
        assert!(
            check_stage(&again, &lookup, &[], "again[2]/y/z").is_ok() && check_stage(&again, &lookup, &[], "y").is_ok()
        );
        let wrong = check_stage(&again, &lookup, &[], "again[2]/y/other").unwrap_err();
        assert!(wrong.contains("`y` has no stage `other`; it has: z"), "{wrong}");
        assert!(check_stage(&again, &lookup, &[], "x/y").unwrap_err().contains("no stages within"));
        assert_eq!(
            check_stage(&again, &lookup, &[], "again[11]").unwrap_err(),
            "the loop in `again` has the iterations 1 to 10"
        );
        for no_loop in ["x[1]", "y[1]/z"] {
            assert!(check_stage(&again, &lookup, &[], no_loop).unwrap_err().contains("is not a loop"), "{no_loop}");
        }
    }

    #[test]
    fn a_restart_of_a_graph_keeps_the_nodes_that_are_not_behind_the_node() {
        let node = |id: &str| json!({"node_id": id, "type": "RUNNABLE", "name": id, "config": {"runnable": "x"}});
        let edge = |from: &str, to: &str| json!({"source": from, "target": to});
        let graph = workflow(json!({"type": "graph", "id": "g", "nodes": [node("a"), node("b"), node("c"), node("d")],
            "edges": [edge("a", "b"), edge("b", "d"), edge("a", "c")]}));
        let all = ["begin", "a/run", "b~2/0/model", "c[1]/x/run", "d/run"];
        let kept = |from: &str| {
            let steps = all.iter().map(|key| step(key, "node", true)).collect();
            let kept = steps_for_restart(steps, &graph, &|_| None, from);
            all.iter().map(|key| u8::from(keys(&kept).contains(key))).collect::<Vec<_>>()
        };
        assert_eq!((kept("a"), kept("b"), kept("d")), (vec![1, 0, 0, 0, 0], vec![1, 1, 0, 1, 0], vec![1, 1, 1, 1, 0]));
        let check = |from: &str| check_stage(&graph, &|_| None, &[], from);
        assert!(check("b").is_ok());
        assert_eq!(check("x").unwrap_err(), "the graph has no node `x`; it has: a, b, c, d");
        assert!(check("c[1]").unwrap_err().contains("name the node alone") && check("a/b").is_err());
    }

    #[test]
    fn a_resumed_run_forgets_how_its_stage_failed_and_nothing_else() {
        let all = [
            ("begin", "begin", true),
            ("plan/failed", "stage", false),
            ("plan/0/model", "model", false),
            ("plan~2/0/model", "model", true),
            ("outer_loop/failed", "stage", false),
            ("outer_loop[1]/parallel_result/meta/failed", "stage", false),
            ("outer_loop[1]/parallel_result/meta~2/failed", "stage", false),
            ("outer_loop[1]/parallel_result/meta/0/model", "model", true),
            ("outer_loop[1]/parallel_result/meta/0/tool[1]", "tool", false),
            ("outer_loop[1]/parallel_result/meta~2/1/model", "model", false),
            ("outer_loop[1]/parallel_result/inner_loop[1]/verify/0/model", "model", false),
            ("outer_loop~2[1]/parallel_result/meta/failed", "stage", false),
            ("outer_loop[1]/parallel_result/meta/ask", "model", false),
            ("outer_loop[1]/parallel_result/other/0/model", "model", false),
            ("other/ask", "model", false),
        ];
        let steps: Vec<_> = all.iter().map(|(key, kind, ok)| step(key, kind, *ok)).collect();
        let kept = steps_for_resume(steps.clone(), "outer_loop[1]/parallel_result/meta");
        let expected = [
            "begin",
            "plan/failed",
            "plan/0/model",
            "plan~2/0/model",
            "outer_loop[1]/parallel_result/meta/0/model",
            "outer_loop[1]/parallel_result/meta/0/tool[1]",
            "other/ask",
        ];
        assert_eq!(keys(&kept), expected);
        assert_eq!(
            steps_for_resume(steps.clone(), "").len(),
            steps.len() - 2,
            "only model calls without a retry are dropped"
        );
        let within = [step("0/steps/begin", "begin", true), step("0/decide", "model", true)];
        assert_eq!(keys(&steps_of_run(within.to_vec(), "0/steps")), ["begin"]);
    }
}
