//! The workflow files that come with the program, their JSON Schema and their page in the docs.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use turnwheel::agent::load;
use turnwheel::model::offline::Offline;
use turnwheel::model::{Facts, Model, ModelRequest};
use turnwheel::workflow::orchestration::definition::{Shape, Stage, Target, Workflow};
use turnwheel::workflow::orchestration::fields::FIELDS;
use turnwheel::workflow::orchestration::outputs::OutputStore;
use turnwheel::workflow::orchestration::schema::SCHEMA;
use turnwheel::workflow::orchestration::scope::Scope;
use turnwheel::workflow::orchestration::{KnownRunnables, read};

fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn schema() -> Value {
    serde_json::from_str(SCHEMA).unwrap()
}

#[test]
fn the_files_are_those_that_are_compiled_in_and_fit_the_schema() {
    let files = read::read_paths(&[project("workflows")]);
    let hash = |(_, workflow): &read::Loaded| workflow.as_ref().unwrap().hash.clone();
    assert_eq!(files.iter().map(hash).collect::<Vec<_>>(), read::builtin().iter().map(hash).collect::<Vec<_>>());
    let schema = jsonschema::validator_for(&schema()).unwrap();
    for (path, workflow) in files {
        let document = workflow.unwrap().document;
        let errors: Vec<_> = schema.iter_errors(&document).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{}: {errors:?}", path.display());
    }
}

#[test]
fn the_schema_refuses_what_the_reader_refuses() {
    let schema = jsonschema::validator_for(&schema()).unwrap();
    let stage = json!({"id": "步骤-1", "runnable": "x"});
    let stages = json!([stage]);
    let good = |document: &Value| read::text(Path::new("w.json"), &document.to_string()).is_ok();
    for right in [
        json!({"id": "w", "stages": stages}),
        json!({"id": "w", "type": "loop", "condition": true, "max_iterations": 1, "inherit_keys": null, "stages": stages}),
        json!({"id": "w", "type": "parallel", "merge_template": null, "branches": stages, "limits": {"timeout": 5, "max_tokens": 0}}),
        json!({"id": "w", "type": "conditional", "default": null, "routes": [{"condition": "{query}", "stage": stage}], "updated_at": 5}),
        json!({"id": "w", "stages": [{"id": "a", "runnable": {"id": "n", "type": "loop", "stages": stages}, "retry": {"max_attempts": 3, "backoff": "1s"}, "timeout": "90"}]}),
    ] {
        assert!(schema.is_valid(&right) && good(&right), "{right}");
    }
    for wrong in [
        json!({"stages": stages}),
        json!({"id": "w"}),
        json!({"id": "w", "type": "tree", "stages": stages}),
        json!({"id": "w", "stages": []}),
        json!({"id": "w", "type": "parallel", "stages": stages}),
        json!({"id": "w", "type": "loop", "max_iterations": 0, "stages": stages}),
        json!({"id": "w", "type": "conditional", "routes": [{"stage": stage}]}),
        json!({"id": "w", "stages": [{"id": "query", "runnable": "x"}]}),
        json!({"id": "w", "stages": [{"id": "a b", "runnable": "x"}]}),
        json!({"id": "w", "stages": [{"id": "a"}]}),
        json!({"id": "w", "stages": [{"id": "a", "runnable": ["x"]}]}),
        json!({"id": "w", "stages": [{"id": "a", "runnable": "x", "timeout": 0}]}),
        json!({"id": "w", "stages": [{"id": "a", "runnable": "x", "retry": {"max_attempts": 101}}]}),
        json!({"id": "w", "stages": stages, "limits": {"max_stages": 0}}),
    ] {
        assert!(!schema.is_valid(&wrong) && !good(&wrong), "{wrong}");
    }
    let unknown = json!({"id": "w", "stages": stages, "colour": "red"});
    assert!(!schema.is_valid(&unknown) && good(&unknown), "an editor marks what is only a warning");
}

