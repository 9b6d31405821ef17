use crate::workflow::condition::Condition;
use crate::workflow::definition::{Retry, Shape, Target};
use crate::workflow::read::*;
use crate::workflow::runnable_registry::RunnableRegistry;
use serde_json::json;
use std::time::Duration;

fn yaml(content: &str) -> Result<WorkflowRecord, WorkflowError> {
    text(Path::new("w.yaml"), content)
}

#[test]
fn a_file_is_read_with_its_defaults() {
    let content = "\u{feff}id: w\nstages:\n  - {id: a, runnable: agent}\n  - id: 步骤\n    runnable:\n      type: loop\n      id: l\n      condition: false\n      stages: [{id: x, runnable: agent, input: '{a}', retry: {max_attempts: 3}, timeout: 90}]\n    input: |\n      {query}\n\n       {a}\nlimits: {max_stages: 5, timeout: 2m, max_tokens: 0}\nupdated_at: 5\n";
    let record = yaml(content).unwrap();
    let workflow = &record.workflow;
    assert_eq!((record.id(), workflow.shape.as_str(), workflow.description.as_str()), ("w", "pipeline", ""));
    let limits = workflow.limits;
    assert_eq!(
        (limits.max_stages, limits.timeout, limits.max_tokens),
        (Some(5), Some(Duration::from_secs(120)), Some(0))
    );
    let stages = workflow.shape.stages();
    assert_eq!((stages[0].input.template(), stages[0].retry), ("{query}", Retry::default()));
    assert_eq!(stages[1].input.template(), "{query}\n\n {a}\n", "what a template says is kept to the blank");
    let Target::Inline(within) = &stages[1].runnable else { panic!("{stages:?}") };
    let Shape::Loop { stages, condition, max_iterations, inherit_keys, .. } = &within.shape else {
        panic!("{within:?}")
    };
    assert_eq!((condition, *max_iterations, inherit_keys.len()), (&Condition::parse("false").unwrap(), 10, 0));
    assert_eq!((stages[0].retry.max_attempts, stages[0].timeout), (3, Some(Duration::from_secs(90))));

    let other = record.document.clone();
    let stored = WorkflowRecord::from_stored(record.to_stored()).unwrap();
    assert_eq!((&stored, stored.hash.as_str()), (&record, canonical::hash(&other).as_str()));
    let json = text(Path::new("w.json"), &other.to_string()).unwrap();
    assert_eq!((&json.hash, &json.workflow), (&record.hash, &record.workflow));
}

