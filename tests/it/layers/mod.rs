//! The arrows between layers and between modules go one way. A crate uses only the crates below it, in the order of
//! `members` in Cargo.toml. Modules of one folder form no cycle; a module is a file or folder at the top of a
//! crate, or a folder below another one.

mod code;
mod manifest;
mod modules;

use code::paths;
use manifest::{dependencies, layers};
use modules::{File, arrows, cycle, sources};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Reads a manifest below the project's folder.
fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The arrow of a crate to one that is not below it, or from one backend to the other.
fn wrong_arrow(layers: &[String], layer: &str, manifest: &str) -> Option<String> {
    let place = layers.iter().position(|known| known == layer).unwrap();
    let beside =
        |used: &str| layer != used && ["cluster", "embedded"].iter().all(|backend| [layer, used].contains(backend));
    dependencies(manifest)
        .into_iter()
        .find(|used| used == "turnwheel" || (layers.contains(used) && !layers[..place].contains(used)) || beside(used))
}

/// The first cycle of modules in the crate with these files.
fn first_cycle(folder: &Path, files: &[File]) -> Option<String> {
    let places = files.iter().filter_map(|file| Some(file.module.split_last()?.1.to_vec()));
    let mut places: Vec<Vec<String>> = places.collect();
    places.sort();
    places.dedup();
    places.iter().find_map(|inside| {
        let arrows = arrows(inside, files);
        let cycle = cycle(&arrows)?;
        let step =
            |pair: &[String]| format!("  {} uses {}: {}", pair[0], pair[1], arrows[&pair[0]][&pair[1]].display());
        let steps: Vec<_> = cycle.windows(2).map(step).collect();
        Some(format!("a cycle of modules in {}/{}:\n{}", folder.display(), inside.join("/"), steps.join("\n")))
    })
}

#[test]
fn a_crate_uses_only_the_layers_below_it() {
    let layers = layers(&read("Cargo.toml"));
    assert!(layers.len() >= 10, "the layers are read from Cargo.toml: {layers:?}");
    let mut count = 0;
    for layer in &layers {
        let manifest = read(&format!("src/{layer}/Cargo.toml"));
        count += dependencies(&manifest).iter().filter(|used| layers.contains(used)).count();
        let wrong = wrong_arrow(&layers, layer, &manifest);
        assert_eq!(
            wrong, None,
            "`{layer}` may use only crates above it in `members` of Cargo.toml, and no other backend"
        );
    }
    assert!(count > 20, "the arrows are read: {count}");
}

#[test]
fn modules_beside_each_other_form_no_cycle() {
    let crates = layers(&read("Cargo.toml")).into_iter().map(|layer| format!("src/{layer}"));
    let mut count = 0;
    for place in crates.chain(["src".to_owned(), "workers".to_owned()]) {
        let files = sources(&root().join(&place));
        count += files.len();
        if let Some(cycle) = first_cycle(place.as_ref(), &files) {
            panic!("{cycle}");
        }
    }
    assert!(count > 300, "the files are found: {count}");
}

#[test]
fn an_arrow_upwards_is_found_in_every_form_of_a_manifest() {
    let layers = ["types", "embedded", "cluster", "engine"].map(str::to_owned);
    for used in [
        "engine.workspace = true",
        "engine = { workspace = true }",
        "engine = { path = \"../engine\" }",
        "other-name = { package = \"turnwheel-engine\", path = \"../engine\" }",
        "turnwheel = { path = \"../..\" }",
    ] {
        for table in ["dependencies", "dev-dependencies", "build-dependencies", "target.'cfg(unix)'.dependencies"] {
            let manifest = format!("[package]\nname = \"x\"\n\n[{table}]\ntypes.workspace = true\n{used}\n");
            assert!(wrong_arrow(&layers, "cluster", &manifest).is_some(), "{manifest}");
        }
    }
    assert!(wrong_arrow(&layers, "cluster", "[dependencies.engine]\nworkspace = true").is_some());
    for (from, to) in [("cluster", "embedded"), ("embedded", "cluster")] {
        for layers in [&layers, &["types", "cluster", "embedded", "engine"].map(str::to_owned)] {
            assert!(wrong_arrow(layers, from, &format!("[dependencies]\n{to}.workspace = true")).is_some(), "{from}");
        }
    }
    let allowed = "[package]\nname = \"engine\"\n[dependencies]\ntypes.workspace = true\nengineering = \"1\"";
    assert_eq!(wrong_arrow(&layers, "cluster", allowed), None);
}