#[test]
fn the_command_prints_the_schema_of_the_docs() {
    let printed = Command::new(env!("CARGO_BIN_EXE_turnwheel")).args(["workflows", "schema"]).output().unwrap();
    let file = std::fs::read_to_string(project("docs/workflow.schema.json")).unwrap();
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), file);
}

#[test]
fn every_field_is_in_the_schema_and_in_the_docs() {
    let docs = std::fs::read_to_string(project("docs/workflows.md")).unwrap();
    let section = |title: &str| {
        let begin =
            docs.find(&format!("\n{title}\n")).unwrap_or_else(|| panic!("docs/workflows.md has no {title}")) + 1;
        let end = docs[begin + 2..].find("\n#").map_or(docs.len(), |end| begin + 2 + end);
        &docs[begin..end]
    };
    let schema = schema();
    for (kind, fields) in FIELDS {
        let title = match kind {
            "pipeline" => "### Pipeline",
            "loop" => "### Loop",
            "parallel" => "### Parallel",
            "conditional" | "route" => "### Conditional",
            "limits" => "## Limits",
            _ => "## Stages",
        };
        let described = schema["$defs"][kind]["properties"].as_object().unwrap();
        let known = described.keys().filter(|name| *name != "updated_at").count();
        assert_eq!(known, fields.len(), "{kind}");
        for name in fields {
            assert!(described[*name]["description"].is_string(), "{kind}.{name}");
            let code = [format!("`{name}`"), format!("{{{name}"), format!(", {name}}}")];
            let of = [section(title), section("## Fields")];
            assert!(code.iter().any(|code| of.iter().any(|text| text.contains(code))), "{title} has no `{name}`");
        }
    }
}

#[test]
fn the_page_says_what_the_checks_say() {
    let docs = std::fs::read_to_string(project("docs/workflows.md")).unwrap();
    let begin = docs.find("```yaml\n").unwrap() + "```yaml\n".len();
    let example = &docs[begin..begin + docs[begin..].find("```").unwrap()];
    let known = KnownRunnables::default().with_builtin();
    let (_, warnings) = known.check(read::text(Path::new("w.yaml"), example).unwrap()).unwrap();
    assert_eq!(warnings, []);
    for (_, workflow) in read::builtin() {
        let id = workflow.unwrap().id().to_owned();
        assert!(docs.contains(&format!("[`{id}`](../workflows/{id}.yaml)")), "{id}");
    }
}

/// What the offline model answers a task agent that comes with the program.
fn answer(agent_id: &str, input: &str) -> String {
    let agents = load::builtin().into_iter().map(|(_, agent)| agent.unwrap());
    let agent = agents.into_iter().find(|agent| agent.id() == agent_id).unwrap();
    assert!(agent.config.is_task_agent(), "{agent_id}");
    let facts = Facts { agent: Some(agent.config), message: input.to_owned(), ..Facts::default() };
    let request = ModelRequest { facts, ..ModelRequest::new(Vec::new()) };
    let Poll::Ready(reply) = pin!(Offline::new().complete(request)).poll(&mut Context::from_waker(Waker::noop()))
    else {
        panic!("the offline model waits")
    };
    reply.unwrap().content
}

type Left = Vec<(Arc<str>, Option<Arc<str>>)>;