/// The message of the only error in a file.
fn error(content: &str) -> String {
    match yaml(content) {
        Err(WorkflowError::Invalid(errors)) if errors.len() == 1 => errors[0].to_string(),
        Err(other) => other.to_string(),
        Ok(_) => "it is good".to_owned(),
    }
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_the_remedy() {
    let stages = "\nstages: [{id: a, runnable: x, input: ''}]";
    let stage = |field: &str| format!("id: w\nstages:\n  - id: a\n    runnable: x\n    input: ''\n    {field}\n");
    let mut wrong: Vec<String> = Vec::new();
    let looped = |field: &str| format!("id: w\ntype: loop\n{field}{stages}");
    for (content, message) in [
        (String::new(), "line 1, column 1: top level: found nothing; a workflow is a table with `id`, `type` and its stages"),
        ("- id: w".into(), "line 1, column 1: top level: found a list; a workflow is a table with `id`, `type` and its stages"),
        (format!("description: x{stages}"), "line 1, column 1: id: is missing; every workflow has one"),
        (format!("id: 5{stages}"), "line 1, column 5: id: found a number; expected a text; put it between quotes"),
        (
            format!("id: a/b{stages}"),
            "line 1, column 5: id: id contains '/'; an id has 1 to 128 bytes without whitespace, control characters, `*`, `>`, `/` or `.` (allowed in `job_id`, `message_id`, `turn_id` and `user_id`), and does not begin with `$`",
        ),
        (
            "id: w\ntype: pipline\nstages: []".into(),
            "line 2, column 7: type: Unknown workflow type: pipline; did you mean `pipeline`? known are `pipeline`, `loop`, `parallel`, `conditional`, `dynamic`, `graph`",
        ),
        (
            "id: w\ntype: dag".into(),
            "line 2, column 7: type: Unknown workflow type: dag; known are `pipeline`, `loop`, `parallel`, `conditional`, `dynamic`, `graph`",
        ),
        ("id: w".into(), "line 1, column 1: stages: is missing; it needs at least one stage"),
        ("id: w\nstages: []".into(), "line 2, column 9: stages: is empty; it needs at least one stage"),
        ("id: w\nstages: x".into(), "line 2, column 9: stages: found a text; expected a list; it needs at least one stage"),
        ("id: w\ntype: parallel\nbranches:".into(), "line 3, column 9: branches: is missing; it needs at least one branch"),
        ("id: w\ntype: conditional\nroutes: []".into(), "line 3, column 9: routes: is empty; it needs at least one route"),
        ("id: w\nstages: [x]".into(), "line 2, column 10: stages[0]: found a text; a stage is a table with `id`, `runnable` and `input`"),
        (
            "id: w\nstages:\n  - runnable: x\n    input: ''".into(),
            "line 3, column 5: stages[0].id: is missing; it is also the name of the stage's output",
        ),
        (
            "id: w\nstages:\n  - id: a\n    input: ''".into(),
            "line 3, column 5: stages[0].runnable: is missing; name a task agent, a workflow or a flow, or write a workflow in its place",
        ),
        (
            "id: w\nstages: [{id: a, runnable: [x], input: ''}]".into(),
            "line 2, column 28: stages[0].runnable: found a list; expected an id or a workflow; write `runnable: some_agent`",
        ),
        (
            "id: w\nstages: [{id: query, runnable: x, input: ''}]".into(),
            "line 2, column 15: stages[0].id: `query` is a reserved name in templates; give the stage another id",
        ),
        (
            "id: w\nstages: [{id: loop, runnable: x, input: ''}]".into(),
            "line 2, column 15: stages[0].id: `loop` is a reserved name in templates; give the stage another id",
        ),
        (
            "id: w\nstages: [{id: a b, runnable: x, input: ''}]".into(),
            "line 2, column 15: stages[0].id: `a b` cannot be named in a template; an id has letters, digits, `_` and `-`, and at most 128 bytes",
        ),
        (
            "id: w\nstages:\n  - {id: a, runnable: x, input: ''}\n  - {id: a, runnable: x, input: ''}".into(),
            "line 4, column 10: stages[1].id: `a` is the id of `stages[0]` too; give it another: a stage's output goes by its id",
        ),
        (
            "id: w\ntype: conditional\nroutes: [{condition: 'true', stage: {id: a, runnable: x, input: ''}}]\ndefault: {id: a, runnable: x, input: ''}".into(),
            "line 4, column 15: default.id: `a` is the id of `routes[0].stage` too; give it another: a stage's output goes by its id",
        ),
        (
            "id: w\ntype: conditional\nroutes: [{stage: {id: a, runnable: x, input: ''}}]".into(),
            "line 3, column 10: routes[0].condition: is missing; write when the route is taken, or make its stage the `default`",
        ),
        (
            "id: w\ntype: conditional\nroutes: [{condition: 'true'}]".into(),
            "line 3, column 10: routes[0].stage: is missing; write what runs: `stage: {id: …, runnable: …}`",
        ),
        (
            stage("condition: '{a} && {b}'"),
            "line 6, column 16: stages[0].condition: the condition `{a} && {b}` has the unknown operator `&&`; a condition tests one thing; let a stage decide, or use two routes or stages",
        ),
        (
            stage("condition: 5"),
            "line 6, column 16: stages[0].condition: found a number; expected a text; write it between quotes: `\"{stage} contains 'word'\"`",
        ),
        (stage("timeout: 0"), "line 6, column 14: stages[0].timeout: is zero; write how long, such as `30s`, or remove it"),
        (
            stage("timeout: soon"),
            "line 6, column 14: stages[0].timeout: `soon` is not a duration; write a whole number and a unit, such as `500ms`, `10s`, `30m`, `2h` or `1d`",
        ),
        (
            stage("retry: 3"),
            "line 6, column 12: stages[0].retry: found a number; write `retry: {max_attempts: 3, backoff: 1s}`",
        ),
        (
            stage("retry: {max_attempts: 0}"),
            "line 6, column 27: stages[0].retry.max_attempts: found 0; expected a whole number of at least 1",
        ),
        (stage("retry: {max_attempts: 101}"), "line 6, column 27: stages[0].retry.max_attempts: at most 100 are allowed"),
        (looped("max_iterations: 0"), "line 3, column 17: max_iterations: found 0; expected a whole number of at least 1"),
        (looped("max_iterations: many"), "line 3, column 17: max_iterations: found \"many\"; expected a whole number of at least 1"),
        (looped("inherit_keys: plan"), "line 3, column 15: inherit_keys: must be a list of names; write `inherit_keys: [plan]`"),
        (looped("limits: {max_depth: -1}"), "line 3, column 21: limits.max_depth: found -1; expected a whole number of at least 1"),
        (
            "id: w\ntype: parallel\nmax_concurrency: 0\nbranches: [{id: a, runnable: x, input: ''}]".into(),
            "line 3, column 18: max_concurrency: found 0; expected a whole number of at least 1",
        ),
        (
            "id: w\nstages:\n  - id: a\n    runnable: {type: loop, id: l, stages: [{id: b, runnable: {type: tree, id: t}, input: ''}]}\n    input: ''".into(),
            "line 4, column 69: stages[0].runnable.stages[0].runnable.type: Unknown workflow type: tree; known are `pipeline`, `loop`, `parallel`, `conditional`, `dynamic`, `graph`",
        ),
        (format!("id: w\nid: v{stages}"), "line 2, column 1: the key `id` appears twice; remove one"),
        ("id: [".into(), "line 1, column"),
    ] {
        let found = error(&content);
        if found != message && !(message.ends_with("column") && found.starts_with(message)) {
            wrong.push(format!("{content}\n  {found}\n  {message}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let error = yaml("type: parallel\nbranches:\n  - {id: loop, input: ''}\n  - {id: b, runnable: x, condition: '{a} >= 2', timeout: -1}\n").unwrap_err();
    let paths: Vec<&str> = error.findings().iter().map(|finding| finding.path.as_str()).collect();
    assert_eq!(paths, ["id", "branches[0].id", "branches[0].runnable", "branches[1].condition", "branches[1].timeout"]);
    assert!(error.findings().iter().all(|finding| finding.at.is_some()));
}

#[test]
fn what_is_probably_a_mistake_is_a_warning() {
    let warned = |content: &str| {
        let known = RunnableRegistry::new(["x".to_owned()]);
        let (_, warnings) = known.check(yaml(content).unwrap()).unwrap();
        warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    for (content, message) in [
        (
            "id: w\nstages: [{id: a, runnable: x}]",
            "line 2, column 10: stages[0].input: is missing, so the stage gets `{query}`; name what the stage is to see; `input: \"{query}\"` has the same effect",
        ),
        (
            "id: w\nstages: [{id: a, runnable: x, imput: '', input: ''}]",
            "line 2, column 38: stages[0].imput: a stage has no such field; did you mean `input`?",
        ),
        (
            "id: w\nbranches: []\nstages: [{id: a, runnable: x, input: ''}]",
            "line 2, column 11: branches: a pipeline has no such field; `branches` is for `type: parallel`",
        ),
        (
            "id: w\ncolour: red\nstages: [{id: a, runnable: x, input: ''}]",
            "line 2, column 9: colour: a pipeline has no such field; it has no effect; remove it",
        ),
        (
            "id: w\nstages: [{id: a, runnable: x, input: '', condition: intent contains 'x'}]",
            "line 2, column 53: stages[0].condition: names no stage, so it never holds; a stage's output is written in braces: `{stage}`",
        ),
        (
            "id: w\nstages: [{id: a, runnable: x, input: '', condition: '{query} > high'}]",
            "line 2, column 53: stages[0].condition: `high` is not a number, so it never holds; compare texts with `==` or `contains`",
        ),
        (
            "id: w\nstages: [{id: a, runnable: {id: p, limits: {}, stages: [{id: b, runnable: x, input: ''}]}, input: ''}]",
            "line 2, column 44: stages[0].runnable.limits: have no effect here: those of the outermost workflow count; move them to the top of the file; a stage may have a `timeout`",
        ),
        (
            "id: w\ntype: conditional\nroutes: [{condition: 'true', stage: {id: a, runnable: x, input: '', condition: 'true'}}]",
            "line 3, column 80: routes[0].stage.condition: has no effect; the route's `condition` decides; remove this one",
        ),
        (
            "id: w\ninherit_keys: [plan]\nstages: [{id: a, runnable: x, input: '{plan}'}]",
            "line 2, column 16: inherit_keys[0]: no workflow encloses this one, so `plan` is always empty; a workflow that is named by its id sees only its input; remove it",
        ),
    ] {
        assert_eq!(warned(content), message, "{content}");
    }
}

#[test]
fn a_folder_gives_its_workflows_and_a_bad_one_does_not_stop_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, content: &str| std::fs::write(folder.path().join(name), content).unwrap();
    put("a.yaml", "id: a\nstages: [{id: x, runnable: x}]");
    put("b.json", &json!({"id": "b", "stages": [{"id": "x", "runnable": "x"}]}).to_string());
    put("c.yml", "id: b\nstages: [{id: x, runnable: x}]");
    put("d.yaml", "id: d\nstages: 5");
    let loaded = read_paths(&[folder.path().to_owned(), folder.path().join("gone.yaml")]);
    let results: Vec<bool> = loaded.iter().map(|(_, workflow)| workflow.is_ok()).collect();
    assert_eq!(results, [true, false, false, false, false]);
    let problem = |at: usize| loaded[at].1.as_ref().unwrap_err().to_string();
    assert!(problem(1).contains("c.yml") && problem(1).contains("`b`"), "{}", problem(1));
    assert!(problem(4).contains("cannot read"), "{}", problem(4));
    let named = file(&folder.path().join("d.yaml")).unwrap_err().to_string();
    assert!(named.contains("d.yaml: line 2, column 9: stages: "), "{named}");
}

#[test]
fn what_is_nested_beyond_any_store_is_refused() {
    let mut document = json!({"id": "w", "stages": [{"id": "a", "runnable": "x"}]});
    for _ in 0..30 {
        document = json!({"id": "w", "stages": [{"id": "a", "runnable": document}]});
    }
    let error = WorkflowRecord::from_document(document, Timestamp::from_millis(0)).unwrap_err().to_string();
    assert!(error.contains("levels deep"), "{error}");
}

#[test]
fn the_workflows_that_come_with_the_program_are_good() {
    let known = RunnableRegistry::default().with_builtin();
    let ids: Vec<String> = builtin()
        .into_iter()
        .map(|(path, workflow)| {
            let (workflow, warnings) = known.check(workflow.unwrap()).unwrap();
            assert_eq!(warnings, [], "{}", path.display());
            assert_eq!(path.file_stem().unwrap(), workflow.id());
            assert!(!workflow.workflow.description.is_empty());
            workflow.id().to_owned()
        })
        .collect();
    assert_eq!(
        ids,
        [
            "dynamic_ops",
            "iterative_research",
            "nested_research",
            "parallel_analysis",
            "research_workflow",
            "simple_pipeline",
            "smart_router"
        ]
    );
}
