//! Reads agent files. Errors name the file and the line or field in it.

use super::AgentRecord;
use crate::document::file::{DocumentError, yaml_kind};
use crate::document::wording::in_file_terms;
use crate::document::{Finding, Position, Positions, file as files};
use base::clock;
use include_dir::{Dir, include_dir};
use serde_json::Value;
use std::path::{Path, PathBuf};
use thiserror::Error;
use types::agent::AgentConfig;
use types::depth;

/// The agents that are compiled into the program. The top folder has the starter agents, which `turnwheel dev` uses in
/// an empty folder; `tasks` has the task agents of the compiled-in workflows.
static COMPILED_IN: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../agents");

/// Why a file is not a valid agent.
#[derive(Debug, Error)]
pub enum AgentError {
    /// A field has the wrong type or an illegal value.
    #[error("{}{path}: {problem}", .at.map(|at| format!("{at}: ")).unwrap_or_default())]
    Field {
        /// Line and column, if the document was read from a text.
        at: Option<Position>,
        /// Path of the field.
        path: String,
        /// The problem.
        problem: String,
    },
    /// The file could not be read or parsed.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// Two files have the same agent id. Neither is used.
    #[error("the agent `{id}` is also in `{}`; give one of them another `id`, or delete one", other.display())]
    Duplicate {
        /// The id of the agent.
        id: String,
        /// The path of the other file.
        other: PathBuf,
    },
    /// The file parses, but the agent cannot work. The list is not empty.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Invalid(Vec<Finding>),
    /// Another variant, with the file's name.
    #[error("{}: {problem}", file.display())]
    File {
        /// The path of the file.
        file: PathBuf,
        /// The problem in the file.
        #[source]
        problem: Box<AgentError>,
    },
}

/// A file and its agent or error. The error does not repeat the file's name.
pub type LoadedAgent = (PathBuf, Result<AgentRecord, AgentError>);

/// Parses the configuration from a document. The error names the field.
pub fn typed(document: &Value) -> Result<AgentConfig, AgentError> {
    if !document.is_object() {
        let problem = format!("found {}; an agent is a table with `id` and the rest", yaml_kind(document));
        return Err(AgentError::Field { at: None, path: "top level".into(), problem });
    }
    if !depth::is_legal(document) {
        let problem = format!("is nested more than {} levels deep, which no store accepts", depth::MAX_DEPTH);
        return Err(AgentError::Field { at: None, path: "top level".into(), problem });
    }
    serde_path_to_error::deserialize(document).map_err(|error| {
        let path = match error.path().to_string().as_str() {
            "." => "top level".to_owned(),
            path => path.to_owned(),
        };
        AgentError::Field { at: None, path, problem: in_file_terms(&error.inner().to_string()) }
    })
}

/// Reads the agent in a file. The error names the file.
pub fn file(path: &Path) -> Result<AgentRecord, AgentError> {
    read(path).map_err(|problem| AgentError::File { file: path.to_owned(), problem: Box::new(problem) })
}

/// Reads the agent in a file, or the agents in a folder's files, sorted by name. Subfolders, hidden files and files of
/// other kinds are skipped.
pub fn read_path(path: &Path) -> Vec<LoadedAgent> {
    read_paths(&[path.to_owned()])
}

/// Reads the agents in files and folders, each file once. A file that fails does not stop the others.
pub fn read_paths(paths: &[PathBuf]) -> Vec<LoadedAgent> {
    let refuse = |id, other| AgentError::Duplicate { id, other };
    files::without_duplicates(files::read_paths(paths, read), AgentRecord::id, refuse)
}

/// The compiled-in agents: [`starters`], and the task agents of the compiled-in workflows.
pub fn builtin() -> Vec<LoadedAgent> {
    let tasks = COMPILED_IN.dirs().flat_map(compiled_in);
    compiled_in(&COMPILED_IN).into_iter().chain(tasks).collect()
}

/// The compiled-in agents for a start without agent files.
pub fn starters() -> Vec<LoadedAgent> {
    compiled_in(&COMPILED_IN)
}

