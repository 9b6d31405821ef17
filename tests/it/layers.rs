//! The arrows between layers and between rooms go one way. A crate uses only the crates below it, in the order of
//! `members` in Cargo.toml. A room is a file or folder at the top of a crate, or a folder below another one; rooms beside
//! each other form no cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// From one room to those that it uses, with a file that does.
type Arrows = BTreeMap<String, BTreeMap<String, PathBuf>>;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The names of the layers, from the bottom up.
fn layers() -> Vec<String> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = manifest.split_once("members = [").unwrap().1.split_once(']').unwrap().0;
    members
        .split(',')
        .filter_map(|member| member.trim().trim_matches('"').strip_prefix("src/"))
        .map(Into::into)
        .collect()
}

/// The layers that a crate depends on, tests included.
fn dependencies(layer: &str) -> Vec<String> {
    let manifest = fs::read_to_string(root().join("src").join(layer).join("Cargo.toml")).unwrap();
    manifest.lines().filter_map(|line| line.strip_suffix(".workspace = true")).map(Into::into).collect()
}

#[test]
fn a_crate_uses_only_the_layers_below_it() {
    let layers = layers();
    assert!(layers.len() >= 10, "the layers are read from Cargo.toml: {layers:?}");
    for (place, layer) in layers.iter().enumerate() {
        for used in dependencies(layer).iter().filter(|used| layers.contains(used)) {
            let below = layers[..place].contains(used);
            assert!(below, "`{layer}` depends on `{used}`, which is not below it in `members` of Cargo.toml");
        }
    }
    let backends = dependencies("cluster").contains(&"embedded".to_owned());
    assert!(!backends, "the two backends know nothing of each other");
}

#[test]
fn rooms_beside_each_other_form_no_cycle() {
    let mut rooms = 0;
    for layer in layers() {
        let folder = root().join("src").join(&layer);
        let files = sources(&folder);
        for place in folders(&folder) {
            let inside: Vec<String> = place.strip_prefix(&folder).unwrap().iter().map(text).collect();
            let arrows = arrows(&folder, &inside, &files);
            rooms += arrows.len();
            if let Some(cycle) = cycle(&arrows) {
                let steps = cycle
                    .windows(2)
                    .map(|pair| format!("  {} uses {}: {}", pair[0], pair[1], arrows[&pair[0]][&pair[1]].display()));
                panic!("a cycle of rooms in {}:\n{}", place.display(), steps.collect::<Vec<_>>().join("\n"));
            }
        }
    }
    assert!(rooms > 50, "the rooms are found: {rooms}");
}

#[test]
fn a_cycle_is_found() {
    let arrows = |pairs: &[(&str, &str)]| {
        let mut arrows = Arrows::new();
        for (from, to) in pairs {
            arrows.entry((*from).into()).or_default().insert((*to).into(), PathBuf::new());
        }
        arrows
    };
    assert_eq!(cycle(&arrows(&[("a", "b"), ("b", "c"), ("a", "c")])), None);
    assert_eq!(cycle(&arrows(&[("a", "b"), ("b", "c"), ("c", "b")])), Some(vec!["b".into(), "c".into(), "b".into()]));
    let file =
        (vec!["turn".to_owned(), "act".to_owned()], "use crate::run::Inline;\nuse super::super::model;".to_owned());
    let found = used(&file.0, &file.1);
    assert_eq!(found, [vec!["run".to_owned(), "Inline".to_owned()], vec!["model".to_owned()]]);
}

fn text(part: &std::ffi::OsStr) -> String {
    part.to_string_lossy().into_owned()
}

/// The source files of a crate, each with the path of its module, without test modules.
fn sources(folder: &Path) -> Vec<(Vec<String>, String, PathBuf)> {
    let mut found = Vec::new();
    for place in folders(folder) {
        for entry in fs::read_dir(&place).unwrap() {
            let path = entry.unwrap().path();
            let stem = text(path.file_stem().unwrap());
            if path.extension().is_none_or(|extension| extension != "rs") || stem.ends_with("tests") {
                continue;
            }
            let mut module: Vec<String> = place.strip_prefix(folder).unwrap().iter().map(text).collect();
            if !["lib", "mod"].contains(&stem.as_str()) {
                module.push(stem);
            }
            let content = fs::read_to_string(&path).unwrap();
            let code = content.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
            found.push((module, lines.collect::<Vec<_>>().join("\n"), path));
        }
    }
    found
}

/// A folder and all folders below it.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(folders(&path));
        }
    }
    found
}

/// The paths that a module's code names, from the crate's root.
fn used(module: &[String], code: &str) -> Vec<Vec<String>> {
    let path = regex::Regex::new(r"\b(?:crate|super)(?:::(?:super|\{[^{};]*\}|\w+))+").unwrap();
    let mut found = Vec::new();
    for text in path.find_iter(code).map(|found| found.as_str()) {
        let mut at: Vec<String> = if text.starts_with("crate") { Vec::new() } else { module.to_vec() };
        for part in text.split("::") {
            match part {
                "crate" => {}
                "super" => drop(at.pop()),
                list if list.starts_with('{') => {
                    let names = list.trim_matches(['{', '}']).split(',');
                    found.extend(names.map(|name| [at.clone(), vec![name.trim().to_owned()]].concat()));
                }
                name => at.push(name.to_owned()),
            }
        }
        found.push(at);
    }
    found
}

/// Which rooms of the folder `inside` use which others. Below the top of a crate only folders are rooms: files beside each
/// other are one room.
fn arrows(folder: &Path, inside: &[String], files: &[(Vec<String>, String, PathBuf)]) -> Arrows {
    let at_top = inside.is_empty();
    let is_room = |name: &String| {
        let place = inside.iter().fold(folder.to_owned(), |place, part| place.join(part));
        place.join(name).is_dir() || (at_top && place.join(format!("{name}.rs")).is_file())
    };
    let mut arrows = Arrows::new();
    for (module, code, path) in files {
        let Some(from) = module.get(inside.len()).filter(|_| module.starts_with(inside)).filter(|from| is_room(from))
        else {
            continue;
        };
        let to = used(module, code).into_iter().filter(|path| path.starts_with(inside));
        let to: BTreeSet<String> = to.filter_map(|path| path.get(inside.len()).cloned()).collect();
        let room = arrows.entry(from.clone()).or_default();
        for to in to.into_iter().filter(|to| to != from && is_room(to)) {
            room.entry(to).or_insert_with(|| path.clone());
        }
    }
    arrows
}

/// A way along the arrows that comes back to its beginning.
fn cycle(arrows: &Arrows) -> Option<Vec<String>> {
    fn visit(room: &str, arrows: &Arrows, way: &mut Vec<String>, done: &mut BTreeSet<String>) -> Option<Vec<String>> {
        if let Some(begin) = way.iter().position(|passed| passed == room) {
            return Some([&way[begin..], &[room.to_owned()]].concat());
        }
        if !done.insert(room.to_owned()) {
            return None;
        }
        way.push(room.to_owned());
        let found = arrows.get(room).and_then(|to| to.keys().find_map(|to| visit(to, arrows, way, done)));
        way.pop();
        found
    }
    let mut done = BTreeSet::new();
    arrows.keys().find_map(|room| visit(room, arrows, &mut Vec::new(), &mut done))
}
