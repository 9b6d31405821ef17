//! Checks the rules of `deny.toml` that need no network, and the profiles of `Cargo.toml`.

use figment::Figment;
use figment::providers::{Format, Toml};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

fn deny() -> Value {
    Figment::from(Toml::file(Path::new(env!("CARGO_MANIFEST_DIR")).join("deny.toml"))).extract().unwrap()
}

/// Every package in the lock file, for any platform.
fn packages() -> Vec<Value> {
    let mut metadata = Command::new(env!("CARGO"));
    metadata
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = metadata.output().unwrap();
    // Packages of other platforms may be missing locally; then cargo may download them.
    let output = if output.status.success() {
        output
    } else {
        let mut metadata = Command::new(env!("CARGO"));
        metadata.args(["metadata", "--format-version", "1", "--locked"]).current_dir(env!("CARGO_MANIFEST_DIR"));
        metadata.output().unwrap()
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

fn texts(value: &Value) -> BTreeSet<&str> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

/// The licences of `allow` that satisfy an expression such as `(MIT OR Apache-2.0) AND ISC`; `None` if they do not
/// satisfy it.
fn satisfied<'a>(expression: &'a str, allow: &BTreeSet<&str>) -> Option<BTreeSet<&'a str>> {
    let expression = expression.trim();
    for (word, all) in [(" OR ", false), ("/", false), (" AND ", true)] {
        let parts = split(expression, word);
        if parts.len() > 1 {
            let found: Vec<_> = parts.into_iter().map(|part| satisfied(part, allow)).collect();
            return if all {
                found.into_iter().collect::<Option<Vec<_>>>().map(|sets| sets.into_iter().flatten().collect())
            } else {
                found.into_iter().flatten().next()
            };
        }
    }
    match expression.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) {
        Some(inner) => satisfied(inner, allow),
        None => allow.contains(expression).then(|| BTreeSet::from([expression])),
    }
}

/// Splits at each `word` outside of parentheses.
fn split<'a>(expression: &'a str, word: &str) -> Vec<&'a str> {
    let (mut parts, mut begin, mut open) = (Vec::new(), 0, 0);
    for (at, char) in expression.char_indices() {
        match char {
            '(' => open += 1,
            ')' => open -= 1,
            _ if open == 0 && at >= begin && expression[at..].starts_with(word) => {
                parts.push(&expression[begin..at]);
                begin = at + word.len();
            }
            _ => {}
        }
    }
    parts.push(&expression[begin..]);
    parts
}

#[test]
fn every_licence_is_allowed_and_every_allowed_one_is_needed() {
    let (deny, packages) = (deny(), packages());
    let allow = texts(&deny["licenses"]["allow"]);
    let mut used = BTreeSet::new();
    for package in &packages {
        let licence = package["license"].as_str().unwrap_or_default();
        match satisfied(licence, &allow) {
            Some(found) => used.extend(found),
            None => panic!("{} {}: `{licence}` is not in deny.toml", package["name"], package["version"]),
        }
    }
    assert!(packages.len() > 100, "all dependencies were looked at");
    for licence in allow.iter().filter(|licence| !used.contains(*licence)) {
        let alone = packages.iter().filter_map(|package| package["license"].as_str());
        let without: BTreeSet<&str> = allow.iter().filter(|other| *other != licence).copied().collect();
        let needed =
            alone.filter(|text| satisfied(text, &allow).is_some()).any(|text| satisfied(text, &without).is_none());
        assert!(needed, "no dependency needs {licence}");
    }
}

#[test]
fn nothing_banned_is_used_and_everything_comes_from_one_registry() {
    let (deny, packages) = (deny(), packages());
    let names: BTreeSet<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    for ban in deny["bans"]["deny"].as_array().unwrap() {
        assert!(!names.contains(ban["crate"].as_str().unwrap()), "{ban}");
    }
    let sources: BTreeSet<&str> = packages.iter().filter_map(|package| package["source"].as_str()).collect();
    assert!(sources.len() == 1 && sources.iter().all(|source| source.starts_with("registry+")), "{sources:?}");
}

#[test]
fn the_profile_for_packages_optimises_every_crate() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let manifest: Value = Figment::from(Toml::file(manifest)).extract().unwrap();
    let crates = |profile: &str| manifest["profile"][profile]["package"].as_object().unwrap().clone();
    let (quick, dist) = (crates("release"), crates("dist"));
    assert!(quick.contains_key("*"));
    for name in quick.keys() {
        let level = dist.get(name).map(|settings| settings["opt-level"].to_string());
        assert!(matches!(level.as_deref(), Some("3" | "\"s\"" | "\"z\"")), "{name} in `dist`: {level:?}");
    }
}
