//! `deploy/Dockerfile` finds all its inputs among the files that `Dockerfile.dockerignore` lets through.

use regex::Regex;
use std::path::{Component, Path, PathBuf};

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
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let ignored = std::fs::read_to_string(root.join("deploy/Dockerfile.dockerignore")).unwrap();
    let there: Vec<PathBuf> =
        ignored.lines().filter_map(|line| line.strip_prefix('!')).map(|path| root.join(path)).collect();
    let included = Regex::new(r#"include_(?:str|bytes|dir)!\("(?:\$CARGO_MANIFEST_DIR/)?([^"]+)"\)"#).unwrap();
    let mut seen = 0;
    for folder in ["src", "workers"] {
        let files = glob::glob(&format!("{}/{folder}/**/*.rs", root.display())).unwrap().map(Result::unwrap);
        for file in files.filter(|file| !file.display().to_string().ends_with("_tests.rs")) {
            let source = std::fs::read_to_string(&file).unwrap();
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
