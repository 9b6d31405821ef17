//! Checks that scripts of PYTHON nodes run here, and that they reach nothing.

use super::Finding;
use base::clock;
use base::config::{Python, PythonRunner};
use sandbox::{ErrorKind, Sandbox, Script, ScriptEnd, ScriptError};
use serde_json::{Map, json};
use std::time::Duration;

/// How long each of the two scripts may take. The first script of a runner over WebAssembly compiles it.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(60);
/// A script that must fail.
const ATTACK: &str = "return len(open('/etc/passwd').read())";

/// Runs a script and an attack in the sandbox.
pub async fn python(settings: &Python, sandbox: &Sandbox) -> Vec<Finding> {
    let place = match settings.runner {
        PythonRunner::Off => {
            return vec![Finding::ok("python.runner = off", "scripts are switched off: PYTHON nodes fail")];
        }
        PythonRunner::Builtin => "python.runner = builtin",
        PythonRunner::Command => "python.runner = command",
    };
    let remedy =
        "PYTHON nodes fail until it works: correct python.runner and python.command, or set python.runner to `off`";
    match run(sandbox, "return 1+1").await {
        Ok(ScriptEnd { output, .. }) if output == json!(2) => {}
        Ok(ScriptEnd { output, .. }) => {
            return vec![Finding::problem(place, format!("`return 1+1` returned {output}"), remedy)];
        }
        // The process that checks need not be the one that runs scripts.
        Err(error @ ScriptError { kind: ErrorKind::Unavailable, .. }) if settings.runner == PythonRunner::Builtin => {
            return vec![Finding::advice(place, format!("scripts cannot run in this process: {error}"), remedy)];
        }
        Err(error) => return vec![Finding::problem(place, format!("`return 1+1` failed: {error}"), remedy)],
    }
    let enforced = sandbox.enforced();
    vec![match run(sandbox, ATTACK).await {
        Ok(_) => {
            let remedy = "use the builtin runner, or a command that isolates scripts";
            Finding::problem(place, "a script can read files of this machine", remedy)
        }
        Err(_) if settings.runner == PythonRunner::Builtin && !enforced.system_calls => {
            let remedy = "run workers on Linux for scripts that you do not trust";
            Finding::advice(place, format!("scripts run; {}", enforced.summary), remedy)
        }
        Err(_) => Finding::ok(place, format!("scripts run; {}", enforced.summary)),
    }]
}

async fn run(sandbox: &Sandbox, code: &str) -> Result<ScriptEnd, ScriptError> {
    let (timeout, memory_mb) = (Some(SCRIPT_TIMEOUT), None);
    sandbox
        .run(Script { code: code.to_owned(), inputs: Map::new(), timeout, memory_mb, started_at: clock::now() })
        .await
}