fn compiled_in(folder: &Dir<'static>) -> Vec<LoadedAgent> {
    let files = folder.files().filter(|file| files::is_document(file.path()));
    let read = |file: &include_dir::File<'_>| text(file.path(), file.contents_utf8().unwrap_or_default());
    files.map(|file| (Path::new("agents").join(file.path()), read(file))).collect()
}

/// The compiled-in text files next to the agents, with their relative paths: the knowledge of these agents.
pub(crate) fn builtin_texts() -> Vec<(String, &'static str)> {
    let mut folders: Vec<&Dir<'static>> = COMPILED_IN.dirs().collect();
    let mut texts = Vec::new();
    while let Some(folder) = folders.pop() {
        folders.extend(folder.dirs());
        let named =
            folder.files().filter_map(|file| Some((file.path().to_str()?.replace('\\', "/"), file.contents_utf8()?)));
        texts.extend(named);
    }
    texts
}

/// Parses the agent in a text. The extension of `name` selects YAML or JSON.
pub fn text(name: &Path, text: &str) -> Result<AgentRecord, AgentError> {
    let text = files::plain(text);
    match AgentRecord::from_document(files::parse(name, text)?, clock::now()) {
        Ok(agent) => Ok(AgentRecord { source: Some(text.into()), ..agent }),
        Err(AgentError::Field { path, problem, .. }) => {
            Err(AgentError::Field { at: Positions::read(text).position_of(&path), path, problem })
        }
        Err(error) => Err(error),
    }
}

