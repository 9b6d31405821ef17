//! The workflow files that come with the program, their JSON Schema and their page in the docs.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use turnwheel::workflow::orchestration::fields::FIELDS;
use turnwheel::workflow::orchestration::schema::SCHEMA;
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
