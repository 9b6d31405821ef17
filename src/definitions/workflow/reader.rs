//! Parses a document into a workflow. It continues after an error, so that all problems are reported together.

use super::condition::Condition;
use super::definition::{LimitsConfig, Retry, Route, Shape, StageDefinition, Target, Workflow};
use super::fields;
use super::scope::RESERVED;
use super::template::{InputMapping, is_name};
use crate::document::Report;
use crate::document::file::yaml_kind;
use crate::document::finding::quoted;
use base::config::nearest::question;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;
use types::duration::Lenient;
use types::model_names::ModelNames;
use types::{depth, ids};

/// The legal values of `type`.
pub(super) const TYPES: [&str; 6] = ["pipeline", "loop", "parallel", "conditional", "dynamic", "graph"];

/// Default of `max_iterations`: iterations of a loop, or node activations of a dynamic workflow.
pub(super) const MAX_ITERATIONS: u32 = 10;

/// The largest legal value of `retry.max_attempts`.
const MAX_ATTEMPTS: u64 = 100;

/// Parses a workflow. Returns all problems and, if there are no errors, the workflow.
pub(super) fn read(document: &Value) -> (Option<Workflow>, Report) {
    let mut reader = Reader { report: Report::default() };
    if !depth::is_legal(document) {
        let problem = format!("is nested more than {} levels deep, which no store accepts", depth::MAX_DEPTH);
        reader.report.error(
            "top level",
            problem,
            "move the innermost workflows into files of their own, and name them by id",
        );
        return (None, reader.report);
    }
    let workflow = reader.workflow(document, "");
    let report = reader.report;
    (workflow.filter(|_| report.is_ok()), report)
}

/// The path of the field `name` in the table at `path`.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

pub(in crate::workflow) struct Reader {
    pub(in crate::workflow) report: Report,
}

/// A table of the document, and its path.
#[derive(Clone, Copy)]
pub(in crate::workflow) struct Table<'d> {
    pub(super) fields: &'d Map<String, Value>,
    path: &'d str,
}

impl<'d> Table<'d> {
    pub(in crate::workflow) fn at(&self, name: &str) -> String {
        join(self.path, name)
    }

    /// The value of a field. `null` counts as absent.
    pub(in crate::workflow) fn get(&self, name: &str) -> Option<&'d Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }
}

impl Reader {
    fn workflow(&mut self, value: &Value, path: &str) -> Option<Workflow> {
        let table = self.table(value, path, "a workflow is a table with `id`, `type` and its stages")?;
        let id = self.text(table, "id");
        match id {
            Some(id) => self.legal(&table.at("id"), id),
            None if table.get("id").is_none() => self.missing(table, "id", "every workflow has one"),
            None => {}
        }
        let kind = match table.get("type") {
            None => "pipeline",
            Some(_) => self.text(table, "type")?,
        };
        fields::check(table.fields, path, kind, &mut self.report);
        let shape = match kind {
            "pipeline" => Shape::Pipeline {
                stages: self.stages(table, "stages"),
                output: self.text(table, "output").map(InputMapping::parse),
                inherit_keys: self.inherit_keys(table),
            },
            "loop" => Shape::Loop {
                stages: self.stages(table, "stages"),
                condition: self.condition(table).unwrap_or_else(Condition::always),
                max_iterations: self.count(table, "max_iterations", 1).unwrap_or(MAX_ITERATIONS),
                output: self.text(table, "output").map(InputMapping::parse),
                inherit_keys: self.inherit_keys(table),
            },
            "parallel" => Shape::Parallel {
                branches: self.stages(table, "branches"),
                merge_template: self.text(table, "merge_template").map(InputMapping::parse),
                max_concurrency: self.count(table, "max_concurrency", 1),
            },
            "conditional" => self.conditional(table),
            "dynamic" => Shape::Dynamic(Box::new(self.dynamic(table)?)),
            "graph" => Shape::Graph(Box::new(self.graph(table)?)),
            other => {
                let hint = format!("{} known are {}", question(other, TYPES), quoted(TYPES));
                self.report.error(table.at("type"), format!("Unknown workflow type: {other}"), hint.trim());
                return None;
            }
        };
        let description = self.text(table, "description").unwrap_or_default().to_owned();
        let mut limits = self.limits(table);
        if let Shape::Graph(graph) = &shape {
            let seconds = graph.global.timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            limits.timeout = limits.timeout.or(seconds);
        }
        Some(Workflow { id: id?.to_owned(), description, shape, limits })
    }

