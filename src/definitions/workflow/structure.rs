//! Describes a workflow for people: as JSON for a viewer and as a tree for the terminal.
//! [`mermaid`](super::flowchart::mermaid) draws the flowchart.

use super::definition::{
    LimitsConfig, Retry, RoleDefinition, Route, Shape, StageDefinition, SubAgentDefinition, Target, Workflow,
};
use super::graph::{self, GraphLevel};
use super::runnable_registry::RunnableRegistry;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use types::duration;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Describes the nested structure: types, ids, stages, branches, routes, inputs, conditions and limits. References stay
/// ids.
pub fn describe(workflow: &Workflow) -> Value {
    describe_known(workflow, &RunnableRegistry::default())
}

/// Describes the structure like [`describe`], and adds `runnable_kind` to references that `known` has.
pub fn describe_known(workflow: &Workflow, known: &RunnableRegistry) -> Value {
    let mut described = Map::new();
    let mut put = |name: &str, value: Value| drop(described.insert(name.to_owned(), value));
    put("type", workflow.shape.as_str().into());
    put("id", workflow.id.as_str().into());
    put("description", workflow.description.as_str().into());
    if workflow.limits != LimitsConfig::default() {
        put("limits", limits(&workflow.limits));
    }
    let stages = |stages: &[StageDefinition]| stages.iter().map(|stage| described_stage(stage, known)).collect();
    match &workflow.shape {
        Shape::Pipeline { stages: list, inherit_keys, .. } => {
            put("stages", stages(list));
            put("inherit_keys", json!(inherit_keys));
        }
        Shape::Loop { stages: list, condition, max_iterations, inherit_keys, .. } => {
            put("stages", stages(list));
            put("condition", condition.as_str().into());
            put("max_iterations", json!(max_iterations));
            put("inherit_keys", json!(inherit_keys));
        }
        Shape::Parallel { branches, merge_template, max_concurrency } => {
            put("branches", stages(branches));
            put("merge_template", json!(merge_template.as_ref().map(|template| template.template())));
            put("max_concurrency", json!(max_concurrency));
        }
        Shape::Conditional { routes, default } => {
            let route = |route: &Route| json!({ "condition": route.condition.as_str(), "stage": described_stage(&route.stage, known) });
            put("routes", routes.iter().map(route).collect());
            put("default", default.as_deref().map_or(Value::Null, |stage| described_stage(stage, known)));
        }
        Shape::Dynamic(dynamic) => {
            for (name, RoleDefinition { agent, model }) in dynamic.roles() {
                put(name, json!({ "agent": agent, "model": model }));
            }
            put("agents", dynamic.agents.iter().map(|agent| described_agent(agent, known)).collect());
            put("max_iterations", json!(dynamic.max_iterations));
            put("max_concurrency", json!(dynamic.max_concurrency));
        }
        Shape::Graph(graph) => described.extend(graph::describe::fields(graph, known)),
    }
    if let Some(output) = workflow.shape.output() {
        described.insert("output".to_owned(), output.template().into());
    }
    Value::Object(described)
}

fn described_stage(stage: &StageDefinition, known: &RunnableRegistry) -> Value {
    let condition = stage.condition.as_ref().map(|condition| condition.as_str());
    let described = json!({ "id": stage.id, "input": stage.input.template(), "condition": condition });
    described_target(stage, described, known)
}

fn described_agent(agent: &SubAgentDefinition, known: &RunnableRegistry) -> Value {
    let described = json!({ "name": agent.name(), "description": agent.description });
    described_target(&agent.stage, described, known)
}

/// Adds runnable, retries, model and timeout of a stage.
fn described_target(stage: &StageDefinition, mut described: Value, known: &RunnableRegistry) -> Value {
    match &stage.runnable {
        Target::Inline(workflow) => described["runnable"] = describe_known(workflow, known),
        Target::Reference(id) => {
            described["runnable"] = json!(id);
            if let Some(kind) = known.kind(id) {
                described["runnable_kind"] = kind.as_str().into();
            }
        }
    }
    if stage.retry != Retry::default() {
        let Retry { max_attempts, backoff } = stage.retry;
        described["retry"] = json!({ "max_attempts": max_attempts, "backoff": duration::format(backoff) });
    }
    if let Some(model) = &stage.model {
        described["model"] = json!(model);
    }
    if let Some(timeout) = stage.timeout {
        described["timeout"] = duration::format(timeout).into();
    }
    described
}

