//! The schemas of Kubernetes 1.37, KEDA and Compose.

use super::tool;
use jsonschema::{Retrieve, Uri, Validator};
use serde_json::Value;
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn folder() -> PathBuf {
    let below = "kubernetes_validate/kubernetes-json-schema/v1.37.0-local-strict";
    tool("KUBERNETES_SCHEMAS", "kubernetes-validate-", below)
}

fn parsed(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// The definitions that the schemas of all kinds refer to.
struct Definitions(Value);

impl Retrieve for Definitions {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        match uri.path().as_str() {
            "/api/_definitions.json" => Ok(self.0.clone()),
            other => Err(format!("no schema refers to {other}").into()),
        }
    }
}

/// Schemas of the kinds that were met so far.
pub(super) struct Kubernetes {
    definitions: Value,
    kinds: HashMap<String, Validator>,
}

impl Kubernetes {
    pub(super) fn new() -> Self {
        Self { definitions: parsed(&folder().join("_definitions.json")), kinds: HashMap::new() }
    }

    /// Returns the problems of a manifest. A field that its kind does not have is one.
    pub(super) fn problems(&mut self, manifest: &Value) -> Vec<String> {
        let version = manifest["apiVersion"].as_str().unwrap_or_default();
        let kind = manifest["kind"].as_str().unwrap_or_default().to_lowercase();
        let name = match version.split_once('/') {
            Some((group, version)) => format!("{kind}-{}-{version}", group.split('.').next().unwrap()),
            None => format!("{kind}-{version}"),
        };
        let validator = self.kinds.entry(name).or_insert_with_key(|name| {
            let schema = parsed(&folder().join(format!("{name}.json")));
            let options = jsonschema::options().with_base_uri("https://schemas.test/api/");
            options.with_retriever(Definitions(self.definitions.clone())).build(&schema).unwrap()
        });
        validator.iter_errors(manifest).map(|error| format!("{}: {error}", error.instance_path())).collect()
    }
}

/// Checks objects of KEDA with the schemas of an npm package. Fields that a kind does not have pass.
pub(super) fn check_keda(objects: &[Value]) {
    let script = tool("DEPLOY_TOOLS", "npm-", "").join("keda.mjs");
    let mut node = Command::new("node").arg(script).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    node.stdin.take().unwrap().write_all(&serde_json::to_vec(objects).unwrap()).unwrap();
    let ended = node.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// The schema of Compose files.
pub(super) fn compose() -> Validator {
    let schema = parsed(&tool("COMPOSE_SCHEMA", "compose-spec.json-", ""));
    jsonschema::validator_for(&schema).unwrap()
}