    fn conditional(&mut self, table: Table<'_>) -> Shape {
        let (mut routes, mut ids) = (Vec::new(), Vec::new());
        for (path, value) in self.list(table, "routes", "one route") {
            let hint = "a route is a table with `condition` and `stage`";
            let Some(route) = self.table(value, &path, hint) else { continue };
            fields::check(route.fields, &path, "route", &mut self.report);
            if route.get("condition").is_none() {
                self.missing(route, "condition", "write when the route is taken, or make its stage the `default`");
            }
            let condition = self.condition(route).unwrap_or_else(Condition::always);
            match route.get("stage") {
                Some(value) => {
                    if let Some(stage) = self.routed(value, &route.at("stage")) {
                        ids.push((route.at("stage"), stage.id.clone()));
                        routes.push(Route { condition, stage });
                    }
                }
                None => self.missing(route, "stage", "write what runs: `stage: {id: …, runnable: …}`"),
            }
        }
        let default = table.get("default").and_then(|stage| self.routed(stage, &table.at("default")));
        ids.extend(default.iter().map(|stage| (table.at("default"), stage.id.clone())));
        self.unique(&ids, "id");
        Shape::Conditional { routes, default: default.map(Box::new) }
    }

    /// Parses the stage of a route.
    fn routed(&mut self, value: &Value, path: &str) -> Option<StageDefinition> {
        let stage = self.stage(value, path)?;
        if stage.condition.is_some() {
            let hint = "the route's `condition` decides; remove this one";
            self.report.warn(join(path, "condition"), "has no effect", hint);
        }
        Some(stage)
    }

    fn stages(&mut self, table: Table<'_>, name: &str) -> Vec<StageDefinition> {
        let what = if name == "branches" { "one branch" } else { "one stage" };
        let mut stages = Vec::new();
        let mut ids = Vec::new();
        for (path, value) in self.list(table, name, what) {
            if let Some(stage) = self.stage(value, &path) {
                ids.push((path, stage.id.clone()));
                stages.push(stage);
            }
        }
        self.unique(&ids, "id");
        stages
    }

    fn stage(&mut self, value: &Value, path: &str) -> Option<StageDefinition> {
        let table = self.table(value, path, "a stage is a table with `id`, `runnable` and `input`")?;
        fields::check(table.fields, path, "stage", &mut self.report);
        let id = self.text(table, "id");
        match id {
            Some(id) => self.stage_id(&table.at("id"), id),
            None if table.get("id").is_none() => self.missing(table, "id", "it is also the name of the stage's output"),
            None => {}
        }
        let runnable = self.runnable(table);
        let input = self.text(table, "input").map(InputMapping::parse);
        if table.get("input").is_none() {
            let hint = "name what the stage is to see; `input: \"{query}\"` has the same effect";
            self.report.warn(table.at("input"), "is missing, so the stage gets `{query}`", hint);
        }
        let condition = self.condition(table);
        let retry = self.retry(table);
        let (timeout, model) = (self.duration(table, "timeout"), self.model(table));
        let input = input.unwrap_or_default();
        Some(StageDefinition { id: id?.to_owned(), runnable: runnable?, input, condition, retry, timeout, model })
    }

    pub(super) fn runnable(&mut self, table: Table<'_>) -> Option<Target> {
        let path = table.at("runnable");
        match table.get("runnable") {
            None => {
                let hint = "name a task agent, a workflow or a flow, or write a workflow in its place";
                self.missing(table, "runnable", hint);
                None
            }
            Some(Value::String(id)) => {
                self.legal(&path, id);
                Some(Target::Reference(id.clone()))
            }
            Some(workflow @ Value::Object(_)) => self.workflow(workflow, &path).map(Box::new).map(Target::Inline),
            Some(other) => {
                let problem = format!("found {}; expected an id or a workflow", yaml_kind(other));
                self.report.error(path, problem, "write `runnable: some_agent`");
                None
            }
        }
    }

