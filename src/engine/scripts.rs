//! Scripts of decisions: compiled by the sandbox before the validator judges them.

use decisions::python;
use decisions::world::{CodeFacts, Snapshot};
use futures::future::join_all;
use sandbox::{ErrorKind, Sandbox, ScriptError};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use tracing::{debug, warn};

/// Compiles the scripts of a payload, and returns the world with the findings. A script that no runner can compile now is
/// judged without a compiler. Cancel safe.
pub async fn with_scripts<'w>(
    world: &'w Snapshot,
    payload: &Map<String, Value>,
    sandbox: &Sandbox,
) -> Cow<'w, Snapshot> {
    let compiled = python::scripts(payload).into_iter();
    let compiled = compiled.map(|code| async move { Some((code.to_owned(), facts(sandbox, code).await?)) });
    let found: BTreeMap<_, _> = join_all(compiled).await.into_iter().flatten().collect();
    if found.is_empty() {
        return Cow::Borrowed(world);
    }
    let mut world = world.clone();
    world.codes.extend(found);
    Cow::Owned(world)
}

async fn facts(sandbox: &Sandbox, code: &str) -> Option<CodeFacts> {
    match sandbox.check(code).await {
        Ok(checked) => {
            let at = |line: u32| format!("in line {line} ");
            let warnings = checked.warnings.into_iter();
            let warnings =
                warnings.map(|warning| format!("{}{}", warning.line.map_or(String::new(), at), warning.message));
            Some(CodeFacts { error: None, warnings: warnings.collect() })
        }
        Err(error @ ScriptError { kind: ErrorKind::Syntax | ErrorKind::Unsupported, .. }) => {
            let text = match (error.line, error.name.as_str()) {
                (Some(line), "") => format!("line {line}: {}", error.message),
                (Some(line), name) => format!("line {line}: {name}: {}; correct it", error.message),
                (None, _) => format!("{error}; correct it"),
            };
            Some(CodeFacts { error: Some(text), warnings: Vec::new() })
        }
        // Without a runner PYTHON nodes validate, and fail when they run.
        Err(error @ ScriptError { kind: ErrorKind::Unavailable, .. }) => {
            debug!("a script is judged without a compiler: {error}");
            None
        }
        Err(error) => {
            warn!("a script is judged without a compiler: {error}");
            None
        }
    }
}
