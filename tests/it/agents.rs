//! The agent files that come with the program.

use std::path::{Path, PathBuf};
use turnwheel::agent::load;
use turnwheel::agent::validate::{Context, Report, validate};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("agents")
}

#[test]
fn every_agent_file_has_neither_errors_nor_warnings() {
    let loaded = load::read_path(&folder());
    assert!(!loaded.is_empty());
    for (path, agent) in loaded {
        let agent = agent.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let flows = ["parallel_analysis".to_owned()];
        let context = Context { known_flows: Some(&flows), ..Context::default() };
        let report = validate(&agent.config, &agent.document, context);
        assert_eq!(report, Report::default(), "{}:\n{report}", path.display());
    }
}

#[test]
fn the_starter_agent_is_compiled_in_and_calls_the_demo_api() {
    let (_, starter) = load::builtin().into_iter().find(|(path, _)| path.ends_with("agents/sales.yaml")).unwrap();
    let starter = starter.unwrap();
    let file = load::file(&folder().join("sales.yaml")).unwrap();
    assert_eq!(starter.hash, file.hash);
    assert_eq!((starter.id(), starter.config.name.as_str()), ("sales", "小智"));
    let base = format!("http://127.0.0.1:{}/", turnwheel::demo::PORT);
    let skills = starter.config.skills.iter().filter_map(|skill| skill.http.as_ref());
    let tools = starter.config.tools.iter().filter_map(|tool| tool.http.as_ref());
    for call in skills.chain(tools).chain(&starter.config.handoff.http) {
        assert!(call.url.starts_with(&base), "{}", call.url);
    }
}
