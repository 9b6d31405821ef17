//! The arrows between crates, from the texts of their manifests.

use figment::Figment;
use figment::providers::{Format, Toml};
use serde_json::Value;

fn parsed(manifest: &str) -> Value {
    Figment::from(Toml::string(manifest)).extract().unwrap()
}

/// The names of the layers in the manifest of the workspace, from the bottom up.
pub fn layers(workspace: &str) -> Vec<String> {
    let members = parsed(workspace)["workspace"]["members"].clone();
    let members = members.as_array().into_iter().flatten().filter_map(Value::as_str);
    members.filter_map(|member| member.strip_prefix("src/")).map(str::to_owned).collect()
}

/// The crates that a crate depends on, also for its tests, its build or one platform. The project's own have the names
/// of their folders.
pub fn dependencies(manifest: &str) -> Vec<String> {
    let manifest = parsed(manifest);
    let platforms = manifest["target"].as_object().into_iter().flat_map(|platforms| platforms.values());
    let tables = [&manifest].into_iter().chain(platforms).flat_map(|parent| {
        ["dependencies", "dev-dependencies", "build-dependencies"].map(|table| parent[table].as_object())
    });
    tables.flatten().flatten().map(|(name, spec)| crate_name(name, spec)).collect()
}

fn crate_name(name: &str, spec: &Value) -> String {
    let package = spec["package"].as_str().unwrap_or(name);
    package.strip_prefix("turnwheel-").unwrap_or(package).to_owned()
}