    fn condition(&mut self, table: Table<'_>) -> Option<Condition> {
        let path = table.at("condition");
        let text = match table.get("condition")? {
            // YAML parses an unquoted `true` as a boolean.
            Value::Bool(constant) => constant.to_string(),
            Value::String(text) => text.clone(),
            other => {
                let problem = format!("found {}; expected a text", yaml_kind(other));
                self.report.error(path, problem, "write it between quotes: `\"{stage} contains 'word'\"`");
                return None;
            }
        };
        let condition = match Condition::parse(&text) {
            Ok(condition) => condition,
            Err(error) => {
                self.report.error(path, format!("the condition `{}` {}", error.condition, error.problem), error.remedy);
                return None;
            }
        };
        let is_word = ["true", "false"].iter().any(|word| text.trim().eq_ignore_ascii_case(word));
        match condition.constant() {
            Some(holds) if !is_word => {
                let always = if holds { "always" } else { "never" };
                let hint = "a stage's output is written in braces: `{stage}`";
                self.report.warn(path, format!("names no stage, so it {always} holds"), hint);
            }
            _ => {
                if let Some(text) = condition.no_number() {
                    let problem = format!("`{text}` is not a number, so it never holds");
                    self.report.warn(path, problem, "compare texts with `==` or `contains`");
                }
            }
        }
        Some(condition)
    }

    pub(super) fn retry(&mut self, table: Table<'_>) -> Retry {
        let default = Retry::default();
        let Some(value) = table.get("retry") else { return default };
        let path = table.at("retry");
        let hint = "write `retry: {max_attempts: 3, backoff: 1s}`";
        let Some(retry) = self.table(value, &path, hint) else { return default };
        fields::check(retry.fields, &path, "retry", &mut self.report);
        let max_attempts = self.count::<u64>(retry, "max_attempts", 1);
        if max_attempts.is_some_and(|count| count > MAX_ATTEMPTS) {
            self.report.error(retry.at("max_attempts"), format!("at most {MAX_ATTEMPTS} are allowed"), "");
        }
        let max_attempts = max_attempts.and_then(|count| u32::try_from(count).ok()).unwrap_or(default.max_attempts);
        Retry { max_attempts, backoff: self.duration(retry, "backoff").unwrap_or(default.backoff) }
    }

    fn limits(&mut self, table: Table<'_>) -> LimitsConfig {
        let Some(value) = table.get("limits") else { return LimitsConfig::default() };
        let path = table.at("limits");
        if !table.path.is_empty() {
            let hint = "move them to the top of the file; a stage may have a `timeout`";
            self.report.warn(&path, "have no effect here: those of the outermost workflow count", hint);
        }
        let hint = "write `limits: {max_stages: 100, timeout: 10m}`";
        let Some(limits) = self.table(value, &path, hint) else { return LimitsConfig::default() };
        fields::check(limits.fields, &path, "limits", &mut self.report);
        LimitsConfig {
            max_stages: self.count(limits, "max_stages", 1),
            max_depth: self.count(limits, "max_depth", 1),
            timeout: self.duration(limits, "timeout"),
            max_model_calls: self.count(limits, "max_model_calls", 1),
            max_tokens: self.count(limits, "max_tokens", 0),
        }
    }

    fn inherit_keys(&mut self, table: Table<'_>) -> Vec<String> {
        let Some(value) = table.get("inherit_keys") else { return Vec::new() };
        let keys = value.as_array().map(|keys| keys.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
        let Some(Some(keys)) = keys else {
            let problem = "must be a list of names";
            self.report.error(table.at("inherit_keys"), problem, "write `inherit_keys: [plan]`");
            return Vec::new();
        };
        keys.into_iter().map(str::to_owned).collect()
    }
}

/// Parsers for single fields.
impl Reader {
    pub(super) fn missing(&mut self, table: Table<'_>, name: &str, hint: &str) {
        self.report.error(table.at(name), "is missing", hint);
    }

