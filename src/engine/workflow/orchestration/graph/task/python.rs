//! PYTHON nodes: one script in the sandbox. The names of `input_mapping` are its variables.

use super::{RUN_KEY, stepped};
use crate::journal::{Done, Durability, Label};
use crate::workflow::orchestration::graph::failure::{NodeError, NodeFailure};
use crate::workflow::orchestration::graph::resolved::ResolvedNode;
use crate::workflow::orchestration::stage_context::StageContext;
use decisions::node_type::NodeType;
use sandbox::{ErrorKind, Script, ScriptError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The recorded end of a script.
#[derive(Serialize, Deserialize)]
struct Ran {
    output: Value,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    stdout: String,
}

impl From<ScriptError> for NodeFailure {
    fn from(error: ScriptError) -> Self {
        let is_lasting = matches!(error.kind, ErrorKind::Syntax | ErrorKind::Unsupported | ErrorKind::Unavailable);
        let message = error.to_string();
        if is_lasting { Self::permanent(error.code(), message) } else { Self::transient(error.code(), message) }
    }
}

pub(super) async fn perform(here: &StageContext, resolved: &ResolvedNode) -> Result<Value, NodeError> {
    let journal = here.journal();
    let script = Script {
        code: resolved.text("code").unwrap_or_default().to_owned(),
        inputs: resolved.mapping.clone(),
        timeout: resolved.seconds("timeout"),
        memory_mb: resolved.whole("memory_mb"),
        started_at: journal.clock().now(),
    };
    let label = Label { kind: "script", target: NodeType::Python.as_str() };
    let (sandbox, recorded) = (&here.services().sandbox, resolved.recorded());
    let step = journal.step(RUN_KEY, label, Durability::Deferred, &recorded, |_| async move {
        let end = sandbox.run(script).await?;
        Ok::<_, NodeFailure>(Done::ok(Ran { output: end.output, stdout: end.stdout }))
    });
    let Ran { output, .. } = stepped(step.await)?;
    Ok(if output.is_object() { output } else { json!({"result": output}) })
}
