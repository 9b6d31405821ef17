//! The outputs that the stages of a pipeline or loop have produced so far.

use super::definition::Shape;
use super::scope::{Lookup, Outputs, Scope};
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::sync::Arc;

/// How many past iterations are kept. Templates see only the last one.
const MAX_ITERATIONS_KEPT: usize = 100;

/// The outputs of one iteration by stage.
pub type Iteration = Arc<Outputs>;

/// The outputs of a running pipeline or loop, and the past iterations of a loop.
#[derive(Clone, Debug)]
pub struct OutputStore {
    scope: Scope,
    /// Ids of the workflow's own stages. Each iteration starts without their outputs.
    own: Vec<Arc<str>>,
    history: VecDeque<Iteration>,
}

impl OutputStore {
    /// A store with `{"query": input}` and no known stages.
    pub fn new(input: impl Into<Arc<str>>) -> Self {
        Self { scope: Scope::root(input, None), own: Vec::new(), history: VecDeque::new() }
    }

    /// A store for the stages of `shape`, which starts with the names in `scope`.
    pub fn begin(shape: &Shape, scope: Scope, lookup: Lookup<'_>) -> Self {
        let own = shape.stages().into_iter().flat_map(|stage| stage.output_ids(lookup)).map(Arc::from).collect();
        let mut store = Self { scope, own, history: VecDeque::new() };
        store.clear();
        if let Shape::Pipeline { inherit_keys, .. } | Shape::Loop { inherit_keys, .. } = shape {
            // An outermost workflow has nothing to inherit, so its keys are empty.
            let outputs = Arc::make_mut(&mut store.scope.outputs);
            for key in inherit_keys {
                outputs.entry(key.as_str().into()).or_default();
            }
        }
        if matches!(shape, Shape::Loop { .. }) {
            store.scope.last = Arc::new(store.left());
        }
        store
    }

    /// Stores the output of a stage.
    pub fn set(&mut self, key: impl Into<Arc<str>>, value: impl Into<Arc<str>>) {
        Arc::make_mut(&mut self.scope.outputs).insert(key.into(), Some(value.into()));
    }

    /// The output of a stage, or `default`.
    pub fn get<'a>(&'a self, key: &str, default: &'a str) -> &'a str {
        self.scope.output(key).map_or(default, |output| output)
    }

    /// Stores the outputs of branches.
    pub fn merge<I: Into<Arc<str>>>(&mut self, other: impl IntoIterator<Item = (I, Option<Arc<str>>)>) {
        let outputs = Arc::make_mut(&mut self.scope.outputs);
        outputs.extend(other.into_iter().map(|(id, output)| (id.into(), output)));
    }

    /// The names that the next stage sees.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// A copy of the current scope. Later outputs do not change it.
    pub fn snapshot(&self) -> Scope {
        self.scope.clone()
    }

    /// All outputs as JSON, with `loop.iteration` as a text and `loop.last`.
    pub fn to_dict(&self) -> Map<String, Value> {
        let mut dict = texts(&self.scope.outputs);
        dict.insert("query".into(), self.scope.query().into());
        let iteration = self.scope.iteration.to_string();
        dict.insert("loop".into(), json!({ "iteration": iteration, "last": texts(&self.scope.last) }));
        dict
    }

    /// Starts the next iteration. The outputs of the one before become `loop.last`.
    pub fn start_iteration(&mut self) {
        if self.scope.iteration > 0 {
            self.scope.last = Arc::new(self.left());
            self.history.push_back(Arc::clone(&self.scope.last));
            self.history.drain(..self.history.len().saturating_sub(MAX_ITERATIONS_KEPT));
        }
        self.scope.iteration = self.scope.iteration.saturating_add(1);
        self.clear();
    }

    /// The last `count` completed iterations, latest last; at most 100.
    pub fn get_iteration_history(&self, count: usize) -> Vec<Iteration> {
        self.history.iter().skip(self.history.len().saturating_sub(count)).cloned().collect()
    }

    /// The outputs of the workflow's own stages so far.
    pub fn left(&self) -> Outputs {
        self.own.iter().map(|id| (Arc::clone(id), self.scope.outputs.get(id).cloned().flatten())).collect()
    }

    fn clear(&mut self) {
        Arc::make_mut(&mut self.scope.outputs).extend(self.own.iter().map(|id| (Arc::clone(id), None)));
    }
}