    pub(super) fn table<'d>(&mut self, value: &'d Value, path: &'d str, hint: &str) -> Option<Table<'d>> {
        if let Value::Object(fields) = value {
            return Some(Table { fields, path });
        }
        let place = if path.is_empty() { "top level" } else { path };
        self.report.error(place, format!("found {}", yaml_kind(value)), hint);
        None
    }

    /// The items of a list with their paths. An empty or missing list is an error.
    pub(super) fn list<'d>(&mut self, table: Table<'d>, name: &str, item: &str) -> Vec<(String, &'d Value)> {
        let path = table.at(name);
        let hint = format!("it needs at least {item}");
        match table.get(name) {
            None => self.report.error(path, "is missing", hint),
            Some(Value::Array(items)) if items.is_empty() => self.report.error(path, "is empty", hint),
            Some(Value::Array(items)) => {
                return items.iter().enumerate().map(|(at, value)| (format!("{path}[{at}]"), value)).collect();
            }
            Some(other) => self.report.error(path, format!("found {}; expected a list", yaml_kind(other)), hint),
        }
        Vec::new()
    }

    pub(in crate::workflow) fn text<'d>(&mut self, table: Table<'d>, name: &str) -> Option<&'d str> {
        match table.get(name)? {
            Value::String(text) => Some(text),
            other => {
                let problem = format!("found {}; expected a text", yaml_kind(other));
                self.report.error(table.at(name), problem, "put it between quotes");
                None
            }
        }
    }

    pub(in crate::workflow) fn count<N: TryFrom<u64>>(
        &mut self,
        table: Table<'_>,
        name: &str,
        least: u64,
    ) -> Option<N> {
        let value = table.get(name)?;
        let count = value.as_u64().filter(|count| *count >= least).and_then(|count| N::try_from(count).ok());
        if count.is_none() {
            let problem = format!("found {value}; expected a whole number of at least {least}");
            self.report.error(table.at(name), problem, "");
        }
        count
    }

    pub(super) fn duration(&mut self, table: Table<'_>, name: &str) -> Option<Duration> {
        match Lenient::deserialize(table.get(name)?) {
            Ok(Lenient(duration)) if duration.is_zero() => {
                self.report.error(table.at(name), "is zero", "write how long, such as `30s`, or remove it");
                None
            }
            Ok(Lenient(duration)) => Some(duration),
            Err(problem) => {
                self.report.error(table.at(name), problem.to_string(), "");
                None
            }
        }
    }

    pub(super) fn model(&mut self, table: Table<'_>) -> Option<ModelNames> {
        let read = ModelNames::deserialize(table.get("model")?);
        read.map_err(|problem| self.report.error(table.at("model"), problem.to_string(), "")).ok()
    }

    pub(super) fn legal(&mut self, path: &str, id: &str) {
        if let Err(error) = ids::check("id", id) {
            self.report.error(path, error.to_string(), "");
        }
    }

    /// Checks the id of a stage. It is the name of the output in templates, and part of the keys of the run's steps.
    pub(super) fn stage_id(&mut self, path: &str, id: &str) {
        if RESERVED.contains(&id) {
            let problem = format!("`{id}` is a reserved name in templates");
            self.report.error(path, problem, "give the stage another id");
        } else if !is_name(id) || id.len() > ids::MAX_BYTES {
            let problem = format!("`{id}` cannot be named in a template");
            let hint = format!("an id has letters, digits, `_` and `-`, and at most {} bytes", ids::MAX_BYTES);
            self.report.error(path, problem, hint);
        }
    }

    /// Reports ids that occur twice among the stages of a workflow.
    pub(super) fn unique(&mut self, ids: &[(String, String)], field: &str) {
        let mut first: BTreeMap<&str, &str> = BTreeMap::new();
        for (path, id) in ids {
            if let Some(other) = first.get(id.as_str()) {
                let problem = format!("`{id}` is the {field} of `{other}` too");
                self.report.error(join(path, field), problem, "give it another: a stage's output goes by its id");
            } else {
                first.insert(id, path);
            }
        }
    }
}