#[test]
fn every_form_of_a_path_is_read() {
    let found = |code: &str| {
        let module = ["turn".to_owned(), "act".to_owned()];
        paths(&module, code).into_iter().map(|path| path.join("/")).collect::<Vec<_>>()
    };
    for (code, expected) in [
        ("use crate::run::Inline;", &["run/Inline"][..]),
        ("use super::super::model;", &["model"]),
        ("use super::{decide, super::run::X};", &["turn/decide", "run/X"]),
        ("use crate::{journal::{A, B}, run::C};", &["journal/A", "journal/B", "run/C"]),
        (
            "use crate::{\n    journal::{self, error::{E as F, *}},\n    run,\n};",
            &["journal", "journal/error/E", "journal/error", "run"],
        ),
        ("use {crate::a::B, super::c};", &["a/B", "turn/c"]),
        ("pub use self::inner::X;", &["turn/act/inner/X"]),
        (
            "fn f(x: &crate::run::Run<'_>) -> Vec<super::Y> { crate::model::ask::<u8>(x) }",
            &["run/Run", "turn/Y", "model/ask"],
        ),
        ("macro_rules! m { () => { $crate::run::f() } }", &["run/f"]),
        ("mod inner { use super::super::decide; } use super::plan;", &["turn/decide", "turn/plan"]),
        ("let x: char = '{'; let y = \"crate::no\"; let z = r#\"crate::\"no\"#; use crate::yes;", &["yes"]),
        ("// crate::no\n/* crate::no /* again */ crate::no */ use crate::yes; // \"", &["yes"]),
        ("pub(crate) struct X; pub(super) fn f() {} pub(in crate::turn) fn g<'a>(x: &'a str) {}", &[]),
        ("#[cfg(test)]\nmod tests { use crate::no; fn f() { if x {} } } use crate::yes;", &["yes"]),
        ("#[cfg(test)]\nmod tests;\nuse crate::yes;", &["yes"]),
    ] {
        assert_eq!(found(code), expected, "{code}");
    }
}

#[test]
fn a_cycle_is_found_at_the_top_of_a_crate_and_between_folders() {
    let file = |path: &str, code: &str| File::new(Path::new(path), code);
    let of = |files: &[File]| first_cycle("x".as_ref(), files);
    let top = [
        file("a.rs", "use crate::{c::{D, E}, b::X};"),
        file("b/mod.rs", "use crate::c;"),
        file("c.rs", "use super::{b::{X}};"),
    ];
    assert!(of(&top).is_some_and(|cycle| cycle.contains("b uses c") && cycle.contains("c uses b")));
    assert_eq!(of(&top[..2]), None);
    let folders = [
        file("turn/mod.rs", ""),
        file("turn/state/mod.rs", "use super::reply::Reply;"),
        file("turn/reply/mod.rs", "use crate::turn::state::deep::State;"),
        file("turn/state/deep.rs", ""),
    ];
    assert!(of(&folders).is_some_and(|cycle| cycle.contains("x/turn:")));
    let siblings = [file("turn/a.rs", "use super::b::X;"), file("turn/b.rs", "use super::a::Y;")];
    assert_eq!(of(&siblings), None, "files in one folder are one module");
    let binary = [file("main.rs", "mod a;\nuse a::A;"), file("a.rs", "use crate::B;")];
    assert_eq!(of(&binary), None, "the root of a crate is no module");
}
