//! `deploy/Dockerfile` finds all its inputs among the files that `Dockerfile.dockerignore` lets through.

use regex::Regex;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files and folders of the build context, relative to the project's root.
fn context() -> Vec<PathBuf> {
    let ignored = fs::read_to_string(root().join("deploy/Dockerfile.dockerignore")).unwrap();
    ignored.lines().filter_map(|line| line.strip_prefix('!')).map(PathBuf::from).collect()
}

/// The instructions of `deploy/Dockerfile` that begin with `name`, without it.
fn instructions(name: &str) -> Vec<String> {
    let dockerfile = fs::read_to_string(root().join("deploy/Dockerfile")).unwrap().replace("\\\n", " ");
    dockerfile.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(Into::into).collect()
}

/// The packages of the workspace in `folder`, as Cargo reads them.
fn packages(folder: &Path) -> Vec<Value> {
    let mut metadata = Command::new(env!("CARGO"));
    metadata.args(["metadata", "--format-version", "1", "--no-deps", "--locked", "--offline"]).current_dir(folder);
    let output = metadata.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// `path` with its `..` resolved.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

#[test]
fn what_is_compiled_in_is_in_the_build_of_the_container() {
    let root = root();
    let there: Vec<PathBuf> = context().iter().map(|path| root.join(path)).collect();
    let included = Regex::new(r#"include_(?:str|bytes|dir)!\("(?:\$CARGO_MANIFEST_DIR/)?([^"]+)"\)"#).unwrap();
    let mut seen = 0;
    for folder in ["src", "workers"] {
        let files = glob::glob(&format!("{}/{folder}/**/*.rs", root.display())).unwrap().map(Result::unwrap);
        for file in files.filter(|file| !file.display().to_string().ends_with("_tests.rs")) {
            let source = fs::read_to_string(&file).unwrap();
            for found in included.captures_iter(&source) {
                let crate_root = file.ancestors().find(|folder| folder.join("Cargo.toml").is_file()).unwrap();
                let from = if found[0].contains("$CARGO_MANIFEST_DIR") { crate_root } else { file.parent().unwrap() };
                let path = plain(&from.join(&found[1]));
                assert!(
                    there.iter().any(|there| path.starts_with(there)),
                    "{} needs {}",
                    file.display(),
                    path.display()
                );
                seen += 1;
            }
        }
    }
    assert!(seen >= 4, "{seen}");
    assert!(there.contains(&root.join(".cargo")), "the allocator's settings");
}

#[test]
fn every_file_that_the_image_copies_is_in_the_build_context() {
    let mut seen = 0;
    for copy in instructions("COPY").iter().filter(|copy| !copy.starts_with("--from=")) {
        let words: Vec<&str> = copy.split_whitespace().collect();
        let (_, sources) = words.split_last().unwrap();
        for source in sources.iter().filter(|source| **source != ".") {
            assert!(context().iter().any(|path| Path::new(source).starts_with(path)), "{source} is ignored");
            assert!(root().join(source).exists(), "{source} is missing");
            seen += 1;
        }
    }
    assert!(seen >= 1, "{seen}");
    for path in context() {
        assert!(root().join(&path).exists(), "{} is missing", path.display());
    }
}

#[test]
fn the_build_context_is_the_whole_workspace() {
    let folder = tempfile::tempdir().unwrap();
    for path in context() {
        let target = folder.path().join(&path);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        let copied = Command::new("cp").arg("-r").arg(root().join(&path)).arg(&target).status().unwrap();
        assert!(copied.success(), "{}", path.display());
    }
    let copies = packages(folder.path());
    let names = |packages: &[Value]| -> BTreeSet<String> {
        packages.iter().map(|package| package["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&copies), names(&packages(root())));
    for target in copies.iter().flat_map(|package| package["targets"].as_array().unwrap()) {
        let source = Path::new(target["src_path"].as_str().unwrap());
        assert!(source.is_file(), "{} is not in the build context", source.display());
    }
}

#[test]
fn the_image_builds_with_the_rust_version_of_the_project() {
    let packages = packages(root());
    let needed = packages.iter().find(|package| package["name"] == "turnwheel").unwrap()["rust_version"].as_str();
    let images = instructions("FROM");
    assert!(images[0].starts_with(&format!("rust:{}-", needed.unwrap())), "{images:?}, {needed:?}");
}

#[test]
fn the_image_runs_as_an_unprivileged_user() {
    let users = instructions("USER");
    assert!(users.len() == 1 && !users[0].starts_with('0') && !users[0].starts_with("root"), "{users:?}");
}
