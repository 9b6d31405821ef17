//! Checks of the workflow files that come with the program, of their JSON Schema, and of their page in the docs.

use definitions::workflow::builder::{Pipeline, Stage};
use definitions::workflow::fields::FIELDS;
use definitions::workflow::read;
use definitions::workflow::runnable_registry::RunnableRegistry;
use definitions::workflow::schema::SCHEMA;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use turnwheel::Engine;
use types::run::{RunRecord, RunStatus};

fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn schema() -> Value {
    serde_json::from_str(SCHEMA).unwrap()
}

#[test]
fn the_files_are_those_that_are_compiled_in_and_fit_the_schema() {
    let files = read::read_paths(&[project("workflows")]);
    let hash = |(_, workflow): &read::LoadedWorkflow| workflow.as_ref().unwrap().hash.clone();
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
    let (stages, role) = (json!([stage]), json!({"agent": "p"}));
    let good = |document: &Value| read::text(Path::new("w.json"), &document.to_string()).is_ok();
    for right in [
        json!({"id": "w", "stages": stages}),
        json!({"id": "w", "type": "loop", "condition": true, "max_iterations": 1, "inherit_keys": null, "stages": stages}),
        json!({"id": "w", "type": "parallel", "merge_template": null, "branches": stages, "limits": {"timeout": 5, "max_tokens": 0}}),
        json!({"id": "w", "type": "conditional", "default": null, "routes": [{"condition": "{query}", "stage": stage}], "updated_at": 5}),
        json!({"id": "w", "output": "{步骤-1}", "stages": stages}),
        json!({"id": "w", "type": "loop", "output": null, "stages": stages}),
        json!({"id": "w", "stages": [{"id": "a", "runnable": {"id": "n", "type": "loop", "stages": stages}, "retry": {"max_attempts": 3, "backoff": "1s"}, "timeout": "90"}]}),
        json!({"id": "w", "type": "dynamic", "plan": role, "replan": role, "review": {"agent": "r", "model": "fast"}, "summary": role,
            "agents": [{"name": "a", "runnable": "x", "description": "y", "timeout": "5s"}], "max_iterations": 10}),
        json!({"id": "w", "type": "graph", "nodes": [{"node_id": "a", "type": "LLM", "name": "x", "config": {"prompt": "y"}}], "edges": null}),
        json!({"id": "w", "type": "graph", "global_config": {"timeout": 5}, "nodes": [{"node_id": "a", "type": "START", "name": "x"},
            {"node_id": "b", "type": "WAIT", "name": "x", "config": {"seconds": 1}}], "edges": [{"source": "a", "target": "b", "condition": true}]}),
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
        json!({"id": "w", "output": ["步骤-1"], "stages": stages}),
        json!({"id": "w", "type": "conditional", "routes": [{"stage": stage}]}),
        json!({"id": "w", "stages": [{"id": "query", "runnable": "x"}]}),
        json!({"id": "w", "stages": [{"id": "a b", "runnable": "x"}]}),
        json!({"id": "w", "stages": [{"id": "a"}]}),
        json!({"id": "w", "stages": [{"id": "a", "runnable": ["x"]}]}),
        json!({"id": "w", "stages": [{"id": "a", "runnable": "x", "timeout": 0}]}),
        json!({"id": "w", "stages": [{"id": "a", "runnable": "x", "model": []}]}),
        json!({"id": "w", "stages": [{"id": "a", "runnable": "x", "model": 7}]}),
        json!({"id": "w", "stages": [{"id": "a", "runnable": "x", "retry": {"max_attempts": 101}}]}),
        json!({"id": "w", "stages": stages, "limits": {"max_stages": 0}}),
        json!({"id": "w", "type": "dynamic", "plan": role, "replan": role, "review": role, "agents": [{"name": "a", "runnable": "x"}]}),
        json!({"id": "w", "type": "dynamic", "plan": "p", "replan": role, "review": role, "summary": role, "agents": [{"name": "a", "runnable": "x"}]}),
        json!({"id": "w", "type": "dynamic", "plan": role, "replan": role, "review": role, "summary": role, "agents": []}),
        json!({"id": "w", "type": "dynamic", "plan": role, "replan": role, "review": role, "summary": role, "agents": [{"name": "query", "runnable": "x"}]}),
        json!({"id": "w", "type": "graph", "nodes": []}),
        json!({"id": "w", "type": "graph", "nodes": [{"node_id": "a", "type": "MAGIC", "name": "x", "config": {}}]}),
        json!({"id": "w", "type": "graph", "nodes": [{"node_id": "a", "type": "WAIT", "name": "x", "config": {"seconds": 1}}], "edges": [{"source": "a"}]}),
    ] {
        assert!(!schema.is_valid(&wrong) && !good(&wrong), "{wrong}");
    }
    let unknown = json!({"id": "w", "stages": stages, "colour": "red"});
    assert!(!schema.is_valid(&unknown) && good(&unknown), "an editor marks a field that is only a warning");
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
            "dynamic" | "role" | "sub_agent" => "### Dynamic",
            "graph" => "### Graph",
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
    let known = RunnableRegistry::default().with_builtin();
    let (_, warnings) = known.check(read::text(Path::new("w.yaml"), example).unwrap()).unwrap();
    assert_eq!(warnings, []);
    for (_, workflow) in read::builtin() {
        let id = workflow.unwrap().id().to_owned();
        assert!(docs.contains(&format!("[`{id}`](../workflows/{id}.yaml)")), "{id}");
    }
}

