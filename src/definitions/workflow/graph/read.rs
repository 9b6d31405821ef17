//! Parses workflows with `type: graph`. The rules are those of plans; this adds the fields that only files have.

use super::{GraphDefinition, is_id};
use crate::workflow::condition::Condition;
use crate::workflow::reader::{Reader, Table};
use decisions::payload::RecoveryPlan;
use decisions::policy::Policy;
use decisions::validate::{validate_plan, validate_recovery};
use decisions::world::Snapshot;
use serde_json::{Map, Value};

/// The fields that files share with plans.
const PLAN: [&str; 3] = ["nodes", "edges", "global_config"];

impl Reader {
    pub(in crate::workflow) fn graph(&mut self, table: Table<'_>) -> Option<GraphDefinition> {
        let errors = self.report.errors.len();
        let name = self.text(table, "name").unwrap_or_default().to_owned();
        let coordinator = self.text(table, "coordinator").map(str::to_owned);
        if coordinator.as_deref().is_some_and(|id| !is_id(id)) {
            self.report.error(
                table.at("coordinator"),
                "is no id of an agent",
                "name an agent with `mode: coordinator`",
            );
        }
        let max_concurrency = self.count(table, "max_concurrency", 1);
        let plan = plan_of(table);
        let world = Snapshot::new(Policy::default(), |text| {
            Condition::parse(text).map(drop).map_err(|error| error.to_string())
        });
        let verdict = validate_plan(&plan, true, &world);
        verdict.errors.iter().for_each(|finding| self.adopt(table, finding, true));
        verdict.warnings.iter().for_each(|finding| self.adopt(table, finding, false));
        let recovery = table.get("recovery").and_then(|found| {
            let verdict = validate_recovery(found, &world);
            verdict.errors.iter().for_each(|finding| self.adopt(table, finding, true));
            serde_json::from_value::<RecoveryPlan>(found.clone()).ok()
        });
        if self.report.errors.len() > errors {
            return None;
        }
        match GraphDefinition::from_plan(&name, plan) {
            Ok(graph) => Some(GraphDefinition { coordinator, recovery, max_concurrency, ..graph }),
            Err(error) => {
                self.report.error(table.at("nodes"), error.to_string(), "correct the node");
                None
            }
        }
    }

    /// Adds a finding of the validator: the field in backquotes, the problem, and after the last semicolon the remedy.
    fn adopt(&mut self, table: Table<'_>, finding: &str, is_error: bool) {
        let (path, text) = finding.strip_prefix('`').and_then(|rest| rest.split_once("` ")).unwrap_or(("", finding));
        let (problem, hint) = text.rsplit_once("; ").unwrap_or((text, ""));
        let path = match path {
            "" | "payload" => "top level".to_owned(),
            path => table.at(path),
        };
        if is_error { self.report.error(path, problem, hint) } else { self.report.warn(path, problem, hint) }
    }
}

/// The fields of a plan. YAML parses an unquoted `true` as a boolean, so the condition of an edge may be one.
fn plan_of(table: Table<'_>) -> Map<String, Value> {
    let fields = PLAN.iter().filter_map(|name| Some(((*name).to_owned(), table.get(name)?.clone())));
    let mut plan: Map<String, Value> = fields.collect();
    conditions_as_text(&mut plan);
    plan
}

fn conditions_as_text(level: &mut Map<String, Value>) {
    for edge in level.get_mut("edges").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(condition @ Value::Bool(_)) = edge.get_mut("condition") {
            *condition = Value::String(condition.to_string());
        }
    }
    for node in level.get_mut("nodes").and_then(Value::as_array_mut).into_iter().flatten() {
        let body = node.get_mut("config").and_then(|config| config.get_mut("body")?.as_object_mut());
        body.into_iter().for_each(conditions_as_text);
    }
}

#[cfg(test)]
mod tests {
    use crate::workflow::definition::Shape;
    use crate::workflow::read;
    use std::path::Path;

    const SALES: &str = "type: graph\nid: sales\nname: 报表\nglobal_config: {timeout: 90, inputs: [{name: since, type: string, required: true}], output: \"${c.output.text}\"}\n\
        nodes:\n  - {node_id: a, type: HTTP, name: 取数, config: {url: \"https://x.example/${input.since}\", method: GET}}\n\
        \x20 - {node_id: b, type: CONDITION, name: 有吗, config: {expression: \"${a.output.status} == '200'\"}}\n\
        \x20 - {node_id: c, type: RUNNABLE, name: 写, config: {runnable: writer, input: \"${a.output.data}\"}}\n\
        edges: [{source: a, target: b}, {source: b, target: c, condition: true}]\n";

    fn errors(text: &str) -> String {
        read::text(Path::new("g.yaml"), text).unwrap_err().to_string()
    }

    #[test]
    fn a_file_becomes_a_graph() {
        let record = read::text(Path::new("g.yaml"), SALES).unwrap();
        let Shape::Graph(graph) = &record.workflow.shape else { panic!("{record:?}") };
        assert_eq!(graph.level.layers(), [vec!["a"], vec!["b"], vec!["c"]]);
        assert_eq!(record.workflow.limits.timeout, Some(std::time::Duration::from_secs(90)));
        assert_eq!(record.workflow.shape.stages()[0].runnable.id(), "writer");
        assert!(graph.level.leads("a", "c") && !graph.level.leads("c", "a"));
    }

    #[test]
    fn problems_have_their_line_and_column() {
        assert_eq!(
            errors(&SALES.replace("method: GET", "method: FETCH")),
            "line 6, column 98: nodes[0].config.method: is `FETCH`; give one of `GET`, `HEAD`, `POST`, `PUT`, `PATCH`, `DELETE`"
        );
        let cycle = errors(&SALES.replace("edges: [", "edges: [{source: c, target: a}, "));
        assert!(cycle.contains("edges: form the cycle a → b → c → a; remove one of its edges"), "{cycle}");
        let unknown = errors(&SALES.replace("${a.output.data}", "${x.output.data}"));
        assert!(
            unknown.contains("nodes[2].config.input: names `${x.output.data}`, but there is no node `x`"),
            "{unknown}"
        );
        let missing = errors("type: graph\nid: g\n");
        assert!(missing.contains("nodes: is missing; give the nodes"), "{missing}");
    }
}
