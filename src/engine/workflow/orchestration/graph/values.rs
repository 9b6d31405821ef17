//! The values that references name at one place of a graph.

use decisions::reference::resolve::{Found, Values, descend};
use decisions::reference::{Reference, Target};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

/// The outputs of ended nodes by id; null for a skipped node.
pub(super) type Outputs = Arc<HashMap<String, Arc<Value>>>;

/// The values that the whole run shares.
#[derive(Debug, Default)]
pub(super) struct RunValues {
    /// The text with which the run started.
    pub(super) query: Value,
    /// The inputs, with their defaults.
    pub(super) inputs: Value,
    /// The variables of `env`.
    pub(super) env: BTreeMap<String, Value>,
}

/// One iteration of a LOOP.
#[derive(Clone, Debug)]
pub(super) struct Iteration {
    /// The item, for a LOOP over items.
    pub(super) item: Arc<Value>,
    /// The number of the iteration, from 1.
    pub(super) number: Value,
    /// The outputs of the iteration before, by node.
    pub(super) last: Arc<Value>,
}

/// The values at one place. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Sight {
    pub(super) run: Arc<RunValues>,
    /// The outputs of the level's nodes.
    pub(super) outputs: Outputs,
    /// The sight of the LOOP around the level.
    pub(super) outer: Option<Arc<Sight>>,
    /// The iteration, within the body of a LOOP.
    pub(super) iteration: Option<Iteration>,
}

impl Sight {
    /// The sight at the start of a run.
    pub(super) fn root(run: RunValues) -> Self {
        Self { run: Arc::new(run), outputs: Arc::default(), outer: None, iteration: None }
    }

    /// The sight at the start of an iteration of the LOOP that has this sight.
    pub(super) fn enter(&self, iteration: Iteration) -> Self {
        let (run, outer) = (Arc::clone(&self.run), Some(Arc::new(self.clone())));
        Self { run, outputs: Arc::default(), outer, iteration: Some(iteration) }
    }

    /// Adds the output of an ended node.
    pub(super) fn add(&mut self, id: &str, output: Arc<Value>) {
        Arc::make_mut(&mut self.outputs).insert(id.to_owned(), output);
    }

    fn output(&self, id: &str) -> Option<&Arc<Value>> {
        self.outputs.get(id).or_else(|| self.outer.as_ref()?.output(id))
    }

    fn of_loop(&self, path: &str) -> Found<'_> {
        let Some(iteration) = &self.iteration else {
            return self.outer.as_ref().map_or(Found::Missing, |outer| outer.of_loop(path));
        };
        match path.split_once('.').unwrap_or((path, "")) {
            ("item", path) => at(&iteration.item, path),
            ("iteration", "") => Found::Value(Cow::Borrowed(&iteration.number)),
            ("last", path) => {
                let (node, below) = path.split_once('.').unwrap_or((path, ""));
                // Before the second iteration there is no last one, which counts as null, as a skipped node does.
                let Some(output) = iteration.last.get(node) else { return null() };
                at(output, below.strip_prefix("output.").unwrap_or(below))
            }
            _ => Found::Missing,
        }
    }
}

fn null<'a>() -> Found<'a> {
    Found::Value(Cow::Owned(Value::Null))
}

fn at<'a>(value: &'a Value, path: &str) -> Found<'a> {
    if value.is_null() {
        return null();
    }
    descend(value, path).map_or(Found::Missing, |found| Found::Value(Cow::Borrowed(found)))
}

/// What the references of one node see: the sight of its place and its own names.
pub(super) struct NodeValues<'n> {
    pub(super) sight: &'n Sight,
    /// The names of its `input_mapping`, resolved.
    pub(super) mapping: &'n Map<String, Value>,
    /// Its raw output, for its `output_mapping`.
    pub(super) own: Option<&'n Value>,
    /// True for a name that may stand for a secret here.
    pub(super) is_secret: &'n (dyn Fn(&str) -> bool + Sync),
}

impl<'n> NodeValues<'n> {
    /// The values of a place without names of its own and without secrets.
    pub(super) fn of(sight: &'n Sight) -> Self {
        static NOTHING: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
        Self { sight, mapping: &NOTHING, own: None, is_secret: &|_| false }
    }
}

impl Values for NodeValues<'_> {
    fn find<'a>(&'a self, reference: Reference<'a>) -> Found<'a> {
        let run = &self.sight.run;
        match reference.target() {
            Target::Query => Found::Value(Cow::Borrowed(&run.query)),
            Target::Input(path) => at(&run.inputs, path),
            Target::Loop(path) => self.sight.of_loop(path),
            Target::Node { id, path } => self.sight.output(id).map_or(Found::Missing, |output| at(output, path)),
            Target::Output(path) => self.own.map_or(Found::Missing, |own| at(own, path)),
            Target::Name { name, path } => {
                let named = self.mapping.get(name).or_else(|| run.inputs.get(name)).or_else(|| run.env.get(name));
                match named {
                    Some(value) => at(value, path),
                    None if path.is_empty() && (self.is_secret)(name) => Found::Secret(name),
                    None => Found::Missing,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use decisions::reference::resolve::{Resolved, value};
    use serde_json::json;

    fn resolved(sight: &Sight, written: &Value) -> Value {
        let values = NodeValues::of(sight);
        match value(written, &values) {
            Ok(Resolved::Plain(value)) => value,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn names_are_looked_up_from_the_inside_out() {
        let env = BTreeMap::from([("zone".to_owned(), json!("east")), ("since".to_owned(), json!("never"))]);
        let run = RunValues { query: json!("问"), inputs: json!({"since": "2026", "list": [1]}), env };
        let mut sight = Sight::root(run);
        sight.add("a", Arc::new(json!({"n": 3})));
        sight.add("skipped", Arc::new(Value::Null));
        let iteration =
            Iteration { item: Arc::new(json!({"id": 7})), number: json!(2), last: Arc::new(json!({"b": {"x": 1}})) };
        let mut inner = sight.enter(iteration);
        inner.add("b", Arc::new(json!("B")));
        let written = json!([
            "${query}",
            "${since}",
            "${zone}",
            "${input.list.0}",
            "${a.output.n}",
            "${b.output}",
            "${skipped.output.any}",
            "${loop.item.id}",
            "${loop.iteration}",
            "${loop.last.b.x}",
            "${loop.last.c}"
        ]);
        assert_eq!(resolved(&inner, &written), json!(["问", "2026", "east", 1, 3, "B", null, 7, 2, 1, null]));
        let values = NodeValues::of(&sight);
        for nowhere in ["${loop.item}", "${a.output.m}", "${c.output}", "${nobody}"] {
            assert!(value(&json!(nowhere), &values).is_err(), "{nowhere}");
        }
    }
}
