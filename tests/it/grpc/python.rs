//! A client in another language: Python with grpcio, which knows the service by reflection.

use super::{Served, script};
use crate::support::script::ScriptedModel;
use serde_json::Value;
use std::path::Path;
use tokio::process::Command;

/// A folder with grpcio, which `tests/run` installs; `None` where the Python of this machine has no build of it.
#[allow(clippy::disallowed_methods, reason = "a setting of the test run")]
fn grpcio() -> Option<std::ffi::OsString> {
    std::env::var_os("GRPCIO").filter(|folder| !folder.is_empty())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_in_python_leads_a_dialogue_to_its_end() {
    let Some(folder) = grpcio() else {
        eprintln!("skipped: there is no grpcio for this machine's Python; `tests/run` says why");
        return;
    };
    let model = ScriptedModel::start(script).await;
    let served = Served::start(&model).await;
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/grpc/client.py");
    let address = served.address.to_string();
    let mut python = Command::new("python3");
    python.arg(client).args([address.as_str(), "anna-token"]).env("PYTHONPATH", folder);
    let ended = python.output().await.unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let lines: Vec<Value> =
        String::from_utf8(ended.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events: Vec<&str> = lines.iter().filter_map(|line| line["message"]["metadata"]["event"].as_str()).collect();
    assert_eq!(
        events,
        ["workflow_generation_started", "workflow_draft", "workflow_debugging", "workflow_complete"],
        "{lines:#?}"
    );
    assert!(lines.iter().any(|line| line["message"]["questions"][0]["id"] == "when"), "{lines:#?}");
    assert_eq!(lines.last().unwrap()["stage"], "COMPLETED");
    served.engine.stop().await;
}