/// Runs a workflow to its end.
async fn run(engine: &Engine, id: &str, query: &str) -> RunRecord {
    let started = engine.run_workflow(id, query).await.unwrap();
    let run = engine.run_ended(&started.run_id).await.unwrap();
    assert_eq!(run.status, RunStatus::Completed, "{run:?}");
    assert_eq!(engine.last_output(id).await.unwrap(), run.output);
    run
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_offline_rules_bring_every_example_to_its_end() {
    let engine = Engine::in_memory().start().await.unwrap();
    assert_eq!(engine.last_output("simple_pipeline").await.unwrap(), None);
    let ran = async |id: &str, query: &str| {
        let run = run(&engine, id, query).await;
        let output = run.output.unwrap();
        assert!(!output.contains("[未找到") && !output.contains("[无法解析"), "{output}");
        (output, run.usage.model_calls)
    };
    let (output, calls) = ran("simple_pipeline", "介绍一下这个项目").await;
    assert!(output.contains("## 介绍一下这个项目") && calls == 3, "{calls} {output}");

    let (output, calls) = ran("iterative_research", "研究电池回收").await;
    assert!(output.starts_with("第三轮研究") && calls == 9, "three iterations: {calls} {output}");

    let (output, _) = ran("parallel_analysis", "分析一下这个项目").await;
    let at = |heading: &str| output.find(&format!("## {heading}\n")).unwrap_or_else(|| panic!("{heading}: {output}"));
    assert!(at("技术分析") < at("商业分析") && at("商业分析") < at("风险评估"));

    for (query, expert) in [("帮我写段代码", "代码专家"), ("分析数据", "数据专家"), ("说说天气", "通用助手")]
    {
        let (output, calls) = ran("smart_router", query).await;
        assert!(output.contains(expert) && output.contains(query) && calls == 1, "{output}");
    }

    let (output, calls) = ran("nested_research", "研究电池回收").await;
    assert!(output.starts_with("总结（离线示例）：研究电池回收") && calls == 2 + 2 * 2 + 1, "{calls} {output}");

    let (output, calls) = ran("research_workflow", "研究量子计算的最新进展").await;
    assert!(output.starts_with("# 研究报告：研究量子计算的最新进展"), "{output}");
    assert_eq!(calls, 2 + 2 * (2 * 3 + 1) + 2, "two outer iterations with two inner ones each");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_built_in_code_is_that_of_the_file_and_keeps_a_name_that_leads_nowhere() {
    let echo = "{id: echo, model: offline, system_prompt: x, rules: [{when: {always: true}, decide: {next_status: typing, response: '<{message}>'}}]}";
    let file = "{id: w, type: pipeline, stages: [{id: a, runnable: echo, input: '{query}'}, {id: b, runnable: echo, input: '{a}'}]}";
    let engine = Engine::in_memory().agent(echo).workflow(file).start().await.unwrap();
    assert_eq!(run(&engine, "w", "x").await.output.as_deref(), Some("<<x>>"));
    let stage = |id: &str, input: &str| Stage::new(id, "echo").input(input);
    let built = Pipeline::new("w").stage(stage("a", "{query}")).stage(stage("b", "{a}")).build().unwrap();
    assert!(!engine.register(built).await.unwrap().changed);
    let built = Pipeline::new("w").stage(stage("a", "{query}{never}{query.x}")).build().unwrap();
    assert!(engine.register(built).await.unwrap().changed);
    assert_eq!(run(&engine, "w", "x").await.output.as_deref(), Some("<x[未找到: never][无法解析: query.x]>"));
    let nobody = Pipeline::new("w").stage(Stage::new("a", "nobody").input("x")).build().unwrap();
    assert!(engine.register(nobody).await.unwrap_err().to_string().contains("Runnable not found: nobody"));
    engine.stop().await;
}