fn texts(outputs: &Outputs) -> Map<String, Value> {
    outputs.iter().filter_map(|(id, output)| Some((id.to_string(), output.as_deref()?.into()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflow::condition::Condition;
    use crate::workflow::definition::{LimitsConfig, Retry, StageDefinition, Target, Workflow};
    use crate::workflow::template::InputMapping;

    fn stage(id: &str, runnable: Target) -> StageDefinition {
        let input = InputMapping::default();
        StageDefinition {
            id: id.into(),
            runnable,
            input,
            condition: None,
            retry: Retry::default(),
            timeout: None,
            model: None,
        }
    }

    fn agent(id: &str) -> StageDefinition {
        stage(id, Target::Reference("agent".into()))
    }

    fn inline(id: &str, shape: Shape) -> StageDefinition {
        let workflow = Workflow { id: id.into(), description: String::new(), shape, limits: LimitsConfig::default() };
        stage(id, Target::Inline(Box::new(workflow)))
    }

    fn looped(stages: Vec<StageDefinition>, inherit: &[&str]) -> Shape {
        let inherit_keys = inherit.iter().map(|key| (*key).to_owned()).collect();
        let condition = Condition::parse("true").unwrap();
        Shape::Loop { stages, condition, max_iterations: 3, output: None, inherit_keys }
    }

    fn parallel(branches: Vec<StageDefinition>) -> Shape {
        Shape::Parallel { branches, merge_template: None, max_concurrency: None }
    }

    fn built(template: &str, scope: &Scope) -> String {
        InputMapping::parse(template).build(scope)
    }

    const NONE: Lookup<'static> = &|_| None;

    #[test]
    fn a_store_begins_with_the_query_and_keeps_what_is_set() {
        let mut store = OutputStore::new("q");
        assert_eq!((store.get("query", ""), store.get("a", "none")), ("q", "none"));
        store.set("a", "1");
        let before = store.snapshot();
        store.merge([("b", Some(Arc::from("2"))), ("c", None)]);
        assert_eq!((built("{a}{b}{c}", store.scope()), built("{b}", &before)), ("12".into(), "[未找到: b]".into()));
        let dict = json!({"query": "q", "a": "1", "b": "2", "loop": {"iteration": "0", "last": {}}});
        assert_eq!(Value::Object(store.to_dict()), dict);
        assert!(store.get_iteration_history(3).is_empty());
    }

    #[test]
    fn an_iteration_keeps_what_is_inherited_and_sees_what_the_last_one_left() {
        let mut parent = OutputStore::new("original");
        parent.set("plan", "the plan");
        parent.set("secret", "unseen");
        let shape = looped(vec![agent("a"), agent("b"), inline("p", parallel(vec![agent("x")]))], &["plan"]);
        let mut store = OutputStore::begin(&shape, parent.scope().enter(&shape, "input"), NONE);
        let seen = "{query}|{plan}|{secret}|{a}|{loop.iteration}|{loop.last.a}|{loop.last.x}|{loop.last.plan}";
        store.start_iteration();
        let first = "input|the plan|[未找到: secret]||1|||[未找到: loop.last.plan]";
        assert_eq!(built(seen, store.scope()), first);
        store.set("a", "one");
        store.merge([("x", Some(Arc::from("branch")))]);
        store.start_iteration();
        let second = "input|the plan|[未找到: secret]||2|one|branch|[未找到: loop.last.plan]";
        assert_eq!(built(seen, store.scope()), second);
        store.set("a", "two");
        store.start_iteration();
        let history = store.get_iteration_history(5);
        let of_a = history.iter().map(|left| left["a"].as_deref().unwrap()).collect::<Vec<_>>();
        assert_eq!((of_a, store.get_iteration_history(1).len()), (vec!["one", "two"], 1));
        assert_eq!(built("<{loop.last.b}{loop.last.x}>", store.scope()), "<>", "skipped in the iteration before");
        assert_eq!(store.to_dict()["loop"], json!({"iteration": "3", "last": {"a": "two"}}));
    }

    #[test]
    fn what_is_within_sees_a_snapshot_or_what_it_inherits() {
        let shape = looped(vec![agent("a")], &[]);
        let mut outer = OutputStore::begin(&shape, Scope::root("history and now", Some("now".into())), NONE);
        outer.start_iteration();
        outer.set("a", "1");
        outer.start_iteration();
        let around = outer.snapshot();
        let seen = "{query} {a}{loop.iteration}{loop.last.a}";
        assert_eq!(built(seen, &around.enter(&parallel(vec![]), "own")), "own 21");
        let inherit_keys = vec!["a".into(), "gone".into()];
        let pipeline = Shape::Pipeline { stages: vec![], output: None, inherit_keys };
        let within = around.enter(&pipeline, "own");
        assert_eq!(built("{query} {a}{loop.iteration}{gone}", &within), "own 0[未找到: gone]");
        let condition = Condition::parse("{query} contains 'history'").unwrap();
        assert!(!condition.holds(&around), "conditions see what is asked now");
        assert!(condition.holds(&around.enter(&pipeline, "history")));
        let merged = around.with([("x", Some(Arc::from("X"))), ("y", None)]);
        assert_eq!(built("{x}{y}{z}", &merged), "X[未找到: z]");
    }
}
