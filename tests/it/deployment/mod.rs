//! The files of `deploy/`: their form by the schemas of the programs that read them, and the rights that they give, with real
//! servers.

mod chart;
mod compose;
mod guarded;
mod image;
mod manifests;
mod refusals;
mod rights;
mod schemas;
mod units;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A path in `deploy/`.
fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(file(path)).unwrap_or_else(|error| panic!("deploy/{path}: {error}"))
}

/// A path that `tests/tools.sh` exports under this name, else in the last folder of `target/servers` with this prefix.
#[allow(clippy::disallowed_methods)] // Variables of the tests are not settings.
fn tool(name: &str, prefix: &str, below: &str) -> PathBuf {
    if let Some(path) = std::env::var_os(name).filter(|path| !path.is_empty()) {
        return path.into();
    }
    let installed = format!("{}/target/servers/{prefix}*", env!("CARGO_MANIFEST_DIR"));
    let found = glob::glob(&installed).unwrap().map(Result::unwrap).filter(|path| !path.ends_with(".part")).last();
    found.unwrap_or_else(|| panic!("there is no {installed}: `tests/run` installs it, or set {name}")).join(below)
}

/// Standard output of a command that succeeds.
fn printed(command: &mut Command) -> String {
    let ended = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(ended.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).unwrap()
}

/// The documents of a YAML text.
fn documents(yaml: &str) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap_or_else(|error| panic!("{error}\n{yaml}"));
    documents.into_iter().filter(|document| !document.is_null()).collect()
}