fn read(path: &Path) -> Result<AgentRecord, AgentError> {
    text(path, &files::text(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn error(name: &str, content: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        let error = file(&path).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}: ", path.display())), "{error}");
        error
    }

    #[test]
    fn yaml_and_json_of_one_content_are_one_configuration() {
        let yaml = "id: sales\nname: 小智\nskills:\n  - {id: a, params: {type: object}}\ntimers:\n  - delay: 30m\n    message: 在吗\n";
        let json = r#"{"timers":[{"message":"在吗","delay":"30m"}],"id":"sales","name":"小智","skills":[{"params":{"type":"object"},"id":"a"}]}"#;
        let (yaml, json) = (text(Path::new("a.yaml"), yaml).unwrap(), text(Path::new("a.json"), json).unwrap());
        assert_eq!((&yaml.hash, &yaml.config), (&json.hash, &json.config));
        assert_eq!(yaml.config.timers[0].delay, Duration::from_secs(1800));
    }

    #[test]
    fn errors_name_file_place_and_what_is_allowed() {
        for (name, content, parts) in [
            ("a.yaml", "id: a\n  name: b: c\n", vec!["line 2, column"]),
            ("a.yaml", "id: a\nsop: x\nid: b\n", vec!["line 3, column 1", "`id` appears twice"]),
            ("a.json", "{\"id\": \"a\",\n \"id\": \"b\"}", vec!["line 2", "`id` appears twice"]),
            ("a.json", "{\"id\": \"a\",\n}", vec!["line 2, column"]),
            ("a.yaml", "", vec!["top level", "found nothing"]),
            ("a.yaml", "- id: a\n", vec!["top level", "found a list"]),
            ("a.yaml", "name: x\n", vec!["`id` is missing"]),
            ("a.yaml", "id: 5\n", vec!["line 1, column 5: id: ", "the number `5`", "expected a text"]),
            ("a.yaml", "id: a\nsop: yes\n", vec!["line 2, column 6: sop: ", "the boolean `true`", "between quotes"]),
            ("a.yaml", "id: a\nsop： 回答\n", vec!["line 2, column 4: ", "full-width"]),
            ("a.yaml", "id: a\nsop： 回答\nname: b\n", vec!["line 2, column 4: ", "full-width"]),
            ("a.yaml", "id: a\nsop： 回答\nname： b\n", vec!["line 2, column 4: ", "full-width"]),
            // A colon within a text is innocent.
            ("a.yaml", "id: a\nsop: |\n  FAQ：x\nname: b: c\n", vec!["line 4", "between quotes"]),
            ("a.yaml", "id: a\nsop: |\n  FAQ：x\nname： b\n", vec!["line 4, column 5: ", "full-width"]),
            ("a.yaml", "id: a\nsop: 回答\n  FAQ：x\nname: b: c\n", vec!["line 4", "between quotes"]),
            ("a.yaml", "id: a\nsop: say: hello\n", vec!["line 2", "between quotes"]),
            ("a.yaml", "# x\nid: a\ntimers:\n  - delay: soon\n", vec!["line 4, column 12: timers[0].delay: "]),
            ("a.json", "{\"id\": \"a\",\n \"sop\": 7}", vec!["line 2, column 9: sop: ", "the number `7`"]),
            (
                "a.yml",
                "id: a\nskills: [{id: q, http: {url: 7}}]",
                vec!["line 2, column 30: skills[0].http.url: ", "the number `7`"],
            ),
            ("a.yml", "id: a\ntimers: [{delay: soon}]", vec!["timers[0].delay: ", "`soon`", "`30m`"]),
            ("a.yml", "id: a\ntimers: [{delay: -5}]", vec!["timers[0].delay: ", "negative"]),
            ("a.yml", "id: a\ndouble_text: both", vec!["double_text: ", "`both`", "`queue`"]),
            ("a.txt", "id: a", vec![".yaml"]),
        ] {
            let error = error(name, content);
            for part in parts {
                assert!(error.contains(part), "{content:?}: {error}");
            }
        }
    }

    #[test]
    fn a_file_that_is_a_bomb_is_refused() {
        let deep =
            |open: &str, close: &str| format!("id: a\nsop: x\nx: {}{}", open.repeat(10_000), close.repeat(10_000));
        let aliases: String = (1..40).map(|at| format!("x{at}: &x{at} [*x{}, *x{}]\n", at - 1, at - 1)).collect();
        let indented: String = (0..3_000).map(|at| format!("{}a:\n", " ".repeat(at))).collect();
        for (name, content) in [
            ("a.yaml", deep("[", "]")),
            ("a.yaml", deep("{a: ", "}")),
            ("a.yaml", deep("- ", "")),
            ("a.yaml", format!("id: a\nsop: x\nx: {}1{}", "[".repeat(100), "]".repeat(100))),
            ("a.yaml", format!("x0: &x0 [1]\n{aliases}")),
            ("a.yaml", indented),
            ("a.json", "[".repeat(10_000)),
            ("a.json", format!("{{\"id\":\"a\",\"x\":{}{}}}", "[".repeat(100), "]".repeat(100))),
        ] {
            assert!(text(Path::new(name), &content).is_err(), "{name}: {}…", &content[..60]);
        }
    }

    #[test]
    fn a_folder_gives_its_agents_in_order_and_refuses_an_id_that_is_there_twice() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, content: &str| std::fs::write(folder.path().join(name), content).unwrap();
        put("b.yaml", "id: b");
        put("a.json", r#"{"id": "a"}"#);
        put("c.yml", "id: b");
        put("d.yaml", "id: [");
        put(".hidden.yaml", "id: x");
        put("notes.md", "x");
        std::fs::create_dir(folder.path().join("more.yaml")).unwrap();
        let loaded = read_path(folder.path());
        let names: Vec<_> = loaded.iter().map(|(path, _)| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["a.json", "b.yaml", "c.yml", "d.yaml"]);
        let results: Vec<bool> = loaded.iter().map(|(_, agent)| agent.is_ok()).collect();
        assert_eq!(results, [true, false, false, false]);
        let error = loaded[1].1.as_ref().unwrap_err().to_string();
        assert!(error.contains("c.yml") && error.contains("`b`"), "{error}");

        std::fs::write(folder.path().join("gbk.yaml"), b"id: a\nsop: \xc4\xe3\xba\xc3\n").unwrap();
        let error = file(&folder.path().join("gbk.yaml")).unwrap_err().to_string();
        assert!(error.contains("not UTF-8 (byte 11)"), "{error}");

        let good = folder.path().join("a.json");
        let given = [good.clone(), good, folder.path().join("gone.yaml")];
        let loaded = read_paths(&given);
        assert_eq!(loaded.len(), 2);
        assert!(loaded[0].1.is_ok() && loaded[1].1.as_ref().unwrap_err().to_string().contains("cannot read"));
        assert!(file(&given[2]).unwrap_err().to_string().contains("gone.yaml"));
    }
}