/// The rules of workflows in a few lines, without journal and events: what the offline model brings them to. `seen` has what
/// every agent was given.
fn run(workflow: &Workflow, scope: Scope, seen: &mut Vec<(String, String)>) -> (String, Left) {
    let stage = |stage: &Stage, scope: &Scope, seen: &mut Vec<(String, String)>| {
        let input = stage.input.build(scope);
        match &stage.runnable {
            Target::Inline(within) => run(within, scope.enter(&within.shape, input), seen),
            Target::Reference(agent) => {
                seen.push((stage.id.clone(), input.clone()));
                (answer(agent, &input), Vec::new())
            }
        }
    };
    let shape = &workflow.shape;
    match shape {
        Shape::Pipeline { stages, .. } | Shape::Loop { stages, .. } => {
            let mut store = OutputStore::begin(shape, scope, &|_| None);
            loop {
                let mut output = String::new();
                if matches!(shape, Shape::Loop { .. }) {
                    store.start_iteration();
                }
                for one in stages {
                    let (text, branches) = stage(one, store.scope(), seen);
                    store.set(one.id.as_str(), text.as_str());
                    store.merge(branches);
                    output = text;
                }
                match shape {
                    Shape::Loop { condition, max_iterations, .. }
                        if condition.holds(store.scope()) && store.scope().iteration() < *max_iterations => {}
                    _ => return (output, Vec::new()),
                }
            }
        }
        Shape::Parallel { branches, merge_template, .. } => {
            let left: Left = branches
                .iter()
                .map(|branch| (branch.id.as_str().into(), Some(stage(branch, &scope, seen).0.into())))
                .collect();
            (merge_template.as_ref().unwrap().build(&scope.with(left.clone())), left)
        }
        Shape::Conditional { routes, default } => {
            let route = routes.iter().find(|route| route.condition.holds(&scope)).map(|route| &route.stage);
            stage(route.or(default.as_deref()).unwrap(), &scope, seen)
        }
    }
}

/// The output of a workflow that comes with the program, and what its agents were given.
fn offline(id: &str, query: &str) -> (String, Vec<(String, String)>) {
    let workflows = read::builtin().into_iter().map(|(_, workflow)| workflow.unwrap());
    let workflow = workflows.into_iter().find(|workflow| workflow.id() == id).unwrap();
    let mut seen = Vec::new();
    let (output, _) = run(&workflow.workflow, Scope::root(query, None), &mut seen);
    assert!(seen.iter().all(|(_, input)| !input.contains("[未找到") && !input.contains("[无法解析")), "{seen:?}");
    (output, seen)
}

#[test]
fn the_offline_rules_bring_every_example_to_its_end() {
    let (output, seen) = offline("simple_pipeline", "介绍一下这个项目");
    assert!(output.contains("## 介绍一下这个项目") && seen.len() == 3, "{output}");

    let (output, seen) = offline("iterative_research", "研究电池回收");
    let given: Vec<&str> = seen.iter().filter(|(id, _)| id == "research").map(|(_, input)| input.as_str()).collect();
    assert_eq!(given.len(), 3, "{given:?}");
    assert_eq!(given[0], "任务: 研究电池回收\n上次研究: \n上次反馈: \n");
    assert!(given[1].contains("上次研究: 第一轮研究") && given[1].contains("上次反馈: CONTINUE"), "{}", given[1]);
    assert!(output.starts_with("COMPLETE"), "{output}");

    let (output, _) = offline("parallel_analysis", "分析一下这个项目");
    let at = |heading: &str| output.find(&format!("## {heading}\n")).unwrap_or_else(|| panic!("{heading}: {output}"));
    assert!(at("技术分析") < at("商业分析") && at("商业分析") < at("风险评估"));

    for (query, expert) in [("帮我写段代码", "code_expert"), ("分析数据", "data_expert"), ("你好", "general")]
    {
        let (_, seen) = offline("smart_router", query);
        assert_eq!(seen, [(expert.to_owned(), query.to_owned())]);
    }

    let (output, seen) = offline("research_workflow", "研究量子计算的最新进展");
    let given =
        |id: &str| seen.iter().filter(|(stage, _)| stage == id).map(|(_, input)| input.as_str()).collect::<Vec<_>>();
    assert!(given("retrieve").iter().all(|input| input.contains("研究计划: 研究计划（离线示例）：研究量子计算")));
    assert_eq!((given("retrieve").len(), given("meta_reflection").len()), (4, 2), "{seen:?}");
    let [first, second] = given("meta_reflection")[..] else { panic!("{seen:?}") };
    assert!(first.contains("当前进度: \n") && second.contains("当前进度: ## 深度研究结果"), "{first}\n{second}");
    assert!(given("report")[0].starts_with("总结（离线示例）：研究量子计算的最新进展"), "{:?}", given("report"));
    assert!(output.starts_with("# 研究报告：研究量子计算的最新进展"), "{output}");
}
