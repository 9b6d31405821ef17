//! The arrows between the modules of a crate.

use super::code::paths;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// From one module to the modules that it uses, with a file that does.
pub type Arrows = BTreeMap<String, BTreeMap<String, PathBuf>>;

/// A source file of a crate.
pub struct File {
    /// Its path in the crate's folder.
    path: PathBuf,
    /// Its place: folders and file, without the file of a folder's own module.
    pub module: Vec<String>,
    /// The paths that its code names, from the crate's root.
    uses: Vec<Vec<String>>,
}

impl File {
    pub fn new(path: &Path, code: &str) -> Self {
        let mut module: Vec<String> =
            path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let is_root = module.len() == 1 && ["lib", "main"].contains(&module[0].as_str());
        if is_root || module.last().is_some_and(|name| name == "mod") {
            module.pop();
        }
        let uses = paths(&module, code);
        Self { path: path.to_owned(), module, uses }
    }

    fn is_folder(&self) -> bool {
        self.path.ends_with("mod.rs")
    }
}

/// The source files of the crate in `folder`, without those of tests and of crates below it.
pub fn sources(folder: &Path) -> Vec<File> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(place) = folders.pop() {
        for entry in fs::read_dir(&place).unwrap() {
            let path = entry.unwrap().path();
            let is_test = path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("tests"));
            if path.is_dir() && !is_test && !path.join("Cargo.toml").exists() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test {
                found.push(File::new(path.strip_prefix(folder).unwrap(), &fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found
}

/// Which modules of the folder `inside` use which others. Below the top of a crate only folders count: the
/// files of one folder are one module.
pub fn arrows(inside: &[String], files: &[File]) -> Arrows {
    let below = |file: &&File| file.module.starts_with(inside) && file.module.len() > inside.len();
    let counts = |file: &&File| inside.is_empty() || file.is_folder() || file.module.len() > inside.len() + 1;
    let name = |file: &File| file.module[inside.len()].clone();
    let modules: BTreeSet<String> = files.iter().filter(below).filter(counts).map(name).collect();
    let mut arrows = Arrows::new();
    for file in files.iter().filter(below).filter(|file| modules.contains(&name(file))) {
        let to = file.uses.iter().filter(|path| path.starts_with(inside)).filter_map(|path| path.get(inside.len()));
        for to in to.filter(|to| **to != name(file) && modules.contains(*to)) {
            arrows.entry(name(file)).or_default().entry(to.clone()).or_insert_with(|| file.path.clone());
        }
    }
    arrows
}

/// A way along the arrows that comes back to its beginning.
pub fn cycle(arrows: &Arrows) -> Option<Vec<String>> {
    fn visit(module: &str, arrows: &Arrows, way: &mut Vec<String>, done: &mut BTreeSet<String>) -> Option<Vec<String>> {
        if let Some(begin) = way.iter().position(|passed| passed == module) {
            return Some([&way[begin..], &[module.to_owned()]].concat());
        }
        if !done.insert(module.to_owned()) {
            return None;
        }
        way.push(module.to_owned());
        let found = arrows.get(module).and_then(|to| to.keys().find_map(|to| visit(to, arrows, way, done)));
        way.pop();
        found
    }
    let mut done = BTreeSet::new();
    arrows.keys().find_map(|module| visit(module, arrows, &mut Vec::new(), &mut done))
}