/// The limits that are set, in the form of the file.
pub(super) fn limits(limits: &LimitsConfig) -> Value {
    let LimitsConfig { max_stages, max_depth, timeout, max_model_calls, max_tokens } = limits;
    let fields = [
        ("max_stages", json!(max_stages)),
        ("max_depth", json!(max_depth)),
        ("timeout", json!(timeout.map(duration::format))),
        ("max_model_calls", json!(max_model_calls)),
        ("max_tokens", json!(max_tokens)),
    ];
    let set = fields.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(set.map(|(name, value)| (name.to_owned(), value)).collect())
}

/// Draws a tree of lines of at most `width` terminal columns. Chinese characters take two columns.
pub fn tree(workflow: &Workflow, width: usize) -> String {
    let mut rows = vec![(headline(workflow), String::new())];
    branches(workflow, "", &mut rows);
    let left = rows.iter().skip(1).map(|(left, _)| left.width()).max().unwrap_or(0).min(width / 2);
    let line = |(at, (stage, input)): (usize, &(String, String))| {
        let pad = if at == 0 { 0 } else { left.saturating_sub(stage.width()) };
        cut(format!("{stage}{:pad$}  {input}", "").trim_end(), width)
    };
    rows.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

/// A line with type, id and main fields of a workflow.
pub(super) fn headline(workflow: &Workflow) -> String {
    let mut words = format!("{} {}", workflow.shape.as_str(), workflow.id);
    match &workflow.shape {
        Shape::Loop { condition, max_iterations, .. } => {
            let _ = write!(words, ", at most {max_iterations} times, while {}", brief(condition.as_str()));
        }
        Shape::Parallel { max_concurrency: Some(most), .. } => {
            let _ = write!(words, ", at most {most} concurrently");
        }
        Shape::Dynamic(dynamic) => {
            let _ = write!(words, ", at most {} nodes", dynamic.max_iterations);
        }
        Shape::Graph(graph) => {
            let _ = write!(words, ", {} nodes", graph.level.nodes.len());
        }
        Shape::Pipeline { .. } | Shape::Parallel { .. } | Shape::Conditional { .. } => {}
    }
    if let Shape::Pipeline { inherit_keys, .. } | Shape::Loop { inherit_keys, .. } = &workflow.shape
        && !inherit_keys.is_empty()
    {
        let _ = write!(words, ", inherits {}", inherit_keys.join(", "));
    }
    if let Some(output) = workflow.shape.output() {
        let _ = write!(words, ", output {}", brief(output.template()));
    }
    words
}

fn branches(workflow: &Workflow, indent: &str, rows: &mut Vec<(String, String)>) {
    if let Shape::Graph(graph) = &workflow.shape {
        return level_rows(&graph.level, indent, rows);
    }
    if let Shape::Dynamic(dynamic) = &workflow.shape {
        for (name, RoleDefinition { agent, model }) in dynamic.roles() {
            let model = model.as_ref().map(|model| format!("model {model}")).unwrap_or_default();
            rows.push((format!("{indent}├─ {name}: {agent}"), model));
        }
    }
    let parts = parts(&workflow.shape);
    let last = parts.len();
    for (at, (when, stage)) in parts.into_iter().enumerate() {
        let (fork, below) = if at + 1 == last { ("└─", "   ") } else { ("├─", "│  ") };
        let when = when.map(|when| format!("  {when}")).unwrap_or_default();
        let input = brief(match &workflow.shape {
            Shape::Dynamic(dynamic) => dynamic.agent(&stage.id).map_or("", |agent| agent.description.as_str()),
            _ => stage.input.template(),
        });
        match &stage.runnable {
            Target::Reference(id) => rows.push((format!("{indent}{fork} {} → {id}{when}", stage.id), input)),
            Target::Inline(within) => {
                rows.push((format!("{indent}{fork} {} → {}{when}", stage.id, headline(within)), input));
                branches(within, &format!("{indent}{below}"), rows);
            }
        }
    }
}

/// The rows of the nodes of a graph, each with the nodes before it.
fn level_rows(level: &GraphLevel, indent: &str, rows: &mut Vec<(String, String)>) {
    for (at, node) in level.nodes.iter().enumerate() {
        let (fork, below) = if at + 1 == level.nodes.len() { ("└─", "   ") } else { ("├─", "│  ") };
        let before = level.edges.iter().filter(|edge| edge.target == at).map(|edge| {
            let when = edge.condition.as_ref().map(|one| format!(" if {}", brief(one.as_str()))).unwrap_or_default();
            format!("{}{when}", level.nodes[edge.source].id())
        });
        let before: Vec<_> = before.collect();
        let after = if before.is_empty() { String::new() } else { format!("  after {}", before.join(", ")) };
        let row = format!("{indent}{fork} {} → {}{after}", node.id(), node.kind());
        rows.push((row, graph::describe::brief(node)));
        if let Some(body) = &node.body {
            level_rows(body, &format!("{indent}{below}"), rows);
        }
    }
}

/// The stages, each with its condition in words.
pub(super) fn parts(shape: &Shape) -> Vec<(Option<String>, &StageDefinition)> {
    let when = |condition: &str| Some(format!("if {}", brief(condition)));
    match shape {
        Shape::Conditional { routes, default } => {
            let routes = routes.iter().map(|route| (when(route.condition.as_str()), &route.stage));
            routes.chain(default.iter().map(|stage| (Some("else".to_owned()), stage.as_ref()))).collect()
        }
        Shape::Pipeline { .. } | Shape::Loop { .. } | Shape::Parallel { .. } | Shape::Dynamic(_) | Shape::Graph(_) => {
            let stages = shape.stages().into_iter();
            stages.map(|stage| (stage.condition.as_ref().and_then(|one| when(one.as_str())), stage)).collect()
        }
    }
}

/// Joins the words of a text into one line.
pub(super) fn brief(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn cut(line: &str, width: usize) -> String {
    if line.width() <= width {
        return line.to_owned();
    }
    let mut room = width.saturating_sub(1);
    let fits = |c: &char| {
        let wide = c.width().unwrap_or(0);
        let fits = wide <= room;
        room -= if fits { wide } else { 0 };
        fits
    };
    let kept: String = line.chars().take_while(fits).collect();
    format!("{}…", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflow::definition::WorkflowRecord;
    use crate::workflow::flowchart::{label, mermaid};
    use crate::workflow::read;
    use std::sync::Arc;

    fn shipped(id: &str) -> Arc<Workflow> {
        let found = read::builtin().into_iter().filter_map(|(_, workflow)| workflow.ok());
        found.map(|record| record.workflow).find(|workflow| workflow.id == id).unwrap()
    }

    #[test]
    fn the_json_has_all_that_is_nested() {
        let described = describe_known(&shipped("research_workflow"), &RunnableRegistry::default().with_builtin());
        assert_eq!(
            (&described["type"], &described["stages"][0]["runnable"]),
            (&json!("pipeline"), &json!("intent_agent"))
        );
        assert_eq!(described["stages"][0]["runnable_kind"], "task agent");
        let outer = &described["stages"][2];
        assert_eq!((&outer["id"], &outer["input"]), (&json!("outer_loop"), &json!("{plan}")));
        let outer = &outer["runnable"];
        assert_eq!((&outer["max_iterations"], &outer["inherit_keys"]), (&json!(3), &json!(["plan"])));
        let inner = &outer["stages"][0]["runnable"]["branches"][0]["runnable"];
        assert_eq!(
            (&inner["id"], &inner["condition"]),
            (&json!("retrieval_loop"), &json!("{reflection} contains 'CONTINUE'"))
        );
        let router = describe(&shipped("smart_router"));
        assert_eq!(
            (&router["routes"][1]["stage"]["id"], &router["default"]["id"]),
            (&json!("data_expert"), &json!("general"))
        );
        assert_eq!(router["routes"][1]["stage"].get("runnable_kind"), None);
        let document = json!({"id": "w", "limits": {"timeout": "90s"}, "stages": [
            {"id": "a", "runnable": "x", "input": "", "timeout": 5, "retry": {"max_attempts": 2}, "model": ["fast", "default"]}]});
        let record = WorkflowRecord::from_document(document, types::timestamp::Timestamp::from_millis(0)).unwrap();
        let described = describe(&record.workflow);
        assert_eq!(
            (&described["limits"], &described["stages"][0]["timeout"]),
            (&json!({"timeout": "90s"}), &json!("5s"))
        );
        assert_eq!(described["stages"][0]["model"], json!(["fast", "default"]));
        assert_eq!(described["stages"][0]["retry"], json!({"max_attempts": 2, "backoff": "1s"}));
    }

    #[test]
    fn the_tree_is_one_line_a_stage_and_no_wider_than_the_terminal() {
        let drawn = tree(&shipped("smart_router"), 200);
        let expected = "conditional smart_router\n\
                        ├─ code_expert → code_agent  if {query} contains '代码'  {query}\n\
                        ├─ data_expert → data_agent  if {query} contains '数据'  {query}\n\
                        └─ general → general_agent  else                         {query}";
        assert_eq!(drawn, expected);
        let research = shipped("research_workflow");
        let wide = tree(&research, usize::MAX);
        assert!(wide.contains("│     ├─ inner_loop → loop retrieval_loop, at most 5 times, while "), "{wide}");
        for width in [20, 40, 80] {
            let drawn = tree(&research, width);
            assert_eq!(drawn.lines().count(), wide.lines().count());
            assert!(drawn.lines().all(|line| line.width() <= width), "{drawn}");
        }
        assert!(tree(&research, 60).contains('…'));
    }

    #[test]
    fn a_dynamic_workflow_is_shown_with_its_roles_nodes_and_agents() {
        let ops = shipped("dynamic_ops");
        let described = describe_known(&ops, &RunnableRegistry::default().with_builtin());
        assert_eq!((&described["type"], &described["max_iterations"]), (&json!("dynamic"), &json!(10)));
        assert_eq!(described["review"], json!({"agent": "ops_review_agent", "model": null}));
        let agent = &described["agents"][0];
        assert_eq!((&agent["name"], &agent["runnable_kind"]), (&json!("servicenow"), &json!("task agent")));
        let drawn = tree(&ops, 200);
        for part in [
            "dynamic dynamic_ops, at most 10 nodes",
            "├─ plan: ops_plan_agent",
            "└─ service_health → service_health_agent",
        ] {
            assert!(drawn.contains(part), "{part}: {drawn}");
        }
        let chart = mermaid(&ops);
        for part in ["[\"orchestrator\"]", "-->|\"incomplete\"|", "[\"log_analytics<br/>log_analytics_agent\"]"] {
            assert!(chart.contains(part), "{part}: {chart}");
        }
    }

    #[test]
    fn the_flowchart_has_a_box_for_every_stage_and_edges_between_boxes_only() {
        for (_, workflow) in read::builtin() {
            let chart = mermaid(&workflow.unwrap().workflow);
            let declared: Vec<&str> = chart
                .lines()
                .filter_map(|line| line.trim().strip_prefix("subgraph ").or(Some(line.trim())))
                .filter_map(|line| line.split_once(['[', '{']).map(|(id, _)| id))
                .filter(|id| !id.contains(' '))
                .collect();
            let edges = chart.lines().filter(|line| line.contains("-->") || line.contains("-.->"));
            for edge in edges {
                let mut ends = edge.split_whitespace();
                let (from, to) = (ends.next().unwrap(), ends.next_back().unwrap());
                assert!(declared.contains(&from) && declared.contains(&to), "{edge}\n{chart}");
            }
            let count = |word: &str| chart.lines().filter(|line| line.trim().starts_with(word)).count();
            assert_eq!(count("subgraph "), count("end"), "{chart}");
        }
        let chart = mermaid(&shipped("smart_router"));
        assert!(chart.contains("n2 -->|\"if {query} contains '代码'\"| n3"), "{chart}");
        assert_eq!(label("a\"b\n#<end>"), "a#34;b #35;#60;end#62;");
    }
}
