//! Every source file that a document names exists.

use regex::Regex;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders in which documents may begin a path: the root, the sources, and the tests that the guarantees name.
const BASES: [&str; 3] = ["", "src", "tests/it"];

/// Names that are no paths of this repository: a user's own settings file, and the first file of any module.
const OTHER_FILES: [&str; 2] = ["turnwheel.toml", "mod.rs"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// README, CONTRIBUTING and everything below `docs`.
fn documents() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = ["README.md", "README.zh.md", "CONTRIBUTING.md"].map(|name| root().join(name)).into();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found
}

/// The texts in backticks that look like a file or folder of this repository, with the number of their line. Skips
/// fenced blocks, which show a reader's own files.
fn named_paths(text: &str) -> Vec<(usize, String)> {
    let code = Regex::new("`([^`]+)`").unwrap();
    let path = Regex::new(r"^[\w./-]+$").unwrap();
    let folder = Regex::new("^(src|tests|deploy|docs|workers|prompts|examples)/").unwrap();
    let mut fenced = false;
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        for name in code.captures_iter(line).map(|found| found[1].to_owned()).filter(|_| !fenced) {
            let source = [".rs", ".toml", ".sh"].iter().any(|ending| name.ends_with(ending));
            if path.is_match(&name) && (source || folder.is_match(&name)) {
                found.push((index + 1, name));
            }
        }
    }
    found
}

/// Whether `name` is a file or folder below `root`, from one of the folders in which a path may begin.
fn exists(root: &Path, name: &str) -> bool {
    OTHER_FILES.contains(&name) || BASES.iter().any(|base| root.join(base).join(name).exists())
}

#[test]
fn every_file_that_a_document_names_exists() {
    let (mut checked, mut missing) = (0, Vec::new());
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for (line, name) in named_paths(&text) {
            checked += 1;
            if !exists(&root(), &name) {
                missing.push(format!("{}:{line}: `{name}`", document.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(checked > 80, "the documents name files: {checked}");
    assert!(missing.is_empty(), "these documents name files that do not exist:\n{}", missing.join("\n"));
}

#[test]
fn paths_are_recognised() {
    let text =
        "`engine/turn/user.rs` and `tests/run`, `x = y.rs`, `kb/a.md`\n```sh\nrun `src/none.rs`\n```\n`deploy/local`";
    let names: Vec<String> = named_paths(text).into_iter().map(|(line, name)| format!("{line} {name}")).collect();
    assert_eq!(names, ["1 engine/turn/user.rs", "1 tests/run", "5 deploy/local"]);
    assert!(exists(&root(), "engine/turn/user.rs") && exists(&root(), "crash/"));
    assert!(!exists(&root(), "engine/turn/nobody.rs"));
}
